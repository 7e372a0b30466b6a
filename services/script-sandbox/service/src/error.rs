//! The reasons for refusing a request, and for failing to build the sandbox.

use blob_store::{BlobError, OpenError};
use core_types::Tenant;
use sandbox_engine::{domain::violation::Violation, packages::PackageError};
use tenancy::LimitReached;

use crate::domain::session::SessionEnd;

/// A failure to build the sandbox.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine cannot be built.
    #[error(transparent)]
    Engine(#[from] sandbox_engine::BuildError),
    /// The blobs cannot be stored.
    #[error(transparent)]
    Blobs(#[from] OpenError),
}

/// The reason for refusing a request. No script ran, unless the variant reports otherwise.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Fields are wrong.
    #[error("the request has {} wrong fields", .0.len())]
    Invalid(Vec<Violation>),
    /// The runtime is unknown or cannot be used.
    #[error("the runtime `{runtime}` cannot be used: {problem}")]
    Runtime {
        /// The requested name.
        runtime: String,
        /// The reason.
        problem: String,
    },
    /// The package set cannot be used.
    #[error(transparent)]
    Packages(#[from] PackageError),
    /// The host does not reach the demanded isolation.
    #[error("the script requires {what} `{wanted}`, but this host provides `{available}`")]
    Isolation {
        /// `isolation` or `memory enforcement`.
        what: &'static str,
        /// The demanded level.
        wanted: &'static str,
        /// The available level.
        available: &'static str,
        /// The layers that keep the host from reaching more.
        missing: Vec<String>,
    },
    /// Too many scripts wait already.
    #[error("{waiting} requests are already waiting")]
    Busy {
        /// Their number.
        waiting: usize,
    },
    /// A limit of the tenant is reached.
    #[error(transparent)]
    TenantLimit(#[from] LimitReached),
    /// The tenant is closed, and its work has to end.
    #[error("the tenant `{0}` is closed")]
    TenantClosed(Tenant),
    /// The request id was used with other content.
    #[error("the request id `{request_id}` was used with other content")]
    RequestIdReused {
        /// The id.
        request_id: String,
    },
    /// Files of the request are blobs that are not available: the field of each, and its error.
    #[error("{} files of the request are blobs that cannot be given", .0.len())]
    Blobs(Vec<(String, BlobError)>),
    /// The caller, or all callers together, have reached a quota.
    #[error("limit reached: {maximum} {limit}")]
    Quota {
        /// The name of the quota.
        limit: &'static str,
        /// The most that there may be.
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
        /// The end.
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
        /// Whether the script had begun, and was ended.
        begun: bool,
    },
    /// The task that ran the script has died, which ends the script.
    #[error("the run was lost")]
    Lost,
}
