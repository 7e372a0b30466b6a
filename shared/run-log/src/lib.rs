//! The append-only, hash-chained event log behind every run.
//!
//! A run is a resource with an id, a state and a log of events. Its owner creates it
//! ([`RunLog::create`]), appends events through the [`RunWriter`] that it got, and finishes it;
//! anyone may follow it ([`RunLog::follow`]) from any sequence on. The crate stores bytes and
//! knows nothing of what they mean.
//!
//! # Reading order
//!
//! [`event`] and [`run`] are the data, [`limits`] what is accepted of it, [`error`] what can go
//! wrong. [`log`] is the contract; [`writer`] and [`follower`] are its two handles. Behind them,
//! `cell` holds what the process knows of a live run, `step` is the unit that is stored and `sink`
//! the way to where it is stored, and `engine` does everything that does not depend on where that
//! is: [`sqlite`] or [`memory`]; [`router`] picks between the two. [`retention`] deletes what ended long ago.
//!
//! # What is promised
//!
//! - `append`, `finish` and `create` return after the commit. At [`Durability::Sync`] what they
//!   acknowledged survives power loss, and so it does at [`Durability::Batched`], where
//!   what was submitted may wait a while for its commit; at [`Durability::Memory`] it is gone with the process, and
//!   finished runs are dropped when the log is full.
//! - Sequences start at 1 and have no gaps. An event never changes.
//! - Nothing is shown to a follower before it is committed.
//! - One run per request id and scope: the same request again finds the first run, and the same
//!   id with another body is refused.
//! - A slow follower never slows a run: it is served from the store at its own pace.
//! - After an error that leaves doubt, the writer says so ([`AppendError::Unknown`]) and stops.
//!
//! # What is deliberately absent
//!
//! Compaction is not built. Followers do report a [`Batch::Gap`] where events are missing, so
//! that adding it changes no contract. Payloads are not merged: an owner that streams small
//! chunks puts some KiB of them into one event and uses [`RunWriter::submit`].
//!
//! [`Durability::Batched`]: core_types::Durability::Batched
//! [`Durability::Sync`]: core_types::Durability::Sync
//! [`Durability::Memory`]: core_types::Durability::Memory

mod cell;
mod engine;
pub mod error;
pub mod event;
pub mod follower;
pub mod limits;
pub mod log;
pub mod memory;
mod memory_store;
pub mod retention;
pub mod router;
pub mod run;
mod sink;
pub mod sqlite;
mod step;
pub mod writer;

pub use core_types::{RunCursor, RunCursorError};
pub use error::{
    AppendError, CreateError, DeleteError, ReadError, ReopenError, StorageError, Violation,
};
pub use event::{Event, Hash, NewEvent};
pub use follower::{Batch, Follower};
pub use log::{Created, Fault, Reopened, RunLog, Verification};
pub use memory::{MemoryLimits, MemoryRunLog};
pub use retention::{PassReport, Retention, RetentionError, RetentionGuard, RetentionPeriods};
pub use router::RunLogs;
pub use run::{NewRun, Order, RequestKey, RunFilter, RunPage, RunState, RunSummary, StateFilter};
pub use sqlite::SqliteRunLog;
pub use writer::RunWriter;
