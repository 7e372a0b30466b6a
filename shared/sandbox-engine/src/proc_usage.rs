//! Counts what a process tree uses, where no cgroup does, and what no cgroup counts.
//!
//! [`sample`] sums up one tree from a [`ProcSnapshot`] of it. `process` reads what the kernel reports of one process,
//! [`files`] counts what has no name, and [`sockets`] what is in no process's memory. Where the kernel says too little the
//! doubt is the script's, and most of what it says makes a figure too high. Too low are those of
//! processes that come and go during a look, and of shared memory that no process has in use.

use std::{
    cell::OnceCell,
    collections::{HashMap, HashSet},
    fs,
    path::Path,
    time::Duration,
};

pub mod files;
mod process;
pub mod sockets;

use process::{Held, Process};

use crate::scratch::Filled;

/// What a script uses at one moment; times and refusals since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageSample {
    /// Bytes of memory: of a cgroup its peak, of a process tree the present sum.
    pub memory: u64,
    /// How often the kernel killed for memory.
    pub memory_kills: u64,
    /// Processes and threads.
    pub processes: u32,
    /// How often the kernel refused a process.
    pub processes_refused: u64,
    /// Processor time.
    pub cpu: Duration,
}

/// Sums up the descendants of a launcher's supervisor, which itself does not count, nor does its init,
/// but for the processor time that it inherits. `scratch` is a file system of the script's own in memory,
/// which counts as such. Where the quick sum of memory, in bytes, is above `recheck_above`, it is taken
/// again with care.
///
/// Processor time is that of the living, and of the children that they have waited for: a child that
/// no parent waits for takes its time along.
pub fn sample(
    snapshot: &ProcSnapshot,
    recheck_above: u64,
    scratch: Option<&Filled>,
) -> UsageSample {
    let tree = snapshot.tree();
    UsageSample {
        cpu: tree.all.iter().map(Process::cpu).sum(),
        ..tree.sum(recheck_above, scratch)
    }
}

/// How many processes and threads a user has on this host.
pub fn tasks_of(user: u32) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let owned = |pid: u32| {
        fs::metadata(Path::new("/proc").join(pid.to_string())).is_ok_and(|is| is.uid() == user)
    };
    let tasks = |process: Process| u64::from(process.threads);
    let processes = process::all().into_iter();
    processes
        .filter(|process| owned(process.pid))
        .map(tasks)
        .sum()
}

/// One look at everybody below a supervisor, which happens when it is first needed.
#[derive(Debug)]
pub struct ProcSnapshot {
    supervisor: u32,
    tree: OnceCell<Tree>,
}

impl ProcSnapshot {
    /// A look that has not happened yet.
    pub fn below(supervisor: u32) -> Self {
        Self {
            supervisor,
            tree: OnceCell::new(),
        }
    }

    fn tree(&self) -> &Tree {
        self.tree.get_or_init(|| Tree::snapshot(self.supervisor))
    }
}

/// Everybody below a supervisor at one moment.
#[derive(Debug)]
struct Tree {
    /// With the first generation: the init, and what orphans there are without a init.
    all: Vec<Process>,
    /// Where the script's own begin.
    first: usize,
}

impl Tree {
    fn snapshot(supervisor: u32) -> Self {
        let mut children: HashMap<u32, Vec<Process>> = HashMap::new();
        for process in process::all() {
            children.entry(process.parent).or_default().push(process);
        }
        let mut seen: HashSet<u32> = HashSet::from([supervisor]);
        let mut all = children.remove(&supervisor).unwrap_or_default();
        let first = all.len();
        let mut at = 0;
        while let Some(pid) = all.get(at).map(|process| process.pid) {
            at += 1;
            if seen.insert(pid) {
                all.extend(children.remove(&pid).unwrap_or_default());
            }
        }
        Self { all, first }
    }

    /// The script's processes.
    fn members(&self) -> &[Process] {
        self.all.get(self.first..).unwrap_or_default()
    }

    /// Everything but processor time.
    fn sum(&self, recheck_above: u64, scratch: Option<&Filled>) -> UsageSample {
        let threads = self.members().iter().map(|process| process.threads);
        UsageSample {
            memory: self.memory(recheck_above, scratch),
            processes: threads.fold(0, u32::saturating_add),
            ..UsageSample::default()
        }
    }

    fn memory(&self, recheck_above: u64, scratch: Option<&Filled>) -> u64 {
        // The child of a vfork has its parent's memory until it becomes a program of its own.
        let own_memory = |process: &&Process| !process.shares_memory_with_parent();
        let holders: Vec<&Process> = self.members().iter().filter(own_memory).collect();
        let files = scratch.map_or(0, Filled::memory);
        let held: Vec<Held> = holders.iter().map(|process| process.held()).collect();
        let quick = held.iter().map(Held::bytes);
        let quick = quick.fold(files, u64::saturating_add);
        if quick <= recheck_above {
            return quick;
        }
        // What one of them alone has in private is all there, and care would only take time.
        let largest = held.iter().map(|held| held.private).max().unwrap_or(0);
        // The kernel's figure lags behind a little on machines with many processors.
        if largest > recheck_above.saturating_add(recheck_above / 16) {
            return largest;
        }
        // A page that is shared was counted for each; now each gets its part of it.
        let careful = |process: &Process| {
            let part = process.proportional_bytes();
            part.unwrap_or_else(|| process.held().bytes())
        };
        let parts: Vec<u64> = holders.iter().copied().map(careful).collect();
        let careful = parts.iter().copied().fold(files, u64::saturating_add);
        let Some(scratch) = scratch.filter(|_| careful > recheck_above) else {
            return careful;
        };
        // Scratch files that are mapped are among the files and among what their processes keep. What
        // has ended meanwhile maps nothing and keeps nothing.
        let (mut mapped, mut gone) = (0_u64, 0_u64);
        for (process, part) in holders.into_iter().zip(parts) {
            mapped = mapped.saturating_add(process.mapped_bytes(&scratch.device));
            if process.held() == Held::default() {
                gone = gone.saturating_add(part);
            }
        }
        let twice = mapped.min(scratch.bytes).saturating_add(gone);
        careful.saturating_sub(twice)
    }
}

#[cfg(test)]
mod tests;
