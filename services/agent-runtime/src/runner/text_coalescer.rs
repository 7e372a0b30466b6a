//! Joins small pieces of a stream into events of a sensible size.

use std::time::Duration;

use contracts::tavern::common::v1::{self as common, run_event::Kind};
use tokio::time::Instant;

/// How many bytes are held back at most.
const MAX_HELD: usize = 2 << 10;
/// How long a piece is held back at most.
const MAX_WAIT: Duration = Duration::from_millis(40);

/// Holds text and thinking back for a moment.
#[derive(Debug, Default)]
pub(super) struct TextCoalescer {
    held: String,
    thinking: bool,
    until: Option<Instant>,
}

impl TextCoalescer {
    /// Takes a piece and returns what is to be recorded now.
    pub(super) fn say(&mut self, piece: &str, thinking: bool) -> Vec<Kind> {
        let mut kinds = Vec::new();
        if piece.is_empty() {
            return kinds;
        }
        if self.thinking != thinking {
            kinds.extend(self.release());
            self.thinking = thinking;
        }
        self.held.push_str(piece);
        self.until.get_or_insert_with(|| Instant::now() + MAX_WAIT);
        if self.held.len() >= MAX_HELD {
            kinds.extend(self.release());
        }
        kinds
    }

    /// Returns everything that is held back.
    pub(super) fn release(&mut self) -> Option<Kind> {
        self.until = None;
        let text = std::mem::take(&mut self.held);
        if text.is_empty() {
            return None;
        }
        Some(match self.thinking {
            true => Kind::Thinking(common::ThinkingDelta { text }),
            false => Kind::Text(common::TextDelta { text }),
        })
    }

    /// Waits until what is held back has waited long enough; for ever if nothing is held.
    pub(super) async fn due(&self) {
        match self.until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }
}
