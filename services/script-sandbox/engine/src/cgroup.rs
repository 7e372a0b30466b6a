//! Kernel-enforced limits on memory and processes, where the host lets the service make cgroups.

use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use blob_store::{claim, claim_left};

mod v1;
mod v2;

use crate::{
    domain::{isolation::MemoryEnforcement, limits::Limits},
    proc_usage::UsageSample,
};

/// The longest time for which a cgroup may stay busy after its last process has ended.
const BUSY_TIME: Duration = Duration::from_secs(10);

/// The pause between two attempts to remove a busy cgroup.
const STEP: Duration = Duration::from_millis(5);

/// The beginning of the name of each cgroup; the id of the service's process follows.
const PREFIX: &str = "tavern-script-";

/// The most names that are tried for one cgroup.
const MAX_NAMES: u32 = 100;

/// The host's cgroups, as far as the service can use them.
#[derive(Clone, Debug)]
pub enum Cgroups {
    /// Version 1: one directory per controller.
    V1(v1::Controllers),
    /// Version 2: one directory for all.
    V2(v2::Parent),
}

impl Cgroups {
    /// Makes, limits and removes a cgroup as a test. Returns `None` if this host does not allow
    /// that.
    pub fn find() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let memberships = fs::read_to_string("/proc/self/cgroup").ok()?;
        let found = [
            v1::Controllers::find(&mounts, &memberships).map(Self::V1),
            v2::Parent::find(&mounts, &memberships).map(Self::V2),
        ];
        let mut found = found.into_iter().flatten();
        found.find(|cgroups| cgroups.make(&Limits::DEFAULT, false).is_ok())
    }

    /// Kills and removes the unlocked cgroups of services that were killed. Returns whether none is
    /// left.
    pub fn sweep(&self) -> bool {
        let parents = match self {
            Self::V1(controllers) => controllers.directories(),
            Self::V2(parent) => vec![parent.directory()],
        };
        let parents = parents.into_iter();
        let entries = parents.flat_map(|parent| fs::read_dir(parent).into_iter().flatten());
        let mut clean = true;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let own = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let owner = own.and_then(|own| own.split('-').next()?.parse::<u32>().ok());
            let Some(owner) = owner else { continue };
            // In a container, the service that was killed may have had our process id.
            let alive =
                owner != std::process::id() && Path::new("/proc").join(owner.to_string()).exists();
            if !alive && let Ok(Some(_lock)) = claim_left(&entry.path()) {
                kill_members(&entry.path().join("cgroup.procs"));
                clean &= fs::remove_dir(entry.path()).is_ok();
            }
        }
        clean
    }

    /// The version of the host's cgroups.
    pub fn enforcement(&self) -> MemoryEnforcement {
        match self {
            Self::V1(_) => MemoryEnforcement::CgroupV1,
            Self::V2(_) => MemoryEnforcement::CgroupV2,
        }
    }

    /// Makes a cgroup with the limits of one script. The launcher's init is in it as well, and if
    /// `with_supervisor` is set, so is the supervisor; neither counts.
    ///
    /// # Errors
    /// Fails when the host refuses; no directory stays behind then.
    pub fn make(&self, limits: &Limits, with_supervisor: bool) -> io::Result<Cgroup> {
        let mut left = MAX_NAMES;
        loop {
            match self.make_next(limits, with_supervisor) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && left > 1 => left -= 1,
                made => return made,
            }
        }
    }

    /// Makes a cgroup under the next name. The name holds the start time of the service alongside
    /// the process id, which another service may have had before or may have in another container.
    /// The name may still be taken.
    fn make_next(&self, limits: &Limits, with_supervisor: bool) -> io::Result<Cgroup> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        static FIRST_PART: LazyLock<String> = LazyLock::new(|| {
            let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
            format!("{PREFIX}{}-{now:x}", std::process::id())
        });
        let name = format!("{}-{}", *FIRST_PART, NEXT.fetch_add(1, Ordering::Relaxed));
        let mut cgroup = Cgroup {
            directories: Vec::new(),
            locks: Vec::new(),
            files: Files::default(),
            knobs: Knobs::default(),
            helpers: 1 + u64::from(with_supervisor),
            joined: with_supervisor,
        };
        match self {
            Self::V1(controllers) => v1::make(controllers, &name, &mut cgroup)?,
            Self::V2(parent) => v2::make(parent, &name, &mut cgroup)?,
        }
        cgroup.limit(limits)?;
        Ok(cgroup)
    }
}

