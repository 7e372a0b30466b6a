//! Joins small pieces of an answer into events of a sensible size.

use contracts::tavern::common::v1::{self as common, run_event::Kind};
use run_events::Coalescer;
use tokio::time::Instant;

/// Holds text and thinking back for a moment.
#[derive(Debug, Default)]
pub(in crate::runner::driver) struct TextCoalescer(Coalescer<Part>);

/// A part of a model's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runner::driver) enum Part {
    Text,
    Thinking,
}

impl TextCoalescer {
    /// Adds a piece and returns the events to record now.
    pub(in crate::runner::driver) fn push(&mut self, part: Part, piece: &str) -> Vec<Kind> {
        kinds(self.0.push(part, piece, Instant::now()))
    }

    /// Returns all pieces that are held back.
    pub(in crate::runner::driver) fn release(&mut self) -> Vec<Kind> {
        kinds(self.0.release(Instant::now()))
    }

    /// Drops the text that is held back, and returns the event that voids the text in the log, if any `is_recorded`;
    /// otherwise the thinking that is held back.
    pub(in crate::runner::driver) fn take_back(&mut self, is_recorded: bool) -> Vec<Kind> {
        let mut pieces = self.0.release(Instant::now());
        if is_recorded {
            return vec![Kind::OutputReset(common::OutputReset::default())];
        }
        pieces.retain(|(part, _)| *part == Part::Thinking);
        kinds(pieces)
    }

    /// Waits until the held pieces have waited long enough; for ever if none is held.
    pub(in crate::runner::driver) async fn due(&self) {
        self.0.due().await;
    }
}

fn kinds(pieces: Vec<(Part, String)>) -> Vec<Kind> {
    let kind = |(part, text)| match part {
        Part::Text => Kind::Text(common::TextDelta { text }),
        Part::Thinking => Kind::Thinking(common::ThinkingDelta { text }),
    };
    pieces.into_iter().map(kind).collect()
}
