//! The output of a tool so far, for followers that come at any time.

use std::sync::Arc;

use contracts::tavern::common::v1::{
    OutputChunk, OutputReset, OutputStream, ProgressReported, RunEvent, run_event::Kind,
};
use core_types::Timestamp;
use run_events::CallOutput;

use super::output_text::OutputText;

/// The output of a call in flight, kept once for all followers, each of which has a cursor. It is as
/// bounded as [`CallOutput`].
#[derive(Debug, Default)]
pub struct LiveOutput {
    output: CallOutput,
    text: OutputText,
    events: Vec<Arc<RunEvent>>,
    /// The output that is held back; `None` if it is shown at once.
    held: Option<Vec<RunEvent>>,
}

/// The position of one follower in the output of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputCursor {
    generation: u64,
    shown: usize,
}

impl LiveOutput {
    pub(super) fn new(effect_id: &str) -> Self {
        Self {
            output: CallOutput::of_call(effect_id),
            ..Self::default()
        }
    }

    /// Returns the events that a follower has not seen, and moves its cursor behind them. If the
    /// tool began again, these are all events since.
    pub fn read(&self, cursor: &mut OutputCursor) -> Vec<Arc<RunEvent>> {
        let generation = self.output.generation();
        if cursor.generation != generation {
            *cursor = OutputCursor {
                generation,
                shown: 0,
            };
        }
        let unseen = self.events[cursor.shown..].to_vec();
        cursor.shown = self.events.len();
        unseen
    }

    /// Returns the beginning of the JSON text of the output, as far as it is written and not held back.
    pub fn beginning(&self) -> String {
        match self.held {
            None => self.text.beginning(),
            Some(_) => String::new(),
        }
    }

    /// Returns which start of the tool or of the run below wrote that beginning; 0 for the first.
    pub fn generation(&self) -> u64 {
        self.text.generation()
    }

    /// Takes an event of the run that carries the call out.
    pub(super) fn take_below(&mut self, kind: &Kind) {
        self.text.take_below(kind);
    }

    /// Makes the next chunk of text that the tool wrote. Returns `None` if no more is shown.
    pub(super) fn write(&mut self, stream: OutputStream, text: String) -> Option<OutputChunk> {
        let chunk = self.output.write(stream, text)?;
        if stream == OutputStream::Out {
            self.text.take(&chunk);
        }
        Some(chunk)
    }

    /// Makes the next chunk of JSON values, each a line. Returns `None` if no more is shown.
    pub(super) fn write_lines(&mut self, lines: String) -> Option<OutputChunk> {
        let chunk = self.output.write_lines(lines)?;
        self.text.take(&chunk);
        Some(chunk)
    }

    /// Makes the event of a script's report of its progress.
    pub(super) fn report(&self, fraction: Option<f64>, message: String) -> ProgressReported {
        self.output.report(fraction, message)
    }

    /// Begins anew. Earlier output is void and no longer kept.
    pub(super) fn begin_again(&mut self, now: Timestamp) -> OutputReset {
        self.events.clear();
        if let Some(held) = &mut self.held {
            held.clear();
        }
        let reset = self.output.begin_again(now);
        self.text.begin_again(reset.generation);
        reset
    }

    /// Holds output back from now on.
    pub(super) fn hold_back(&mut self) {
        self.held.get_or_insert_default();
    }

    /// Shows the output that was held back, and later output at once. Returns whether there was any.
    pub(super) fn release(&mut self) -> bool {
        let held = self.held.take().unwrap_or_default();
        let has_any = !held.is_empty();
        held.into_iter().for_each(|event| self.add(event));
        has_any
    }

    /// Drops the output that was held back, and later output. Output that was not held back stays.
    pub(super) fn discard(&mut self) {
        if let Some(held) = &mut self.held {
            held.clear();
        }
    }

    /// Whether output is held back.
    pub(super) fn is_held_back(&self) -> bool {
        self.held.is_some()
    }

    /// Adds an event of output at the next position, unless output is held back. Returns whether it is shown.
    pub(super) fn add_output(&mut self, event: RunEvent) -> bool {
        match &mut self.held {
            Some(held) => held.push(event),
            None => self.add(event),
        }
        self.held.is_none()
    }

    /// Adds an event at the next position.
    pub(super) fn add(&mut self, mut event: RunEvent) {
        event.sequence = self.events.len() as u64 + 1;
        self.events.push(Arc::new(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_of_a_tool_that_begins_again_reads_what_came_since() {
        let mut output = LiveOutput::new("e");
        let mut cursor = OutputCursor::default();
        output.add(RunEvent::default());
        output.add(RunEvent::default());
        assert_eq!(output.read(&mut cursor).len(), 2);
        assert_eq!(output.read(&mut cursor).len(), 0);
        output.begin_again(Timestamp::from_unix_nanos(1));
        output.add(RunEvent::default());
        let sequences: Vec<u64> = output
            .read(&mut cursor)
            .iter()
            .map(|event| event.sequence)
            .collect();
        assert_eq!(sequences, [1]);
    }
}
