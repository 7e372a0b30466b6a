//! Verdicts in a few words and numbers, for those who count them.

use std::time::Duration;

use super::Verdict;

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// What was allowed.
    pub limit: u64,
    /// What was seen.
    pub observed: u64,
    /// What both are counted in.
    pub unit: &'static str,
}

impl Reached {
    /// A limit of time, in milliseconds.
    pub fn time(limit: Duration, observed: Duration) -> Self {
        Self {
            limit: milliseconds(limit),
            observed: milliseconds(observed),
            unit: "ms",
        }
    }

    /// A limit of size.
    pub fn bytes(limit: u64, observed: u64) -> Self {
        Self {
            limit,
            observed,
            unit: "bytes",
        }
    }
}

/// A time in whole milliseconds.
pub fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Verdict {
    /// The kind of the verdict; named as in the contract.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Exited { .. } => "exited",
            Self::Signalled { .. } => "signalled",
            Self::Wall { .. } => "wall",
            Self::Cpu { .. } => "cpu",
            Self::Memory { .. } => "memory",
            Self::Processes { .. } => "processes",
            Self::Output { .. } => "output",
            Self::Disk { .. } => "disk",
            Self::ForbiddenSyscall { .. } => "forbidden_syscall",
            Self::Network { .. } => "network_denied",
            Self::Cancelled { .. } => "cancelled",
            Self::LauncherFailure(_) => "launcher_failure",
        }
    }

    /// The limit that it is about, if it is about one.
    pub fn reached(&self) -> Option<Reached> {
        match *self {
            Self::Wall { limit, observed } | Self::Cpu { limit, observed } => {
                Some(Reached::time(limit, observed))
            }
            Self::Memory { limit, observed }
            | Self::Output {
                limit, observed, ..
            } => Some(Reached::bytes(limit, observed)),
            Self::Processes {
                limit, observed, ..
            } => Some(Reached {
                limit: u64::from(limit),
                observed: u64::from(observed),
                unit: "processes",
            }),
            Self::Disk {
                limit_files,
                observed_files,
                ..
            } if observed_files >= limit_files => Some(Reached {
                limit: limit_files,
                observed: observed_files,
                unit: "files",
            }),
            Self::Disk {
                limit, observed, ..
            } => Some(Reached::bytes(limit, observed)),
            _ => None,
        }
    }

    /// The code, signal or error number that goes with it.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Exited { code } => Some(*code),
            Self::Signalled { signal } | Self::ForbiddenSyscall { signal } => Some(*signal),
            Self::LauncherFailure(failure) => Some(failure.errno),
            _ => None,
        }
    }
}
