//! Definitions and their plans, or their problems.

use std::sync::Arc;

use call_outcome::Violation;
use serde_json::{Value, json};
use workflow_domain::compile::{compile, compile_text};
use workflow_domain::engine::Outcome;
use workflow_domain::evaluate::run_pure;
use workflow_domain::interface::bind;
use workflow_domain::plan::Plan;
use workflow_domain::workflow::Workflow;

fn compiled(definition: &Value) -> Result<Plan, Vec<Violation>> {
    compile_text(&definition.to_string(), &workflow_nodes::builtin())
}

#[track_caller]
fn check(definition: Value, expected: &[(&str, &str)]) -> Vec<Violation> {
    let violations = compiled(&definition).err().unwrap_or_default();
    let found: Vec<(&str, &str)> = violations
        .iter()
        .map(|v| (v.pointer.as_str(), v.code.as_ref()))
        .collect();
    assert_eq!(found, expected, "{definition}");
    violations
}

#[track_caller]
fn result(definition: &Value, inputs: Value) -> Value {
    let plan = Arc::new(compiled(definition).unwrap());
    let inputs = bind(&plan.interface_inputs, inputs.as_object().unwrap()).unwrap();
    match run_pure(plan, inputs).unwrap() {
        Outcome::Succeeded(result) => Value::Object(result),
        failed => panic!("{failed:?}"),
    }
}

fn merge(id: &str) -> Value {
    json!({"id": id, "type": "core:TextMerge", "inputValues": {"separator": "-", "text_inputs": ["x"]}})
}

fn edge(source: &str, source_handle: &str, target: &str, target_handle: &str) -> Value {
    json!({"source": source, "sourceHandle": source_handle, "target": target, "targetHandle": target_handle})
}

#[test]
fn an_unknown_node_type_is_told_what_was_meant() {
    let definition = json!({"nodes": [{"id": "a", "type": "core:TextMerg"}]});
    let violations = check(definition, &[("/nodes/0/type", "unknown_node_type")]);
    assert_eq!(violations[0].suggestions[0], "core:TextMerge");
    let payload = json!({"nodes": [{"id": "a", "fullType": "x"}]});
    check(payload, &[("/nodes/0/fullType", "unknown_node_type")]);
}

#[test]
fn dangling_edges_and_unknown_slots_are_named() {
    let definition = json!({"nodes": [merge("a"), merge("b")], "edges": [
        edge("a", "merged_text", "c", "text_inputs"),
        edge("bb", "merged_text", "a", "text_inputs"),
        edge("a", "merged", "b", "text_input"),
        edge("a", "merged_text", "b", "separator__0"),
        {"source": "a", "target": "b"},
    ]});
    let violations = check(
        definition,
        &[
            ("/edges/0/target", "dangling_edge"),
            ("/edges/1/source", "dangling_edge"),
            ("/edges/2/sourceHandle", "unknown_slot"),
            ("/edges/2/targetHandle", "unknown_slot"),
            ("/edges/3/targetHandle", "unknown_slot"),
            ("/edges/4/targetHandle", "missing_handle"),
        ],
    );
    assert_eq!(violations[3].suggestions, ["text_inputs"]);
}

#[test]
fn types_that_cannot_flow_are_refused() {
    let selector =
        json!({"id": "s", "type": "core:JsonSelector", "inputValues": {"json": {}, "path": "$.a"}});
    let add =
        json!({"id": "m", "type": "core:MathOperation", "configValues": {"operationMode": "add"}});
    let definition = json!({"nodes": [selector, add, merge("t")], "edges": [
        edge("s", "values", "m", "a"),
        edge("s", "value", "m", "b"),
        edge("s", "count", "t", "text_inputs"),
        edge("s", "values", "t", "text_inputs"),
    ]});
    check(
        definition,
        &[
            ("/edges/0", "incompatible_types"),
            ("/edges/3", "incompatible_types"),
        ],
    );
}

