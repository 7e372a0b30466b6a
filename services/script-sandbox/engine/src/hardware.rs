//! Reads the kernel's report of the processor.

use std::{fs, path::Path};

use crate::{domain::hardware::Hardware, proc_usage::read_bounded};

/// The most flaws that are read; the kernel knows some twenty.
const MAX_FLAWS: usize = 64;

/// The most bytes of a text, the kernel's own bound for such a file.
const MAX_TEXT_BYTES: u64 = 4096;

/// The kernel's directory about processors.
pub(crate) const DIRECTORY: &str = "/sys/devices/system/cpu";

/// Reads the kernel's directory about processors and its report of this process. Missing values are
/// unknown.
pub(crate) fn look(directory: &Path) -> Hardware {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = |label: &str| {
        let mut lines = status.lines();
        let text = lines.find_map(|line| line.strip_prefix(label)?.strip_prefix(':'));
        text.unwrap_or_default().trim().to_owned()
    };
    Hardware {
        flaws: flaws(&directory.join("vulnerabilities")),
        multithreading: match text(&directory.join("smt/active")).as_str() {
            "1" => Some(true),
            "0" => Some(false),
            _ => None,
        },
        store_bypass: line("Speculation_Store_Bypass"),
        indirect_branches: line("SpeculationIndirectBranch"),
    }
}

fn flaws(directory: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let flaws = entries.take(MAX_FLAWS).map(|entry| {
        let name = entry.file_name().to_string_lossy().escape_debug().collect();
        (name, text(&entry.path()))
    });
    let mut flaws: Vec<(String, String)> = flaws.collect();
    flaws.sort();
    flaws
}

/// The first bytes of a file as one line; empty if it cannot be read.
fn text(path: &Path) -> String {
    let text = read_bounded(path, MAX_TEXT_BYTES);
    let plain = text.replace(|each: char| !each.is_ascii_graphic(), " ");
    plain.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e104_flaws_are_read_by_name_and_what_is_missing_is_unknown() {
        let root = tempfile::tempdir().unwrap();
        let nothing = look(root.path());
        assert_eq!(nothing.flaws, []);
        assert_eq!(nothing.multithreading, None);

        let files = root.path().join("vulnerabilities");
        // A flaw whose file cannot be read is reported without a description.
        fs::create_dir_all(files.join("odd")).unwrap();
        fs::create_dir(root.path().join("smt")).unwrap();
        fs::write(root.path().join("smt/active"), "1\n").unwrap();
        fs::write(files.join("spectre_v2"), "Mitigation: Retpolines\n").unwrap();
        fs::write(files.join("mds"), "Vulnerable\u{1b}[2J\nforged: no\n").unwrap();
        fs::write(files.join("long"), "x".repeat(10_000)).unwrap();
        let found = look(root.path());
        assert_eq!(found.multithreading, Some(true));
        let long = "x".repeat(4096);
        let expected = [
            ("long", long.as_str()),
            ("mds", "Vulnerable [2J forged: no"),
            ("odd", ""),
            ("spectre_v2", "Mitigation: Retpolines"),
        ];
        let expected = expected.map(|(name, state)| (name.to_owned(), state.to_owned()));
        assert_eq!(found.flaws, expected);
    }
}
