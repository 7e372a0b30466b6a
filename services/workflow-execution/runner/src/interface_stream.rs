//! Streaming outputs of a run on their way into its log.
//!
//! A text of a node is recorded once as its own and once for each output of the workflow that it
//! reaches. The node waits only for the log, so a slow follower holds up neither it nor another
//! follower.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contracts::tavern::common::v1::{OutputStream, ResultPlace, run_event::Kind};
use core_types::Timestamp;
use run_events::{CallOutput, parts};
use serde_json::Value;

use workflow_domain::engine::{Engine, Event, Status};
use workflow_domain::plan::{NodeIndex, Plan};
use workflow_domain::slot::Slot;
use workflow_domain::stream::{StreamedOutput, streamed_outputs};
use workflow_domain::stream_value::{to_lines, whole_of};

/// One streaming output. Clones share it. The lock is held for a moment and never across an await;
/// the writing node and the loop of the run never use it at the same time.
#[derive(Clone, Debug)]
pub(super) struct InterfaceStream {
    state: Arc<Mutex<InterfaceState>>,
}

#[derive(Debug)]
struct InterfaceState {
    output: CallOutput,
    /// The content of the present generation, as far as this process has written it.
    shown: String,
    /// Whether the content is JSON values, each a line, instead of text.
    lines: bool,
    /// Whether an earlier process may have written content.
    stale: bool,
}

