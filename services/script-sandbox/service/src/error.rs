//! Why a request was refused, or the sandbox could not be built.

use blob_store::{BlobError, OpenError};
use sandbox_engine::domain::violation::Violation;

use crate::domain::session::SessionEnd;

/// Why the sandbox could not be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing can be run.
    #[error(transparent)]
    Engine(#[from] sandbox_engine::BuildError),
    /// The blobs cannot be kept.
    #[error(transparent)]
    Blobs(#[from] OpenError),
}

/// Why a request was refused. Nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Fields are wrong.
    #[error("the request has {} wrong fields", .0.len())]
    Invalid(Vec<Violation>),
    /// The runtime is unknown or cannot be used.
    #[error("the runtime `{runtime}` cannot be used: {problem}")]
    Runtime {
        /// What was asked for.
        runtime: String,
        /// Why not.
        problem: String,
    },
    /// The host does not reach the isolation that is demanded.
    #[error("the script requires {what} `{wanted}`, but this host provides `{available}`")]
    Isolation {
        /// `isolation` or `memory enforcement`.
        what: &'static str,
        /// What is demanded.
        wanted: &'static str,
        /// What there is.
        available: &'static str,
        /// The layers that keep the host from reaching more.
        missing: Vec<String>,
    },
    /// Too many scripts wait already.
    #[error("{waiting} requests are already waiting")]
    Busy {
        /// How many.
        waiting: u32,
    },
    /// The request id was used with other content.
    #[error("the request id `{request_id}` was used with other content")]
    RequestIdReused {
        /// The id.
        request_id: String,
    },
    /// Files of the request are blobs that cannot be given: the place of each, and why.
    #[error("{} files of the request are blobs that cannot be given", .0.len())]
    Blobs(Vec<(usize, BlobError)>),
    /// The caller, or all callers together, have as much as they may.
    #[error("limit reached: {maximum} {limit}")]
    Quota {
        /// What is counted.
        limit: &'static str,
        /// How many there may be.
        maximum: usize,
    },
    /// The session is unknown.
    #[error("there is no session `{id}`")]
    SessionNotFound {
        /// The id.
        id: String,
    },
    /// The session has ended.
    #[error("the session `{id}` has ended: {}", end.message())]
    SessionEnded {
        /// The id.
        id: String,
        /// How.
        end: Box<SessionEnd>,
    },
    /// The session runs a cell.
    #[error("the session `{id}` is busy with cell {cell}")]
    SessionBusy {
        /// The id.
        id: String,
        /// The cell.
        cell: u64,
    },
    /// The service shuts down.
    #[error(
        "the service shuts down; {}",
        if *begun { "the script had begun, and has been ended" } else { "nothing was run" }
    )]
    ShutDown {
        /// Whether the script had begun, and has been ended.
        begun: bool,
    },
    /// The task that ran the script is gone, which ends the script.
    #[error("the run was lost")]
    Lost,
}
