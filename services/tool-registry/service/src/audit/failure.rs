//! The reasons for which the audit does not work.

use std::sync::Arc;

use run_log::{AppendError, StorageError};

use crate::store::StoreError;

/// The reason for which the audit does not work.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AuditFailure {
    /// The log cannot be read or written.
    #[error("the audit cannot be written: {0}")]
    Storage(#[from] StorageError),
    /// It is not known whether a record was written.
    #[error("it is not known whether the audit was written")]
    Unknown,
    /// The counters of denials cannot be written.
    #[error("denials cannot be counted: {0}")]
    Counters(Arc<StoreError>),
}

impl From<AppendError> for AuditFailure {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Storage(error) => Self::Storage(error),
            _ => Self::Unknown,
        }
    }
}
