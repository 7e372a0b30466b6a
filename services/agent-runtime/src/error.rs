//! Why the service cannot be built.

use crate::provider::BuildModelError;

/// Why the service cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A model cannot be set up.
    #[error("the models cannot be set up")]
    Model(#[from] BuildModelError),
    /// The directory for data cannot be used.
    #[error("the data directory cannot be used")]
    DataDir(#[from] sql_store::DataDirError),
    /// The run log cannot be opened.
    #[error("the run log cannot be opened")]
    RunLog(#[from] sql_store::OpenError),
}
