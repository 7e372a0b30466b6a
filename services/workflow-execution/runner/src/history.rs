//! The recorded events of a run, replayed through the engine.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use call_outcome::Failure;
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::Timestamp;

use crate::wire;
use workflow_domain::data_flow::Values;
use workflow_domain::engine::{Divergence, Engine, Event};
use workflow_domain::interface::RunInputs;
use workflow_domain::plan::{NodeIndex, Plan};
use workflow_domain::size::weight;

use super::handled::HandledFailures;
use super::tool_text::ToolText;

/// What is known of the calls of a run, by node and by the place among the node's calls.
pub type Calls = HashMap<(NodeIndex, u32), RecordedCall>;

/// The present attempt of each node that is tried again.
pub type Attempts = HashMap<NodeIndex, Attempt>;

/// An attempt after the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, from 2.
    pub number: u32,
    /// When it begins, fixed when the one before failed.
    pub due: Timestamp,
    /// How long that was after the failure.
    pub pause: Duration,
}

/// A call that was dispatched.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// The id of its effect.
    pub effect_id: String,
    /// The tool.
    pub tool_id: String,
    /// The arguments as they left.
    pub arguments_json: String,
    /// How it ended, if that was recorded.
    pub settled: Option<common::CallResult>,
    /// Whether an earlier process may have asked for its present attempt.
    pub(super) left_before: bool,
    /// What its tool wrote.
    pub(super) written: ToolText,
}

/// What was recorded of the zones under way whose nodes have effects.
pub type Zones = HashMap<NodeIndex, ZoneHistory>;

/// What was recorded of a zone under way.
#[derive(Debug, Default)]
pub struct ZoneHistory {
    /// What the iterations gave that ended, by number.
    pub ended: BTreeMap<u64, Result<Values, Failure>>,
    /// The events of those that did not.
    pub open: HashMap<u64, Vec<common::RunEvent>>,
    /// The iteration of each effect in them.
    effects: HashMap<String, u64>,
}

/// Where a run, or an iteration in it, stood when its last event was recorded.
#[derive(Debug)]
pub struct Replayed {
    /// What stands in front of the ids of its nodes in events; empty for the run itself.
    path: String,
    /// The state.
    pub engine: Engine,
    /// What is known of the zones under way.
    pub zones: Zones,
    /// What is known of its calls.
    pub calls: Calls,
    /// The present attempt of each node that is tried again.
    pub attempts: Attempts,
    /// When each node with settings for its execution began.
    pub begun: HashMap<NodeIndex, Timestamp>,
    /// The failures that were handled, with those inside its zones.
    pub handled: HandledFailures,
    /// Why it was to be cancelled, if it was.
    pub cancelled: Option<String>,
    /// How it ended, if it did.
    pub outcome: Option<common::RunOutcome>,
}

/// A history that does not fit its workflow.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// An event speaks of a node that the workflow does not have.
    #[error("event {sequence} speaks of node `{node}`, which the workflow does not have")]
    UnknownNode {
        /// The place of the event.
        sequence: u64,
        /// The node.
        node: String,
    },
    /// An event cannot have happened.
    #[error("event {sequence} does not fit the workflow")]
    Diverged {
        /// The place of the event.
        sequence: u64,
        /// Why.
        #[source]
        source: Divergence,
    },
    /// Recorded outputs cannot be read.
    #[error("the outputs in event {sequence} cannot be read: {problem}")]
    Outputs {
        /// The place of the event.
        sequence: u64,
        /// Why.
        problem: String,
    },
}

/// Forgets how the calls of a node ended that did not succeed, before another attempt, which may have left
/// before this process began or has not.
pub(super) fn forget_failed(calls: &mut Calls, node: NodeIndex, left_before: bool) {
    let of_node = calls.iter_mut().filter(|((of, _), _)| *of == node);
    for (_, call) in of_node {
        call.settled
            .take_if(|result| result.status() != common::CallStatus::Succeeded);
        if call.settled.is_none() {
            call.left_before = left_before;
            call.written.clear();
        }
    }
}

