//! How an engine is built.

use std::path::PathBuf;

use crate::domain::{isolation::IsolationLevel, limits::Limits};

/// How an engine is built.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// The launcher program. Empty: beside the running program or one directory above it.
    pub launcher_path: PathBuf,
    /// A directory of further runtime profiles. Empty: only the built-in ones.
    pub profiles_directory: PathBuf,
    /// Where the reduced level makes its working directories.
    pub scratch_directory: PathBuf,
    /// The strongest isolation that is tried.
    pub highest_isolation: IsolationLevel,
    /// Whether cgroups are used where they can be written.
    pub use_cgroups: bool,
    /// How many scripts run at once, interpreters that wait aside.
    pub concurrent_scripts: u32,
    /// How many interpreters live for long, beside the scripts.
    pub sessions: u32,
    /// How many interpreters of one kind wait for a script at most.
    pub warm_interpreters: u32,
    /// What all waiting interpreters together may keep in memory, in bytes.
    pub warm_memory: u64,
    /// The limits with which interpreters wait.
    pub default_limits: Limits,
    /// The first of the user ids that scripts are given when the process runs as root.
    pub first_user: u32,
}
