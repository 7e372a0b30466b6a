//! Zones in workflows that run in memory.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use workflow_domain::compile::compile_text;
use workflow_domain::engine::{Command, Engine, Event, Outcome};
use workflow_domain::evaluate::{all_present, execute, finished};
use workflow_domain::interface::bind;
use workflow_domain::node_type::{Effect, Step};
use workflow_domain::zone::run::ZoneRun;

fn edge(source: &str, source_handle: &str, target: &str, target_handle: &str) -> Value {
    json!({"source": source, "sourceHandle": source_handle, "target": target, "targetHandle": target_handle})
}

fn inside(zone: &str, id: &str, full_type: &str, more: Value) -> Value {
    let mut node = json!({"id": id, "type": full_type, "parentNode": zone});
    node.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    node
}

/// Runs a workflow whose only effects are zones; returns its outputs or the code of its failure.
fn play(definition: &Value) -> Value {
    let plan = compile_text(&definition.to_string(), &workflow_nodes::builtin());
    let plan = plan.unwrap_or_else(|violations| panic!("{violations:?}"));
    let inputs = bind(&plan.interface_inputs, &Map::new()).unwrap();
    let mut commands = Vec::new();
    let mut engine = Engine::start(Arc::new(plan), inputs, &mut commands);
    while let Some(command) = commands.pop() {
        let node = match command {
            Command::Skip { node, .. } => {
                engine.apply(Event::Skipped(node), &mut commands).unwrap();
                continue;
            }
            Command::Execute(node) => node,
        };
        let gave = execute(&engine, node).and_then(|step| match step {
            Step::Done(outputs) => Ok(all_present(outputs)),
            Step::Branch(outputs) => Ok(outputs),
            Step::Effect(Effect::RunZone { inputs }) => {
                let mut zone = ZoneRun::begin(engine.node(node), engine.seed_of(node), &inputs)?;
                loop {
                    if let Some(ended) = zone.advance(3) {
                        return ended.map(all_present);
                    }
                }
            }
            other @ (Step::Effect(_) | Step::Wait(_)) => panic!("{other:?}"),
        });
        let event = finished(&engine, node, gave);
        engine.apply(event, &mut commands).unwrap();
    }
    match engine.outcome() {
        Some(Outcome::Succeeded(result)) => Value::Object(result),
        Some(Outcome::Failed { failure, .. }) => json!(failure.code),
        other => panic!("{other:?}"),
    }
}

/// A loop that adds `step`, a value from outside, to `n`, which begins at 1; with further settings,
/// preset values and edges.
fn adding(config: Value, presets: Value, more_nodes: Vec<Value>, more_edges: Vec<Value>) -> Value {
    let mut settings = json!({"variables": [{"key": "n", "dataFlowType": "FLOAT", "default": 1}]});
    settings
        .as_object_mut()
        .unwrap()
        .extend(config.as_object().unwrap().clone());
    let mut nodes = vec![
        json!({"id": "step", "type": "core:MathOperation", "inputValues": {"a": 1, "b": 1}, "configValues": {"operationMode": "add"}}),
        json!({"id": "loop", "type": "core:LoopZone", "configValues": settings, "inputValues": presets}),
        inside("loop", "begin", "core:ZoneInput", json!({})),
        inside(
            "loop",
            "add",
            "core:MathOperation",
            json!({"configValues": {"operationMode": "add"}}),
        ),
        inside("loop", "end", "core:ZoneOutput", json!({})),
        json!({"id": "out", "type": "core:GroupOutput"}),
    ];
    let mut edges = vec![
        edge("begin", "n", "add", "a"),
        edge("step", "result", "add", "b"),
        edge("add", "result", "end", "n"),
        edge("loop", "n", "out", "n"),
        edge("loop", "iterations", "out", "iterations"),
        edge("loop", "stop_reason", "out", "why"),
    ];
    nodes.extend(more_nodes);
    edges.extend(more_edges);
    json!({
        "nodes": nodes, "edges": edges,
        "interfaceOutputs": {"n": {"dataFlowType": "FLOAT"}, "iterations": {"dataFlowType": "INTEGER"}, "why": {"dataFlowType": "STRING"}},
    })
}

