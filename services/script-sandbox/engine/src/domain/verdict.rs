//! From what was seen to how the script ended.

use std::time::Duration;

use sandbox_protocol::report::{End, Failure, Layer};

use super::limits::{BLOCK, Limits};
use crate::domain::{stream::Stream, usage::Usage};

pub mod class;

/// How a script ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// By itself.
    Exited {
        /// The code.
        code: i32,
    },
    /// By a signal that no limit explains.
    Signalled {
        /// The signal.
        signal: i32,
    },
    /// The wall time was over.
    Wall {
        /// What was allowed.
        limit: Duration,
        /// What had passed.
        observed: Duration,
    },
    /// The processor time was over.
    Cpu {
        /// What was allowed.
        limit: Duration,
        /// What was used.
        observed: Duration,
    },
    /// The memory was not enough.
    Memory {
        /// What was allowed, in bytes.
        limit: u64,
        /// The most that was seen, in bytes.
        observed: u64,
    },
    /// It kept asking for processes.
    Processes {
        /// What was allowed.
        limit: u32,
        /// The most that was seen.
        observed: u32,
        /// How often the kernel said no, as far as it reports.
        refused: u64,
    },
    /// It wrote too much.
    Output {
        /// Where.
        stream: Stream,
        /// What was allowed, in bytes.
        limit: u64,
        /// What was read, in bytes.
        observed: u64,
    },
    /// It filled its scratch space.
    Disk {
        /// What was allowed, in bytes.
        limit: u64,
        /// The most that was seen, in bytes.
        observed: u64,
        /// How many files were allowed.
        limit_files: u64,
        /// The most files that were seen.
        observed_files: u64,
    },
    /// It made a deadly system call.
    ForbiddenSyscall {
        /// The signal that killed it.
        signal: i32,
    },
    /// It tried to use a network.
    Network {
        /// How many attempts had been seen.
        attempts: u64,
    },
    /// The caller ended it.
    Cancelled {
        /// How long it had run.
        after: Duration,
    },
    /// The isolation could not be set up.
    LauncherFailure(Failure),
}

/// Why the service ended a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The wall time was over.
    Wall,
    /// The sum of processor time was over.
    Cpu,
    /// The memory was over, or the kernel had killed for it.
    Memory,
    /// The limit on processes was run into again and again.
    Processes,
    /// A stream was a flood.
    Output {
        /// Which one.
        stream: Stream,
        /// How much had been read.
        observed: u64,
    },
    /// The sampled sum of scratch files was over.
    Disk,
    /// It tried to use a network, and that ends it.
    Network {
        /// How many attempts had been seen.
        attempts: u64,
    },
    /// The caller went away.
    Cancelled,
}

/// Everything that was seen of a run.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The limits that were in force.
    pub limits: Limits,
    /// What was used.
    pub usage: Usage,
    /// The first reason for which the service ended the script.
    pub stopped: Option<Stopped>,
    /// A failure of the launcher.
    pub failure: Option<Failure>,
    /// How the script's first process ended, if that was seen.
    pub end: Option<End>,
    /// What else was seen.
    pub evidence: Evidence,
}

/// What was seen of a run beside what its caller receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// How often the kernel killed for memory.
    pub memory_kills: u64,
    /// How often the kernel refused a process.
    pub processes_refused: u64,
    /// The highest sampled sum of memory, in bytes, where nothing but samples enforces the limit. The
    /// size of the largest process is none: the files that it maps are in it.
    pub sampled_memory: Option<u64>,
    /// The length of the longest file that was seen, in bytes.
    pub longest_file: u64,
}