#[test]
fn an_input_for_one_value_takes_one_edge() {
    let definition = json!({"nodes": [merge("a"), merge("b")], "edges": [
        edge("a", "merged_text", "b", "separator"),
        edge("a", "merged_text", "b", "separator"),
    ]});
    check(definition, &[("/edges/1", "too_many_edges")]);
}

#[test]
fn required_inputs_need_an_edge_or_a_value() {
    let definition = json!({"nodes": [
        {"id": "a", "type": "core:TextMerge"},
        {"id": "b", "type": "core:TextMerge", "inputValues": {"text_inputs": null}},
        {"id": "c", "type": "core:FormatPrompt", "inputValues": {"template": ["x"]}},
    ]});
    check(
        definition,
        &[
            ("/nodes/0/inputValues/text_inputs", "missing_input"),
            ("/nodes/1/inputValues/text_inputs", "missing_input"),
            ("/nodes/2/inputValues/template", "type_mismatch"),
            ("/nodes/2/inputValues/template", "missing_input"),
        ],
    );
}

#[test]
fn ids_are_unique() {
    let mut first = edge("a", "merged_text", "b", "text_inputs__0");
    first["id"] = json!("e");
    let mut second = edge("a", "merged_text", "b", "text_inputs__1");
    second["id"] = json!("e");
    let definition =
        json!({"nodes": [merge("a"), merge("b"), merge("a")], "edges": [first, second]});
    check(
        definition,
        &[
            ("/nodes/2/id", "duplicate_id"),
            ("/edges/1/id", "duplicate_id"),
        ],
    );
}

#[test]
fn a_cycle_is_named_with_its_path() {
    let definition = json!({"nodes": [merge("a"), merge("b"), merge("c")], "edges": [
        edge("a", "merged_text", "b", "text_inputs"),
        edge("b", "merged_text", "c", "text_inputs"),
        edge("c", "merged_text", "a", "text_inputs"),
    ]});
    let violations = check(definition, &[("/nodes/0", "cyclic_graph")]);
    assert_eq!(violations[0].received, "a -> b -> c -> a");
    let own =
        json!({"nodes": [merge("a")], "edges": [edge("a", "merged_text", "a", "text_inputs")]});
    assert_eq!(
        check(own, &[("/nodes/0", "cyclic_graph")])[0].received,
        "a -> a"
    );
}

#[test]
fn settings_that_a_node_refuses_are_named() {
    let definition = json!({"nodes": [
        {"id": "m", "type": "core:MathOperation", "configValues": {"operationMode": "addd"}},
        {"id": "j", "type": "core:JsonSelector", "inputValues": {"json": 1, "path": "$["}},
        {"id": "t", "type": "core:ExecuteTool", "inputValues": {"tool_id": "x"}, "configValues": {"continueOnError": 1}},
        {"id": "s", "type": "core:Script", "inputValues": {"code": "x"}, "configValues": {"timeoutSeconds": 0}},
    ]});
    let violations = check(
        definition,
        &[
            ("/nodes/0/configValues/operationMode", "unknown_mode"),
            ("/nodes/1/inputValues/path", "invalid_path"),
            ("/nodes/2/configValues/continueOnError", "type_mismatch"),
            ("/nodes/3/configValues/timeoutSeconds", "out_of_range"),
        ],
    );
    assert_eq!(violations[0].suggestions[0], "add");
    let payload = json!({"nodes": [{"id": "j", "fullType": "core:JsonSelector", "inputs": {"json": 1, "path": "$["}}]});
    check(payload, &[("/nodes/0/inputs/path", "invalid_path")]);
}

#[test]
fn mappings_of_a_payload_name_real_outputs() {
    let definition = json!({
        "nodes": [{"id": "a", "fullType": "core:TextMerge", "inputs": {"text_inputs": ["x"]}}],
        "interfaceOutputs": {"o": {"dataFlowType": "STRING"}},
        "outputInterfaceMappings": {
            "o": {"sourceNodeId": "b", "sourceSlotKey": "merged_text"},
            "p": {"sourceNodeId": "a", "sourceSlotKey": "merged"},
        },
    });
    check(
        definition,
        &[
            ("/outputInterfaceMappings/o/sourceNodeId", "unknown_node"),
            ("/outputInterfaceMappings/p/sourceSlotKey", "unknown_slot"),
            ("/outputInterfaceMappings/p", "unknown_output"),
        ],
    );
}

