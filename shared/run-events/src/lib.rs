//! Runs on top of the run log: recording events, following, pausing, waiting, cancelling and resuming.
//!
//! [`run_log`] stores bytes and knows no contract; the services speak in events of the contract.
//! This crate joins the two for every owner of runs, so that a turn, a workflow and an invocation
//! start, are followed, end and come back after a crash in one and the same way.
//!
//! [`Runs`] is the entrance. Behind it, `store` reads and deletes runs, `watch` follows them, and
//! `executor` executes their work. It creates a run and hands out the [`Recorder`] that writes its
//! events; [`Runs::execute`] carries the work out as a task under a [`RunControl`], through which
//! a deadline or a cancel reaches everything below. [`Coalescer`] and
//! [`CallOutput`] make bounded events of the output of a model, tool or script. [`Waits`] holds the
//! waits of the nodes of a run; a run of which only waits are in progress rests in the log (`rest`)
//! until it is woken (`wake`). A long run notes in checkpoints which of its events are needed to
//! continue it. [`retention`] deletes runs that ended long ago, unless they are still needed.

mod active;
mod call_output;
mod call_waits;
mod cancel;
mod checkpoint;
mod children;
mod coalescer;
mod codec;
mod control;
mod damage;
mod deliver;
mod executor;
mod failure;
mod forwarded_sequences;
mod list;
mod meta;
pub mod outcome;
mod pause;
mod pause_below;
mod phase;
mod questions;
mod recorder;
mod resource;
mod rest;
pub mod retention;
mod runs;
mod service;
mod start;
mod store;
mod tenants;
mod waiting;
mod waits;
mod wake;
mod watch;

pub use call_output::CallOutput;
pub use cancel::Cancelled;
pub use coalescer::{Coalescer, parts};
pub use codec::{
    CodecError, durability_from_proto, durability_to_proto, kind_number, timestamp_to_proto,
};
pub use control::{CancelReason, Leaving, RunControl, StartGuard, Tracked};
pub use damage::{DamagedLog, beginning};
pub use executor::End;
pub use failure::{
    append_failure, no_such_run, read_failure, storage_failure, storage_unavailable, store_failure,
};
pub use forwarded_sequences::ForwardedSequences;
pub use meta::RunMeta;
pub use recorder::{EVENTS_PER_CHECKPOINT, Recorder};
pub use rest::Departure;
pub use retention::{Neighbours, RetentionSettings};
pub use runs::{OpenRun, Runs};
pub use start::{StartRun, Started, request_hash};
pub use store::seen_by;
pub use tenants::TENANT_CLOSED;
pub use waits::{BegunWait, DeclaredSignals, RecordedWaits, Waits, Woken};
pub use wake::to_its_end;
pub use watch::Records;
