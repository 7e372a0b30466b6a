//! Joins small pieces of an answer into events of a sensible size.

use contracts::tavern::common::v1::{self as common, run_event::Kind};
use run_events::Coalescer;
use tokio::time::Instant;

/// Holds text and thinking back for a moment.
#[derive(Debug, Default)]
pub(super) struct TextCoalescer(Coalescer<Part>);

/// What a model writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text,
    Thinking,
}

impl TextCoalescer {
    /// Takes a piece and returns what is to be recorded now.
    pub(super) fn push(&mut self, part: Part, piece: &str) -> Vec<Kind> {
        let kinds = self.0.push(part, piece, Instant::now());
        kinds.into_iter().map(kind).collect()
    }

    /// Returns everything that is held back.
    pub(super) fn release(&mut self) -> Vec<Kind> {
        let kinds = self.0.release(Instant::now());
        kinds.into_iter().map(kind).collect()
    }

    /// Waits until what is held back has waited long enough; for ever if nothing is held.
    pub(super) async fn due(&self) {
        self.0.due().await;
    }
}

fn kind((part, text): (Part, String)) -> Kind {
    match part {
        Part::Text => Kind::Text(common::TextDelta { text }),
        Part::Thinking => Kind::Thinking(common::ThinkingDelta { text }),
    }
}
