//! The append-only, hash-chained event log behind every run.
//!
//! A run is a resource with an id, a state and a log of events. Its owner creates it
//! ([`RunLogs::create`]), appends events through its [`RunWriter`], and finishes it; any number of
//! followers read it ([`RunLogs::follow`]) from any sequence on. The crate stores bytes and does not
//! interpret them.
//!
//! # Reading order
//!
//! [`event`] and [`run`] are the data, [`limits`] its bounds, [`error`] the failures. [`log`] is
//! the log of a service with [`outcome`], the outcomes of its requests; [`writer`] and [`follower`] are its
//! two handles. Behind them, `cell` holds the state of a live run in the process, `step` is the unit of
//! storage and `sink` the way to the store, and `engine` does all work that does not depend on the store:
//! `sqlite`, `postgres` or `memory_store`. The first two share `storage`, their assembly, `committer`, which commits
//! steps in groups, and `rows`, which reads. [`retention`] deletes runs that ended long ago.
//!
//! # Guarantees
//!
//! - `append`, `finish` and `create` return after the commit. At [`Durability::Sync`] acknowledged
//!   events survive power loss, and so they do at [`Durability::Batched`], where submitted events
//!   may wait a while for their commit; at [`Durability::Memory`] they are lost with the process,
//!   and finished runs are dropped when the log is full. Where other processes share the storage,
//!   a fleeting run is carried out as a batched one, and a crash of the server may lose the submitted
//!   events of 600 ms: its writer then reports it, and is reopened.
//! - Sequences start at 1 and have no gaps. An event never changes.
//! - No event is shown to a follower before its commit.
//! - One run per tenant, scope and request id: the same request again finds the first run, and the same
//!   id with another body is refused.
//! - A slow follower never slows a run: it is served from the store at its own pace.
//! - After an error that leaves doubt, the writer reports it ([`AppendError::Unknown`]) and stops.
//!
//! # Deliberately absent
//!
//! Compaction is not built. Followers do report a [`Batch::Gap`] where events are missing, so
//! that adding it changes no contract. Payloads are not merged: an owner that streams small
//! chunks puts some KiB of them into one event and uses [`RunWriter::submit`].
//!
//! [`Durability::Batched`]: core_types::Durability::Batched
//! [`Durability::Sync`]: core_types::Durability::Sync
//! [`Durability::Memory`]: core_types::Durability::Memory

mod cell;
mod committer;
mod engine;
pub mod error;
pub mod event;
pub mod follower;
mod keys;
pub mod limits;
pub mod log;
mod maintenance;
mod memory_store;
mod open_runs;
pub mod outcome;
mod postgres;
pub mod retention;
mod rows;
pub mod run;
mod sink;
mod sqlite;
mod step;
mod storage;
pub mod transfer;
pub mod writer;

pub use core_types::{RunCursor, RunCursorError};
pub use error::{
    AppendError, CreateError, DeleteError, ReadError, ReopenError, StorageError, Violation,
};
pub use event::{Event, Hash, NewEvent};
pub use follower::{Batch, Follower};
pub use log::RunLogs;
pub use outcome::{Created, Fault, Reopened, Verification};
pub use postgres::SERVER_MIGRATIONS;
pub use retention::{PassReport, Retention, RetentionError, RetentionGuard, RetentionPeriods};
pub use run::{
    NewRun, Order, Owners, RequestKey, RunFilter, RunPage, RunState, RunSummary, StateFilter,
};
pub use sqlite::MIGRATIONS;
pub use storage::BATCH_WINDOW;
pub use transfer::{LogAtRest, LogCount, TransferError};
pub use writer::RunWriter;