/// Feeds recorded events through the engine. Events of runs below are passed over.
///
/// # Errors
/// [`ReplayError`] if the history cannot be one of this plan.
pub fn replay(
    plan: Arc<Plan>,
    inputs: RunInputs,
    run_id: &str,
    events: &[common::RunEvent],
) -> Result<Replayed, ReplayError> {
    // Commands are thrown away: what is not answered in the history is outstanding at its end.
    let mut ignored = Vec::new();
    let engine = Engine::start(plan, inputs, &mut ignored).with_seed(run_id);
    let events = events.iter().filter(|event| event.run_id == run_id);
    replay_iteration(String::new(), engine, events)
}

/// Feeds what was recorded of an iteration through its engine. `path` stands in front of the ids of its
/// nodes.
///
/// # Errors
/// [`ReplayError`] if the history cannot be one of this plan.
pub fn replay_iteration<'a>(
    path: String,
    engine: Engine,
    events: impl Iterator<Item = &'a common::RunEvent>,
) -> Result<Replayed, ReplayError> {
    let mut replayed = Replayed {
        path,
        engine,
        zones: Zones::new(),
        calls: Calls::new(),
        attempts: Attempts::new(),
        begun: HashMap::new(),
        handled: HandledFailures::default(),
        cancelled: None,
        outcome: None,
    };
    for event in events {
        replayed.take(event)?;
    }
    Ok(replayed)
}

/// A node that an event speaks of.
enum EventNode {
    /// One of the plan.
    Here(NodeIndex),
    /// One inside a zone of the plan.
    Inside { zone: NodeIndex, iteration: u64 },
}

impl ZoneHistory {
    /// Whether an iteration had begun and had not ended.
    pub fn is_open(&self, index: u64) -> bool {
        self.open.contains_key(&index)
    }

    /// Whether this iteration or one behind it had begun and had not ended.
    pub fn is_open_from(&self, index: u64) -> bool {
        self.open.keys().any(|open| *open >= index)
    }

    /// Returns the ids of the effects of iterations that had begun and had not ended.
    pub(super) fn effects(&self) -> impl Iterator<Item = &str> {
        self.effects.keys().map(String::as_str)
    }

    fn keep(&mut self, iteration: u64, event: common::RunEvent) {
        if let Some(Kind::CallDispatched(dispatched)) = &event.kind {
            self.effects.insert(dispatched.effect_id.clone(), iteration);
        }
        self.open.entry(iteration).or_default().push(event);
    }

    fn end(&mut self, iteration: u64, gave: Result<Values, Failure>) {
        self.open.remove(&iteration);
        self.effects.retain(|_, of| *of != iteration);
        self.ended.insert(iteration, gave);
    }
}

fn time_of(event: &common::RunEvent) -> Timestamp {
    let time = event
        .time
        .and_then(grpc_kit::run_list::timestamp_from_proto);
    time.unwrap_or_default()
}

fn unknown_node(sequence: u64, id: &str) -> ReplayError {
    ReplayError::UnknownNode {
        sequence,
        node: id.chars().take(80).collect(),
    }
}

impl Replayed {
    /// Returns the ids of the calls of which it was not recorded how they ended.
    pub fn unsettled(&self) -> Vec<String> {
        let own = self.calls.values().filter(|call| call.settled.is_none());
        let own = own.map(|call| call.effect_id.clone());
        let inside = self
            .zones
            .values()
            .flat_map(|zone| zone.effects().map(str::to_owned));
        own.chain(inside).collect()
    }

