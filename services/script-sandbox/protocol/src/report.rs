//! The launcher's reports to the service, one JSON text per line.

use std::{fmt, io, time::Duration};

use serde::{Deserialize, Serialize};

/// One message of the launcher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The interpreter runs.
    Started {
        /// Layers that this run lacks although the plan requires its level.
        missing: Vec<Layer>,
    },
    /// A delivery of files is in place.
    Placed {
        /// The files that could not be placed, by their positions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        refused: Vec<u32>,
    },
    /// The isolation could not be set up, and the script was not started.
    Failed(Failure),
    /// The script tried to use a network, and by the plan this ends it.
    NetworkAttempted {
        /// The number of attempts seen by then.
        attempts: u64,
    },
    /// The script's first process ended.
    Ended {
        /// The end.
        end: End,
    },
    /// Every process of the script has ended; later reports are meaningless.
    Gone {
        /// Processor time of all processes that were waited for, in microseconds.
        cpu_micros: u64,
        /// The largest resident size of any one process, in bytes.
        max_process_bytes: u64,
        /// Processes that could not be killed in time.
        survivors: u32,
    },
}

impl Report {
    /// The last report.
    pub fn gone(cpu: Duration, max_process_bytes: u64, survivors: u32) -> Self {
        Self::Gone {
            cpu_micros: u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX),
            max_process_bytes,
            survivors,
        }
    }
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By itself, with a code.
    Exited(i32),
    /// By a signal.
    Signalled(i32),
}

/// A part of the isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Starting and reading the plan.
    Launch,
    /// The user namespace.
    UserNamespace,
    /// The mount namespace.
    MountNamespace,
    /// The process id namespace.
    PidNamespace,
    /// The network namespace.
    NetworkNamespace,
    /// The ipc namespace.
    IpcNamespace,
    /// The host name.
    UtsNamespace,
    /// The cgroup namespace.
    CgroupNamespace,
    /// The read-only root.
    Root,
    /// The fresh /proc.
    Proc,
    /// Joining the cgroups.
    CgroupLimits,
    /// Limits per process.
    Rlimits,
    /// Landlock's file rules.
    Landlock,
    /// Landlock's scopes.
    LandlockScopes,
    /// The system call filter.
    Seccomp,
    /// Users, capabilities and no new privileges.
    Privileges,
    /// The session keyring.
    Keyring,
    /// Delivered files.
    Files,
    /// Becoming the interpreter.
    Exec,
    /// The quota on scratch files.
    DiskQuota,
}

/// A failure to set up the isolation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The layer that failed.
    pub layer: Layer,
    /// The failed step.
    pub message: String,
    /// The kernel's error number; 0 if there was none.
    pub errno: i32,
}

impl Failure {
    /// A failure of a layer; an error number of 0 stands for none.
    pub fn new(layer: Layer, message: impl Into<String>, errno: i32) -> Self {
        let message = message.into();
        Self {
            layer,
            message,
            errno,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}: {}", self.layer, self.message)?;
        match self.errno {
            0 => Ok(()),
            errno => write!(formatter, ": {}", io::Error::from_raw_os_error(errno)),
        }
    }
}

impl std::error::Error for Failure {}

/// The result of one step of the set-up.
pub type Step<T = ()> = Result<T, Failure>;

/// Names the layer and the step of a failed system call.
pub trait At<T> {
    /// Turns an error into a [`Failure`] of `layer`.
    ///
    /// # Errors
    /// The error, named.
    fn at(self, layer: Layer, doing: impl Into<String>) -> Step<T>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, layer: Layer, doing: impl Into<String>) -> Step<T> {
        self.map_err(|error| {
            let error: io::Error = error.into();
            let doing = doing.into();
            let errno = error.raw_os_error();
            let message = match errno {
                Some(_) => doing,
                None => format!("{doing}: {error}"),
            };
            Failure::new(layer, message, errno.unwrap_or(0))
        })
    }
}
