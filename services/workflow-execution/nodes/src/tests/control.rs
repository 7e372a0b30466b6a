//! Node types that decide which nodes run.

use serde_json::{Value, json};

use super::run;
use workflow_domain::compile::compile_text;
use workflow_domain::engine::{Command, Engine, Event, SkipReason};
use workflow_domain::evaluate::{all_present, execute, finished};
use workflow_domain::interface::bind;
use workflow_domain::node_type::Step;

fn edge(source: &str, source_handle: &str, target: &str, target_handle: &str) -> Value {
    json!({"source": source, "sourceHandle": source_handle, "target": target, "targetHandle": target_handle})
}

/// Runs a graph of pure nodes; returns its outputs, and each node that was skipped with the reason.
fn play(definition: Value) -> (Value, Vec<String>) {
    let plan = compile_text(&definition.to_string(), &crate::builtin()).unwrap();
    let inputs = bind(&plan.interface_inputs, &serde_json::Map::new()).unwrap();
    let mut commands = Vec::new();
    let mut engine = Engine::start(plan.into(), inputs, &mut commands);
    let mut skipped = Vec::new();
    while let Some(command) = commands.pop() {
        let event = match command {
            Command::Skip { node, reason, .. } => {
                skipped.push(format!("{} {}", engine.node(node).id, reason.code()));
                Event::Skipped(node)
            }
            Command::Execute(node) => {
                let gave = execute(&engine, node).map(|step| match step {
                    Step::Done(outputs) => all_present(outputs),
                    Step::Branch(outputs) => outputs,
                    other @ (Step::Effect(_) | Step::Wait(_)) => panic!("{other:?}"),
                });
                finished(&engine, node, gave)
            }
        };
        engine.apply(event, &mut commands).unwrap();
    }
    skipped.sort_unstable();
    match engine.outcome() {
        Some(workflow_domain::engine::Outcome::Succeeded(result)) => {
            (Value::Object(result), skipped)
        }
        other => (json!(format!("{other:?}")), skipped),
    }
}

