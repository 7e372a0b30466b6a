//! A finished turn as lines of JSON: a header with the data outside its log, then the events (rule
//! G1001).

use std::sync::LazyLock;

use agent_domain::{
    message::{ChatMessage, TurnMessage},
    plan::Plan,
};
use call_catalogue::RemovedTool;
use contracts::tavern::{
    common::v1::{RunEvent, run_event::Kind},
    registry::v1::Tool,
};
use core_types::Timestamp;
use prost_reflect::{DescriptorPool, DynamicMessage, prost::Message};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::inventory;

/// The format of the lines. Other formats are rejected.
const FORMAT: &str = "tavern.turn.v1";

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(contracts::FILE_DESCRIPTOR_SET).expect("the contract is compiled in")
});

/// The data of a turn outside its log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Header {
    format: String,
    /// The run of the turn.
    pub run_id: String,
    /// The plan, stored with the log.
    pub plan: Plan,
    /// The most bytes of the conversation in a prompt.
    pub history_bytes: usize,
    /// The tools of the inventory and for handles, as the registry had them at the export.
    tools: Vec<Value>,
    /// The ids of the tools that are included only for handles.
    for_handles: Vec<String>,
    /// The ids of all tools.
    known: Vec<String>,
    /// The tools that plugins brought and bring no more.
    #[serde(default)]
    removed: Vec<RemovedTool>,
    /// Whether a call of the conversation gave a handle before the turn.
    pub handle_given: bool,
    /// The turns of the conversation before it.
    earlier: Vec<Vec<RecordedMessage>>,
    /// The untrusted texts of them.
    pub untrusted: Vec<String>,
    /// The states that the model was shown.
    states: Vec<ShownState>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RecordedMessage {
    message: ChatMessage,
    observation: bool,
    unix_nanos: i64,
}

/// The states that a model is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::runner) enum StateKind {
    Private,
    World,
    Goals,
}

/// A version of a state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::runner) struct ShownState {
    /// The kind of state.
    pub(in crate::runner) kind: StateKind,
    /// The version.
    pub(in crate::runner) version: u64,
    /// The state.
    pub(in crate::runner) value: Value,
}

/// A turn that can be replayed.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// The data outside its log.
    pub header: Header,
    events: Vec<RunEvent>,
}

/// The reasons for which lines are not a fixture.
#[derive(Debug, thiserror::Error)]
pub enum FixtureError {
    /// There is no header of this form.
    #[error("the first line must be a {FORMAT} header; export the run again")]
    Header(#[source] Option<serde_json::Error>),
    /// A line is not an event.
    #[error("line {line} is not an event")]
    Event {
        /// The line, from 1.
        line: usize,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// A line is not the event that follows the one before it.
    #[error(
        "line {line} has the event {found} where the event {expected} belongs, so lines are missing; export the run again"
    )]
    Gap {
        /// The line, from 1.
        line: usize,
        /// The sequence of its event.
        found: u64,
        /// The sequence that follows.
        expected: u64,
    },
    /// The end of the turn is missing.
    #[error(
        "the end of the turn is missing behind {events} events, so lines are missing; export the run again"
    )]
    Cut {
        /// The number of events in the lines.
        events: usize,
    },
}

/// The parts of a header.
pub(in crate::runner) struct Parts {
    pub(in crate::runner) run_id: String,
    pub(in crate::runner) plan: Plan,
    pub(in crate::runner) history_bytes: usize,
    pub(in crate::runner) tools: inventory::Tools,
    pub(in crate::runner) handle_given: bool,
    pub(in crate::runner) earlier: Vec<Vec<TurnMessage>>,
    pub(in crate::runner) untrusted: Vec<String>,
    pub(in crate::runner) states: Vec<ShownState>,
}

impl Header {
    pub(in crate::runner) fn new(parts: Parts) -> Self {
        let earlier = parts.earlier.into_iter().map(|turn| {
            let said = turn.into_iter().map(|said| RecordedMessage {
                message: said.message,
                observation: said.observation,
                unix_nanos: said.time.unix_nanos(),
            });
            said.collect()
        });
        Self {
            format: FORMAT.to_owned(),
            run_id: parts.run_id,
            plan: parts.plan,
            history_bytes: parts.history_bytes,
            tools: parts
                .tools
                .all
                .iter()
                .map(|tool| json_of("tavern.registry.v1.Tool", tool))
                .collect(),
            for_handles: parts.tools.for_handles,
            known: parts.tools.known,
            removed: parts.tools.removed,
            handle_given: parts.handle_given,
            earlier: earlier.collect(),
            untrusted: parts.untrusted,
            states: parts.states,
        }
    }

