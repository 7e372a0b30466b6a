//! The errors of the log, by operation.

use std::sync::Arc;

use core_types::{Principal, RunId};
use sql_store::{ErrorClass, classify};

/// A part of a request that the log does not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The part, as in `events[3].payload`.
    pub place: String,
    /// The problem and the accepted values.
    pub problem: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.place, self.problem)
    }
}

pub(crate) fn join(violations: &[Violation]) -> String {
    violations
        .iter()
        .map(Violation::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// A failure of the storage of the log. It is cheap to clone: one failure answers a whole batch.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StorageError {
    /// There is no room; the log continues by itself when there is.
    #[error("no space left for the run log")]
    Full,
    /// Another process holds the file, or every reader is taken; trying again can help.
    #[error("the run log is busy")]
    Busy,
    /// Stored data differs from the data that the log wrote.
    #[error("the run log is damaged in {table}.{column}, row {row}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The column, or `*` when the database did not report it.
        column: &'static str,
        /// The row's key, or `?`.
        row: String,
    },
    /// Reading, writing or syncing failed.
    #[error("the storage of the run log failed")]
    Failed {
        /// The error of the database.
        source: Arc<sqlx::Error>,
    },
    /// The log has been closed, or its writing task has ended.
    #[error("the run log is closed")]
    Closed,
}

impl From<sqlx::Error> for StorageError {
    fn from(error: sqlx::Error) -> Self {
        match classify(&error) {
            ErrorClass::DiskFull => StorageError::Full,
            ErrorClass::Busy => StorageError::Busy,
            ErrorClass::Corrupt => StorageError::Corrupt {
                table: "*",
                column: "*",
                row: format!("? ({error})"),
            },
            _ if matches!(error, sqlx::Error::PoolClosed) => StorageError::Closed,
            _ => StorageError::Failed {
                source: Arc::new(error),
            },
        }
    }
}

/// The reason why a run was not created.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CreateError {
    /// Parts of the request are not accepted; all of them are named.
    #[error("the run is not accepted: {}", join(.0))]
    Invalid(Vec<Violation>),
    /// The request id was used before, with another body.
    #[error("the request id was used for {run} with another body; use a new one")]
    RequestIdConflict {
        /// The run that the request id belongs to.
        run: RunId,
        /// The principal of that run.
        owner: Principal,
    },
    /// A run with this id is already there.
    #[error("a run with this id is already there")]
    RunExists,
    /// The request id created a run that was deleted since.
    #[error("the request id was used for {run}, which was deleted; use a new one")]
    RequestOfDeletedRun {
        /// The run that the request id belonged to.
        run: RunId,
        /// The principal of that run.
        owner: Principal,
    },
    /// It is not known whether the run was stored. Repeat the request to find out.
    #[error("it is not known whether the run was stored; repeat the request to find out")]
    Unknown,
    /// The run was not stored.
    #[error("the run was not stored")]
    Storage(#[from] StorageError),
}

/// The reason why events were not appended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// Parts of the request are not accepted; all of them are named.
    #[error("the events are not accepted: {}", join(.0))]
    Invalid(Vec<Violation>),
    /// The run has ended, or is just being ended.
    #[error("the run has ended")]
    Finished,
    /// The run was reopened elsewhere; this writer has lost it.
    #[error("the run was reopened by another writer")]
    Fenced,
    /// It is not known whether the events were stored. Reopen the run and look.
    #[error("it is not known whether the events were stored; reopen the run to find out")]
    Unknown,
    /// The events were not stored; the same writer may try again.
    ///
    /// A `submit` whose event is lost reports it on the writer's next call, which then has not
    /// done anything either.
    #[error("the events were not stored")]
    Storage(#[from] StorageError),
}

/// The reason why a run was not reopened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReopenError {
    /// There is no such run.
    #[error("there is no such run")]
    NoSuchRun,
    /// The run has ended.
    #[error("the run has ended")]
    Finished,
    /// Another caller reopened the run at the same time and won.
    #[error("the run was reopened by another writer")]
    Fenced,
    /// The run could not be read.
    #[error("the run could not be read")]
    Storage(#[from] StorageError),
}

/// The reason why a run was not read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no such run.
    #[error("there is no such run")]
    NoSuchRun,
    /// The run could not be read.
    #[error("the run could not be read")]
    Storage(#[from] StorageError),
}

/// The reason why a run was not deleted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeleteError {
    /// There is no such run.
    #[error("there is no such run")]
    NoSuchRun,
    /// The run has not ended.
    #[error("the run has not ended")]
    Open,
    /// The run may be deleted in part; the next attempt, or the next start, deletes the rest.
    #[error("the run was not deleted completely")]
    Storage(#[from] StorageError),
}
