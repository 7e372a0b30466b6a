//! The text of a node's effect in a streaming output: kept, and passed on to the outputs of the
//! workflow that it reaches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contracts::tavern::common::v1::OutputChunk;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::Timestamp;
use serde_json::Value;

use crate::wire;
use workflow_domain::engine::Engine;
use workflow_domain::limits::MAX_VALUE_BYTES;
use workflow_domain::plan::{NodeIndex, PlanNode};
use workflow_domain::slot::Slot;

use super::interface_stream::{InterfaceStream, InterfaceStreams};

/// One streaming output of a node in progress. Clones share it. The lock is held for a moment and
/// never across an await.
#[derive(Clone, Debug)]
pub(super) struct SlotStream {
    key: Arc<str>,
    /// Whether it writes JSON values, each a line, and not text.
    lines: bool,
    state: Arc<Mutex<SlotState>>,
    outputs: Vec<InterfaceStream>,
}

#[derive(Debug, Default)]
struct SlotState {
    /// Whether this start of the effect has written. The text of an earlier start is void then.
    begun: bool,
    /// The generation of the child's output below.
    generation: u64,
    bytes: u64,
    /// The kept text, up to the largest output of a node.
    kept: String,
}

impl SlotStream {
    /// Begins the streams of a node that starts, one for each streaming output of it.
    pub(super) fn of_node(
        streams: &InterfaceStreams,
        node: NodeIndex,
        planned: &PlanNode,
    ) -> Vec<Self> {
        let slots = (0..).zip(planned.own_shape.outputs.iter());
        let slots = slots.filter(|(_, slot)| slot.is_stream);
        slots
            .map(|(at, slot)| Self::new(slot, streams.written_by(node, at)))
            .collect()
    }

    fn new(slot: &Slot, outputs: Vec<InterfaceStream>) -> Self {
        Self {
            key: Arc::clone(&slot.key),
            lines: slot.streams_values(),
            state: Arc::default(),
            outputs,
        }
    }

    /// Returns the key of the output.
    pub(super) fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// Returns the streams of an iteration of a zone whose own streaming outputs are `zone`.
    pub(super) fn of_iteration(zone: &[Self], engine: &Engine) -> InterfaceStreams {
        InterfaceStreams::of_iteration(engine, |key| {
            let reached = zone.iter().filter(|stream| *stream.key == *key);
            reached.flat_map(|stream| stream.outputs.clone()).collect()
        })
    }

    /// Whether it accepts JSON values, each a line, instead of text.
    pub(super) fn takes_lines(&self) -> bool {
        self.lines
    }

    /// Starts again. The earlier text is void.
    pub(super) fn begin(&self, now: Timestamp) -> Vec<Kind> {
        *self.lock() = SlotState {
            begun: true,
            ..SlotState::default()
        };
        self.outputs
            .iter()
            .filter_map(|output| output.begin(now))
            .collect()
    }

    /// Appends text.
    pub(super) fn write(&self, text: &str, now: Timestamp) -> Vec<Kind> {
        self.write_as(text, self.lines, now)
    }

    /// Appends a piece of the output of a run below, of the same key. Earlier pieces have no
    /// effect: a run that is followed again reports all of them from its beginning.
    pub(super) fn take(&self, chunk: &OutputChunk, now: Timestamp) -> Vec<Kind> {
        let mut kinds = self.again(chunk.generation, now);
        let place = {
            let state = self.lock();
            (state.generation, state.bytes)
        };
        if place == (chunk.generation, chunk.offset) {
            kinds.extend(self.write_as(&chunk.text, chunk.json_lines, now));
        }
        kinds
    }

    /// Starts again if the run below did so since.
    pub(super) fn again(&self, generation: u64, now: Timestamp) -> Vec<Kind> {
        if generation <= self.lock().generation {
            return Vec::new();
        }
        let kinds = self.begin(now);
        self.lock().generation = generation;
        kinds
    }

    /// Returns the text so far.
    pub(super) fn so_far(&self) -> Value {
        let state = self.lock();
        if !self.lines {
            return Value::String(state.kept.clone());
        }
        let values = state
            .kept
            .lines()
            .map_while(|line| wire::read_value(line).ok());
        Value::Array(values.collect())
    }

    fn write_as(&self, text: &str, lines: bool, now: Timestamp) -> Vec<Kind> {
        let begun = self.lock().begun;
        let mut kinds = match begun {
            true => Vec::new(),
            false => self.begin(now),
        };
        let mut state = self.lock();
        state.bytes += text.len() as u64;
        if state.kept.len() + text.len() <= MAX_VALUE_BYTES {
            state.kept.push_str(text);
        }
        drop(state);
        let outputs = self.outputs.iter();
        kinds.extend(outputs.flat_map(|output| output.write(text, lines, now)));
        kinds
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use workflow_domain::data_flow::DataFlow;

    fn chunk(generation: u64, offset: u64, text: &str) -> OutputChunk {
        OutputChunk {
            text: text.to_owned(),
            generation,
            offset,
            json_lines: true,
            ..OutputChunk::default()
        }
    }

    #[test]
    fn a_run_that_is_followed_again_writes_once_and_one_that_begins_again_anew() {
        let slot = Slot::new("s", DataFlow::Integer, "").stream();
        let stream = SlotStream::new(&slot, Vec::new());
        let now = Timestamp::from_unix_nanos(0);
        for (chunk, so_far) in [
            (chunk(0, 0, "1\n"), json!([1])),
            (chunk(0, 0, "1\n"), json!([1])),
            (chunk(0, 2, "2\n3\n"), json!([1, 2, 3])),
            (chunk(7, 0, "4\n"), json!([4])),
            (chunk(0, 6, "5\n"), json!([4])),
            (chunk(7, 2, "6\n{\"cut"), json!([4, 6])),
        ] {
            stream.take(&chunk, now);
            assert_eq!(stream.so_far(), so_far);
        }
        stream.again(7, now);
        assert_eq!(stream.so_far(), json!([4, 6]));
        stream.again(8, now);
        assert_eq!(stream.so_far(), json!([]));
    }

    #[test]
    fn what_is_kept_of_a_text_is_bounded() {
        let slot = Slot::new("s", DataFlow::String, "").stream();
        let stream = SlotStream::new(&slot, Vec::new());
        let now = Timestamp::from_unix_nanos(0);
        let long = "x".repeat(MAX_VALUE_BYTES);
        stream.write("a", now);
        stream.write(&long, now);
        assert_eq!(stream.so_far(), json!("a"));
    }
}
