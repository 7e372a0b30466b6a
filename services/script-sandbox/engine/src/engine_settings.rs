//! The settings of an engine.

use std::path::PathBuf;

use crate::domain::{isolation::IsolationLevel, limits::Limits};

/// The settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// The launcher program. Empty: next to the running program or one directory above it.
    pub launcher_path: PathBuf,
    /// A directory of further runtime profiles. Empty: only the built-in ones.
    pub profiles_directory: PathBuf,
    /// The directory of the package sets. Empty: there are none.
    pub packages_directory: PathBuf,
    /// The directory in which the level `reduced` makes its working directories.
    pub scratch_directory: PathBuf,
    /// The strongest isolation that is tried.
    pub highest_isolation: IsolationLevel,
    /// Whether cgroups are used where they can be written.
    pub use_cgroups: bool,
    /// The most scripts that run at once, not counting waiting interpreters.
    pub concurrent_scripts: u32,
    /// The most sessions, each with an interpreter of its own, in addition to the scripts.
    pub sessions: u32,
    /// The most interpreters of one kind that wait for a script.
    pub warm_interpreters: u32,
    /// The most memory of all waiting interpreters together, in bytes.
    pub warm_memory: u64,
    /// The limits of waiting interpreters.
    pub default_limits: Limits,
    /// The first of the user ids that scripts get when the process runs as root.
    pub first_user: u32,
}
