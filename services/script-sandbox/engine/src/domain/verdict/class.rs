//! Verdicts in a few words and numbers, for metrics and logs.

use std::time::Duration;

use super::Verdict;

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The allowed value.
    pub limit: u64,
    /// The observed value.
    pub observed: u64,
    /// The unit of both.
    pub unit: &'static str,
}

impl Reached {
    /// A limit of time, in milliseconds.
    pub fn time(limit: Duration, observed: Duration) -> Self {
        Self::of(milliseconds(limit), milliseconds(observed), "ms")
    }

    /// A limit of size.
    pub fn bytes(limit: u64, observed: u64) -> Self {
        Self::of(limit, observed, "bytes")
    }

    fn of(limit: u64, observed: u64, unit: &'static str) -> Self {
        Self {
            limit,
            observed,
            unit,
        }
    }
}

/// A time in whole milliseconds.
pub fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Verdict {
    /// The kind of the verdict, named as in the contract.
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

    /// The limit of the verdict, if it has one.
    pub fn reached(&self) -> Option<Reached> {
        Some(match *self {
            Self::Wall { limit, observed } | Self::Cpu { limit, observed } => {
                Reached::time(limit, observed)
            }
            Self::Memory { limit, observed }
            | Self::Output {
                limit, observed, ..
            } => Reached::bytes(limit, observed),
            Self::Processes {
                limit, observed, ..
            } => Reached::of(limit.into(), observed.into(), "processes"),
            Self::Disk {
                limit_files: limit,
                observed_files: observed,
                ..
            } if observed >= limit => Reached::of(limit, observed, "files"),
            Self::Disk {
                limit, observed, ..
            } => Reached::bytes(limit, observed),
            _ => return None,
        })
    }

    /// The code, signal or error number of the verdict, if it has one.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Exited { code } => Some(*code),
            Self::Signalled { signal } | Self::ForbiddenSyscall { signal } => Some(*signal),
            Self::LauncherFailure(failure) => Some(failure.errno),
            _ => None,
        }
    }
}