#[test]
fn w11_a_loop_ends_for_the_first_reason_that_applies() {
    for (config, presets, expected) in [
        (
            json!({}),
            json!({"count": 3}),
            json!({"n": 7, "iterations": 3, "why": "count"}),
        ),
        (
            json!({}),
            json!({"count": 0, "n": 5}),
            json!({"n": 5, "iterations": 0, "why": "count"}),
        ),
        (
            json!({"while": "vars.n < 6.0"}),
            json!({}),
            json!({"n": 7, "iterations": 3, "why": "while"}),
        ),
        (
            json!({"until": "index >= 2"}),
            json!({}),
            json!({"n": 5, "iterations": 2, "why": "until"}),
        ),
        (
            json!({"until": "inputs.n > 100.0"}),
            json!({}),
            json!({"n": 201, "iterations": 100, "why": "max"}),
        ),
        (
            json!({"maxIterations": 2}),
            json!({"count": 2}),
            json!({"n": 5, "iterations": 2, "why": "count"}),
        ),
        (
            json!({"maxIterations": 2, "onMax": "fail"}),
            json!({"count": 3}),
            json!("max_iterations"),
        ),
        (
            json!({"while": "vars.missing"}),
            json!({}),
            json!("condition_failed"),
        ),
        (json!({}), json!({"count": -1}), json!("invalid_count")),
    ] {
        let definition = adding(config.clone(), presets, Vec::new(), Vec::new());
        assert_eq!(play(&definition), expected, "{config}");
    }
}

#[test]
fn w11_break_ends_a_loop_after_its_iteration() {
    let check = inside(
        "loop",
        "check",
        "core:Condition",
        json!({"configValues": {"condition": "inputs.value >= 5.0"}}),
    );
    let edges = vec![
        edge("add", "result", "check", "value"),
        edge("check", "matched", "end", "break"),
    ];
    let definition = adding(json!({}), json!({}), vec![check], edges);
    assert_eq!(
        play(&definition),
        json!({"n": 5, "iterations": 2, "why": "break"})
    );
}

#[test]
fn w10_a_variable_that_is_given_no_value_keeps_its_own() {
    let mut definition = adding(json!({}), json!({"count": 4}), Vec::new(), Vec::new());
    // Only values of at most 3 lead to the end.
    let check = inside(
        "loop",
        "check",
        "core:Condition",
        json!({"configValues": {"condition": "inputs.value <= 3.0"}}),
    );
    definition["nodes"].as_array_mut().unwrap().push(check);
    definition["edges"][2] = edge("add", "result", "check", "value");
    let edges = definition["edges"].as_array_mut().unwrap();
    edges.push(edge("check", "then", "end", "n"));
    assert_eq!(play(&definition)["n"], json!(3));
    definition["edges"].as_array_mut().unwrap().pop();
    assert_eq!(play(&definition)["n"], json!(1));
}

#[test]
fn w15_many_iterations_keep_only_the_carried_values() {
    let definition = adding(
        json!({"maxIterations": 1_000_000}),
        json!({"count": 20_000}),
        Vec::new(),
        Vec::new(),
    );
    assert_eq!(
        play(&definition),
        json!({"n": 40_001, "iterations": 20_000, "why": "count"})
    );
}

/// Divides 12 by each item, so that an item of 0 fails.
fn dividing(items: Value, config: Value) -> Value {
    json!({
        "nodes": [
            {"id": "map", "type": "core:MapList", "configValues": config, "inputValues": {"items": items}},
            inside("map", "begin", "core:ZoneInput", json!({})),
            inside("map", "divide", "core:MathOperation", json!({"inputValues": {"a": 12}, "configValues": {"operationMode": "divide"}})),
            inside("map", "end", "core:ZoneOutput", json!({})),
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("begin", "item", "divide", "b"), edge("divide", "result", "end", "result"),
            edge("map", "results", "out", "results"), edge("map", "failed", "out", "failed"),
        ],
        "interfaceOutputs": {"results": {"dataFlowType": "ARRAY"}, "failed": {"dataFlowType": "INTEGER"}},
    })
}

#[test]
fn w16_results_have_the_order_and_length_of_the_items() {
    let continues = json!({"onItemError": "continue"});
    for (items, config, expected) in [
        (
            json!([1, 2, 3]),
            json!({}),
            json!({"results": [12, 6, 4], "failed": 0}),
        ),
        (json!([]), json!({}), json!({"results": [], "failed": 0})),
        (
            json!([1, 0, 3]),
            continues,
            json!({"results": [12, null, 4], "failed": 1}),
        ),
        (
            json!([0, 0]),
            json!({"onItemError": "continue", "toleratedFailures": 1}),
            json!("too_many_failures"),
        ),
        (
            json!([0, 2]),
            json!({"onItemError": "continue", "toleratedFailures": "50%"}),
            json!({"results": [null, 6], "failed": 1}),
        ),
    ] {
        assert_eq!(play(&dividing(items, config.clone())), expected, "{config}");
    }
    let failed = play(&dividing(json!([1, 0]), json!({})));
    assert!(failed.is_string(), "{failed}");
}

