//! Effects that start, and their calls.

use call_outcome::Failure;
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::Timestamp;

use workflow_domain::engine::Status;
use workflow_domain::node_definition::NodeEffects;
use workflow_domain::node_type::Effect;
use workflow_domain::plan::NodeIndex;
use workflow_domain::tool::ToolRequest;

use super::super::run_state::{RecordedCall, StateEvent, ZoneHistory};
use super::super::slot_stream::SlotStream;
use super::{EventBatch, RunLoop};

/// Effects that start once events are durable.
#[derive(Debug)]
pub struct Starts {
    /// All that happened before, and the starts.
    pub events: EventBatch,
    /// The effects.
    pub effects: Vec<StartedEffect>,
    /// The tools that must be read-only or idempotent so that a run may lose the starts and repeat them;
    /// `None` if it may not lose them. A zone and a list of calls decide for their parts.
    pub tools_to_repeat: Option<Vec<String>>,
}

/// An effect that starts.
#[derive(Debug)]
pub struct StartedEffect {
    /// The node.
    pub node: NodeIndex,
    /// The effect.
    pub effect: Effect,
    /// Whether an earlier process, or an attempt before, started the node.
    pub began_before: bool,
    /// The result of the only call of the node, if it was recorded before.
    pub settled: Option<common::CallResult>,
}

impl RunLoop {
    /// Starts the effects that have their permits, and zones while there is room.
    pub(super) fn start(&mut self, now: Timestamp) -> Option<Starts> {
        let room = self
            .of_run
            .max_effects
            .saturating_sub(self.under_way.effects);
        let starting = self.admissions.starting(room);
        if starting.is_empty() {
            return None;
        }
        let tools_to_repeat = self.tools_to_repeat(&starting);
        let started = starting.into_iter();
        let started = started.map(|(node, effect)| self.start_effect(node, effect, now));
        Some(Starts {
            effects: started.collect(),
            events: std::mem::take(&mut self.events),
            tools_to_repeat,
        })
    }

    /// Notes the start of a node, and of its call. After a restart both may be in the log already.
    fn start_effect(&mut self, node: NodeIndex, effect: Effect, now: Timestamp) -> StartedEffect {
        let engine = self.state.engine();
        let planned = engine.node(node);
        let began_before = engine.status(node) != Status::Ready;
        self.under_way.effects += 1;
        self.under_way.zones += usize::from(planned.repeats_effects());
        let streams = SlotStream::of_node(&self.written.streams, node, planned);
        self.written.slots.insert(node, streams);
        self.earlier_calls.retain(|(of, _)| *of != node);
        if !began_before {
            let started = common::NodeStarted {
                node_id: self.state.path_of(node),
                node_type: planned.definition().full_type.to_string(),
            };
            self.events.push(Kind::NodeStarted(started), 0);
            self.apply(StateEvent::Started { node, at: now });
        }
        let settled = match &effect {
            Effect::CallTool { tool_id, arguments } => {
                let arguments_json = serde_json::to_string(arguments)
                    .expect("a map with text keys always serialises");
                self.dispatch(node, tool_id, arguments_json)
            }
            _ => None,
        };
        StartedEffect {
            node,
            effect,
            began_before,
            settled,
        }
    }

    /// Notes that the only call of a node leaves; returns how it ended, if both were recorded before.
    fn dispatch(
        &mut self,
        node: NodeIndex,
        tool_id: &str,
        arguments_json: String,
    ) -> Option<common::CallResult> {
        if let Some(call) = self.state.calls().get(node, 0) {
            return call.settled.clone();
        }
        let effect_id = self.effect_id(node, 0);
        let call = RecordedCall::new(effect_id, tool_id.to_owned(), arguments_json);
        let bytes = call.arguments_json.len();
        let dispatched = common::CallDispatched {
            effect_id: call.effect_id.clone(),
            tool_id: call.tool_id.clone(),
            arguments_json: call.arguments_json.clone(),
            index: 0,
            node_id: self.state.path_of(node),
        };
        self.events.push(Kind::CallDispatched(dispatched), bytes);
        let (index, call) = (0, Box::new(call));
        self.apply(StateEvent::Dispatched { node, index, call });
        None
    }

    /// Returns the calls of a list, and whether each was recorded before.
    pub(crate) fn begin_batch(
        &mut self,
        node: NodeIndex,
        requests: &[ToolRequest],
    ) -> Vec<(RecordedCall, bool)> {
        let call = |(index, request): (usize, &ToolRequest)| {
            let place = u32::try_from(index).unwrap_or(u32::MAX);
            match self.state.calls().get(node, place) {
                Some(recorded) => (recorded.clone(), true),
                None => {
                    let arguments_json = serde_json::to_string(&request.arguments)
                        .expect("a map with text keys always serialises");
                    let effect_id = self.effect_id(node, index);
                    let tool_id = request.tool_id.clone();
                    (RecordedCall::new(effect_id, tool_id, arguments_json), false)
                }
            }
        };
        let calls: Vec<_> = requests.iter().enumerate().map(call).collect();
        let listed = calls.iter().map(|(call, _)| call.clone());
        self.written.batches.insert(node, listed.collect());
        calls
    }

    /// Hands the history of a zone over to the zone.
    pub(crate) fn take_zone(&mut self, node: NodeIndex) -> ZoneHistory {
        self.state.take_zone(node)
    }

    /// Returns the streaming outputs of a node under way.
    pub(crate) fn streams_of(&self, node: NodeIndex) -> Vec<SlotStream> {
        self.written.slots.get(&node).cloned().unwrap_or_default()
    }

    /// Counts the calls of an effect against the grant of the run.
    pub(super) fn take_calls(&self, node: NodeIndex, effect: &Effect) -> Result<(), Failure> {
        let calls = match effect {
            Effect::CallTool { .. } => 1,
            Effect::CallTools(requests) => requests.len(),
            _ => return Ok(()),
        };
        let effects = (0..calls).map(|index| self.effect_id(node, index));
        self.of_run.allowance.take(effects)
    }

    fn tools_to_repeat(&self, starting: &[(NodeIndex, Effect)]) -> Option<Vec<String>> {
        let mut tools = Vec::new();
        for (node, effect) in starting {
            let definition = self.state.engine().node(*node).definition();
            match effect {
                // Its package may be another one than that in force, which the registry would be asked about.
                Effect::CallTool { .. }
                    if definition.plugin.is_some()
                        && definition.effects == NodeEffects::External =>
                {
                    return None;
                }
                Effect::CallTool { tool_id, .. } => tools.push(tool_id.clone()),
                Effect::CallTools(_) | Effect::RunZone { .. } => {}
                _ if definition.effects != NodeEffects::External => {}
                _ => return None,
            }
        }
        Some(tools)
    }
}
