//! The first events of a run that takes over what another has done.

use std::sync::Arc;

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::Timestamp;

use crate::wire;
use workflow_domain::engine::{Engine, Event};
use workflow_domain::interface::RunInputs;
use workflow_domain::plan::Plan;

use super::interface_stream::InterfaceStreams;

/// Writes what is taken over: the ends of nodes, and what they write to streaming outputs.
pub fn first_events(
    plan: &Arc<Plan>,
    inputs: RunInputs,
    taken: &[Event],
    from_run_id: &str,
    now: Timestamp,
) -> Vec<Kind> {
    let engine = Engine::start(Arc::clone(plan), inputs, &mut Vec::new());
    let streams = InterfaceStreams::of_run(&engine);
    let mut kinds = Vec::new();
    for event in taken {
        let Event::Succeeded(node, outputs) = event else {
            continue;
        };
        let planned = engine.node(*node);
        let taken_from_run_id = match planned.accepts_absent() {
            true => "",
            false => from_run_id,
        };
        kinds.extend(streams.completed(event, now));
        kinds.push(Kind::NodeFinished(common::NodeFinished {
            node_id: planned.id.to_string(),
            node_type: planned.definition().full_type.to_owned(),
            state: common::NodeState::Succeeded.into(),
            outputs_json: wire::outputs_to_json(planned, outputs),
            taken_from_run_id: taken_from_run_id.to_owned(),
            ..common::NodeFinished::default()
        }));
    }
    kinds
}
