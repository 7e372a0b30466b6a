//! Files without a name, removed or never named, which take room as long as a process has them open
//! or mapped.

use std::{collections::HashSet, fs, os::unix::fs::MetadataExt, path::Path};

use super::{
    ProcTree,
    process::{MAPPINGS_BYTES, Process, read_bounded},
};
use crate::scratch::Measured;

/// The size of the nameless files of a device that the processes below a supervisor keep. The
/// kernel may refuse to report on a process that has made itself non-dumpable.
pub fn nameless(tree: &ProcTree, device: u64) -> Measured {
    let mut found = Found {
        device,
        met: HashSet::new(),
        measured: Measured::default(),
    };
    for process in tree.members() {
        found.opened(process);
        found.mapped(process);
    }
    found.measured
}

struct Found {
    device: u64,
    met: HashSet<u64>,
    measured: Measured,
}

impl Found {
    fn opened(&mut self, process: &Process) {
        let descriptors = fs::read_dir(process.directory().join("fd"));
        for entry in descriptors.into_iter().flatten().flatten() {
            // A stat by the descriptor's own path opens no file, so it cannot block.
            if let Ok(file) = fs::metadata(entry.path()) {
                self.meet(&file);
            }
        }
    }

    fn mapped(&mut self, process: &Process) {
        let directory = process.directory();
        let maps = read_bounded(&directory.join("maps"), MAPPINGS_BYTES);
        let name = crate::scratch::device_name(self.device);
        // A file may be mapped thousands of times.
        let mut asked = HashSet::new();
        for mapping in maps.lines().filter_map(mapping_without_name) {
            if !asked.insert((mapping.device, mapping.inode)) {
                continue;
            }
            let link = Path::new("/proc")
                .join(process.pid.to_string())
                .join("map_files")
                .join(mapping.place);
            match fs::metadata(link) {
                Ok(file) => self.meet(&file),
                // Only root can stat the file itself. Other users count the mapped part.
                Err(_) if mapping.device == name && self.met.insert(mapping.inode) => {
                    self.measured.add(mapping.blocks, 0);
                }
                Err(_) => {}
            }
        }
    }

    fn meet(&mut self, file: &fs::Metadata) {
        let nameless = file.is_file() && file.nlink() == 0 && file.dev() == self.device;
        if nameless && self.met.insert(file.ino()) {
            self.measured.add(file.blocks(), file.len());
        }
    }
}

/// A mapping of a file without a name.
#[derive(Debug, PartialEq, Eq)]
struct Mapping<'a> {
    place: &'a str,
    device: &'a str,
    inode: u64,
    /// The mapped size in the kernel's blocks.
    blocks: u64,
}

/// Reads a line of /proc/PID/maps; `None` if it is not the mapping of a nameless file.
fn mapping_without_name(line: &str) -> Option<Mapping<'_>> {
    const BLOCK: u64 = 512;
    let mut words = line.strip_suffix(" (deleted)")?.split_whitespace();
    let place = words.next()?;
    let (begin, end) = place.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        place,
        device: words.nth(2)?,
        inode: words.next()?.parse().ok()?,
        blocks: address(end)?.checked_sub(address(begin)?)? / BLOCK,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_of_nameless_files_are_read() {
        let line = "7f0000000000-7f0000002000 rw-s 00000000 fe:00 77                 /work/a b";
        assert_eq!(mapping_without_name(line), None);
        let deleted = format!("{line} (deleted)");
        let expected = Mapping {
            place: "7f0000000000-7f0000002000",
            device: "fe:00",
            inode: 77,
            blocks: 16,
        };
        assert_eq!(mapping_without_name(&deleted), Some(expected));
        for broken in ["", " (deleted)", "7f-7 rw-s 0 fe:00 77 (deleted)"] {
            assert_eq!(mapping_without_name(broken), None);
        }
    }
}