/// The cgroup of one script; removed on drop, which must be after the end of its last process.
#[derive(Debug)]
pub struct Cgroup {
    directories: Vec<PathBuf>,
    /// Locks that mark the directories as those of a living service.
    locks: Vec<OwnedFd>,
    files: Files,
    knobs: Knobs,
    /// The number of processes in it that are not the script's.
    helpers: u64,
    joined: bool,
}

/// The files that set the limits of a cgroup.
#[derive(Debug, Default)]
struct Knobs {
    /// Accepts bytes of memory.
    memory: PathBuf,
    /// Accepts bytes of memory and swap, or bytes of swap alone; empty if swap is not counted.
    swap: PathBuf,
    /// Whether `swap` limits the swap alone.
    swap_alone: bool,
    /// Accepts the bytes of memory above which the kernel reclaims memory without killing; empty if
    /// the kernel refuses a limit on memory below the present use.
    high: PathBuf,
    /// Kills every process in it, also processes that are just being made; empty if this kernel
    /// cannot.
    kill: PathBuf,
    /// Accepts bytes of the buffers of TCP sockets; empty if they count as memory, or not at all.
    socket_buffers: PathBuf,
    /// Accepts a number of processes.
    processes: PathBuf,
    /// Accepts the share of the processor; empty if it cannot be set.
    share: PathBuf,
    /// The ordinary share.
    ordinary_share: u32,
}

/// The most bytes that the buffers of a script's TCP sockets may hold in addition to its memory,
/// where they do not count as memory. Its connections lead only to itself.
const MAX_SOCKET_BUFFERS: u64 = 16 << 20;

/// The ratio of the ordinary share of the processor to the share of a background script.
const BACKGROUND_DIVISOR: u32 = 2;

/// The files that report the usage of a cgroup. A missing file reads as zero.
#[derive(Debug, Default)]
struct Files {
    memory: PathBuf,
    memory_peak: PathBuf,
    memory_events: PathBuf,
    processes: PathBuf,
    process_events: PathBuf,
    cpu: PathBuf,
    /// The line of the file above that has the count, and the nanoseconds of one count. Empty: the
    /// file has only the count.
    cpu_line: &'static str,
    cpu_unit: u64,
}

impl Cgroup {
    /// Lets a process join.
    ///
    /// # Errors
    /// Fails when the kernel refuses.
    pub fn join(&self, process: u32) -> io::Result<()> {
        let mut procs = self.procs().into_iter();
        procs.try_for_each(|procs| fs::write(procs, process.to_string()))
    }

    /// The files to which the id of a script's first process is written; none if it is in the
    /// cgroup from the beginning.
    pub fn to_join(&self) -> Vec<PathBuf> {
        match self.joined {
            true => Vec::new(),
            false => self.procs(),
        }
    }

    fn procs(&self) -> Vec<PathBuf> {
        let directories = self.directories.iter();
        directories.map(|it| it.join("cgroup.procs")).collect()
    }

    /// Sets the limits on memory and processes, whatever their previous values.
    ///
    /// # Errors
    /// Fails when the kernel refuses, as when more memory is in use already.
    pub fn limit(&self, limits: &Limits) -> io::Result<()> {
        let (knobs, bytes) = (&self.knobs, limits.memory as u64);
        self.make_room(bytes)?;
        let with_swap = if knobs.swap_alone { 0 } else { bytes };
        let mut steps = [(&knobs.swap, with_swap), (&knobs.memory, bytes)];
        // At no moment may the limit on memory exceed that on memory and swap: the sum rises first
        // and falls last. Swap that is limited by itself can be set at any time.
        if bytes < number(&knobs.memory) {
            steps.reverse();
        }
        let most = u64::from(limits.processes) + self.helpers;
        let others = [
            (&knobs.socket_buffers, bytes.min(MAX_SOCKET_BUFFERS)),
            (&knobs.processes, most),
        ];
        // A file that this kernel does not have sets no limit.
        let there = |(file, _): &(&PathBuf, u64)| !file.as_os_str().is_empty();
        let mut steps = steps.into_iter().chain(others).filter(there);
        steps.try_for_each(|(file, value)| fs::write(file, value.to_string()))
    }

