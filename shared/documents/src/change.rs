//! The reason why a document is neither stored nor deleted.

use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::Failure;
use run_events::store_failure;
use tonic::Code;

use crate::store::StoreError;

/// The reason why a document is neither stored nor deleted.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError<I> {
    /// The text is not valid.
    #[error("the document is not valid")]
    Invalid(I),
    /// The document in force has another etag.
    #[error("the etag is not the current one")]
    EtagMismatch {
        /// The etag in force; empty if there is no document.
        current: String,
    },
    /// The request id was used with another body or by another principal.
    #[error("the request id was used with another body or by another caller")]
    RequestIdReused,
    /// No document has this id.
    #[error("no document has this id")]
    NotFound,
    /// The document belongs to the tenant `system`.
    #[error("the document is shared")]
    IsShared,
    /// The document is a file, which is never deleted.
    #[error("the document is a file")]
    IsFile,
    /// The store does not work.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<I> ChangeError<I> {
    /// Refuses an etag that is not the present one, which is empty if there is no document. An empty etag
    /// accepts any.
    ///
    /// # Errors
    /// The present etag.
    pub fn check_etag(given: &str, current: &str) -> Result<(), Self> {
        match given.is_empty() || given == current {
            true => Ok(()),
            false => Err(Self::EtagMismatch {
                current: current.to_owned(),
            }),
        }
    }

    /// Creates the failure for the caller, who sent the id in a field and may have named the
    /// request.
    pub fn into_failure(
        self,
        id_field: &str,
        request_id: &str,
        invalid: impl FnOnce(I) -> Failure,
        not_found: impl FnOnce() -> Failure,
    ) -> Failure {
        match self {
            Self::Invalid(wrong) => invalid(wrong),
            Self::EtagMismatch { current } => Failure::etag_mismatch(current),
            Self::RequestIdReused => request_id_reused(request_id),
            Self::NotFound => not_found(),
            Self::IsShared => shared_document(id_field),
            Self::IsFile => {
                let problem =
                    "is the id of a file, which is never deleted; delete the file instead";
                Failure::invalid_fields().violation(id_field, problem)
            }
            Self::Store(error) => store_failure(&error),
        }
    }
}

/// Reports that the id in a field is that of a document of the tenant `system`.
pub fn shared_document(id_field: &str) -> Failure {
    let problem = "is the id of a document of the tenant `system`, which only its principals change; put a document \
                   of your own under the id";
    Failure::invalid_fields().violation(id_field, problem)
}

/// Reports that a request id was used with another body or by another principal.
pub fn request_id_reused(request_id: &str) -> Failure {
    let message = "the request id was used before with another body; use a new one";
    Failure::new(Code::AlreadyExists, ErrorReason::RequestIdReused, message)
        .metadata("request_id", request_id)
}
