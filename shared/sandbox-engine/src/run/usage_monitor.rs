//! What a running script uses, and when that is too much.

use std::{os::fd::AsFd, panic, sync::Arc, time::Duration};

use tokio::{runtime::Handle, task::JoinHandle};

use crate::{
    backend::Place,
    cgroup::Cgroup,
    domain::{
        limits::Limits,
        usage::Usage,
        verdict::{Evidence, Stopped},
    },
    launcher::WorkDirectory,
    proc_usage::{self, ProcSnapshot, UsageSample, files, sockets},
    scratch::{self, Filled, Measured, ScratchDirectory},
};

/// A script that runs into its limit on processes this often does nothing else.
const MANY_REFUSALS: u64 = 1000;

/// Every so many samples a measurement of the scratch directory and of what is open begins, which takes
/// longer.
const SLOW_EVERY: u32 = 4;

/// Where a script's files are.
#[derive(Debug)]
pub(super) enum Scratch {
    /// In a file system of its own, in memory, which the kernel keeps below the limit.
    Own(WorkDirectory),
    /// On the host's disk, where only measuring keeps them below it.
    Host(Arc<ScratchDirectory>),
}

impl Scratch {
    /// The files of a script in a place.
    pub(super) fn of(place: &Place, work: WorkDirectory) -> Self {
        match &place.scratch {
            Some(scratch) => Self::Host(scratch.clone()),
            None => Self::Own(work),
        }
    }

    fn on_host(&self) -> Option<Arc<ScratchDirectory>> {
        match self {
            Self::Host(scratch) => Some(scratch.clone()),
            Self::Own(_) => None,
        }
    }
}

/// Measures the files on the host's disk, if they are there.
fn measure(scratch: Option<&ScratchDirectory>, supervisor: u32) -> Measured {
    let Some(scratch) = scratch else {
        return Measured::default();
    };
    let named = scratch.measure();
    let device = scratch.device();
    // A script can make the files before take long, and then no process is left of an earlier snapshot.
    let snapshot = ProcSnapshot::below(supervisor);
    let nameless = device.map(|device| files::nameless(&snapshot, device));
    named.with(nameless.unwrap_or_default())
}

/// Measures one script.
#[derive(Debug)]
pub(super) struct UsageMonitor {
    cgroup: Option<Arc<Cgroup>>,
    supervisor: u32,
    scratch: Scratch,
    /// Sockets at the last look.
    sockets: u64,
    /// The measurement of the host's disk and of open sockets while it takes its time. A script that
    /// makes it take long must not gain time by that.
    slow: Option<JoinHandle<(Measured, u64)>>,
    /// Processor time that was used before the script.
    used: Duration,
    taken: u32,
    /// The highest figures so far.
    highest: UsageSample,
    /// The most scratch space so far.
    disk: Measured,
}

impl UsageMonitor {
    pub(super) fn new(
        cgroup: Option<Arc<Cgroup>>,
        supervisor: u32,
        scratch: Scratch,
        used: Duration,
    ) -> Self {
        let highest = UsageSample::default();
        Self {
            cgroup,
            supervisor,
            scratch,
            sockets: 0,
            slow: None,
            used,
            taken: 0,
            highest,
            disk: Measured::default(),
        }
    }

    /// Returns whether no cgroup counts.
    pub(super) fn is_sampled(&self) -> bool {
        self.cgroup.is_none()
    }

    /// Measures; returns which limit is passed, if one is.
    pub(super) fn sample(&mut self, limits: &Limits) -> Option<Stopped> {
        let due = self.taken.is_multiple_of(SLOW_EVERY);
        self.taken = self.taken.wrapping_add(1);
        if self.slow.as_ref().is_some_and(JoinHandle::is_finished) {
            self.take_slow();
        }
        let snapshot = ProcSnapshot::below(self.supervisor);
        let filled = self.filled();
        let mut sample = match &self.cgroup {
            Some(cgroup) => cgroup.sample(),
            None => proc_usage::sample(&snapshot, limits.memory as u64, filled.as_ref()),
        };
        sample.cpu = sample.cpu.saturating_sub(self.used);
        if self.is_sampled() {
            if matches!(self.scratch, Scratch::Own(_)) {
                self.sockets = sockets::in_own_network(&snapshot);
            }
            let buffers = sockets::buffer_bytes(self.sockets);
            sample.memory = sample.memory.saturating_add(buffers);
        }
        self.remember(sample);
        if due
            && self.slow.is_none()
            && let Some(host) = self.scratch.on_host()
        {
            let supervisor = self.supervisor;
            let measuring = move || {
                let disk = measure(Some(&host), supervisor);
                (disk, sockets::open(&ProcSnapshot::below(supervisor)))
            };
            self.slow = Some(tokio::task::spawn_blocking(measuring));
        }
        self.passed(&sample, limits)
    }

