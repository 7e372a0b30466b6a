//! Streaming outputs of a run on their way into its log.
//!
//! What a node writes is recorded once as its own and once for each output of the workflow that it
//! reaches. The node waits for the log and for nothing else, so a follower that reads slowly holds neither
//! it nor another follower.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contracts::tavern::common::v1::{OutputStream, run_event::Kind};
use core_types::Timestamp;
use run_events::{CallOutput, parts};

use crate::domain::data_flow::DataFlow;
use crate::domain::engine::{Engine, Event, Status};
use crate::domain::plan::NodeIndex;
use crate::domain::stream::{StreamedOutput, streamed_outputs};

/// One streaming output. Clones are handles of the same. The lock is held for a moment and never across
/// an await; only one of the node that writes and the loop of the run uses it at a time.
#[derive(Clone, Debug)]
pub(super) struct InterfaceStream {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    output: CallOutput,
    /// What the present generation shows, as far as this process knows.
    shown: String,
    /// Whether an earlier process may have shown something.
    stale: bool,
}

impl InterfaceStream {
    fn new(key: &str, stale: bool) -> Self {
        let state = State {
            output: CallOutput::of_interface(key),
            shown: String::new(),
            stale,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Begins from the first byte. What was shown before is void.
    pub(super) fn begin(&self, now: Timestamp) -> Option<Kind> {
        self.lock().begin(now)
    }

    /// Adds a piece.
    pub(super) fn write(&self, text: &str, now: Timestamp) -> Vec<Kind> {
        let mut state = self.lock();
        let reset = state.stale.then(|| state.begin(now)).flatten();
        let chunk = state.write(text.to_owned());
        reset.into_iter().chain(chunk).collect()
    }

    /// Shows what is missing of the whole text.
    fn complete(&self, whole: &str, now: Timestamp) -> Vec<Kind> {
        let mut state = self.lock();
        let mut kinds = Vec::new();
        if state.stale || !whole.starts_with(&state.shown) {
            kinds.extend(state.begin(now));
        }
        let rest = whole[state.shown.len()..].to_owned();
        kinds.extend(parts(rest).into_iter().filter_map(|part| state.write(part)));
        kinds
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
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
        let chunk = self.output.write(OutputStream::Out, text)?;
        Some(Kind::OutputChunk(chunk))
    }
}

/// The streaming outputs of a run.
#[derive(Debug, Default)]
pub(super) struct InterfaceStreams {
    streams: Vec<(StreamedOutput, DataFlow, InterfaceStream)>,
}

impl InterfaceStreams {
    /// Takes those of the run that `engine` stands for.
    pub(super) fn of_run(engine: &Engine) -> Self {
        let plan = engine.plan();
        let begun =
            |node: NodeIndex| !matches!(engine.status(node), Status::Waiting | Status::Ready);
        let resumed = (0..plan.nodes.len()).any(|node| begun(node as NodeIndex));
        let streams = streamed_outputs(plan).into_iter().map(|streamed| {
            let slot = &plan.interface_outputs[streamed.place];
            let stale = streamed.writer.map_or(resumed, begun);
            let stream = InterfaceStream::new(&slot.key, stale);
            (streamed, slot.data_flow, stream)
        });
        Self {
            streams: streams.collect(),
        }
    }

    /// Returns the streams whose pieces a node writes.
    pub(super) fn written_by(&self, node: NodeIndex) -> Vec<InterfaceStream> {
        let written = self
            .streams
            .iter()
            .filter(|(streamed, ..)| streamed.writer == Some(node));
        written.map(|(_, _, stream)| stream.clone()).collect()
    }

    /// Returns what is to be recorded before an event that gives a node its outputs.
    pub(super) fn completed(&self, event: &Event, now: Timestamp) -> Vec<Kind> {
        let (Event::Succeeded(node, outputs) | Event::Handled(node, outputs, _)) = event else {
            return Vec::new();
        };
        let streams = self
            .streams
            .iter()
            .filter(|(streamed, ..)| streamed.node == *node);
        streams
            .flat_map(|(streamed, data_flow, stream)| {
                let value = outputs.get(streamed.slot as usize).and_then(Option::as_ref);
                let value = value.and_then(|value| data_flow.fit(value).ok());
                let whole = value.as_ref().and_then(|value| value.as_str());
                stream.complete(whole.unwrap_or(""), now)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
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
        let stream = InterfaceStream::new("live", false);
        assert_eq!(stream.begin(now), None);
        assert_eq!(texts(stream.write("Ra", now)), ["Ra"]);
        assert_eq!(texts(stream.complete("Rain.", now)), ["in."]);
        assert!(stream.complete("Rain.", now).is_empty());
        assert_eq!(texts(stream.complete("Sun", now)), ["!", "Sun"]);
        assert_eq!(texts(stream.complete("", now)), ["!"]);
    }

    #[test]
    fn what_an_earlier_process_may_have_shown_is_void_before_the_first_piece() {
        let now = Timestamp::from_unix_nanos(0);
        let stream = InterfaceStream::new("live", true);
        assert_eq!(texts(stream.begin(now)), ["!"]);
        assert_eq!(texts(stream.write("a", now)), ["a"]);
        assert_eq!(texts(stream.begin(now)), ["!"]);
        let stream = InterfaceStream::new("live", true);
        assert_eq!(texts(stream.write("a", now)), ["!", "a"]);
        assert_eq!(texts(stream.write("b", now)), ["b"]);
        let stream = InterfaceStream::new("live", true);
        assert_eq!(texts(stream.complete("a", now)), ["!", "a"]);
    }
}
