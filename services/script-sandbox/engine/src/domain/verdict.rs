//! Derives the verdict of a script from the facts of its run.

use std::time::Duration;

use sandbox_protocol::report::{End, Failure, Layer};

use super::limits::{BLOCK, Limits};
use crate::domain::{stream::Stream, usage::Usage};

pub mod class;

/// The end of a script.
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
    /// The wall time was exceeded.
    Wall {
        /// The allowed time.
        limit: Duration,
        /// The time that had passed.
        observed: Duration,
    },
    /// The processor time was exceeded.
    Cpu {
        /// The allowed time.
        limit: Duration,
        /// The used time.
        observed: Duration,
    },
    /// The memory was not enough.
    Memory {
        /// The allowed memory, in bytes.
        limit: u64,
        /// The most memory that was measured, in bytes.
        observed: u64,
    },
    /// It kept requesting processes.
    Processes {
        /// The allowed number.
        limit: u32,
        /// The highest number that was measured.
        observed: u32,
        /// The number of refusals by the kernel, as far as it reports them.
        refused: u64,
    },
    /// It wrote too much.
    Output {
        /// The stream.
        stream: Stream,
        /// The allowed size, in bytes.
        limit: u64,
        /// The read size, in bytes.
        observed: u64,
    },
    /// It filled its scratch space.
    Disk {
        /// The allowed size, in bytes.
        limit: u64,
        /// The largest size that was measured, in bytes.
        observed: u64,
        /// The allowed number of files.
        limit_files: u64,
        /// The highest number of files that was measured.
        observed_files: u64,
    },
    /// It made a deadly system call.
    ForbiddenSyscall {
        /// The signal that killed it.
        signal: i32,
    },
    /// It tried to use a network.
    Network {
        /// The number of attempts seen.
        attempts: u64,
    },
    /// The caller ended it.
    Cancelled {
        /// The time since its start.
        after: Duration,
    },
    /// The isolation could not be set up.
    LauncherFailure(Failure),
}

/// The reason for which the service ended a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The wall time was exceeded.
    Wall,
    /// The sum of processor time exceeded its limit.
    Cpu,
    /// The memory exceeded its limit, or the kernel had killed for it.
    Memory,
    /// The limit on processes was reached again and again.
    Processes,
    /// A stream was a flood.
    Output {
        /// The stream.
        stream: Stream,
        /// The number of bytes read.
        observed: u64,
    },
    /// The sampled sum of scratch files exceeded its limit.
    Disk,
    /// An attempt to use a network, where that ends a script.
    Network {
        /// The number of attempts seen.
        attempts: u64,
    },
    /// The caller went away.
    Cancelled,
}

/// The facts of a run.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The limits that were in force.
    pub limits: Limits,
    /// The usage.
    pub usage: Usage,
    /// The first reason for which the service ended the script.
    pub stopped: Option<Stopped>,
    /// A failure of the launcher.
    pub failure: Option<Failure>,
    /// The end of the script's first process, if it was seen.
    pub end: Option<End>,
    /// Further evidence.
    pub evidence: Evidence,
}

/// Evidence of a run that its caller does not receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The number of kills for memory by the kernel.
    pub memory_kills: u64,
    /// The number of processes that the kernel refused.
    pub processes_refused: u64,
    /// The highest sampled sum of memory, in bytes, where only samples enforce the limit. The size
    /// of the largest process does not serve: it includes the files that it maps.
    pub sampled_memory: Option<u64>,
    /// The length of the longest file that was seen, in bytes.
    pub longest_file: u64,
}

impl Facts {
    /// No facts yet.
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

    /// The verdict.
    ///
    /// A failure of the set-up comes first, as it explains everything after it. Then the kernel's
    /// own memory kills, which the script cannot forge and whose effects look like anything. Then
    /// the intervention of the service, and last the end of the process by itself.
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
            // If only samples enforce the limit, it can be passed after the last of them.
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
                // The abort of a program that needs another thread to continue, such as Node.js.
                libc::SIGABRT if self.processes_were_refused() => self.processes(),
                _ if self.memory_was_passed() => self.memory(),
                _ => Verdict::Signalled { signal },
            },
        }
    }

    fn cpu_was_passed(&self) -> bool {
        // The kernel counts per process and in ticks, so the sum may be a little below it.
        const TICKS: Duration = Duration::from_millis(50);
        self.usage.cpu_time + TICKS >= self.limits.cpu_time
    }

    /// Returns whether the memory reached the limit, where a script may have met it.
    fn memory_was_passed(&self) -> bool {
        self.evidence.sampled_memory >= Some(self.limits.memory as u64)
    }

    /// Returns whether more was held than a limit of the kernel would have allowed.
    fn memory_was_exceeded(&self) -> bool {
        self.evidence.sampled_memory > Some(self.limits.memory as u64)
    }

    /// Returns whether a file has reached the limit, or may have with its holes. Otherwise the
    /// script has set itself a lower limit.
    fn file_was_too_long(&self) -> bool {
        let limit = self.limits.file as u64;
        self.evidence.longest_file >= limit || self.usage.max_disk.saturating_add(BLOCK) >= limit
    }

    fn scratch_is_full(&self) -> bool {
        self.usage.max_disk.saturating_add(BLOCK) > self.limits.disk as u64
            || self.usage.max_disk_files >= u64::from(self.limits.disk_files)
    }

    /// Returns whether more is held than a quota of the kernel would have allowed.
    fn scratch_was_passed(&self) -> bool {
        self.usage.max_disk > (self.limits.disk as u64).next_multiple_of(BLOCK)
            || self.usage.max_disk_files > u64::from(self.limits.disk_files)
    }

    /// Returns whether the kernel has refused a process or, where its limit by user reports no
    /// refusal, must have refused the next.
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
