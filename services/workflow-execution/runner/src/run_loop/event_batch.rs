//! Events on their way to the log.

use contracts::tavern::common::v1::run_event::Kind;

/// The number of events that are collected before they are handed to the log.
const MAX_EVENTS: usize = 256;

/// The bytes of outputs and arguments that are collected before they are handed to the log.
const MAX_BYTES: usize = 1024 * 1024;

/// Events that happened, in order, and are not handed to the log yet.
#[derive(Debug, Default)]
pub struct EventBatch {
    kinds: Vec<Kind>,
    bytes: usize,
}

impl EventBatch {
    /// Whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Whether the batch has as many bytes as one append takes.
    pub fn is_large(&self) -> bool {
        self.bytes >= MAX_BYTES
    }

    /// Returns the events.
    pub fn into_kinds(self) -> Vec<Kind> {
        self.kinds
    }

    pub(super) fn is_full(&self) -> bool {
        self.kinds.len() >= MAX_EVENTS || self.is_large()
    }

    /// Adds an event whose texts have about `bytes`.
    pub(super) fn push(&mut self, kind: Kind, bytes: usize) {
        self.bytes += bytes;
        self.kinds.push(kind);
    }
}
