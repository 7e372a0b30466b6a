//! Joins small pieces of an answer into events of a sensible size.

use contracts::tavern::common::v1::{self as common, run_event::Kind};
use run_events::Coalescer;
use tokio::time::Instant;

/// Holds text and thinking back for a moment.
#[derive(Debug, Default)]
pub(super) struct TextCoalescer {
    held: Coalescer<Part>,
    /// Whether text was given that is not void.
    shown: bool,
}

/// What a model writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text,
    Thinking,
}

impl TextCoalescer {
    /// Takes a piece and returns what is to be recorded now.
    pub(super) fn push(&mut self, part: Part, piece: &str) -> Vec<Kind> {
        let pieces = self.held.push(part, piece, Instant::now());
        self.give(pieces)
    }

    /// Returns everything that is held back.
    pub(super) fn release(&mut self) -> Vec<Kind> {
        let pieces = self.held.release(Instant::now());
        self.give(pieces)
    }

    /// Returns what makes the text so far void: nothing but thinking if none of it was given.
    pub(super) fn take_back(&mut self) -> Vec<Kind> {
        let mut pieces = self.held.release(Instant::now());
        if std::mem::take(&mut self.shown) {
            return vec![Kind::OutputReset(common::OutputReset::default())];
        }
        pieces.retain(|(part, _)| *part == Part::Thinking);
        self.give(pieces)
    }

    fn give(&mut self, pieces: Vec<(Part, String)>) -> Vec<Kind> {
        self.shown |= pieces.iter().any(|(part, _)| *part == Part::Text);
        pieces.into_iter().map(kind).collect()
    }

    /// Waits until what is held back has waited long enough; for ever if nothing is held.
    pub(super) async fn due(&self) {
        self.held.due().await;
    }
}

fn kind((part, text): (Part, String)) -> Kind {
    match part {
        Part::Text => Kind::Text(common::TextDelta { text }),
        Part::Thinking => Kind::Thinking(common::ThinkingDelta { text }),
    }
}
