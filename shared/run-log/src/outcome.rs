//! The outcomes of requests to a log.

use crate::{Event, Hash, RunSummary, RunWriter};

/// The result of a request to create a run.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per request, and it is taken apart at once"
)]
pub enum Created {
    /// The run is new; this is its writer.
    New(RunWriter),
    /// The request was answered before, by this run.
    Replayed(RunSummary),
}

/// A run that was taken over.
#[derive(Debug)]
pub struct Reopened {
    /// The run's writer.
    pub writer: RunWriter,
    /// The newest events that the run had then, the last one at the end.
    pub events: Vec<Event>,
}

/// The result of recomputing a run's hash chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Every event exists and follows from its predecessor.
    Intact {
        /// The number of events.
        events: u64,
        /// The last event's hash.
        head: Hash,
    },
    /// The chain is broken.
    Broken {
        /// The first event that is not as it was written.
        sequence: u64,
        /// The fault of the event.
        fault: Fault,
    },
}

/// The fault of an event of a broken chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The event is missing.
    Missing,
    /// Its hash does not follow from the event before it and its own content. One of the two was
    /// changed; if this event was changed together with its hash, the next is named instead.
    HashMismatch,
    /// It is not the event that the run ended with.
    EndMismatch,
}