    pub(super) fn earlier(&self) -> Vec<Vec<TurnMessage>> {
        let turns = self.earlier.iter().map(|turn| {
            let said = turn.iter().map(|said| TurnMessage {
                message: said.message.clone(),
                observation: said.observation,
                time: Timestamp::from_unix_nanos(said.unix_nanos),
            });
            said.collect()
        });
        turns.collect()
    }

    pub(super) fn state(&self, kind: StateKind, version: u64) -> Option<&Value> {
        let mut states = self.states.iter();
        let found = states.find(|state| state.kind == kind && state.version == version);
        found.map(|state| &state.value)
    }

    /// Returns the tools that the model was shown.
    pub(super) fn inventory(&self) -> Result<inventory::Inventory, String> {
        let tools = self.tools.iter().map(|tool| {
            let descriptor = POOL.get_message_by_name("tavern.registry.v1.Tool");
            let descriptor = descriptor.ok_or("the contract has no tools")?;
            let message = DynamicMessage::deserialize(descriptor, tool);
            let message = message.map_err(|error| error.to_string())?;
            message
                .transcode_to::<Tool>()
                .map_err(|error| error.to_string())
        });
        let tools = inventory::Tools {
            all: tools.collect::<Result<_, String>>()?,
            for_handles: self.for_handles.clone(),
            known: self.known.clone(),
            removed: self.removed.clone(),
            missing: Vec::new(),
        };
        let inventory = tools.inventory(&self.plan);
        inventory.map_err(|_| "its tools cannot be distinguished".to_owned())
    }
}

impl Fixture {
    /// Reads the lines of a fixture: the events from the first one to the end of the turn, without a gap.
    ///
    /// # Errors
    /// [`FixtureError`] names the line.
    pub fn read(text: &str) -> Result<Self, FixtureError> {
        let mut lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty());
        let (_, first) = lines.next().ok_or(FixtureError::Header(None))?;
        let header: Header =
            serde_json::from_str(first).map_err(|error| FixtureError::Header(Some(error)))?;
        if header.format != FORMAT {
            return Err(FixtureError::Header(None));
        }
        let mut events: Vec<RunEvent> = Vec::new();
        for (place, line) in lines {
            let line_number = place + 1;
            let event = event_of(line).map_err(|source| FixtureError::Event {
                line: line_number,
                source,
            })?;
            let expected = events.last().map_or(1, |last| last.sequence + 1);
            if event.sequence != expected {
                return Err(FixtureError::Gap {
                    line: line_number,
                    found: event.sequence,
                    expected,
                });
            }
            events.push(event);
        }
        let fixture = Self { header, events };
        let ends = |event: &RunEvent| matches!(event.kind, Some(Kind::RunFinished(_)));
        let is_whole = fixture.own_events().any(ends);
        match is_whole {
            true => Ok(fixture),
            false => Err(FixtureError::Cut {
                events: fixture.events.len(),
            }),
        }
    }

    /// Returns the events of the turn itself.
    pub(in crate::runner) fn own_events(&self) -> impl Iterator<Item = &RunEvent> {
        let run_id = &self.header.run_id;
        self.events
            .iter()
            .filter(move |event| event.run_id == *run_id)
    }
}

/// Writes the lines of a fixture.
pub(in crate::runner) fn lines(header: &Header, events: &[RunEvent]) -> Vec<String> {
    let header = serde_json::to_string(header).expect("a header has only text keys");
    let events = events.iter().map(|event| to_value(event).to_string());
    std::iter::once(header).chain(events).collect()
}

/// Writes an event as JSON.
pub(super) fn to_value(event: &RunEvent) -> Value {
    json_of("tavern.common.v1.RunEvent", event)
}

fn event_of(line: &str) -> Result<RunEvent, serde_json::Error> {
    use serde::de::Error;
    let descriptor = POOL.get_message_by_name("tavern.common.v1.RunEvent");
    let descriptor = descriptor.ok_or_else(|| Error::custom("the contract has no events"))?;
    let mut reader = serde_json::Deserializer::from_str(line);
    let message = DynamicMessage::deserialize(descriptor, &mut reader)?;
    message.transcode_to().map_err(Error::custom)
}

fn json_of(name: &str, message: &impl Message) -> Value {
    let descriptor = POOL.get_message_by_name(name).expect("the contract has it");
    let message = DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice());
    let message = message.expect("a message of the contract has its form");
    serde_json::to_value(message).expect("a message is JSON")
}