#[test]
fn w18_the_results_are_a_stream_and_a_stream_is_a_list_of_items() {
    let mut definition = dividing(json!([1, 2]), json!({}));
    let map = json!({"id": "again", "type": "core:MapList"});
    let begin = inside("again", "begin2", "core:ZoneInput", json!({}));
    let end = inside("again", "end2", "core:ZoneOutput", json!({}));
    definition["nodes"]
        .as_array_mut()
        .unwrap()
        .extend([map, begin, end]);
    definition["edges"] = json!([
        edge("begin", "item", "divide", "b"),
        edge("divide", "result", "end", "result"),
        edge("map", "result_stream", "again", "items"),
        edge("begin2", "item", "end2", "result"),
        edge("again", "results", "out", "results"),
        edge("map", "results", "out", "kept"),
        edge("again", "result_stream", "out", "live"),
    ]);
    definition["interfaceOutputs"] = json!({
        "results": {"dataFlowType": "ARRAY"},
        "kept": {"dataFlowType": "ARRAY"},
        "live": {"dataFlowType": "FLOAT", "isStream": true},
    });
    let all = json!([12, 6]);
    assert_eq!(
        play(&definition),
        json!({"results": all, "kept": all, "live": all})
    );
    let edges = definition["edges"].as_array_mut().unwrap();
    edges.retain(|edge| edge["targetHandle"] != "kept");
    definition["interfaceOutputs"]
        .as_object_mut()
        .unwrap()
        .remove("kept");
    assert_eq!(play(&definition), json!({"results": all, "live": all}));
}

#[track_caller]
fn check_refused(definition: &Value, expected: &[&str]) {
    let refused = compile_text(&definition.to_string(), &workflow_nodes::builtin()).unwrap_err();
    let codes: Vec<&str> = refused.iter().map(|violation| &*violation.code).collect();
    assert_eq!(codes, expected, "{refused:?}");
}

#[test]
fn w9_what_is_wrong_with_a_zone_is_a_violation() {
    let with = |config, nodes, edges| adding(config, json!({"count": 1}), nodes, edges);
    let none = Vec::new;
    check_refused(
        &adding(json!({}), json!({}), none(), none()),
        &["endless_loop"],
    );
    check_refused(
        &with(json!({}), none(), vec![edge("add", "result", "out", "n")]),
        &["edge_leaves_zone"],
    );
    let call = || {
        let preset = json!({"inputValues": {"tool_id": "x"}});
        vec![inside("loop", "call", "core:ExecuteTool", preset)]
    };
    check_refused(
        &with(
            json!({"execution": {"retry": {"maxAttempts": 2}}}),
            call(),
            none(),
        ),
        &["retry_of_zone"],
    );
    check_refused(
        &with(
            json!({}),
            vec![inside("loop", "loop#0", "core:ZoneInput", json!({}))],
            none(),
        ),
        &["reserved_character", "zone_boundary"],
    );
    check_refused(
        &with(
            json!({}),
            vec![inside("loop", "second", "core:ZoneOutput", json!({}))],
            none(),
        ),
        &["zone_boundary"],
    );
    check_refused(
        &with(
            json!({}),
            vec![json!({"id": "lost", "type": "core:ZoneInput"})],
            none(),
        ),
        &["outside_zone"],
    );
    check_refused(
        &with(
            json!({}),
            vec![inside("loop", "in", "core:GroupInput", json!({}))],
            none(),
        ),
        &["inside_zone"],
    );
    check_refused(
        &with(
            json!({"collect": [{"key": "n"}], "onMax": "x", "maxIterations": 0}),
            none(),
            none(),
        ),
        &["out_of_range", "out_of_range", "duplicate_key"],
    );
    check_refused(
        &with(
            json!({}),
            vec![inside("loop", "odd", "core:Missing", json!({}))],
            none(),
        ),
        &["unknown_node_type"],
    );
}

#[test]
fn w9_zones_are_nested_to_a_bounded_depth() {
    let zone = |depth: usize| {
        let (id, around) = (format!("z{depth}"), format!("z{}", depth.wrapping_sub(1)));
        let own = json!({"id": id, "type": "core:MapList", "inputValues": {"items": [1]}, "parentNode": (depth > 0).then_some(around)});
        let begin = inside(&id, &format!("b{depth}"), "core:ZoneInput", json!({}));
        [
            own,
            begin,
            inside(&id, &format!("e{depth}"), "core:ZoneOutput", json!({})),
        ]
    };
    let nested = |depth: usize| json!({"nodes": (0..depth).flat_map(zone).collect::<Vec<Value>>(), "edges": []});
    assert_eq!(play(&nested(8)), json!({}));
    check_refused(&nested(9), &["limit_exceeded"]);
}
