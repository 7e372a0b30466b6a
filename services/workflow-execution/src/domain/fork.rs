//! What a run can take over from another (rule W48).

use std::collections::VecDeque;
use std::sync::Arc;

use super::engine::{Command, Engine, Event, Status};
use super::evaluate;
use super::execution::EXECUTION;
use super::interface::RunInputs;
use super::node_type::Step;
use super::plan::{NodeIndex, Plan, PlanNode};

/// What is taken over, as events in an order in which they can have happened. Nodes that only pass
/// values on are computed again, with the values of the new run.
pub fn taken_over(before: &Engine, plan: Arc<Plan>, inputs: RunInputs) -> Vec<Event> {
    let mut commands = Vec::new();
    let mut engine = Engine::start(plan, inputs, &mut commands);
    let mut queue = VecDeque::from(commands);
    let mut taken = Vec::new();
    while let Some(command) = queue.pop_front() {
        let event = match command {
            Command::Execute(node) if engine.node(node).accepts_absent() => {
                passed(&mut engine, node)
            }
            Command::Execute(node) => reused(before, &engine, node),
            // The run skips it by itself.
            Command::Skip { .. } => None,
        };
        let Some(event) = event else { continue };
        let mut next = Vec::new();
        engine
            .apply(event.clone(), &mut next)
            .expect("every event answers a command of the engine");
        queue.extend(next);
        taken.push(event);
    }
    taken
}

/// Returns the end of a node that passes the values of the new run on.
fn passed(engine: &mut Engine, node: NodeIndex) -> Option<Event> {
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

/// Returns the end that a node had before, if it is the same node with the same inputs.
fn reused(before: &Engine, engine: &Engine, node: NodeIndex) -> Option<Event> {
    let planned = engine.node(node);
    let then = *before.plan().by_id.get(&planned.id)?;
    let handled = before.handled().iter().any(|(node, _)| *node == then);
    if handled || before.status(then) != Status::Succeeded || !same(before.node(then), planned) {
        return None;
    }
    let (had, has) = (before.inputs_of(then).ok()?, engine.inputs_of(node).ok()?);
    let outputs = before.outputs_of(then)?;
    (had == has).then(|| Event::Succeeded(node, outputs.clone()))
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::compile::compile_text;
    use super::super::interface::bind;
    use super::*;

    fn definition(second: f64) -> Value {
        let add = |id: &str, b: f64| json!({"id": id, "type": "core:MathOperation", "inputValues": {"b": b}});
        let edge = |from: (&str, &str), to: (&str, &str)| json!({"source": from.0, "sourceHandle": from.1, "target": to.0, "targetHandle": to.1});
        json!({
            "nodes": [
                {"id": "in", "type": "core:GroupInput"},
                add("x", 1.0), add("y", second), add("z", 1.0),
                {"id": "out", "type": "core:GroupOutput"},
            ],
            "edges": [
                edge(("in", "a"), ("x", "a")), edge(("in", "b"), ("y", "a")),
                edge(("y", "result"), ("z", "a")), edge(("x", "result"), ("out", "r")),
                edge(("z", "result"), ("out", "s")),
            ],
            "interfaceInputs": {"a": {"dataFlowType": "FLOAT"}, "b": {"dataFlowType": "FLOAT"}},
            "interfaceOutputs": {"r": {"dataFlowType": "FLOAT"}, "s": {"dataFlowType": "FLOAT"}},
        })
    }

    fn plan(definition: &Value) -> Arc<Plan> {
        Arc::new(compile_text(&definition.to_string(), &crate::node::builtin()).unwrap())
    }

    fn inputs(plan: &Plan, given: Value) -> RunInputs {
        bind(&plan.interface_inputs, given.as_object().unwrap()).unwrap()
    }

    #[test]
    fn w48_what_no_edit_reaches_is_taken_over() {
        let before = plan(&definition(1.0));
        let mut commands = Vec::new();
        let given = json!({"a": 1, "b": 2});
        let mut engine = Engine::start(
            Arc::clone(&before),
            inputs(&before, given.clone()),
            &mut commands,
        );
        while let Some(command) = commands.pop() {
            let Command::Execute(node) = command else {
                panic!("{command:?}")
            };
            let gave = match evaluate::execute(&engine, node).unwrap() {
                Step::Done(gave) => evaluate::all_present(gave),
                Step::Branch(gave) => gave,
                step => panic!("{step:?}"),
            };
            let event = evaluate::finished(&mut engine, node, Ok(gave));
            engine.apply(event, &mut commands).unwrap();
        }
        for (now, given, expected) in [
            (
                definition(1.0),
                given.clone(),
                &["in", "x", "y", "z", "out"][..],
            ),
            (definition(1.0), json!({"a": 5, "b": 2}), &["in", "y", "z"]),
            (definition(2.0), given.clone(), &["in", "x"]),
            (definition(1.0), json!({"a": 5, "b": 5}), &["in"]),
        ] {
            let plan = plan(&now);
            let taken = taken_over(&engine, Arc::clone(&plan), inputs(&plan, given));
            let mut ids: Vec<&str> = taken
                .iter()
                .map(|event| &*plan.nodes[event.node() as usize].id)
                .collect();
            let place = |id: &&str| {
                ["in", "x", "y", "z", "out"]
                    .iter()
                    .position(|known| known == id)
            };
            ids.sort_by_key(place);
            assert_eq!(ids, expected);
        }
    }
}
