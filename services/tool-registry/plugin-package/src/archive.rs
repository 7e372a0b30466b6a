//! Archives: `.zip`, with entries that are stored or deflated.
//!
//! An archive says the same thing in several places, and readers differ in the place that they believe. [`records`]
//! reads the end record and the central directory, [`local`] the headers before the data, and both refuse an archive
//! whose places disagree, overlap or leave bytes that no record covers. [`second_reading`] compares the result with
//! that of the `zip` crate. Only then does [`content`] inflate anything, into buffers whose sizes are known and bounded.

mod bytes;
mod content;
mod extra;
mod fields;
mod local;
mod records;
mod second_reading;
mod write;

use call_outcome::Violation;
use tool_domain::package::PackageFile;

use crate::{
    PluginFiles,
    files::manifest_directory,
    limits::{Tally, bounded},
    names::{self, Named},
    refusal::Refusal,
};
use records::Entry;

pub use write::write_archive;

/// The most bytes of an archive.
pub const MAX_PACKED_BYTES: usize = 20 << 20;
/// The size above which the ratio of a single entry counts.
const RATIO_COUNTS_ABOVE: usize = 1 << 20;
/// The most bytes that a packed byte of a single entry may become.
const MAX_ENTRY_RATIO: usize = 100;
/// The most bytes that a byte of the archive may become, over all entries.
const MAX_RATIO: usize = 20;

/// Reads a plugin's archive. The plugin is at its root, or in its only top directory, which is left out of the paths
/// then. Entries are passed over as in [`read_directory`](crate::read_directory). Modes, times and comments are dropped.
///
/// # Errors
/// All violations, each at the name of its entry, or for the archive as a whole at none: more than
/// [`MAX_PACKED_BYTES`], more than [`MAX_ENTRIES`](crate::MAX_ENTRIES), records that disagree, links and special files,
/// encryption, methods other than stored and deflated, ratios that only a bomb has, data that does not match its
/// record, and those of [`PluginFiles::new`]. Nothing is inflated unless all records are right.
pub fn read_archive(bytes: &[u8]) -> Result<PluginFiles, Vec<Violation>> {
    if bytes.len() > MAX_PACKED_BYTES {
        let message = format!("has more than {MAX_PACKED_BYTES} bytes; leave files out");
        return Err(Refusal::new("", "too_large", message).into());
    }
    let directory = records::read(bytes)?;
    let contents = local::read(bytes, &directory)?;
    check_names(&directory.entries)?;
    let files: Vec<(&Entry<'_>, &[u8])> = directory
        .entries
        .iter()
        .zip(contents)
        .filter(|(entry, _)| !names::is_passed_over(entry.path()))
        .collect();
    let top = manifest_directory(files.iter().map(|(entry, _)| entry.name))?;
    check_sizes(&directory.entries, top, bytes.len())?;
    second_reading::compare(bytes, &directory)?;
    unpack(&files, top)
}

/// Refuses names that cannot stand beside each other.
fn check_names(entries: &[Entry<'_>]) -> Result<(), Vec<Violation>> {
    let named = entries.iter().map(|entry| Named {
        path: entry.path(),
        is_directory: entry.is_directory(),
    });
    let wrong = names::collisions(named);
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(bounded(wrong)),
    }
}

/// Refuses sizes beyond the bounds of a plugin, and sizes that so little data cannot honestly become.
fn check_sizes(entries: &[Entry<'_>], top: &str, packed: usize) -> Result<(), Vec<Violation>> {
    let mut wrong = Vec::new();
    let mut tally = Tally::default();
    let mut is_full = false;
    let mut total: usize = 0;
    for entry in entries {
        total = total.saturating_add(entry.size);
        let most = entry.packed.saturating_mul(MAX_ENTRY_RATIO);
        if entry.size > RATIO_COUNTS_ABOVE && entry.size > most {
            let message = format!(
                "becomes {} bytes from {}, more than {MAX_ENTRY_RATIO} times as many; store it without compression if \
                 it is meant",
                entry.size, entry.packed
            );
            wrong.push(entry.refuse("ratio", message).into());
        }
        let is_taken = !entry.is_directory() && !names::is_passed_over(entry.path());
        if is_taken && !is_full {
            let path = entry.name.strip_prefix(top).unwrap_or(entry.name);
            if let Err(refusal) = tally.add(path, entry.size) {
                is_full = true;
                wrong.push(refusal.at(entry.name).into());
            }
        }
    }
    if total > packed.saturating_mul(MAX_RATIO) {
        let message = format!(
            "becomes {total} bytes from {packed}, more than {MAX_RATIO} times as many; store large files without \
             compression if they are meant"
        );
        let largest = entries.iter().max_by_key(|entry| entry.size);
        let largest = largest.map_or("", |entry| entry.name);
        wrong.push(Refusal::new(largest, "ratio", message).into());
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(bounded(wrong)),
    }
}

/// Unpacks the files, whose sizes are within bounds, and leaves the top directory out of their paths.
fn unpack(files: &[(&Entry<'_>, &[u8])], top: &str) -> Result<PluginFiles, Vec<Violation>> {
    let mut unpacked = Vec::new();
    let mut wrong = Vec::new();
    for (entry, data) in files {
        match content::unpack(entry, data) {
            Ok(_) if entry.is_directory() => {}
            Ok(content) => {
                let path = entry.name.strip_prefix(top).unwrap_or(entry.name);
                unpacked.push(PackageFile {
                    path: path.to_owned(),
                    content,
                });
            }
            Err(refusal) => wrong.push(refusal.into()),
        }
    }
    match wrong.is_empty() {
        true => PluginFiles::new(unpacked),
        false => Err(bounded(wrong)),
    }
}