    fn take(&mut self, event: &common::RunEvent) -> Result<(), ReplayError> {
        let sequence = event.sequence;
        if let Some(Kind::NodeFinished(finished)) = &event.kind {
            self.handled.note(finished);
        }
        if let Some((zone, iteration)) = self.zone_of(event)? {
            self.zones
                .entry(zone)
                .or_default()
                .keep(iteration, event.clone());
            return Ok(());
        }
        match &event.kind {
            Some(Kind::NodeStarted(started)) => {
                let node = self.node(sequence, &started.node_id)?;
                if self.engine.node(node).execution.is_some() {
                    self.begun.insert(node, time_of(event));
                }
                self.apply(sequence, Event::Started(node))
            }
            Some(Kind::NodeFinished(finished)) => {
                let event = self.finished(sequence, finished)?;
                self.zones.remove(&event.node());
                self.apply(sequence, event)
            }
            Some(Kind::IterationFinished(finished)) => {
                let zone = self.node(sequence, &finished.node_id)?;
                let gave = self.gave(sequence, zone, finished)?;
                self.zones
                    .entry(zone)
                    .or_default()
                    .end(finished.index, gave);
                Ok(())
            }
            Some(Kind::NodeRetrying(retrying)) => self.retrying(event, retrying),
            Some(Kind::CallDispatched(dispatched)) => {
                let node = self.node(sequence, &dispatched.node_id)?;
                let call = RecordedCall {
                    effect_id: dispatched.effect_id.clone(),
                    tool_id: dispatched.tool_id.clone(),
                    arguments_json: dispatched.arguments_json.clone(),
                    settled: None,
                    left_before: true,
                    written: ToolText::default(),
                };
                self.calls.insert((node, dispatched.index), call);
                Ok(())
            }
            Some(Kind::CallSettled(common::CallSettled {
                result: Some(result),
            })) => {
                let call = self
                    .calls
                    .values_mut()
                    .find(|call| call.effect_id == result.effect_id);
                if let Some(call) = call {
                    call.settled = Some(result.clone());
                }
                Ok(())
            }
            Some(kind @ (Kind::OutputChunk(_) | Kind::OutputReset(_))) => {
                for call in self.calls.values() {
                    call.written.take(&call.effect_id, kind);
                }
                Ok(())
            }
            Some(Kind::CancelRequested(requested)) => {
                self.cancelled
                    .get_or_insert_with(|| requested.reason.clone());
                Ok(())
            }
            Some(Kind::RunFinished(finished)) => {
                self.outcome.clone_from(&finished.outcome);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn retrying(
        &mut self,
        event: &common::RunEvent,
        retrying: &common::NodeRetrying,
    ) -> Result<(), ReplayError> {
        let node = self.node(event.sequence, &retrying.node_id)?;
        let pause = retrying.pause.and_then(|pause| pause.try_into().ok());
        let attempt = Attempt {
            number: retrying.attempt.saturating_add(1),
            due: time_of(event).plus(pause.unwrap_or_default()),
            pause: pause.unwrap_or_default(),
        };
        self.attempts.insert(node, attempt);
        forget_failed(&mut self.calls, node, true);
        Ok(())
    }

    fn finished(
        &mut self,
        sequence: u64,
        finished: &common::NodeFinished,
    ) -> Result<Event, ReplayError> {
        let node = self.node(sequence, &finished.node_id)?;
        let failure = || {
            let failure = finished.error.as_ref().map(call_wire::failure_from_proto);
            let unnamed = || Failure::invalid("failed", "the node failed");
            Arc::new(failure.unwrap_or_else(unnamed))
        };
        match finished.state() {
            common::NodeState::Succeeded | common::NodeState::Cached => Ok(Event::Succeeded(
                node,
                self.outputs(sequence, node, finished)?,
            )),
            common::NodeState::Handled => {
                let outputs = self.outputs(sequence, node, finished)?;
                Ok(Event::Handled(node, outputs, failure()))
            }
            common::NodeState::Skipped => Ok(Event::Skipped(node)),
            common::NodeState::Failed | common::NodeState::Unspecified => {
                Ok(Event::Failed(node, failure()))
            }
        }
    }

    fn outputs(
        &mut self,
        sequence: u64,
        node: NodeIndex,
        finished: &common::NodeFinished,
    ) -> Result<Values, ReplayError> {
        let outputs = wire::outputs_from_json(self.engine.node(node), &finished.outputs_json)
            .map_err(|problem| ReplayError::Outputs { sequence, problem })?;
        self.engine
            .hold(outputs.iter().flatten().map(|value| weight(value)).sum());
        Ok(outputs)
    }

    fn gave(
        &self,
        sequence: u64,
        zone: NodeIndex,
        finished: &common::IterationFinished,
    ) -> Result<Result<Values, Failure>, ReplayError> {
        if let Some(error) = &finished.error {
            return Ok(Err(call_wire::failure_from_proto(error)));
        }
        let body = self.engine.node(zone).body.as_ref();
        let slots = body.map_or(&[][..], |body| &body.interface_outputs);
        wire::values_from_json(slots, &finished.outputs_json)
            .map(Ok)
            .map_err(|problem| ReplayError::Outputs { sequence, problem })
    }

    fn node(&self, sequence: u64, id: &str) -> Result<NodeIndex, ReplayError> {
        match self.place(id) {
            Some(EventNode::Here(node)) => Ok(node),
            _ => Err(unknown_node(sequence, id)),
        }
    }

    fn place(&self, id: &str) -> Option<EventNode> {
        let by_id = &self.engine.plan().by_id;
        let id = id.strip_prefix(self.path.as_str())?;
        if let Some(node) = by_id.get(id) {
            return Some(EventNode::Here(*node));
        }
        let (zone, inside) = id.split_once('#')?;
        let (iteration, _) = inside.split_once('/')?;
        Some(EventNode::Inside {
            zone: *by_id.get(zone)?,
            iteration: iteration.parse().ok()?,
        })
    }

    /// Returns the zone and the iteration in which an event happened; nothing if it was in neither.
    fn zone_of(&self, event: &common::RunEvent) -> Result<Option<(NodeIndex, u64)>, ReplayError> {
        let node_id = match &event.kind {
            Some(Kind::NodeStarted(started)) => &started.node_id,
            Some(Kind::NodeFinished(finished)) => &finished.node_id,
            Some(Kind::NodeRetrying(retrying)) => &retrying.node_id,
            Some(Kind::CallDispatched(dispatched)) => &dispatched.node_id,
            Some(Kind::IterationFinished(finished)) => &finished.node_id,
            Some(Kind::CallSettled(common::CallSettled {
                result: Some(result),
            })) => return Ok(self.zone_of_effect(&result.effect_id)),
            Some(Kind::OutputChunk(chunk)) => return Ok(self.zone_of_effect(&chunk.effect_id)),
            Some(Kind::OutputReset(reset)) => return Ok(self.zone_of_effect(&reset.effect_id)),
            Some(Kind::ProgressReported(report)) => {
                return Ok(self.zone_of_effect(&report.effect_id));
            }
            _ => return Ok(None),
        };
        match self.place(node_id) {
            Some(EventNode::Here(_)) => Ok(None),
            Some(EventNode::Inside { zone, iteration }) => Ok(Some((zone, iteration))),
            None => Err(unknown_node(event.sequence, node_id)),
        }
    }

    fn zone_of_effect(&self, effect_id: &str) -> Option<(NodeIndex, u64)> {
        let of_zone = |(zone, history): (&NodeIndex, &ZoneHistory)| {
            let iteration = history.effects.get(effect_id)?;
            Some((*zone, *iteration))
        };
        self.zones.iter().find_map(of_zone)
    }

    fn apply(&mut self, sequence: u64, event: Event) -> Result<(), ReplayError> {
        let mut ignored = Vec::new();
        self.engine
            .apply(event, &mut ignored)
            .map_err(|source| ReplayError::Diverged { sequence, source })
    }
}
