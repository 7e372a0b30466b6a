//! The recorded events of a run, replayed through the engine.

use std::collections::HashMap;
use std::sync::Arc;

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;

use crate::domain::engine::{Divergence, Engine, Event};
use crate::domain::gather::Outputs;
use crate::domain::interface::RunInputs;
use crate::domain::plan::{NodeIndex, Plan};
use crate::domain::size::weight;
use crate::wire;

/// What is known of the calls of a run, by node and by the place among the node's calls.
pub type Calls = HashMap<(NodeIndex, u32), RecordedCall>;

/// The present attempt of each node that is tried again, from 2.
pub type Attempts = HashMap<NodeIndex, u32>;

/// A call that was dispatched.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedCall {
    /// The id of its effect.
    pub effect_id: String,
    /// The tool.
    pub tool_id: String,
    /// The arguments as they left.
    pub arguments_json: String,
    /// How it ended, if that was recorded.
    pub settled: Option<common::CallResult>,
}

/// Where a run stood when its last event was recorded.
#[derive(Debug)]
pub struct Replayed {
    /// The state.
    pub engine: Engine,
    /// What is known of its calls.
    pub calls: Calls,
    /// The present attempt of each node that is tried again.
    pub attempts: Attempts,
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

/// Forgets how the calls of a node ended that did not succeed, before another attempt.
pub(super) fn forget_failed(calls: &mut Calls, node: NodeIndex) {
    let of_node = calls.iter_mut().filter(|((of, _), _)| *of == node);
    for (_, call) in of_node {
        call.settled
            .take_if(|result| result.status() != common::CallStatus::Succeeded);
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
    let mut replayed = Replayed {
        engine,
        calls: Calls::new(),
        attempts: Attempts::new(),
        cancelled: None,
        outcome: None,
    };
    for event in events.iter().filter(|event| event.run_id == run_id) {
        replayed.take(event)?;
    }
    Ok(replayed)
}

impl Replayed {
    fn take(&mut self, event: &common::RunEvent) -> Result<(), ReplayError> {
        let sequence = event.sequence;
        match &event.kind {
            Some(Kind::NodeStarted(started)) => {
                let node = self.node(sequence, &started.node_id)?;
                self.apply(sequence, Event::Started(node))
            }
            Some(Kind::NodeFinished(finished)) => {
                let event = self.finished(sequence, finished)?;
                self.apply(sequence, event)
            }
            Some(Kind::NodeRetrying(retrying)) => {
                let node = self.node(sequence, &retrying.node_id)?;
                self.attempts
                    .insert(node, retrying.attempt.saturating_add(1));
                forget_failed(&mut self.calls, node);
                Ok(())
            }
            Some(Kind::CallDispatched(dispatched)) => {
                let node = self.node(sequence, &dispatched.node_id)?;
                let call = RecordedCall {
                    effect_id: dispatched.effect_id.clone(),
                    tool_id: dispatched.tool_id.clone(),
                    arguments_json: dispatched.arguments_json.clone(),
                    settled: None,
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

    fn finished(
        &mut self,
        sequence: u64,
        finished: &common::NodeFinished,
    ) -> Result<Event, ReplayError> {
        let node = self.node(sequence, &finished.node_id)?;
        let failure = || {
            let failure = finished.error.as_ref().map(call_wire::failure_from_proto);
            let unnamed = || call_outcome::Failure::invalid("failed", "the node failed");
            Arc::new(failure.unwrap_or_else(unnamed))
        };
        match finished.state() {
            common::NodeState::Succeeded => Ok(Event::Succeeded(
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
    ) -> Result<Outputs, ReplayError> {
        let outputs = wire::outputs_from_json(self.engine.node(node), &finished.outputs_json)
            .map_err(|problem| ReplayError::Outputs { sequence, problem })?;
        self.engine
            .hold(outputs.iter().flatten().map(|value| weight(value)).sum());
        Ok(outputs)
    }

    fn node(&self, sequence: u64, id: &str) -> Result<NodeIndex, ReplayError> {
        let found = self.engine.plan().by_id.get(id).copied();
        found.ok_or_else(|| ReplayError::UnknownNode {
            sequence,
            node: id.chars().take(80).collect(),
        })
    }

    fn apply(&mut self, sequence: u64, event: Event) -> Result<(), ReplayError> {
        let mut ignored = Vec::new();
        self.engine
            .apply(event, &mut ignored)
            .map_err(|source| ReplayError::Diverged { sequence, source })
    }
}