    /// Takes what was measured beside the samples; waits for it if it has to.
    fn take_slow(&mut self) {
        let Some(slow) = self.slow.take() else { return };
        match Handle::current().block_on(slow) {
            Ok((disk, sockets)) => {
                self.disk = self.disk.or(disk);
                self.sockets = sockets;
            }
            // The sampling task panics as well, which ends the script.
            Err(error) => match error.try_into_panic() {
                Ok(panicked) => panic::resume_unwind(panicked),
                Err(_) => tracing::debug!("a measurement was given up as the service ends"),
            },
        }
    }

    /// Kills every process that is still in the cgroup. For a launcher that died and cannot do it.
    pub(super) fn kill_all(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill_all();
        }
    }

    /// Takes the last figures, when no process is left to be counted. `lengths`: whether the longest file
    /// matters, which is not looked for otherwise where the kernel keeps the quota.
    pub(super) fn last(&mut self, lengths: bool) {
        if let Some(cgroup) = &self.cgroup {
            let mut sample = cgroup.sample();
            sample.cpu = sample.cpu.saturating_sub(self.used);
            self.remember(sample);
        }
        self.take_slow();
        self.filled();
        let disk = measure(self.scratch.on_host().as_deref(), self.supervisor);
        self.disk = self.disk.or(disk);
        if lengths
            && let Scratch::Own(work) = &self.scratch
            && let Ok(work) = work.open().and_then(|work| work.try_clone())
        {
            self.disk.longest = scratch::measure(work).longest;
        }
    }

    /// What matters for the verdict and is no figure of the answer.
    pub(super) fn evidence(&self) -> Evidence {
        Evidence {
            memory_kills: self.highest.memory_kills,
            processes_refused: self.highest.processes_refused,
            sampled_memory: self.is_sampled().then_some(self.highest.memory),
            longest_file: self.disk.longest,
        }
    }

    /// Looks at a file system of the script's own, if there is one and its descriptor has come.
    fn filled(&mut self) -> Option<Filled> {
        let Scratch::Own(work) = &self.scratch else {
            return None;
        };
        let filled = Filled::look(work.open().ok()?.as_fd()).ok()?;
        self.disk.bytes = self.disk.bytes.max(filled.bytes);
        self.disk.files = self.disk.files.max(filled.files);
        Some(filled)
    }

    /// Enters the highest figures.
    pub(super) fn enter(&self, usage: &mut Usage, limits: &Limits) {
        // The launcher's figure counts mapped files, for which a cgroup does not hold a script to account.
        let peak = self
            .cgroup
            .as_ref()
            .is_some_and(|cgroup| cgroup.keeps_peak());
        let launchers = if peak && self.highest.memory > 0 {
            0
        } else {
            usage.max_memory
        };
        usage.max_memory = launchers.max(self.highest.memory);
        usage.max_processes = usage.max_processes.max(self.highest.processes);
        usage.cpu_time = usage.cpu_time.max(self.highest.cpu);
        let disk = self.disk.or_just_above(limits);
        usage.max_disk = usage.max_disk.max(disk.bytes);
        usage.max_disk_files = usage.max_disk_files.max(disk.files);
    }

    fn remember(&mut self, sample: UsageSample) {
        let highest = &mut self.highest;
        highest.memory = highest.memory.max(sample.memory);
        highest.memory_kills = highest.memory_kills.max(sample.memory_kills);
        highest.processes = highest.processes.max(sample.processes);
        highest.processes_refused = highest.processes_refused.max(sample.processes_refused);
        highest.cpu = highest.cpu.max(sample.cpu);
    }

    fn passed(&self, sample: &UsageSample, limits: &Limits) -> Option<Stopped> {
        let sampled = self.is_sampled();
        let disk =
            self.disk.bytes > limits.disk as u64 || self.disk.files > u64::from(limits.disk_files);
        let crowded =
            sample.processes_refused >= MANY_REFUSALS || sample.processes > limits.processes;
        if sample.memory_kills > 0 {
            Some(Stopped::Memory)
        } else if crowded {
            // Before memory: a crowd uses much of it as well.
            Some(Stopped::Processes)
        } else if sampled && sample.memory > limits.memory as u64 {
            Some(Stopped::Memory)
        } else if sample.cpu >= limits.cpu_time {
            Some(Stopped::Cpu)
        } else if disk && matches!(self.scratch, Scratch::Host(_)) {
            Some(Stopped::Disk)
        } else {
            None
        }
    }
}
