//! How each isolation level is made: one file per level.

use std::{io, path::PathBuf, sync::Arc};

use sandbox_launcher::plan::Confinement;

use crate::{
    domain::{isolation::IsolationLevel, limits::Limits},
    scratch::ScratchDirectory,
};

mod full;
mod full_without_proc;
pub mod host;
mod reduced;

pub use host::HostSystem;

/// Makes one isolation level.
pub trait Backend: Send + Sync + std::fmt::Debug {
    /// The level.
    fn level(&self) -> IsolationLevel;

    /// Plans the place for one script.
    ///
    /// # Errors
    /// When a directory on the host could not be made.
    fn place(&self, wanted: &PlaceSpec<'_>) -> io::Result<Place>;
}

/// What a place is planned for.
#[derive(Debug)]
pub struct PlaceSpec<'a> {
    /// Directories that the interpreter needs.
    pub mounts: &'a [PathBuf],
    /// The script's limits.
    pub limits: &'a Limits,
    /// The user that the script gets, when the service is root.
    pub user: Option<u32>,
}

/// The place for one script.
#[derive(Debug)]
pub struct Place {
    /// What the launcher is to do.
    pub confinement: Confinement,
    /// The working directory as the script sees it.
    pub work: PathBuf,
    /// The input directory as the script sees it.
    pub input: PathBuf,
    /// The directory for temporary files as the script sees it.
    pub temporary: PathBuf,
    /// The directory on the host that carries them, if there is one; removed when it is dropped.
    pub scratch: Option<Arc<ScratchDirectory>>,
}

/// The backend of a level.
pub fn backend(level: IsolationLevel, host: Arc<HostSystem>, scratch: PathBuf) -> Arc<dyn Backend> {
    match level {
        IsolationLevel::Full => Arc::new(full::Full::new(host)),
        IsolationLevel::FullWithoutProc => Arc::new(full_without_proc::FullWithoutProc::new(host)),
        IsolationLevel::Reduced => Arc::new(reduced::Reduced::new(host, scratch)),
    }
}
