//! A second reading of an archive, by the `zip` crate.

use std::io::Cursor;

use zip::{CompressionMethod, ZipArchive};

use super::records::{Directory, Entry};
use crate::refusal::Refusal;

/// Compares every entry with the one that the `zip` crate reads: a difference means that this archive has two meanings.
///
/// # Errors
/// The first entry that differs.
pub(super) fn compare(bytes: &[u8], directory: &Directory<'_>) -> Result<(), Refusal> {
    let refuse = |entry: Option<&Entry<'_>>| {
        let message = "is read in different ways by different programs; pack it again";
        let name = entry.map_or("", |entry| entry.name);
        Refusal::new(name, "records_differ", message)
    };
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|_| refuse(None))?;
    if archive.len() != directory.entries.len() {
        return Err(refuse(None));
    }
    for (index, entry) in directory.entries.iter().enumerate() {
        let found = archive.by_index_raw(index);
        let found = found.map_err(|_| refuse(Some(entry)))?;
        let method = match entry.is_deflated() {
            true => CompressionMethod::Deflated,
            false => CompressionMethod::Stored,
        };
        let same = found.name_raw() == entry.name.as_bytes()
            && found.compression() == method
            && found.size() == entry.size as u64
            && found.compressed_size() == entry.packed as u64
            && found.crc32() == entry.crc
            && found.header_start() == entry.header as u64
            && !found.encrypted()
            && !found.is_symlink();
        if !same {
            return Err(refuse(Some(entry)));
        }
    }
    Ok(())
}
