//! The reasons why an engine could not be built.

use std::{io, path::PathBuf};

/// A failure to build the engine.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The launcher program is missing.
    #[error(
        "no launcher program at {}; build `sandbox-launcher` and put it beside this program, or set launcher_path",
        tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" or ")
    )]
    NoLauncher {
        /// The paths that were searched.
        tried: Vec<PathBuf>,
    },
    /// The thread that starts launchers could not be started.
    #[error("cannot start the spawning thread")]
    Spawner(#[source] io::Error),
    /// A runtime profile cannot be used.
    #[error("the runtime profile {place} is wrong: {}", problems.join("; "))]
    Profile {
        /// The name or file of the profile.
        place: String,
        /// Everything that is wrong with it.
        problems: Vec<String>,
    },
    /// Two runtime profiles have one name.
    #[error("requests could mean either of two runtimes: {}", .0.join("; "))]
    Names(Vec<String>),
    /// The directory of profiles cannot be read.
    #[error("cannot read the profiles in {}", path.display())]
    Profiles {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}
