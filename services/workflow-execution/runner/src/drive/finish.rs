//! How a node ends.

use std::time::Duration;

use call_outcome::Failure;
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use run_events::outcome;

use crate::wire;
use workflow_domain::data_flow::Values;
use workflow_domain::engine::{Event, SkipReason};
use workflow_domain::evaluate;
use workflow_domain::plan::NodeIndex;
use workflow_domain::zone::run::HandledInside;

use super::Drive;

impl Drive {
    pub(super) fn skip(&mut self, node: NodeIndex, because: NodeIndex, reason: SkipReason) {
        let id = &self.engine.node(because).id;
        let message = match reason {
            SkipReason::UpstreamFailed => {
                format!("it needs node `{id}`, which did not give its outputs")
            }
            SkipReason::BranchNotTaken => {
                format!("it needs an output that node `{id}` left absent")
            }
        };
        let error = outcome::error(common::ErrorCategory::Runtime, reason.code(), message);
        self.note_finished(
            node,
            common::NodeState::Skipped,
            String::new(),
            Some(error),
            Duration::ZERO,
        );
        self.apply(Event::Skipped(node));
    }

    pub(super) fn finish(
        &mut self,
        node: NodeIndex,
        gave: Result<Values, Failure>,
        took: Duration,
    ) {
        let (attempts, so_far) = (self.attempt(node), self.take_so_far(node));
        let event = evaluate::finished_after(&mut self.engine, node, gave, attempts, &so_far);
        let shown = self.streams.completed(&event, self.recorder.now());
        self.pending.extend(shown);
        match &event {
            Event::Succeeded(_, outputs) => {
                let outputs_json = wire::outputs_to_json(self.engine.node(node), outputs);
                let state = self.caches.state_of(node);
                self.keep_result(node, outputs);
                self.note_finished(node, state, outputs_json, None, took);
            }
            Event::Handled(_, outputs, failure) => {
                let outputs_json = wire::outputs_to_json(self.engine.node(node), outputs);
                let error = call_wire::failure_to_proto(failure);
                let state = common::NodeState::Handled;
                self.note_finished(node, state, outputs_json, Some(error), took);
            }
            Event::Failed(_, failure) => {
                let error = call_wire::failure_to_proto(failure);
                self.note_finished(
                    node,
                    common::NodeState::Failed,
                    String::new(),
                    Some(error),
                    took,
                );
            }
            Event::Started(_) | Event::Skipped(_) => {}
        }
        self.apply(event);
    }

    /// Notes the failures that were handled inside a zone that ended, until its end is recorded.
    pub(super) fn note_handled_inside(&mut self, node: NodeIndex, handled: Vec<HandledInside>) {
        let path = self.path_of(node);
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

    fn note_finished(
        &mut self,
        node: NodeIndex,
        state: common::NodeState,
        outputs_json: String,
        error: Option<common::CallError>,
        took: Duration,
    ) {
        let planned = self.engine.node(node);
        let finished = common::NodeFinished {
            node_id: self.path_of(node),
            node_type: planned.definition().full_type.to_owned(),
            state: state.into(),
            outputs_json,
            error,
            duration: prost_types::Duration::try_from(took).ok(),
            cache: self.caches.take_note(node),
            taken_from_run_id: String::new(),
            handled_failures: self.handled_inside.remove(&node).unwrap_or_default(),
        };
        self.waits.handled().note(&finished);
        self.pending_bytes += finished.outputs_json.len();
        self.pending.push(Kind::NodeFinished(finished));
    }
}
