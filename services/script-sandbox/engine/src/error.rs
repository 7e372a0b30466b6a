//! Why the engine could not be built.

use std::{io, path::PathBuf};

/// Why the engine could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The launcher program is not there.
    #[error(
        "no launcher program at {}; build `sandbox-launcher` and put it beside this program, or set launcher_path",
        tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" or ")
    )]
    NoLauncher {
        /// Where it was looked for.
        tried: Vec<PathBuf>,
    },
    /// The thread that starts launchers could not be started.
    #[error("cannot start the spawning thread")]
    Spawner(#[source] io::Error),
    /// A runtime profile cannot be used.
    #[error("the runtime profile {place} is wrong: {}", problems.join("; "))]
    Profile {
        /// Which profile.
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
        /// Why.
        source: io::Error,
    },
}