#[test]
fn an_output_is_given_once() {
    let out = |id: &str| json!({"id": id, "type": "core:GroupOutput"});
    let definition = json!({
        "nodes": [merge("a"), out("o1"), out("o2")],
        "edges": [edge("a", "merged_text", "o1", "x"), edge("a", "merged_text", "o2", "x")],
        "interfaceOutputs": {"x": {"dataFlowType": "STRING"}},
    });
    check(definition, &[("/nodes/2", "duplicate_output")]);
}

/// Two texts in, merged; the test is about the order of the values.
fn ordered(targets: [&str; 2], orders: Value) -> Value {
    let mut first = edge("in", "a", "t", targets[0]);
    first["id"] = json!("e1");
    let mut second = edge("in", "b", "t", targets[1]);
    second["id"] = json!("e2");
    json!({
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            {"id": "t", "type": "core:TextMerge", "inputValues": {"separator": ","}, "inputConnectionOrders": orders},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [first, second, edge("t", "merged_text", "out", "r")],
        "interfaceInputs": {"a": {"dataFlowType": "STRING"}, "b": {"dataFlowType": "STRING"}},
        "interfaceOutputs": {"r": {"dataFlowType": "STRING"}},
    })
}

#[test]
fn several_edges_into_one_input_have_an_order() {
    let inputs = json!({"a": "A", "b": "B"});
    for (targets, orders, expected) in [
        (["text_inputs", "text_inputs"], json!({}), "A,B"),
        (
            ["text_inputs", "text_inputs"],
            json!({"text_inputs": ["e2", "e1"]}),
            "B,A",
        ),
        (
            ["text_inputs", "text_inputs"],
            json!({"text_inputs": ["e2"]}),
            "B,A",
        ),
        (["text_inputs__1", "text_inputs__0"], json!({}), "B,A"),
        (
            ["text_inputs__1", "text_inputs__0"],
            json!({"text_inputs": ["e1", "e2"]}),
            "A,B",
        ),
        (["text_inputs__10", "text_inputs__9"], json!({}), "B,A"),
    ] {
        assert_eq!(
            result(&ordered(targets, orders.clone()), inputs.clone()),
            json!({"r": expected}),
            "{orders}"
        );
    }
}

#[test]
fn an_edge_counts_before_a_preset_and_a_preset_before_a_default() {
    let definition = |connect: bool, preset: Value| {
        let mut edges = vec![edge("t", "merged_text", "out", "r")];
        if connect {
            edges.push(edge("in", "s", "t", "separator"));
        }
        json!({
            "nodes": [
                {"id": "in", "type": "core:GroupInput"},
                {"id": "t", "type": "core:TextMerge", "inputValues": {"separator": preset, "text_inputs": ["a", 2, true]}},
                {"id": "out", "type": "core:GroupOutput"},
            ],
            "edges": edges,
            "interfaceInputs": {"s": {"dataFlowType": "STRING"}},
            "interfaceOutputs": {"r": {"dataFlowType": "STRING"}},
        })
    };
    assert_eq!(
        result(&definition(true, json!("P")), json!({"s": "E"})),
        json!({"r": "aE2Etrue"})
    );
    assert_eq!(
        result(&definition(true, json!("P")), json!({})),
        json!({"r": "aP2Ptrue"})
    );
    assert_eq!(
        result(&definition(false, json!("P")), json!({})),
        json!({"r": "aP2Ptrue"})
    );
    assert_eq!(
        result(&definition(false, Value::Null), json!({})),
        json!({"r": "a\n2\ntrue"})
    );
}

