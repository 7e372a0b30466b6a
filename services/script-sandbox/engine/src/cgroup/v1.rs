//! Version 1: a hierarchy for each controller.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use super::{Cgroup, Files, Knobs, if_there};

/// The service's own directory in each hierarchy that is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers {
    memory: PathBuf,
    pids: PathBuf,
    /// The directory that counts processor time; without it the sum over waited-for processes must
    /// do.
    cpuacct: Option<PathBuf>,
    /// The directory that shares processor time out.
    cpu: Option<PathBuf>,
}

impl Controllers {
    pub(super) fn find(mounts: &str, memberships: &str) -> Option<Self> {
        Some(Self {
            memory: own_directory(mounts, memberships, "memory")?,
            pids: own_directory(mounts, memberships, "pids")?,
            cpuacct: own_directory(mounts, memberships, "cpuacct"),
            cpu: own_directory(mounts, memberships, "cpu"),
        })
    }

    /// The service's own directories, each once.
    pub(super) fn directories(&self) -> Vec<&Path> {
        let optional = [&self.cpuacct, &self.cpu].into_iter().flatten();
        let all = [&self.memory, &self.pids].into_iter().chain(optional);
        let all: BTreeSet<&Path> = all.map(PathBuf::as_path).collect();
        all.into_iter().collect()
    }
}

/// The directory of this process in the hierarchy of a controller.
fn own_directory(mounts: &str, memberships: &str, controller: &str) -> Option<PathBuf> {
    let membership = memberships.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let mut controllers = controllers.split(',');
        controllers.any(|each| each == controller).then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut kind = file_system.split(' ');
        let is_cgroup = kind.next()? == "cgroup";
        let mut options = || Some(kind.nth(1)?.split(','));
        let is_it = is_cgroup && options()?.any(|option| option == controller);
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        // In a container the mount shows a part of the hierarchy, and memberships are below it.
        let below = Path::new(membership).strip_prefix(root).ok()?;
        is_it.then(|| Path::new(point).join(below))
    })
}

pub(super) fn make(controllers: &Controllers, name: &str, cgroup: &mut Cgroup) -> io::Result<()> {
    /// The share that the kernel gives every new group.
    const ORDINARY_SHARE: u32 = 1024;
    let memory = controllers.memory.join(name);
    let pids = controllers.pids.join(name);
    let optional = |parent: &Option<PathBuf>| parent.as_ref().map(|parent| parent.join(name));
    let (cpuacct, cpu) = (optional(&controllers.cpuacct), optional(&controllers.cpu));
    let all = [Some(&memory), Some(&pids), cpuacct.as_ref(), cpu.as_ref()];
    for directory in all.into_iter().flatten() {
        // Some hosts mount several controllers in one place.
        if !cgroup.directories.contains(directory) {
            cgroup.add(directory.clone())?;
        }
    }
    cgroup.knobs = Knobs {
        memory: memory.join("memory.limit_in_bytes"),
        // Only kernels that account swap have it; without swap there is no swap to limit.
        swap: if_there(memory.join("memory.memsw.limit_in_bytes")),
        swap_alone: false,
        high: PathBuf::new(),
        kill: PathBuf::new(),
        socket_buffers: if_there(memory.join("memory.kmem.tcp.limit_in_bytes")),
        processes: pids.join("pids.max"),
        share: cpu
            .map(|directory| directory.join("cpu.shares"))
            .unwrap_or_default(),
        ordinary_share: ORDINARY_SHARE,
    };
    cgroup.files = Files {
        memory: memory.join("memory.usage_in_bytes"),
        memory_peak: memory.join("memory.max_usage_in_bytes"),
        memory_events: memory.join("memory.oom_control"),
        processes: pids.join("pids.current"),
        process_events: pids.join("pids.events"),
        cpu: cpuacct
            .map(|directory| directory.join("cpuacct.usage"))
            .unwrap_or_default(),
        cpu_line: "",
        cpu_unit: 1,
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 /docker/7 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory
35 31 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
    const MEMBERSHIPS: &str = "8:pids:/\n4:memory:/docker/7/a\n2:cpu,cpuacct:/b\n0::/";

    #[test]
    fn a_controller_is_found_where_it_is_mounted() {
        let check = |controller: &str, expected: Option<&str>| {
            let found = own_directory(MOUNTS, MEMBERSHIPS, controller);
            assert_eq!(found, expected.map(PathBuf::from), "{controller}");
        };
        check("cpuacct", Some("/sys/fs/cgroup/cpu,cpuacct/b"));
        check("memory", Some("/sys/fs/cgroup/memory/a"));
        check("pids", None);
        check("freezer", None);
    }
}
