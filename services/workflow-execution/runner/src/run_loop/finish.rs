//! The ends of nodes.

use std::time::Duration;

use call_outcome::Failure;
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::NodeState;
use contracts::tavern::common::v1::run_event::Kind;
use run_events::outcome;
use serde_json::{Map, Value};

use crate::wire;
use workflow_domain::data_flow::Values;
use workflow_domain::engine::{Event, SkipReason};
use workflow_domain::evaluate;
use workflow_domain::plan::NodeIndex;
use workflow_domain::zone::run::HandledInside;

use super::super::run_state::StateEvent;
use super::{Moment, RunLoop};

/// The end of a node that the cache was asked for.
#[derive(Debug)]
pub struct NodeEnd {
    /// The outputs of the node; nothing if it failed, also where that was handled.
    pub outputs: Option<Values>,
}

impl RunLoop {
    pub(super) fn skip(&mut self, node: NodeIndex, because: NodeIndex, reason: SkipReason) {
        let id = &self.state.engine().node(because).id;
        let message = match reason {
            SkipReason::UpstreamFailed => {
                format!("it needs node `{id}`, which did not give its outputs")
            }
            SkipReason::BranchNotTaken => {
                format!("it needs an output that node `{id}` left absent")
            }
        };
        let error = outcome::error(common::ErrorCategory::Runtime, reason.code(), message);
        self.note_ended(Event::Skipped(node), Some(error), Duration::ZERO);
    }

    pub(super) fn finish(
        &mut self,
        node: NodeIndex,
        gave: Result<Values, Failure>,
        moment: &Moment,
    ) -> Option<NodeEnd> {
        let (attempts, so_far) = (self.attempt(node), self.take_so_far(node));
        let engine = self.state.engine();
        let event = evaluate::finished_after(engine, node, gave, attempts, &so_far);
        for shown in self.written.streams.completed(&event, moment.now) {
            self.events.push(shown, 0);
        }
        let end = self.looked_up.contains_key(&node).then(|| NodeEnd {
            outputs: match &event {
                Event::Succeeded(_, outputs) => Some(outputs.clone()),
                _ => None,
            },
        });
        let error = match &event {
            Event::Handled(_, _, failure) | Event::Failed(_, failure) => {
                Some(call_wire::failure_to_proto(failure))
            }
            _ => None,
        };
        self.note_ended(event, error, moment.took);
        end
    }

    /// Notes the failures that were handled inside a zone that ended, until its end is recorded.
    pub(super) fn note_handled_inside(&mut self, node: NodeIndex, handled: Vec<HandledInside>) {
        let path = self.state.path_of(node);
        let failures = handled
            .into_iter()
            .map(|(place, failure)| common::NodeFailure {
                node_id: format!("{path}{place}"),
                error: Some(call_wire::failure_to_proto(&failure)),
            });
        let failures: Vec<_> = failures.collect();
        if !failures.is_empty() {
            self.handled_inside.insert(node, failures);
        }
    }

    fn note_ended(&mut self, event: Event, error: Option<common::CallError>, took: Duration) {
        let node = event.node();
        let planned = self.state.engine().node(node);
        let cache = self.looked_up.remove(&node).flatten();
        let is_cached = cache
            .as_ref()
            .is_some_and(|note| !note.source_run_id.is_empty());
        let (state, outputs) = match &event {
            Event::Succeeded(_, outputs) if is_cached => (NodeState::Cached, Some(outputs)),
            Event::Succeeded(_, outputs) => (NodeState::Succeeded, Some(outputs)),
            Event::Handled(_, outputs, _) => (NodeState::Handled, Some(outputs)),
            Event::Skipped(_) => (NodeState::Skipped, None),
            Event::Failed(..) | Event::Started(_) => (NodeState::Failed, None),
        };
        let outputs_json = outputs.map(|outputs| wire::outputs_to_json(planned, outputs));
        let finished = common::NodeFinished {
            node_id: self.state.path_of(node),
            node_type: planned.definition().full_type.to_string(),
            state: state.into(),
            outputs_json: outputs_json.unwrap_or_default(),
            error,
            duration: prost_types::Duration::try_from(took).ok(),
            cache,
            taken_from_run_id: String::new(),
            handled_failures: self.handled_inside.remove(&node).unwrap_or_default(),
        };
        self.apply(StateEvent::Ended {
            event,
            recorded: &finished,
        });
        let bytes = finished.outputs_json.len();
        self.events.push(Kind::NodeFinished(finished), bytes);
    }

    /// Returns the texts of a node's effect in its streaming outputs, by key.
    fn take_so_far(&mut self, node: NodeIndex) -> Map<String, Value> {
        let streams = self.written.slots.remove(&node).unwrap_or_default();
        let so_far = streams
            .iter()
            .map(|slot| (slot.key().to_string(), slot.so_far()));
        so_far.collect()
    }
}