impl Facts {
    /// Nothing was seen yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            usage: Usage::default(),
            stopped: None,
            failure: None,
            end: None,
            evidence: Evidence::default(),
        }
    }

    /// Whether the kernel has ended it for the length of a file.
    pub fn hit_file_limit(&self) -> bool {
        self.end == Some(End::Signalled(libc::SIGXFSZ))
    }

    /// The one verdict.
    ///
    /// A failure of the set-up comes first, as nothing else can then be meant. Then the kernel's
    /// own memory kills, which the script cannot forge and whose effects look like anything. Then
    /// what the service did, and last the way in which the process ended by itself.
    pub fn verdict(&self) -> Verdict {
        if let Some(failure) = &self.failure {
            return Verdict::LauncherFailure(failure.clone());
        }
        if self.evidence.memory_kills > 0 && self.stopped != Some(Stopped::Cancelled) {
            return self.memory();
        }
        match self.stopped {
            Some(stopped) => self.stopped_by(stopped),
            None => match self.end {
                Some(end) => self.ended_by_itself(end),
                None => {
                    let message = "the init died before the script";
                    Verdict::LauncherFailure(Failure::new(Layer::Launch, message, 0))
                }
            },
        }
    }

    fn stopped_by(&self, stopped: Stopped) -> Verdict {
        let Self { limits, usage, .. } = self;
        match stopped {
            Stopped::Wall => Verdict::Wall {
                limit: limits.wall_time,
                observed: usage.wall_time,
            },
            Stopped::Cpu => self.cpu(),
            Stopped::Memory => self.memory(),
            Stopped::Processes => self.processes(),
            Stopped::Output { stream, observed } => Verdict::Output {
                stream,
                limit: limits.flood(stream),
                observed,
            },
            Stopped::Disk => self.disk(),
            Stopped::Network { attempts } => Verdict::Network { attempts },
            Stopped::Cancelled => Verdict::Cancelled {
                after: usage.wall_time,
            },
        }
    }

    fn ended_by_itself(&self, end: End) -> Verdict {
        match end {
            // Where nothing but samples enforces the limit, it can be passed behind the last of them.
            End::Exited(_) if self.usage.cpu_time > self.limits.cpu_time => self.cpu(),
            End::Exited(0) if self.scratch_was_passed() => self.disk(),
            End::Exited(0) if self.memory_was_exceeded() => self.memory(),
            End::Exited(0) => Verdict::Exited { code: 0 },
            End::Exited(_) if self.scratch_is_full() => self.disk(),
            End::Exited(_) if self.memory_was_passed() => self.memory(),
            End::Exited(code) => Verdict::Exited { code },
            End::Signalled(signal) => match signal {
                libc::SIGSYS => Verdict::ForbiddenSyscall { signal },
                libc::SIGXCPU | libc::SIGKILL if self.cpu_was_passed() => self.cpu(),
                libc::SIGXFSZ if self.file_was_too_long() => self.disk(),
                libc::SIGBUS if self.scratch_is_full() => self.disk(),
                // What a program does that cannot continue without another thread, as Node.js does.
                libc::SIGABRT if self.processes_were_refused() => self.processes(),
                _ if self.memory_was_passed() => self.memory(),
                _ => Verdict::Signalled { signal },
            },
        }
    }

    fn cpu_was_passed(&self) -> bool {
        // The kernel counts per process and in ticks, the sum may be a little short of it.
        const TICKS: Duration = Duration::from_millis(50);
        self.usage.cpu_time + TICKS >= self.limits.cpu_time
    }

    /// At or above the limit, where a script may have met it.
    fn memory_was_passed(&self) -> bool {
        self.evidence.sampled_memory >= Some(self.limits.memory as u64)
    }

    /// More was held than a limit of the kernel would have let be taken.
    fn memory_was_exceeded(&self) -> bool {
        self.evidence.sampled_memory > Some(self.limits.memory as u64)
    }

    /// A file has reached the limit, or its holes hide that it could not. Otherwise the script has
    /// set itself a lower one.
    fn file_was_too_long(&self) -> bool {
        let limit = self.limits.file as u64;
        self.evidence.longest_file >= limit || self.usage.max_disk.saturating_add(BLOCK) >= limit
    }

    fn scratch_is_full(&self) -> bool {
        self.usage.max_disk.saturating_add(BLOCK) > self.limits.disk as u64
            || self.usage.max_disk_files >= u64::from(self.limits.disk_files)
    }

    /// More is held than a quota of the kernel would have let in.
    fn scratch_was_passed(&self) -> bool {
        self.usage.max_disk > (self.limits.disk as u64).next_multiple_of(BLOCK)
            || self.usage.max_disk_files > u64::from(self.limits.disk_files)
    }

    /// The kernel has refused one or, where its limit for a user does not tell, must have refused the next.
    fn processes_were_refused(&self) -> bool {
        self.evidence.processes_refused > 0 || self.usage.max_processes >= self.limits.processes
    }

    fn processes(&self) -> Verdict {
        Verdict::Processes {
            limit: self.limits.processes,
            observed: self.usage.max_processes,
            refused: self.evidence.processes_refused,
        }
    }

    fn cpu(&self) -> Verdict {
        Verdict::Cpu {
            limit: self.limits.cpu_time,
            observed: self.usage.cpu_time,
        }
    }

    fn memory(&self) -> Verdict {
        Verdict::Memory {
            limit: self.limits.memory as u64,
            observed: self.usage.max_memory,
        }
    }

    fn disk(&self) -> Verdict {
        Verdict::Disk {
            limit: self.limits.disk as u64,
            observed: self.usage.max_disk,
            limit_files: u64::from(self.limits.disk_files),
            observed_files: self.usage.max_disk_files,
        }
    }
}

#[cfg(test)]
mod tests;
