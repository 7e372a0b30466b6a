//! The parts of a run that its fork takes over.

use std::sync::Arc;

use serde_json::{Value, json};
use workflow_domain::compile::compile_text;
use workflow_domain::engine::{Command, Engine};
use workflow_domain::evaluate;
use workflow_domain::fork::taken_over;
use workflow_domain::interface::{RunInputs, bind};
use workflow_domain::node_type::Step;
use workflow_domain::plan::Plan;

fn definition(second: f64) -> Value {
    let add =
        |id: &str, b: f64| json!({"id": id, "type": "core:MathOperation", "inputValues": {"b": b}});
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
    Arc::new(compile_text(&definition.to_string(), &workflow_nodes::builtin()).unwrap())
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
        let event = evaluate::finished(&engine, node, Ok(gave));
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
        let taken = taken_over(&engine, Arc::clone(&plan), inputs(&plan, given)).ended;
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