/// `if` decides on `value`; each way leads through a text to `either`, and the first that exists
/// counts.
fn fork(value: i64) -> Value {
    let text = |id: &str| json!({"id": id, "type": "core:FormatPrompt", "inputValues": {"template": format!("{id} {{v}}")}});
    json!({
        "nodes": [
            {"id": "if", "type": "core:Condition", "inputValues": {"value": value},
             "configValues": {"condition": "inputs.value > 3"}},
            text("big"), text("small"),
            {"id": "both", "type": "core:TextMerge", "inputValues": {"separator": ""}},
            {"id": "either", "type": "core:FirstValue"}, {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("if", "then", "big", "v"), edge("if", "else", "small", "v"),
            edge("big", "prompt", "either", "values__0"), edge("small", "prompt", "either", "values__1"),
            edge("big", "prompt", "both", "text_inputs__0"), edge("small", "prompt", "both", "text_inputs__1"),
            edge("either", "value", "out", "text"), edge("either", "index", "out", "index"),
            edge("small", "prompt", "out", "small"), edge("both", "merged_text", "out", "both"),
        ],
        "interfaceOutputs": {"text": {"dataFlowType": "STRING"}, "index": {"dataFlowType": "INTEGER"},
            "small": {"dataFlowType": "STRING", "config": {"default": "none"}}, "both": {"dataFlowType": "STRING"}},
    })
}

#[test]
fn w7_the_branch_not_taken_is_skipped_and_the_other_joins() {
    let (result, skipped) = play(fork(5));
    assert_eq!(
        result,
        json!({"text": "big 5", "index": 0, "small": "none", "both": "big 5"})
    );
    assert_eq!(skipped, ["small branch_not_taken"]);
    let (result, skipped) = play(fork(1));
    assert_eq!(
        result,
        json!({"text": "small 1", "index": 1, "small": "small 1", "both": "small 1"})
    );
    assert_eq!(skipped, ["big branch_not_taken"]);
}

#[test]
fn w7_a_node_is_skipped_through_a_chain_and_a_join_only_if_all_are_absent() {
    let mut definition = fork(5);
    let nodes = definition["nodes"].as_array_mut().unwrap();
    nodes.push(json!({"id": "after", "type": "core:TextMerge"}));
    nodes.push(json!({"id": "none", "type": "core:FirstValue"}));
    let edges = definition["edges"].as_array_mut().unwrap();
    edges.push(edge("small", "prompt", "after", "text_inputs"));
    edges.push(edge("after", "merged_text", "none", "values"));
    let (_, skipped) = play(definition);
    let reason = SkipReason::BranchNotTaken.code();
    assert_eq!(
        skipped,
        ["after", "none", "small"].map(|id| format!("{id} {reason}"))
    );
}

#[test]
fn w6_a_failure_counts_before_an_absent_output() {
    let mut definition = fork(5);
    let nodes = definition["nodes"].as_array_mut().unwrap();
    nodes.push(json!({"id": "bad", "type": "core:MathOperation",
        "configValues": {"operationMode": "sqrt"}, "inputValues": {"value": -1}}));
    nodes.push(json!({"id": "last", "type": "core:TextMerge"}));
    let edges = definition["edges"].as_array_mut().unwrap();
    edges.push(edge("small", "prompt", "last", "text_inputs__0"));
    edges.push(edge("bad", "result", "last", "text_inputs__1"));
    let (_, skipped) = play(definition);
    assert_eq!(skipped, ["last upstream_failed", "small branch_not_taken"]);
}

#[test]
fn a_muted_node_leaves_its_outputs_absent() {
    let definition = json!({
        "nodes": [{"id": "r", "type": "core:RandomNumber", "bypassed": true},
                  {"id": "t", "type": "core:TextMerge"}],
        "edges": [edge("r", "number", "t", "text_inputs")],
    });
    assert_eq!(play(definition).1, ["t branch_not_taken"]);
}

#[test]
fn switch_takes_the_first_case_that_is_equal() {
    let config = json!({"expression": "inputs.value * 2", "cases": [
        {"key": "two", "equals": 2}, {"key": "four", "equals": 4.0}]});
    let node = |value: i64| {
        let definition = json!({
            "nodes": [{"id": "s", "type": "core:Switch", "configValues": config, "inputValues": {"value": value}},
                      {"id": "out", "type": "core:GroupOutput"}],
            "edges": [edge("s", "two", "out", "two"), edge("s", "four", "out", "four"), edge("s", "default", "out", "default")],
            "interfaceOutputs": {"two": {}, "four": {}, "default": {}},
        });
        play(definition).0
    };
    assert_eq!(node(1), json!({"two": 1, "four": null, "default": null}));
    assert_eq!(node(2), json!({"two": null, "four": 2, "default": null}));
    assert_eq!(node(3), json!({"two": null, "four": null, "default": 3}));
}

#[test]
fn w3_expressions_are_checked_with_the_workflow_and_an_error_fails_the_node() {
    for (full_type, config, code) in [
        ("core:Condition", json!({}), "missing"),
        (
            "core:Condition",
            json!({"condition": "inputs.value >"}),
            "invalid_condition",
        ),
        (
            "core:Condition",
            json!({"condition": "other"}),
            "invalid_condition",
        ),
        (
            "core:Condition",
            json!({"condition": "inputs.value"}),
            "condition_failed",
        ),
        (
            "core:Condition",
            json!({"condition": "inputs.nothing > 1"}),
            "condition_failed",
        ),
        (
            "core:Switch",
            json!({"expression": "1", "cases": []}),
            "out_of_range",
        ),
        (
            "core:Switch",
            json!({"expression": "1", "cases": [{"key": "a"}]}),
            "missing",
        ),
        (
            "core:Switch",
            json!({"expression": "1", "cases": [{"key": "default", "equals": 1}]}),
            "duplicate_key",
        ),
        (
            "core:StateCheck",
            json!({"schema": {"type": 7}}),
            "invalid_schema",
        ),
    ] {
        let found = run(full_type, config.clone(), json!({"value": 1}));
        assert_eq!(found, Err(code.to_owned()), "{full_type} {config}");
    }
}

#[test]
fn state_check_lists_what_is_not_as_it_should_be() {
    let schema =
        json!({"type": "object", "required": ["hp"], "properties": {"hp": {"type": "integer"}}});
    let config = json!({"schema": schema, "condition": "inputs.value.hp > 0"});
    let check = |state: Value| {
        let outputs = run("core:StateCheck", config.clone(), json!({"value": state})).unwrap();
        let codes = outputs["violations"].as_array().unwrap().iter();
        let codes: Vec<String> = codes
            .map(|violation| {
                format!(
                    "{} {}",
                    violation["path"].as_str().unwrap(),
                    violation["code"].as_str().unwrap()
                )
            })
            .collect();
        (outputs["ok"].as_bool().unwrap(), codes)
    };
    assert_eq!(check(json!({"hp": 3})), (true, vec![]));
    assert_eq!(
        check(json!({"hp": 0})),
        (false, vec![" condition_not_met".to_owned()])
    );
    let (ok, codes) = check(json!({"hp": "3"}));
    assert!(!ok && codes[0].starts_with("/hp "), "{codes:?}");
}