impl InterfaceStream {
    fn new(key: &str, result_place: ResultPlace, stale: bool) -> Self {
        let state = InterfaceState {
            output: CallOutput::of_interface(key, result_place),
            shown: String::new(),
            lines: false,
            stale,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Starts again from the first byte. The earlier content is void.
    pub(super) fn begin(&self, now: Timestamp) -> Option<Kind> {
        self.lock().begin(now)
    }

    /// Adds a piece: JSON values, each a line, or text.
    pub(super) fn write(&self, text: &str, lines: bool, now: Timestamp) -> Vec<Kind> {
        let mut state = self.lock();
        let reset = (state.stale || state.lines != lines).then(|| state.begin(now));
        state.lines = lines;
        let (reset, chunk) = (reset.flatten(), state.write(text.to_owned()));
        reset.into_iter().chain(chunk).collect()
    }

    /// Adds the missing rest of the whole content.
    fn complete(&self, whole: &Value, now: Timestamp) -> Vec<Kind> {
        let (whole, lines) = match whole {
            Value::Array(values) => (to_lines(values), true),
            Value::String(text) => (text.clone(), false),
            _ => (String::new(), false),
        };
        let mut state = self.lock();
        let mut kinds = Vec::new();
        if state.stale || state.lines != lines || !whole.starts_with(&state.shown) {
            kinds.extend(state.begin(now));
            state.lines = lines;
        }
        let rest = whole[state.shown.len()..].to_owned();
        kinds.extend(parts(rest).into_iter().filter_map(|part| state.write(part)));
        kinds
    }

    fn lock(&self) -> MutexGuard<'_, InterfaceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InterfaceState {
    fn begin(&mut self, now: Timestamp) -> Option<Kind> {
        let shows_nothing = !std::mem::take(&mut self.stale) && self.shown.is_empty();
        if shows_nothing {
            return None;
        }
        self.shown.clear();
        Some(Kind::OutputReset(self.output.begin_again(now)))
    }

    fn write(&mut self, text: String) -> Option<Kind> {
        if text.is_empty() {
            return None;
        }
        self.shown.push_str(&text);
        let chunk = match self.lines {
            true => self.output.write_lines(text),
            false => self.output.write(OutputStream::Out, text),
        };
        chunk.map(Kind::OutputChunk)
    }
}

/// The streaming outputs of a run.
#[derive(Debug, Default)]
pub(super) struct InterfaceStreams {
    streams: Vec<Streamed>,
}

#[derive(Debug)]
struct Streamed {
    output: StreamedOutput,
    slot: Slot,
    /// Whether the output of the node with the whole content is a stream itself.
    of_stream: bool,
    stream: InterfaceStream,
}

impl InterfaceStreams {
    /// Makes the streaming outputs of the run of `engine`.
    pub(super) fn of_run(engine: &Engine) -> Self {
        let plan = engine.plan();
        let begun =
            |node: NodeIndex| !matches!(engine.status(node), Status::Waiting | Status::Ready);
        let resumed = (0..plan.nodes.len()).any(|node| begun(node as NodeIndex));
        let streams = streamed_outputs(plan).into_iter().map(|output| {
            let slot = plan.interface_outputs[output.place].clone();
            let stale = output.writer.map_or(resumed, |(node, _)| begun(node));
            let from = &plan.nodes[output.node as usize].shape.outputs;
            Streamed {
                of_stream: from[output.slot as usize].is_stream,
                stream: InterfaceStream::new(&slot.key, result_place(plan, output.place), stale),
                output,
                slot,
            }
        });
        Self {
            streams: streams.collect(),
        }
    }

    /// Makes the streams of an iteration of a zone: the outputs of the workflow that the zone's
    /// streaming output of a key reaches.
    pub(super) fn of_iteration(
        engine: &Engine,
        reached: impl Fn(&str) -> Vec<InterfaceStream>,
    ) -> Self {
        let plan = engine.plan();
        let streams = streamed_outputs(plan).into_iter().flat_map(|output| {
            let slot = &plan.interface_outputs[output.place];
            let from = &plan.nodes[output.node as usize].shape.outputs;
            let streamed = move |stream| Streamed {
                output,
                slot: slot.clone(),
                of_stream: from[output.slot as usize].is_stream,
                stream,
            };
            reached(&slot.key).into_iter().map(streamed)
        });
        Self {
            streams: streams.collect(),
        }
    }

    /// Returns the streams of a node's output at `slot`.
    pub(super) fn written_by(&self, node: NodeIndex, slot: u32) -> Vec<InterfaceStream> {
        let streams = self.streams.iter();
        let written = streams.filter(|streamed| streamed.output.writer == Some((node, slot)));
        written.map(|streamed| streamed.stream.clone()).collect()
    }

    /// Returns the events to record before an event with the outputs of a node.
    pub(super) fn completed(&self, event: &Event, now: Timestamp) -> Vec<Kind> {
        let (Event::Succeeded(node, outputs) | Event::Handled(node, outputs, _)) = event else {
            return Vec::new();
        };
        let streams = self
            .streams
            .iter()
            .filter(|streamed| streamed.output.node == *node);
        streams
            .flat_map(|streamed| {
                let place = streamed.output.slot as usize;
                let value = outputs.get(place).and_then(Option::as_ref);
                let whole = value
                    .and_then(|value| whole_of(&streamed.slot, value, streamed.of_stream).ok());
                streamed.stream.complete(&whole.unwrap_or_default(), now)
            })
            .collect()
    }
}

/// Returns the place of an output in the result; streaming outputs are the first ones.
fn result_place(plan: &Plan, output: usize) -> ResultPlace {
    let outputs = &plan.interface_outputs;
    match outputs.iter().position(|slot| slot.is_stream) {
        Some(first) if first != output => ResultPlace::Unspecified,
        _ if outputs.len() == 1 => ResultPlace::Whole,
        _ => ResultPlace::First,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Writes events as texts; a reset is `!`.
    fn texts(kinds: impl IntoIterator<Item = Kind>) -> Vec<String> {
        let text = |kind| match kind {
            Kind::OutputChunk(chunk) => chunk.text,
            Kind::OutputReset(_) => "!".to_owned(),
            other => panic!("{other:?}"),
        };
        kinds.into_iter().map(text).collect()
    }

    #[test]
    fn the_end_adds_what_was_not_shown() {
        let now = Timestamp::from_unix_nanos(0);
        let stream = InterfaceStream::new("live", ResultPlace::Whole, false);
        assert_eq!(stream.begin(now), None);
        assert_eq!(texts(stream.write("Ra", false, now)), ["Ra"]);
        assert_eq!(texts(stream.complete(&"Rain.".into(), now)), ["in."]);
        assert!(stream.complete(&"Rain.".into(), now).is_empty());
        assert_eq!(texts(stream.complete(&"Sun".into(), now)), ["!", "Sun"]);
        assert_eq!(texts(stream.complete(&"".into(), now)), ["!"]);
    }

    #[test]
    fn values_are_lines_and_text_in_their_place_begins_anew() {
        let now = Timestamp::from_unix_nanos(0);
        let stream = InterfaceStream::new("live", ResultPlace::Whole, false);
        assert_eq!(
            texts(stream.write("{\"n\":1}\n", true, now)),
            ["{\"n\":1}\n"]
        );
        let rest = stream.complete(&json!([{"n": 1}, "a"]), now);
        assert!(matches!(&rest[..], [Kind::OutputChunk(chunk)] if chunk.json_lines));
        assert_eq!(texts(rest), ["\"a\"\n"]);
        let text = stream.complete(&json!("{\"n\":1}\n\"a\"\nand text"), now);
        assert!(matches!(&text[1], Kind::OutputChunk(chunk) if !chunk.json_lines));
        assert_eq!(texts(text), ["!", "{\"n\":1}\n\"a\"\nand text"]);
    }

    #[test]
    fn what_an_earlier_process_may_have_shown_is_void_before_the_first_piece() {
        let now = Timestamp::from_unix_nanos(0);
        let stream = InterfaceStream::new("live", ResultPlace::Whole, true);
        assert_eq!(texts(stream.begin(now)), ["!"]);
        assert_eq!(texts(stream.write("a", false, now)), ["a"]);
        assert_eq!(texts(stream.begin(now)), ["!"]);
        let stream = InterfaceStream::new("live", ResultPlace::Whole, true);
        assert_eq!(texts(stream.write("a", false, now)), ["!", "a"]);
        assert_eq!(texts(stream.write("b", false, now)), ["b"]);
        let stream = InterfaceStream::new("live", ResultPlace::Whole, true);
        assert_eq!(texts(stream.complete(&"a".into(), now)), ["!", "a"]);
    }
}
