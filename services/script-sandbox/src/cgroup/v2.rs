//! Version 2: one hierarchy for all controllers.
//!
//! Written to the kernel's documentation. No machine that this was developed on had the memory and
//! pids controllers in this hierarchy, so the service reports it as unproven where it is used.

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
        let own = memberships
            .lines()
            .find_map(|line| line.strip_prefix("0::"))?;
        let point = mounts.lines().find_map(|line| {
            let (mount, file_system) = line.split_once(" - ")?;
            let is_it = file_system.starts_with("cgroup2 ");
            is_it.then(|| mount.split(' ').nth(4))?
        })?;
        let own = Path::new(own);
        let parent = own.parent().unwrap_or(own);
        let parent = Path::new(point).join(parent.strip_prefix("/").ok()?);
        let enabled = fs::read_to_string(parent.join("cgroup.subtree_control")).ok()?;
        let has = |controller: &str| enabled.split_whitespace().any(|each| each == controller);
        (has("memory") && has("pids")).then_some(Self(parent))
    }
}

impl Parent {
    /// The directory below which cgroups are made.
    pub(super) fn directory(&self) -> &Path {
        &self.0
    }
}

pub(super) fn make(parent: &Parent, name: &str, cgroup: &mut Cgroup) -> io::Result<()> {
    /// What the kernel gives to every new group.
    const ORDINARY_SHARE: u32 = 100;
    let directory = parent.0.join(name);
    cgroup.add(directory.clone())?;
    cgroup.knobs = Knobs {
        memory: directory.join("memory.max"),
        swap: if_there(directory.join("memory.swap.max")),
        swap_alone: true,
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
