//! Measures the usage of a running script, and detects that it passes a limit.

use std::{os::fd::AsFd, panic, sync::Arc, time::Duration};

use tokio::{runtime::Handle, task::JoinHandle};

use crate::{
    cgroup::Cgroup,
    domain::{
        limits::Limits,
        usage::Usage,
        verdict::{Evidence, Facts, Stopped},
    },
    launcher::WorkDirectory,
    proc_usage::{ProcTree, UsageSample, files, sockets},
    scratch::{self, Filled, Measured, ScratchDirectory},
    slot::Slot,
};

/// The number of refused processes at which a script is ended, as it does nothing useful any more.
const MANY_REFUSALS: u64 = 1000;

/// The number of samples between two measurements of the scratch directory and of open sockets,
/// which take longer.
const SLOW_EVERY: u32 = 4;

/// Measures one script.
#[derive(Debug)]
pub(super) struct UsageMonitor {
    cgroup: Option<Arc<Cgroup>>,
    supervisor: u32,
    /// The working directory. The script's files are in a file system of its own, in memory, which
    /// the kernel keeps below the limit, unless `on_host` has them.
    work: WorkDirectory,
    /// The script's files on the host's disk, where only measuring keeps them below the limit.
    on_host: Option<Arc<ScratchDirectory>>,
    /// Processor time that was used before the script.
    used: Duration,
    /// The number of sockets at the last measurement.
    sockets: u64,
    /// The measurement of the host's disk and of open sockets, while it runs. A script that makes
    /// it slow must not gain time by that.
    slow: Option<JoinHandle<(Measured, u64)>>,
    taken: u32,
    /// The highest figures.
    highest: UsageSample,
    /// The most scratch space.
    disk: Measured,
}

/// Measures files on the host's disk, including nameless ones, and counts open sockets.
fn measure_host(scratch: &ScratchDirectory, supervisor: u32) -> (Measured, u64) {
    let named = scratch.measure();
    // A script can make the measurement above slow, and then no process of an earlier snapshot is
    // left.
    let tree = ProcTree::below(supervisor);
    let device = scratch.device();
    let nameless = device.map(|device| files::nameless(&tree, device));
    (
        named.with(nameless.unwrap_or_default()),
        sockets::open(&tree),
    )
}

impl UsageMonitor {
    pub(super) fn new(
        slot: &mut Slot,
        supervisor: u32,
        work: WorkDirectory,
        used: Duration,
    ) -> Self {
        Self {
            cgroup: slot.cgroup.take(),
            supervisor,
            work,
            on_host: slot.place.scratch.clone(),
            used,
            sockets: 0,
            slow: None,
            taken: 0,
            highest: UsageSample::default(),
            disk: Measured::default(),
        }
    }

    /// Measures; returns the passed limit, if there is one.
    pub(super) fn sample(&mut self, limits: &Limits) -> Option<Stopped> {
        let due = self.taken.is_multiple_of(SLOW_EVERY);
        self.taken = self.taken.wrapping_add(1);
        if (self.slow.as_ref()).is_some_and(JoinHandle::is_finished) {
            self.take_slow();
        }
        let filled = self.filled();
        let mut sample = match &self.cgroup {
            Some(cgroup) => cgroup.sample(),
            None => {
                let tree = ProcTree::below(self.supervisor);
                if self.on_host.is_none() {
                    self.sockets = sockets::in_own_network(&tree);
                }
                let mut sample = tree.sample(limits.memory as u64, filled.as_ref());
                let buffers = sockets::buffer_bytes(self.sockets);
                sample.memory = sample.memory.saturating_add(buffers);
                sample
            }
        };
        sample.cpu = sample.cpu.saturating_sub(self.used);
        self.highest = self.highest.or(sample);
        if due
            && self.slow.is_none()
            && let Some(scratch) = self.on_host.clone()
        {
            let supervisor = self.supervisor;
            let measuring = move || measure_host(&scratch, supervisor);
            self.slow = Some(tokio::task::spawn_blocking(measuring));
        }
        self.passed(&sample, limits)
    }

    /// Takes the result of the slow measurement; waits for it if necessary.
    fn take_slow(&mut self) {
        let Some(slow) = self.slow.take() else {
            return;
        };
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

    /// Kills every process that is still in the cgroup, for a launcher that died before it could.
    pub(super) fn kill_all(&self) {
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill_all();
        }
    }

    /// Takes the last figures, when no process is left to be counted, and records the highest.
    pub(super) fn conclude(&mut self, facts: &mut Facts) {
        if let Some(cgroup) = &self.cgroup {
            let mut sample = cgroup.sample();
            sample.cpu = sample.cpu.saturating_sub(self.used);
            self.highest = self.highest.or(sample);
        }
        self.take_slow();
        self.filled();
        if let Some(scratch) = &self.on_host {
            let (disk, _) = measure_host(scratch, self.supervisor);
            self.disk = self.disk.or(disk);
        } else if facts.hit_file_limit()
            && let Ok(work) = self.work.open().and_then(|work| work.try_clone())
        {
            // Where the kernel enforces the quota, only this measurement finds the longest file.
            self.disk.longest = scratch::measure(work).longest;
        }
        self.enter(&mut facts.usage, &facts.limits);
        let highest = &self.highest;
        facts.evidence = Evidence {
            memory_kills: highest.memory_kills,
            processes_refused: highest.processes_refused,
            sampled_memory: self.cgroup.is_none().then_some(highest.memory),
            longest_file: self.disk.longest,
        };
    }

    /// Measures a file system of the script's own, if there is one and its descriptor has arrived.
    fn filled(&mut self) -> Option<Filled> {
        if self.on_host.is_some() {
            return None;
        }
        let filled = Filled::look(self.work.open().ok()?.as_fd()).ok()?;
        let disk = &mut self.disk;
        disk.bytes = disk.bytes.max(filled.bytes);
        disk.files = disk.files.max(filled.files);
        Some(filled)
    }

    /// Records the highest figures.
    fn enter(&self, usage: &mut Usage, limits: &Limits) {
        let highest = &self.highest;
        // The launcher's figure counts mapped files, which a cgroup does not charge to a script.
        let peak = (self.cgroup.as_ref()).is_some_and(|cgroup| cgroup.keeps_peak());
        if peak && highest.memory > 0 {
            usage.max_memory = 0;
        }
        usage.max_memory = usage.max_memory.max(highest.memory);
        usage.max_processes = usage.max_processes.max(highest.processes);
        usage.cpu_time = usage.cpu_time.max(highest.cpu);
        let disk = self.disk.or_just_above(limits);
        usage.max_disk = disk.bytes;
        usage.max_disk_files = disk.files;
    }

    fn passed(&self, sample: &UsageSample, limits: &Limits) -> Option<Stopped> {
        let disk = &self.disk;
        let full = disk.bytes > limits.disk as u64 || disk.files > u64::from(limits.disk_files);
        let crowded =
            sample.processes_refused >= MANY_REFUSALS || sample.processes > limits.processes;
        let large = self.cgroup.is_none() && sample.memory > limits.memory as u64;
        let passed = [
            (sample.memory_kills > 0, Stopped::Memory),
            // Before memory: many processes use much memory as well.
            (crowded, Stopped::Processes),
            (large, Stopped::Memory),
            (sample.cpu >= limits.cpu_time, Stopped::Cpu),
            (full && self.on_host.is_some(), Stopped::Disk),
        ];
        passed
            .into_iter()
            .find_map(|(passed, stopped)| passed.then_some(stopped))
    }
}
