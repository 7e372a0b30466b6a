//! Failures of the log and of stored runs, as failures for the wire.

use std::time::Duration;

use contracts::tavern::common::v1::{self as common, ErrorReason};
use core_types::RunId;
use grpc_kit::{CallContext, Failure};
use run_log::{AppendError, CreateError, ReadError, StorageError};
use sql_store::StoreError;
use tonic::Code;

/// Reports that no run has the id `run_id`.
pub fn no_such_run(run_id: &str) -> Failure {
    let shown: String = run_id.chars().take(80).collect();
    Failure::new(
        Code::NotFound,
        ErrorReason::RunNotFound,
        format!("no run has the id `{shown}`"),
    )
    .metadata("run_id", shown)
}

/// Turns a failure of the run log into one for the wire.
pub fn storage_failure(error: &StorageError) -> Failure {
    tracing::error!(error = %error, "the run log failed");
    match error {
        StorageError::Full => full(),
        StorageError::Corrupt { .. } => corrupt(),
        _ => storage_unavailable(),
    }
}

/// Turns a failure of a service's own store into one for the wire.
pub fn store_failure(error: &StoreError) -> Failure {
    if !matches!(error, StoreError::Nul(_)) {
        tracing::error!(error = grpc_kit::failure::chain(error), "the store failed");
    }
    match error {
        StoreError::Full(_) => full(),
        StoreError::Damaged { .. } => corrupt(),
        StoreError::Nul(error) => Failure::new(
            Code::InvalidArgument,
            ErrorReason::InvalidFields,
            error.to_string(),
        ),
        StoreError::Failed(_) => storage_unavailable(),
    }
}

fn full() -> Failure {
    Failure::new(
        Code::ResourceExhausted,
        ErrorReason::StorageUnavailable,
        "the disk is full; nothing was stored. Free some space and try again",
    )
}

fn corrupt() -> Failure {
    Failure::new(
        Code::DataLoss,
        ErrorReason::DataCorrupt,
        "stored data is damaged; the server's log names the place",
    )
}

/// Reports that the storage does not answer.
pub fn storage_unavailable() -> Failure {
    Failure::new(
        Code::Unavailable,
        ErrorReason::StorageUnavailable,
        "the storage does not answer; nothing was acknowledged. Try again",
    )
    .retry_after(Duration::from_millis(200))
}

/// Turns a failed creation into a failure for the wire.
pub(crate) fn create_failure(
    error: &CreateError,
    context: &CallContext,
    request_id: &str,
) -> Failure {
    match error {
        CreateError::Invalid(violations) => violations
            .iter()
            .fold(Failure::invalid_fields(), |failure, v| {
                failure.violation(&v.place, &v.problem)
            }),
        CreateError::RequestIdConflict { run, owner } => {
            let run = context.sees(owner).then_some(run);
            request_id_reused(request_id, run, " with another body")
        }
        CreateError::RequestOfDeletedRun { run, owner } => {
            let run = context.sees(owner).then_some(run);
            request_id_reused(request_id, run, ", which was deleted")
        }
        CreateError::Storage(error) => storage_failure(error),
        CreateError::RunExists | CreateError::Unknown => {
            tracing::error!(error = %error, "a run could not be created");
            Failure::new(
                Code::Unavailable,
                ErrorReason::StorageUnavailable,
                "the run may or may not have been created; repeat the request with its request id",
            )
        }
    }
}

/// Reports a request id that another run has. It names the run only where the caller can see it.
fn request_id_reused(request_id: &str, run: Option<&RunId>, detail: &str) -> Failure {
    let used = match run {
        Some(run) => format!("was used for run {run}{detail}"),
        None => "was used before".to_owned(),
    };
    let message = format!("the request id {used}; use a new request id");
    let failure = Failure::new(Code::AlreadyExists, ErrorReason::RequestIdReused, message)
        .metadata("request_id", request_id);
    match run {
        Some(run) => failure.metadata("run_id", run.to_string()),
        None => failure,
    }
}

/// Turns a failed append into a failure for the wire.
pub fn append_failure(error: &AppendError) -> Failure {
    match error {
        AppendError::Storage(error) => storage_failure(error),
        AppendError::Finished => Failure::new(
            Code::FailedPrecondition,
            ErrorReason::RunFinished,
            "the run has ended",
        ),
        AppendError::Invalid(violations) => violations
            .iter()
            .fold(Failure::invalid_fields(), |failure, v| {
                failure.violation(&v.place, &v.problem)
            }),
        AppendError::Fenced | AppendError::Unknown => Failure::new(
            Code::Aborted,
            ErrorReason::StorageUnavailable,
            "the run continues elsewhere; look it up again",
        ),
    }
}

/// Turns a failed reading into a failure for the wire.
pub fn read_failure(error: &ReadError, run_id: &str) -> Failure {
    match error {
        ReadError::NoSuchRun => no_such_run(run_id),
        ReadError::Storage(error) => storage_failure(error),
    }
}

/// Reports that a run has ended.
pub(crate) fn run_finished(run_id: &str) -> Failure {
    append_failure(&AppendError::Finished).metadata("run_id", run_id)
}

/// Reports that no task executes a run that has not ended: its service is starting or ending.
pub(crate) fn not_resumed() -> Failure {
    Failure::new(
        Code::Unavailable,
        ErrorReason::StorageUnavailable,
        "the run is about to be resumed; try again",
    )
    .retry_after(Duration::from_secs(1))
}

/// Reports that a state of the run does not allow the request.
pub(crate) fn wrong_state(run: &common::Run, reason: ErrorReason, message: &str) -> Failure {
    let state = run.state().as_str_name();
    let state = state.strip_prefix("RUN_STATE_").unwrap_or(state);
    Failure::new(Code::FailedPrecondition, reason, message)
        .metadata("run_id", run.run_id.clone())
        .metadata("state", state)
}

/// Reports that stored data cannot be read.
pub(crate) fn damaged(error: &dyn std::error::Error) -> Failure {
    tracing::error!(error = %error, "a stored run cannot be read");
    corrupt()
}
