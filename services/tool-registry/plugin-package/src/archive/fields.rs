//! The fields that a local header and a record of the central directory have in common.

use super::bytes::Cursor;

/// The fields behind the versions, in their order.
pub(super) struct Fields {
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) crc: u32,
    pub(super) packed: u32,
    pub(super) size: u32,
    name_length: u16,
    extra_length: u16,
}

impl Fields {
    /// Reads the fields; `None` if the bytes end before.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Option<Self> {
        let flags = cursor.u16()?;
        let method = cursor.u16()?;
        // The time and the date.
        cursor.u32()?;
        Some(Self {
            flags,
            method,
            crc: cursor.u32()?,
            packed: cursor.u32()?,
            size: cursor.u32()?,
            name_length: cursor.u16()?,
            extra_length: cursor.u16()?,
        })
    }

    /// Takes the name and the extra field, which stand behind the fixed part.
    pub(super) fn take_texts<'a>(&self, cursor: &mut Cursor<'a>) -> Option<(&'a [u8], &'a [u8])> {
        let name = cursor.take(usize::from(self.name_length))?;
        let extra = cursor.take(usize::from(self.extra_length))?;
        Some((name, extra))
    }
}
