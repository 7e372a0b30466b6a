//! Why a document is neither stored nor deleted.

use agent_domain::document::DocumentError;
use grpc_kit::Failure;
use run_events::store_failure;

use crate::store::StoreError;

/// Why a document is neither stored nor deleted.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// The text is not valid.
    #[error(transparent)]
    Invalid(#[from] DocumentError),
    /// The present document has another etag; empty if there is none.
    #[error("the etag is not the current one")]
    EtagMismatch {
        /// The present etag.
        current: String,
    },
    /// The store does not work.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PutError {
    /// Refuses an etag that is not the present one, which is empty if there is no document. An empty etag
    /// accepts any.
    pub(crate) fn check_etag(given: &str, current: String) -> Result<(), Self> {
        match given.is_empty() || given == current {
            true => Ok(()),
            false => Err(Self::EtagMismatch { current }),
        }
    }

    /// Makes the failure for the caller, who gave the document in a field.
    pub fn into_failure(self, field: &str) -> Failure {
        match self {
            Self::Invalid(error) => {
                let mut failure = Failure::invalid_fields();
                for problem in error.problems {
                    let field = format!("{field}{}", problem.pointer);
                    failure.add_violation(field, problem.message);
                }
                failure
            }
            Self::EtagMismatch { current } => Failure::etag_mismatch(current),
            Self::Store(error) => store_failure(&error),
        }
    }
}
