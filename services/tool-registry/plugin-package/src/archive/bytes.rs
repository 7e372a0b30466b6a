//! Numbers and fields at a place of an archive.

/// A place in bytes. Reading beyond the end gives `None`, and nothing is read in part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Returns the place.
    pub(super) fn at(self) -> usize {
        self.at
    }

    /// Returns the next bytes.
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        let (bytes, _) = self.take(2)?.split_first_chunk()?;
        Some(u16::from_le_bytes(*bytes))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let (bytes, _) = self.take(4)?.split_first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        let (bytes, _) = self.take(8)?.split_first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// Returns whether the next four bytes are a signature, and steps over them if they are.
    pub(super) fn signature(&mut self, signature: u32) -> bool {
        let mut ahead = *self;
        let found = ahead.u32() == Some(signature);
        if found {
            *self = ahead;
        }
        found
    }
}
