//! Counts the usage of a process tree where no cgroup does, and the usage that no cgroup counts.
//!
//! A [`ProcTree`] holds the processes of one script, as one walk over all of /proc has found them.
//! Scripts that are measured at about the same time share a walk. `process` reads the kernel's
//! report of one process, [`files`] counts nameless files, and [`sockets`] counts buffers that are
//! in no process's memory. Doubts count against the script: most gaps in the kernel's reports make
//! a figure too high. Too low are the figures of processes that come and go between two walks, and
//! of shared memory that no process has in use.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

pub mod files;
mod process;
pub mod sockets;

use process::Process;
pub(crate) use process::read_bounded;

use crate::scratch::Filled;

/// The greatest age of a walk over /proc that scripts share; half of the time between two samples.
const FRESH: Duration = Duration::from_millis(25);

/// The usage of a script at one moment; times and refusals since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageSample {
    /// Bytes of memory: of a cgroup its peak, of a process tree the present sum.
    pub memory: u64,
    /// The number of kills for memory by the kernel.
    pub memory_kills: u64,
    /// Processes and threads.
    pub processes: u32,
    /// The number of processes that the kernel refused.
    pub processes_refused: u64,
    /// Processor time.
    pub cpu: Duration,
}

impl UsageSample {
    /// The greater of each.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            memory_kills: self.memory_kills.max(other.memory_kills),
            processes: self.processes.max(other.processes),
            processes_refused: self.processes_refused.max(other.processes_refused),
            cpu: self.cpu.max(other.cpu),
        }
    }
}

/// The number of processes and threads of a user on this host.
pub fn tasks_of(user: u32) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let owned = |pid: u32| {
        fs::metadata(Path::new("/proc").join(pid.to_string())).is_ok_and(|is| is.uid() == user)
    };
    let processes = process::all().into_iter();
    let owned = processes.filter(|process| owned(process.pid));
    owned.map(|process| u64::from(process.threads)).sum()
}

/// All processes of this host at one moment, by parent.
struct ProcSnapshot {
    taken: Instant,
    /// The mark of [`process::last_made`] from before the walk.
    last_made: Option<String>,
    children: HashMap<u32, Vec<Process>>,
}

impl ProcSnapshot {
    /// The last walk over /proc, or a new one. Callers during a walk share it. As long as no
    /// process is made on the whole host, the last walk has found all: scripts that sleep cost no
    /// further walk.
    fn recent() -> Arc<Self> {
        static LAST: Mutex<Option<Arc<ProcSnapshot>>> = Mutex::new(None);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(recent) if recent.is_fresh() || recent.is_complete() => recent.clone(),
            _ => last.insert(Arc::new(Self::take())).clone(),
        }
    }

    /// Whether its figures are recent enough to share.
    fn is_fresh(&self) -> bool {
        self.taken.elapsed() < FRESH
    }

    /// Whether it holds each living process.
    fn is_complete(&self) -> bool {
        self.last_made.is_some() && self.last_made == process::last_made()
    }

    fn take() -> Self {
        let taken = Instant::now();
        let last_made = process::last_made();
        let mut children: HashMap<u32, Vec<Process>> = HashMap::new();
        for process in process::all() {
            children.entry(process.parent).or_default().push(process);
        }
        Self {
            taken,
            last_made,
            children,
        }
    }

    /// The children of a process at the time of the walk.
    fn children(&self, pid: u32) -> impl Iterator<Item = Process> {
        self.children.get(&pid).into_iter().flatten().copied()
    }
}

/// Every process below a supervisor at one moment. The supervisor itself does not count, nor does its
/// init, but for the processor time that it inherits.
#[derive(Debug)]
pub struct ProcTree {
    /// All of them, with the first generation: the init, and orphans where there is no init.
    all: Vec<Process>,
    /// The index of the first process that is the script's own.
    first: usize,
}

impl ProcTree {
    /// The processes below a supervisor.
    pub fn below(supervisor: u32) -> Self {
        let snapshot = ProcSnapshot::recent();
        let mut seen: HashSet<u32> = HashSet::from([supervisor]);
        let mut all: Vec<Process> = snapshot.children(supervisor).collect();
        let mut first = all.len();
        let mut at = 0;
        while let Some(pid) = all.get(at).map(|process| process.pid) {
            at += 1;
            if seen.insert(pid) {
                all.extend(snapshot.children(pid));
            }
        }
        // Below a process that has ended since, others may still live.
        if !snapshot.is_fresh() {
            let look = |process: &Process| Process::look(process.pid);
            let own = all.split_off(first);
            all = all.iter().filter_map(look).collect();
            first = all.len();
            all.extend(own.iter().filter_map(look));
        }
        Self { all, first }
    }

    /// The script's processes.
    fn members(&self) -> &[Process] {
        self.all.get(self.first..).unwrap_or_default()
    }

    /// Sums them up. `scratch` is a file system of the script's own in memory, which counts as
    /// memory. If the quick sum of memory exceeds `recheck_above`, in bytes, the sum is computed
    /// again exactly.
    ///
    /// Processor time includes the living processes and the children that they have waited for. The
    /// time of a child for which no parent waits is lost.
    pub fn sample(&self, recheck_above: u64, scratch: Option<&Filled>) -> UsageSample {
        let threads = self.members().iter().map(|process| process.threads);
        UsageSample {
            memory: self.memory(recheck_above, scratch),
            processes: threads.fold(0, u32::saturating_add),
            cpu: self.all.iter().map(Process::cpu).sum(),
            ..UsageSample::default()
        }
    }

    fn memory(&self, recheck_above: u64, scratch: Option<&Filled>) -> u64 {
        // The child of a vfork has its parent's memory until it becomes a program of its own.
        let own_memory = |process: &&Process| !process.shares_memory_with_parent();
        let holders: Vec<&Process> = self.members().iter().filter(own_memory).collect();
        let files = scratch.map_or(0, Filled::memory);
        let both = |(private, shared): (u64, u64)| private.saturating_add(shared);
        let held: Vec<(u64, u64)> = holders.iter().map(|process| process.held()).collect();
        let quick = held.iter().copied().map(both);
        let quick = quick.fold(files, u64::saturating_add);
        if quick <= recheck_above {
            return quick;
        }
        // The private memory of one process alone counts in full; an exact sum would only take
        // time.
        let largest = held.iter().map(|(private, _)| *private).max().unwrap_or(0);
        // On machines with many processors the kernel's figure lags behind a little.
        if largest > recheck_above.saturating_add(recheck_above / 16) {
            return largest;
        }
        // A shared page was counted for each process; now each counts its part.
        let careful = |process: &Process| {
            let part = process.proportional_bytes();
            part.unwrap_or_else(|| both(process.held()))
        };
        let parts: Vec<u64> = holders.iter().copied().map(careful).collect();
        let careful = parts.iter().copied().fold(files, u64::saturating_add);
        let Some(scratch) = scratch.filter(|_| careful > recheck_above) else {
            return careful;
        };
        // Mapped scratch files count among the files and in the memory of their processes. A
        // process that has ended meanwhile maps and keeps no memory.
        let (mut mapped, mut gone) = (0_u64, 0_u64);
        for (process, part) in holders.into_iter().zip(parts) {
            mapped = mapped.saturating_add(process.mapped_bytes(&scratch.device));
            if process.held() == (0, 0) {
                gone = gone.saturating_add(part);
            }
        }
        let twice = mapped.min(scratch.bytes).saturating_add(gone);
        careful.saturating_sub(twice)
    }
}

#[cfg(test)]
mod tests;
