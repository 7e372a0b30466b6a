//! The events that change the state of a run, and how recorded ones are read.

use std::sync::Arc;

use call_outcome::Failure;
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::Timestamp;

use crate::wire;
use workflow_domain::data_flow::Values;
use workflow_domain::engine::{Divergence, Event};
use workflow_domain::plan::NodeIndex;

use super::calls::RecordedCall;
use super::{RunState, ZoneHistory};

/// A recorded event that changes the state of a run, with its meaning for the plan.
#[derive(Debug)]
pub enum StateEvent<'a> {
    /// A node was started.
    Started {
        /// The node.
        node: NodeIndex,
        /// The time.
        at: Timestamp,
    },
    /// A node ended.
    Ended {
        /// The end for the engine.
        event: Event,
        /// The end as it was recorded.
        recorded: &'a common::NodeFinished,
    },
    /// An attempt of a node failed, and another follows.
    Retrying {
        /// The node.
        node: NodeIndex,
        /// The attempt, and the pause before the next one.
        recorded: &'a common::NodeRetrying,
        /// The time of the failure.
        at: Timestamp,
    },
    /// An iteration of a zone ended.
    IterationEnded {
        /// The zone.
        zone: NodeIndex,
        /// The iteration by its number.
        index: u64,
        /// The outputs of the iteration.
        gave: Result<Values, Failure>,
    },
    /// Something happened in an iteration of a zone that has not ended.
    Inside {
        /// The zone.
        zone: NodeIndex,
        /// The iteration by its number.
        iteration: u64,
        /// The event, which the iteration folds.
        event: &'a common::RunEvent,
    },
    /// A call is about to leave.
    Dispatched {
        /// The node of the call.
        node: NodeIndex,
        /// The place of the call among those of the node.
        index: u32,
        /// The call.
        call: Box<RecordedCall>,
    },
    /// A call ended.
    Settled(&'a common::CallResult),
    /// The tool of a call wrote something, or began to write anew.
    Wrote(&'a Kind),
    /// The run is to be cancelled, for this reason.
    CancelRequested(&'a str),
    /// The run ended.
    RunFinished(Option<&'a common::RunOutcome>),
}

/// A history that does not fit its workflow.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// An event names a node that the workflow does not have.
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
        /// The cause.
        #[source]
        source: Divergence,
    },
    /// Recorded outputs cannot be read.
    #[error("the outputs in event {sequence} cannot be read: {problem}")]
    Outputs {
        /// The place of the event.
        sequence: u64,
        /// The problem.
        problem: String,
    },
}

/// The node of an event.
enum EventNode {
    /// One of the plan.
    Here(NodeIndex),
    /// A node inside a zone of the plan.
    Inside { zone: NodeIndex, iteration: u64 },
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

impl RunState {
    /// Reads a recorded event; returns nothing for one that changes no state.
    pub(super) fn read<'a>(
        &self,
        recorded: &'a common::RunEvent,
    ) -> Result<Option<StateEvent<'a>>, ReplayError> {
        let (sequence, at) = (recorded.sequence, time_of(recorded));
        if let Some((zone, iteration)) = self.zone_of(recorded)? {
            return Ok(Some(StateEvent::Inside {
                zone,
                iteration,
                event: recorded,
            }));
        }
        let Some(kind) = &recorded.kind else {
            return Ok(None);
        };
        Ok(Some(match kind {
            Kind::NodeStarted(started) => {
                let node = self.node(sequence, &started.node_id)?;
                StateEvent::Started { node, at }
            }
            Kind::NodeFinished(finished) => StateEvent::Ended {
                event: self.ended(sequence, finished)?,
                recorded: finished,
            },
            Kind::NodeRetrying(retrying) => StateEvent::Retrying {
                node: self.node(sequence, &retrying.node_id)?,
                recorded: retrying,
                at,
            },
            Kind::IterationFinished(finished) => {
                let zone = self.node(sequence, &finished.node_id)?;
                StateEvent::IterationEnded {
                    gave: self.gave(sequence, zone, finished)?,
                    index: finished.index,
                    zone,
                }
            }
            Kind::CallDispatched(dispatched) => StateEvent::Dispatched {
                node: self.node(sequence, &dispatched.node_id)?,
                index: dispatched.index,
                call: Box::new(RecordedCall::new(
                    dispatched.effect_id.clone(),
                    dispatched.tool_id.clone(),
                    dispatched.arguments_json.clone(),
                )),
            },
            Kind::CallSettled(common::CallSettled {
                result: Some(result),
            }) => StateEvent::Settled(result),
            Kind::OutputChunk(_) | Kind::OutputReset(_) => StateEvent::Wrote(kind),
            Kind::CancelRequested(requested) => StateEvent::CancelRequested(&requested.reason),
            Kind::RunFinished(finished) => StateEvent::RunFinished(finished.outcome.as_ref()),
            _ => return Ok(None),
        }))
    }

    fn ended(&self, sequence: u64, finished: &common::NodeFinished) -> Result<Event, ReplayError> {
        let node = self.node(sequence, &finished.node_id)?;
        let outputs = || {
            wire::outputs_from_json(self.engine.node(node), &finished.outputs_json)
                .map_err(|problem| ReplayError::Outputs { sequence, problem })
        };
        let failure = || {
            let failure = finished.error.as_ref().map(call_wire::failure_from_proto);
            let unnamed = || Failure::invalid("failed", "the node failed");
            Arc::new(failure.unwrap_or_else(unnamed))
        };
        Ok(match finished.state() {
            common::NodeState::Succeeded | common::NodeState::Cached => {
                Event::Succeeded(node, outputs()?)
            }
            common::NodeState::Handled => Event::Handled(node, outputs()?, failure()),
            common::NodeState::Skipped => Event::Skipped(node),
            common::NodeState::Failed | common::NodeState::Unspecified => {
                Event::Failed(node, failure())
            }
        })
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

    /// Returns the zone and the iteration of an event; none if it was outside of zones.
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
            Some((*zone, history.iteration_of(effect_id)?))
        };
        self.zones.iter().find_map(of_zone)
    }
}
