//! The usage of a script.

use std::time::Duration;

/// The usage of a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time from the start of the interpreter to the end.
    pub wall_time: Duration,
    /// Processor time of all processes.
    pub cpu_time: Duration,
    /// The most memory.
    pub max_memory: u64,
    /// The most processes and threads.
    pub max_processes: u32,
    /// The most scratch space.
    pub max_disk: u64,
    /// The most scratch files.
    pub max_disk_files: u64,
    /// Time from acceptance to the start of the interpreter, or until a waiting one got the script.
    pub setup_time: Duration,
    /// Whether the interpreter had waited for a script.
    pub warm_start: bool,
}
