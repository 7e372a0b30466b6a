//! The first events of a run that takes over parts of another.

use std::sync::Arc;

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::Timestamp;

use crate::wire;
use workflow_domain::engine::{Engine, Event};
use workflow_domain::fork::TakenOver;
use workflow_domain::interface::RunInputs;
use workflow_domain::plan::{NodeIndex, Plan};

use super::interface_stream::InterfaceStreams;
use super::run_state::{Calls, RecordedCall};

/// Returns the successful calls of nodes in progress, by the nodes that make them in the new run.
/// They are not repeated.
pub fn calls_taken_over(taken: &TakenOver, calls: &Calls) -> Vec<((NodeIndex, u32), RecordedCall)> {
    let of_node = |&(then, node): &(NodeIndex, NodeIndex)| {
        let calls = calls.of_node(then);
        calls.map(move |(index, call)| ((node, index), call.clone()))
    };
    let mut known: Vec<_> = taken.under_way.iter().flat_map(of_node).collect();
    known.retain(|(_, call)| {
        let result = call.settled.as_ref();
        result.is_some_and(|result| result.status() == common::CallStatus::Succeeded)
    });
    known.sort_by_key(|(place, _)| *place);
    known
}

/// Writes the parts that are taken over: the ends of nodes, their texts in streaming outputs, and
/// calls of nodes that had not ended.
pub fn first_events(
    plan: &Arc<Plan>,
    inputs: RunInputs,
    taken: &[Event],
    calls: &[((NodeIndex, u32), RecordedCall)],
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
            node_type: planned.definition().full_type.to_string(),
            state: common::NodeState::Succeeded.into(),
            outputs_json: wire::outputs_to_json(planned, outputs),
            taken_from_run_id: taken_from_run_id.to_owned(),
            ..common::NodeFinished::default()
        }));
    }
    let mut begun = None;
    for ((node, index), call) in calls {
        let planned = engine.node(*node);
        if begun.replace(*node) != Some(*node) {
            kinds.push(Kind::NodeStarted(common::NodeStarted {
                node_id: planned.id.to_string(),
                node_type: planned.definition().full_type.to_string(),
            }));
        }
        kinds.push(Kind::CallDispatched(common::CallDispatched {
            effect_id: call.effect_id.clone(),
            tool_id: call.tool_id.clone(),
            arguments_json: call.arguments_json.clone(),
            index: *index,
            node_id: planned.id.to_string(),
        }));
        kinds.push(Kind::CallSettled(common::CallSettled {
            result: call.settled.clone(),
        }));
    }
    kinds
}
