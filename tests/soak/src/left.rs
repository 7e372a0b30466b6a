//! The remains that a sandbox could leave on this machine.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::bail;

/// The time that ended processes and their remains may take to vanish.
const PATIENCE: Duration = Duration::from_secs(30);

/// The memory that the service may keep in addition, in bytes. After 2,000 executions it keeps as
/// much as after the first hundred, 18 MiB, to the mebibyte. The rest is for the four largest
/// answers at once, of 4 MiB each, whose pieces the allocator may keep; a leak has no end.
const MEMORY_SLACK: u64 = 16 << 20;

/// The descriptors that may be open in addition: each user of scripts that is held has one, and so
/// has each thread's event queue.
const DESCRIPTOR_SLACK: usize = 40;

/// The countable resources of this process and machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    processes: usize,
    mounts: usize,
    files: usize,
    cgroups: usize,
    network_namespaces: usize,
    descriptors: usize,
    memory: u64,
}

impl Left {
    /// Counts.
    pub(crate) fn count() -> Self {
        let own = format!("tavern-script-{}-", std::process::id());
        let processes = descendants(std::process::id());
        Self {
            mounts: lines("/proc/self/mounts"),
            files: named(&std::env::temp_dir(), &own, 0) + named(Path::new("/dev/shm"), &own, 0),
            cgroups: named(Path::new("/sys/fs/cgroup"), &own, 8),
            network_namespaces: network_namespaces(&processes),
            processes: processes.len(),
            descriptors: fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
            memory: resident(),
        }
    }

    /// The same with the memory and the descriptors of another moment.
    pub(crate) fn with_resources_of(&self, other: &Left) -> Self {
        Self {
            descriptors: other.descriptors,
            memory: other.memory,
            ..self.clone()
        }
    }

    /// Returns the kinds of remains of which there are more than before.
    pub(crate) fn more_than(&self, before: &Left) -> Vec<String> {
        let counts = [
            ("processes", self.processes, before.processes),
            ("mounts", self.mounts, before.mounts),
            ("files", self.files, before.files),
            ("cgroups", self.cgroups, before.cgroups),
            (
                "network namespaces",
                self.network_namespaces,
                before.network_namespaces,
            ),
            (
                "descriptors",
                self.descriptors,
                before.descriptors + DESCRIPTOR_SLACK,
            ),
        ];
        let mut more: Vec<String> = counts
            .into_iter()
            .filter(|(_, now, before)| now > before)
            .map(|(what, now, before)| format!("{now} {what} instead of {before}"))
            .collect();
        if self.memory > before.memory + MEMORY_SLACK {
            let mebibytes = |bytes: u64| bytes >> 20;
            more.push(format!(
                "{} MiB of memory instead of {}",
                mebibytes(self.memory),
                mebibytes(before.memory)
            ));
        }
        more
    }

    /// Waits until there is no more than before.
    ///
    /// # Errors
    /// The kinds of remains of which there still are more.
    pub(crate) async fn settle(before: &Left) -> anyhow::Result<Left> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = Self::count();
            let more = now.more_than(before);
            if more.is_empty() {
                return Ok(now);
            }
            if Instant::now() > deadline {
                bail!("left behind: {}", more.join(", "));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl std::fmt::Display for Left {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{} processes, {} mounts, {} files, {} cgroups, {} network namespaces, {} descriptors, {} MiB",
            self.processes,
            self.mounts,
            self.files,
            self.cgroups,
            self.network_namespaces,
            self.descriptors,
            self.memory >> 20
        )
    }
}

fn lines(path: &str) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// Entries below a directory whose name begins so.
fn named(directory: &Path, beginning: &str, depth: u32) -> usize {
    let mut found = 0;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(beginning) {
            found += 1;
        } else if depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found += named(&entry.path(), beginning, depth - 1);
        }
    }
    found
}

/// Every process below this one, zombies included.
fn descendants(parent: u32) -> Vec<u32> {
    let all: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|process| Some((process, parent_of(process)?)))
        .collect();
    let mut found = vec![parent];
    let mut next = 0;
    while let Some(&above) = found.get(next) {
        let below = all.iter().filter(|(_, parent)| *parent == above);
        found.extend(below.map(|(process, _)| *process));
        next += 1;
    }
    found.split_off(1)
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// Network namespaces of these processes other than our own.
fn network_namespaces(processes: &[u32]) -> usize {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let own = namespace("self");
    let others: BTreeSet<PathBuf> = processes
        .iter()
        .filter_map(|process| namespace(&process.to_string()))
        .filter(|other| Some(other) != own.as_ref())
        .collect();
    others.len()
}

fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_and_a_file_are_seen_until_they_are_gone() {
        let before = Left::count();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep exists");
        let name = format!("tavern-script-{}-soak", std::process::id());
        let file = std::env::temp_dir().join(name);
        fs::write(&file, "").expect("it can be written");
        let more = Left::count().more_than(&before);
        assert_eq!(more.len(), 2, "{more:?}");
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        fs::remove_file(file).expect("it is ours");
        assert!(Left::count().more_than(&before).is_empty());
    }
}
