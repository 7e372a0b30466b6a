//! Sockets, whose buffers the kernel charges to a cgroup and to no process.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
    sync::OnceLock,
};

use super::ProcTree;

/// The most bytes that the buffers of so many sockets can hold. A script cannot enlarge them.
pub fn buffer_bytes(sockets: u64) -> u64 {
    /// The size that is assumed where the kernel reports none.
    const USUAL: u64 = 212_992;
    static EACH: OnceLock<u64> = OnceLock::new();
    let each = EACH.get_or_init(|| {
        let granted = ["wmem_default", "rmem_default"].map(|name| {
            let text = fs::read_to_string(Path::new("/proc/sys/net/core").join(name)).ok()?;
            text.trim().parse().ok()
        });
        granted.into_iter().flatten().max().unwrap_or(USUAL)
    });
    sockets.saturating_mul(*each)
}

/// The number of sockets in a script's own network namespace, including sockets in transit through
/// another one.
pub fn in_own_network(tree: &ProcTree) -> u64 {
    let read = |pid: u32| fs::read_to_string(format!("/proc/{pid}/net/sockstat")).ok();
    let init = tree.all.first();
    init.and_then(|init| read(init.pid))
        .map_or(0, |text| used(&text))
}

/// The number of sockets that the processes of a script have open. A socket in transit through
/// another one is not counted, nor are the sockets of a process that has made itself non-dumpable.
pub fn open(tree: &ProcTree) -> u64 {
    let mut found = HashSet::new();
    for process in tree.members() {
        let descriptors = fs::read_dir(process.directory().join("fd"));
        let files = descriptors.into_iter().flatten().flatten();
        // A stat by the descriptor's own path opens no file, so it cannot block.
        let files = files.filter_map(|entry| fs::metadata(entry.path()).ok());
        found.extend(
            files
                .filter(|file| file.file_type().is_socket())
                .map(|file| file.ino()),
        );
    }
    found.len() as u64
}

/// Reads the first line of a text like /proc/net/sockstat.
fn used(sockstat: &str) -> u64 {
    sockstat
        .lines()
        .find_map(|line| line.strip_prefix("sockets: used "))
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_counted_by_network_and_by_process() {
        let text = "sockets: used 53\nTCP: inuse 1 orphan 0 tw 0 alloc 1 mem 5\n";
        assert_eq!((used(text), used("")), (53, 0));
        assert!(buffer_bytes(2) >= 2 * 4096);
        assert_eq!(buffer_bytes(u64::MAX), u64::MAX);
    }
}
