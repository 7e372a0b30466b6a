//! Logs from which a run cannot be continued.

use contracts::tavern::common::v1::{
    CallError, ErrorCategory, RunEvent, RunStarted, run_event::Kind,
};
use core_types::RunId;
use grpc_kit::Failure;
use run_log::StorageError;

use crate::codec::CodecError;
use crate::failure::damaged;
use crate::outcome;

/// A reason for which a run cannot be continued from its log.
#[derive(Debug, thiserror::Error)]
pub enum DamagedLog {
    /// The data stored alongside the run is not as its owner wrote it.
    #[error("what is stored beside the run cannot be read")]
    Meta(#[source] serde_json::Error),
    /// An event is no event of the contract.
    #[error(transparent)]
    Event(#[from] CodecError),
    /// The first event is missing or another one.
    #[error("its log does not begin with its start")]
    NoBeginning,
    /// The log itself found damage.
    #[error("its log cannot be read")]
    Stored(#[source] StorageError),
}

impl DamagedLog {
    /// Returns the error with which a run ends that has such a log.
    pub(crate) fn error_of(&self, run: RunId) -> CallError {
        let reason = grpc_kit::failure::chain(self);
        let message = format!("the run {run} cannot be continued: {reason}");
        outcome::error(ErrorCategory::Internal, "log_damaged", message)
    }
}

impl From<DamagedLog> for Failure {
    fn from(error: DamagedLog) -> Self {
        damaged(&error)
    }
}

/// A reason for which a part of a log was not read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// It never will be.
    Damaged(DamagedLog),
    /// The storage does not work, or there is no such run.
    Failed(Failure),
}

impl From<DamagedLog> for Unreadable {
    fn from(error: DamagedLog) -> Self {
        Self::Damaged(error)
    }
}

impl From<Failure> for Unreadable {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Unreadable> for Failure {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Damaged(error) => error.into(),
            Unreadable::Failed(failure) => failure,
        }
    }
}

/// Returns the start of a run: the first of its events.
///
/// # Errors
/// [`DamagedLog::NoBeginning`] if it is missing or another one.
pub fn beginning(run: RunId, events: &[RunEvent]) -> Result<&RunStarted, DamagedLog> {
    match events.first() {
        Some(RunEvent {
            sequence: 1,
            run_id,
            kind: Some(Kind::RunStarted(started)),
            ..
        }) if *run_id == run.to_string() => Ok(started),
        _ => Err(DamagedLog::NoBeginning),
    }
}
