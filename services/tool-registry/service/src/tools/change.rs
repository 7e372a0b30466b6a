//! The common parts of all changes by an operator: their requests and their errors.

use call_outcome::Violation;
use documents::{Request, Seen};
use run_log::Hash;
use tonic::Status;
use tool_domain::tool::Origin;

use crate::{dispatch::backend::BackendError, store::StoreError};

/// The reason for which a tool or a backend was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The definition is wrong.
    #[error("the definition is wrong")]
    Invalid(Vec<Violation>),
    /// The id is used by a tool that the operator did not add.
    #[error("the id belongs to a tool of origin {0}")]
    NotOwned(Origin),
    /// The tool or backend does not exist.
    #[error("no tool or backend has this name")]
    NotFound,
    /// The tool or backend belongs to the tenant `system`.
    #[error("the tool or backend is shared")]
    IsShared,
    /// The etag does not match the stored version.
    #[error("the etag does not match the stored version")]
    EtagMismatch {
        /// The stored one; empty if there is no such resource.
        stored: String,
    },
    /// The gRPC server cannot be used.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The workflow service, which has the workflow or node of the tool, is unavailable.
    #[error("the workflow service cannot be asked")]
    Unavailable(Status),
    /// The request id was used with another body.
    #[error("the request id was used before with another body")]
    RequestIdReused,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The parameters of a change besides its content.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The caller's name for the request; empty if it is never repeated.
    pub request_id: String,
    /// The digest of the request.
    pub body: Option<Hash>,
    /// The expected etag of the resource; empty to change any version.
    pub etag: String,
    /// Whether to check the request and to change nothing.
    pub validate_only: bool,
}

impl Change {
    /// Returns the request; none if it is never repeated.
    pub(super) fn request(&self, method: &'static str) -> Option<Request<'_>> {
        Request::of(method, &self.request_id, self.body?)
    }

    /// Refuses an etag that is not the stored one.
    pub(super) fn check_etag(&self, stored: &str) -> Result<(), ChangeError> {
        if self.etag.is_empty() || self.etag == stored {
            return Ok(());
        }
        Err(ChangeError::EtagMismatch {
            stored: stored.to_owned(),
        })
    }
}

/// Returns whether a request was carried out before.
///
/// # Errors
/// It was, with another body.
pub(super) fn is_repeated(seen: &Seen) -> Result<bool, ChangeError> {
    match seen {
        Seen::New => Ok(false),
        Seen::Same(_) => Ok(true),
        Seen::OtherBody => Err(ChangeError::RequestIdReused),
    }
}