    /// Reclaims memory until at most so many bytes are in use, where setting the limit would kill.
    fn make_room(&self, bytes: u64) -> io::Result<()> {
        let (high, used) = (&self.knobs.high, &self.files.memory);
        if high.as_os_str().is_empty() || number(used) <= bytes {
            return Ok(());
        }
        fs::write(high, bytes.to_string())?;
        let left = number(used);
        fs::write(high, "max")?;
        if left > bytes {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        Ok(())
    }

    /// Lets other scripts go first where processors are scarce, if the kernel can.
    pub fn lower_priority(&self) {
        self.share(self.knobs.ordinary_share / BACKGROUND_DIVISOR);
    }

    /// Sets the ordinary share of the processors again.
    pub fn restore_priority(&self) {
        self.share(self.knobs.ordinary_share);
    }

    fn share(&self, share: u32) {
        let file = &self.knobs.share;
        if !file.as_os_str().is_empty()
            && let Err(error) = fs::write(file, share.to_string())
        {
            tracing::warn!(%error, "the share of a cgroup could not be set");
        }
    }

    /// Returns whether the kernel keeps the most memory that was in use; before 5.19, version 2 does not.
    pub fn keeps_peak(&self) -> bool {
        self.files.memory_peak.exists()
    }

    /// The usage that the kernel has counted so far.
    pub fn sample(&self) -> UsageSample {
        let files = &self.files;
        let peak = number(&files.memory_peak);
        let processes = number(&files.processes).saturating_sub(self.helpers);
        let cpu = match files.cpu_line {
            "" => number(&files.cpu),
            line => field(&files.cpu, line),
        };
        UsageSample {
            memory: peak.max(number(&files.memory)),
            memory_kills: field(&files.memory_events, "oom_kill"),
            processes: u32::try_from(processes).unwrap_or(u32::MAX),
            processes_refused: field(&files.process_events, "max"),
            cpu: Duration::from_nanos(cpu.saturating_mul(files.cpu_unit)),
        }
    }

    /// Kills every process in it, until none is left or a time limit has passed.
    pub fn kill_all(&self) {
        let Some(procs) = self.procs().into_iter().next() else {
            return;
        };
        if !self.knobs.kill.as_os_str().is_empty() {
            // If this fails, the processes are killed one by one.
            let _ = fs::write(&self.knobs.kill, "1");
        }
        let mut waited = Duration::ZERO;
        loop {
            if kill_members(&procs) == 0 || waited >= BUSY_TIME {
                return;
            }
            std::thread::sleep(STEP);
            waited += STEP;
        }
    }

    /// Makes one directory and records it for removal.
    fn add(&mut self, directory: PathBuf) -> io::Result<()> {
        fs::create_dir(&directory)?;
        // A service that starts at this moment may have taken it for a leftover.
        let lock = claim(&directory)
            .and_then(|lock| lock.ok_or_else(|| io::ErrorKind::AlreadyExists.into()))
            .inspect_err(|_| drop(fs::remove_dir(&directory)))?;
        self.directories.push(directory);
        self.locks.push(lock);
        Ok(())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A cgroup stays busy for some milliseconds after its last process; no caller waits for that.
        let mut left = std::mem::take(&mut self.directories);
        left.retain(|directory| fs::remove_dir(directory).is_err());
        if !left.is_empty() {
            std::thread::spawn(move || remove_when_idle(left));
        }
    }
}

/// Kills every process in the list of a cgroup; returns the number of processes.
fn kill_members(procs: &Path) -> usize {
    let text = fs::read_to_string(procs).unwrap_or_default();
    let members = text.lines().filter_map(|line| line.parse().ok());
    let members = members.filter_map(rustix::process::Pid::from_raw);
    members
        .inspect(|pid| {
            // It may have ended since the list was read.
            let _ = rustix::process::kill_process(*pid, rustix::process::Signal::KILL);
        })
        .count()
}

fn remove_when_idle(mut left: Vec<PathBuf>) {
    let mut waited = Duration::ZERO;
    while !left.is_empty() && waited < BUSY_TIME {
        std::thread::sleep(STEP);
        waited += STEP;
        left.retain(|directory| fs::remove_dir(directory).is_err());
    }
    for directory in left {
        tracing::error!(directory = %directory.display(), "a script's cgroup could not be removed");
    }
}

/// The path of a file, or an empty one where this kernel does not have it.
fn if_there(file: PathBuf) -> PathBuf {
    if file.exists() { file } else { PathBuf::new() }
}

fn number(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// The number that follows a name, in a file of `name number` lines.
fn field(path: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut values = text.lines().filter_map(|line| line.split_once(' '));
    let value = values.find(|(key, _)| *key == name);
    value.map_or(0, |(_, value)| value.trim().parse().unwrap_or(0))
}

#[cfg(test)]
mod tests;