#[test]
fn an_older_payload_brings_its_arguments_as_defaults() {
    let definition = json!({
        "nodes": [{"id": "in", "fullType": "core:GroupInput"}, {"id": "t", "fullType": "core:TextMerge"}],
        "edges": [{"sourceNodeId": "in", "sourceHandle": "a", "targetNodeId": "t", "targetHandle": "text_inputs"}],
        "interfaceInputs": {"a": {"dataFlowType": "STRING", "required": true, "config": {"default": "given"}}},
        "interfaceOutputs": {"r": {"dataFlowType": "STRING"}},
        "outputInterfaceMappings": {"r": {"sourceNodeId": "t", "sourceSlotKey": "merged_text"}},
    });
    assert_eq!(result(&definition, json!({})), json!({"r": "given"}));
    assert_eq!(
        result(&definition, json!({"a": "now"})),
        json!({"r": "now"})
    );
}

#[test]
fn an_input_for_many_spreads_into_another() {
    let definition = json!({
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            {"id": "t", "type": "core:TextMerge", "inputValues": {"separator": "+"}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("in", "many", "t", "text_inputs__0"),
            edge("in", "one", "t", "text_inputs__1"),
            edge("t", "merged_text", "out", "r"),
        ],
        "interfaceInputs": {"many": {"dataFlowType": "STRING", "multi": true}, "one": {"dataFlowType": "INTEGER"}},
        "interfaceOutputs": {"r": {"dataFlowType": "STRING"}},
    });
    assert_eq!(
        result(&definition, json!({"many": ["a", "b"], "one": 3})),
        json!({"r": "a+b+3"})
    );
}

#[test]
fn a_bypassed_node_lets_values_pass() {
    let definition = json!({
        "nodes": [
            {"id": "m", "fullType": "core:TextMerge", "inputs": {"text_inputs": ["a", "b"]}, "bypassed": true},
        ],
        "interfaceOutputs": {"r": {"dataFlowType": "STRING"}},
        "outputInterfaceMappings": {"r": {"sourceNodeId": "m", "sourceSlotKey": "merged_text"}},
    });
    assert_eq!(result(&definition, json!({})), json!({"r": "a"}));
}

#[test]
fn outputs_that_nothing_leads_to_are_their_default_or_null() {
    let definition = json!({
        "nodes": [{"id": "out", "type": "core:GroupOutput"}],
        "interfaceOutputs": {"a": {"dataFlowType": "STRING"}, "b": {"dataFlowType": "STRING", "config": {"default": "d"}}},
    });
    assert_eq!(result(&definition, json!({})), json!({"a": null, "b": "d"}));
}

#[test]
fn a_single_node_is_wrapped_with_its_slots_as_the_interface() {
    let catalogue = workflow_nodes::builtin();
    let shape = &catalogue.get("core:TextMerge").unwrap().definition().shape;
    let workflow = Workflow::of_single_node(
        "core:TextMerge",
        Default::default(),
        Default::default(),
        shape,
    );
    let plan = Arc::new(compile(&workflow, &catalogue).unwrap());
    let inputs = json!({"text_inputs": ["a", "b"], "separator": "\\t"});
    let inputs = bind(&plan.interface_inputs, inputs.as_object().unwrap()).unwrap();
    let Outcome::Succeeded(result) = run_pure(plan, inputs).unwrap() else {
        panic!("it runs")
    };
    assert_eq!(Value::Object(result), json!({"merged_text": "a\tb"}));
}

#[test]
fn the_only_workflow_that_the_parent_project_ships_loads() {
    // The facts of its DefaultWorkflow: both ends of the interface, untyped slots, no edges.
    let text = r#"{"viewport":{"x":0,"y":0,"zoom":1},"nodes":[
        {"id":"in","type":"core:GroupInput","position":{"x":0,"y":0}},
        {"id":"out","type":"core:GroupOutput","position":{"x":9,"y":0}}],"edges":[],
        "interfaceInputs":{"input_0":{"key":"input_0","displayName":"x","dataFlowType":"CONVERTIBLE_ANY"}},
        "interfaceOutputs":{"output_0":{"key":"output_0","dataFlowType":"CONVERTIBLE_ANY"}},
        "referencedWorkflows":[]}"#;
    let plan = compile_text(text, &workflow_nodes::builtin()).unwrap();
    assert_eq!(plan.nodes.len(), 2);
}
