//! The parts of a run that another can take over (rule W48).

use std::collections::VecDeque;
use std::sync::Arc;

use super::engine::{Command, Engine, Event, Status};
use super::evaluate;
use super::execution::EXECUTION;
use super::interface::RunInputs;
use super::node_type::Step;
use super::plan::{NodeIndex, Plan, PlanNode};

/// The parts of a run that another can take over.
#[derive(Debug, Default)]
pub struct TakenOver {
    /// The ends of nodes, as events in an order in which they can have happened.
    pub ended: Vec<Event>,
    /// The nodes that had begun and not ended and begin again with the same inputs: their indices
    /// in the run before, and in the new one.
    pub under_way: Vec<(NodeIndex, NodeIndex)>,
}

/// Returns the parts that can be taken over. Nodes that only pass values on are computed again,
/// with the values of the new run.
pub fn taken_over(before: &Engine, plan: Arc<Plan>, inputs: RunInputs) -> TakenOver {
    let mut commands = Vec::new();
    let mut engine = Engine::start(plan, inputs, &mut commands);
    let mut queue = VecDeque::from(commands);
    let mut taken = TakenOver::default();
    while let Some(command) = queue.pop_front() {
        let event = match command {
            Command::Execute(node) if engine.node(node).accepts_absent() => passed(&engine, node),
            Command::Execute(node) => {
                let then = unchanged(before, &engine, node);
                let running = then.filter(|then| before.status(*then) == Status::Running);
                taken.under_way.extend(running.map(|then| (then, node)));
                then.and_then(|then| reused(before, then, node))
            }
            // The run skips it by itself.
            Command::Skip { .. } => None,
        };
        let Some(event) = event else { continue };
        let mut next = Vec::new();
        engine
            .apply(event.clone(), &mut next)
            .expect("every event answers a command of the engine");
        queue.extend(next);
        taken.ended.push(event);
    }
    taken
}

/// Returns the end of a node that passes the values of the new run on.
fn passed(engine: &Engine, node: NodeIndex) -> Option<Event> {
    let gave = match evaluate::execute(engine, node).ok()? {
        Step::Done(outputs) => evaluate::all_present(outputs),
        Step::Branch(outputs) => outputs,
        Step::Effect(_) | Step::Wait(_) => return None,
    };
    match evaluate::finished(engine, node, Ok(gave)) {
        event @ Event::Succeeded(..) => Some(event),
        _ => None,
    }
}

/// Returns a node's index in the run before, if it is the same node with the same inputs.
fn unchanged(before: &Engine, engine: &Engine, node: NodeIndex) -> Option<NodeIndex> {
    let planned = engine.node(node);
    let then = *before.plan().by_id.get(&planned.id)?;
    if !same(before.node(then), planned) {
        return None;
    }
    let (had, has) = (before.inputs_of(then).ok()?, engine.inputs_of(node).ok()?);
    (had == has).then_some(then)
}

/// Returns the earlier end of an unchanged node, if it succeeded by itself.
fn reused(before: &Engine, then: NodeIndex, node: NodeIndex) -> Option<Event> {
    let handled = before.handled().iter().any(|(node, _)| *node == then);
    if handled || before.status(then) != Status::Succeeded {
        return None;
    }
    let outputs = before.outputs_of(then)?;
    Some(Event::Succeeded(node, outputs.clone()))
}

fn same(then: &PlanNode, now: &PlanNode) -> bool {
    let settings = |node: &PlanNode| {
        let settings = node.config.iter().filter(|(key, _)| *key != EXECUTION);
        settings
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect::<serde_json::Map<_, _>>()
    };
    then.definition().full_type == now.definition().full_type
        && then.bypassed == now.bypassed
        && then.shape.outputs.len() == now.shape.outputs.len()
        && settings(then) == settings(now)
}
