//! Why the service cannot be built, and failures of its store.

use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::Failure;
use tonic::Code;

use crate::provider::BuildModelError;
use crate::store::StoreError;

/// Why the service cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A model cannot be set up.
    #[error("the models cannot be set up")]
    Model(#[from] BuildModelError),
    /// The directory for data cannot be used.
    #[error("the data directory cannot be used")]
    DataDir(#[from] sql_store::DataDirError),
    /// Profiles and conversations cannot be opened.
    #[error("the database of profiles and conversations cannot be opened")]
    Database(#[source] sql_store::OpenError),
    /// The stored profiles cannot be read.
    #[error("the stored profiles cannot be read")]
    Store(#[from] StoreError),
    /// The run log cannot be opened.
    #[error("the run log cannot be opened")]
    RunLog(#[from] sql_store::OpenError),
}

/// Logs a failure of the store, and makes the one for the caller.
pub(crate) fn store_failure(error: &StoreError) -> Failure {
    tracing::error!(error = grpc_kit::failure::chain(error), "the store failed");
    match error {
        StoreError::Full(_) => Failure::new(
            Code::ResourceExhausted,
            ErrorReason::StorageUnavailable,
            "the disk is full; nothing was stored. Free some space and try again",
        ),
        StoreError::Damaged { .. } => Failure::new(
            Code::DataLoss,
            ErrorReason::DataCorrupt,
            "stored data is damaged; the server's log names the place",
        ),
        StoreError::Failed(_) => Failure::new(
            Code::Unavailable,
            ErrorReason::StorageUnavailable,
            "the storage does not answer; nothing was acknowledged. Try again",
        ),
    }
}
