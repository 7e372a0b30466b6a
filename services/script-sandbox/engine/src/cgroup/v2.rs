//! Version 2: one hierarchy for all controllers.
//!
//! No machine that this was developed on had the memory and pids controllers in this hierarchy.
//! `make cgroup-v2` runs the tests with it in an emulated machine; tests/cgroup-v2/README.md lists
//! the tests that were run, and their kernel.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{Cgroup, Files, Knobs, if_there};

/// The directory below which cgroups are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent(PathBuf);

impl Parent {
    /// The parent of the service's own cgroup, as a cgroup with processes can have no children that
    /// are limited; at the root of the visible hierarchy, the root itself.
    pub(super) fn find(mounts: &str, memberships: &str) -> Option<Self> {
        let parent = parent_of_own(mounts, memberships)?;
        let enabled = fs::read_to_string(parent.join("cgroup.subtree_control")).ok()?;
        let has = |controller: &str| enabled.split_whitespace().any(|each| each == controller);
        (has("memory") && has("pids")).then_some(Self(parent))
    }

    /// The directory below which cgroups are made.
    pub(super) fn directory(&self) -> &Path {
        &self.0
    }
}

/// The parent of this process's directory, as far as it is visible here.
fn parent_of_own(mounts: &str, memberships: &str) -> Option<PathBuf> {
    let own = memberships
        .lines()
        .find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        // In a container the mount may show a part of the hierarchy, and memberships are below it.
        let below = Path::new(own).strip_prefix(root).ok()?;
        let parent = below.parent().unwrap_or(below);
        file_system
            .starts_with("cgroup2 ")
            .then(|| Path::new(point).join(parent))
    })
}

pub(super) fn make(parent: &Parent, name: &str, cgroup: &mut Cgroup) -> io::Result<()> {
    /// The share that the kernel gives every new group.
    const ORDINARY_SHARE: u32 = 100;
    let directory = parent.0.join(name);
    cgroup.add(directory.clone())?;
    cgroup.knobs = Knobs {
        memory: directory.join("memory.max"),
        swap: if_there(directory.join("memory.swap.max")),
        swap_alone: true,
        high: directory.join("memory.high"),
        kill: if_there(directory.join("cgroup.kill")),
        socket_buffers: PathBuf::new(),
        processes: directory.join("pids.max"),
        share: if_there(directory.join("cpu.weight")),
        ordinary_share: ORDINARY_SHARE,
    };
    cgroup.files = Files {
        memory: directory.join("memory.current"),
        memory_peak: directory.join("memory.peak"),
        memory_events: directory.join("memory.events"),
        processes: directory.join("pids.current"),
        process_events: directory.join("pids.events"),
        cpu: directory.join("cpu.stat"),
        cpu_line: "usage_usec",
        cpu_unit: 1000,
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_looked_for_where_it_is_mounted() {
        let check = |root: &str, own: &str, expected: Option<&str>| {
            let mounts = format!(
                "23 1 0:21 / /sys rw - sysfs sysfs rw\n\
                 31 23 0:28 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate"
            );
            let found = parent_of_own(&mounts, &format!("1:name=other:/else\n0::{own}"));
            assert_eq!(found, expected.map(PathBuf::from), "{root} {own}");
        };
        check("/", "/a.slice/b.service", Some("/sys/fs/cgroup/a.slice"));
        check("/", "/b", Some("/sys/fs/cgroup"));
        check("/", "/", Some("/sys/fs/cgroup"));
        check("/docker/7", "/docker/7/a/b", Some("/sys/fs/cgroup/a"));
        check("/docker/7", "/docker/7", Some("/sys/fs/cgroup"));
        check("/docker/7", "/docker/8", None);
        check("/..", "/", None);
    }
}
