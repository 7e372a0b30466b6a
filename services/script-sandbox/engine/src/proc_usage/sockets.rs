//! Sockets, whose buffers the kernel charges to a cgroup and to no process.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
    sync::OnceLock,
};

use super::ProcTree;

/// What the buffers of so many sockets may hold, in bytes. A script cannot enlarge them.
pub fn buffer_bytes(sockets: u64) -> u64 {
    /// What the kernel grants a socket where it does not say.
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

/// How many sockets there are in the network of a script that has one of its own, those included that
/// are on their way through another one.
pub fn in_own_network(tree: &ProcTree) -> u64 {
    let read = |pid: u32| fs::read_to_string(format!("/proc/{pid}/net/sockstat")).ok();
    let init = tree.all.first();
    init.and_then(|init| read(init.pid))
        .map_or(0, |text| used(&text))
}

/// How many sockets the processes of a script have open. One that is on its way through another one
/// is not seen, nor are those of a process that has made itself secret.
pub fn open(tree: &ProcTree) -> u64 {
    let mut found = HashSet::new();
    for process in tree.members() {
        let descriptors = fs::read_dir(process.directory().join("fd"));
        let files = descriptors.into_iter().flatten().flatten();
        // Asking by a descriptor's own path opens nothing, so that nothing can make us wait.
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
