//! Groups by data: a definition and its children in, the result or the problems out.

use std::sync::Arc;

use call_outcome::Violation;
use serde_json::{Map, Value, json};
use workflow_domain::bundle::Bundle;
use workflow_domain::compile::compile_bundle;
use workflow_domain::engine::Outcome;
use workflow_domain::evaluate::run_pure;
use workflow_domain::interface::bind;
use workflow_domain::plan::Plan;

fn compiled(root: &Value, children: &[(&str, Value)]) -> Result<Plan, Vec<Violation>> {
    let children = children
        .iter()
        .map(|(id, child)| ((*id).to_owned(), child.to_string().into()));
    let bundle = Bundle {
        root: root.to_string().into(),
        children: Arc::new(children.collect()),
        node_types: Arc::default(),
    };
    compile_bundle(&bundle, &workflow_nodes::builtin())
}

#[track_caller]
fn check(root: Value, children: &[(&str, Value)], expected: Value) -> Plan {
    let plan = Arc::new(compiled(&root, children).unwrap());
    let inputs = bind(&plan.interface_inputs, &Map::new()).unwrap();
    match run_pure(Arc::clone(&plan), inputs).unwrap() {
        Outcome::Succeeded(result) => assert_eq!(Value::Object(result), expected),
        failed => panic!("{failed:?}"),
    }
    Arc::into_inner(plan).unwrap()
}

#[track_caller]
fn refused(root: Value, children: &[(&str, Value)], pointer: &str, code: &str, words: &str) {
    let violations = compiled(&root, children).unwrap_err();
    let first = &violations[0];
    assert_eq!(
        (first.pointer.as_str(), first.code.as_ref()),
        (pointer, code)
    );
    assert!(first.message.contains(words), "{}", first.message);
    assert_eq!(violations.len(), 1, "{violations:?}");
}

fn group(id: &str, workflow: &str, presets: Value) -> Value {
    json!({"id": id, "type": "core:NodeGroup", "inputValues": presets,
           "configValues": {"referencedWorkflowId": workflow}})
}

fn edge(source: &str, source_handle: &str, target: &str, target_handle: &str) -> Value {
    json!({"source": source, "sourceHandle": source_handle, "target": target, "targetHandle": target_handle})
}

fn text(default: Option<&str>) -> Value {
    json!({"dataFlowType": "STRING", "config": {"default": default}})
}

/// A workflow that doubles `text` with `mark` in between: one interface value goes to two nodes.
fn doubling() -> Value {
    let part = |id: &str| json!({"id": id, "type": "core:FormatPrompt", "inputValues": {"template": "{t}"}});
    json!({
        "interfaceInputs": {"text": text(None), "mark": text(Some("-"))},
        "interfaceOutputs": {"double": text(None)},
        "nodes": [{"id": "in", "type": "core:GroupInput"}, part("left"), part("right"),
                  {"id": "both", "type": "core:TextMerge"}, {"id": "out", "type": "core:GroupOutput"}],
        "edges": [
            edge("in", "text", "left", "t"), edge("in", "text", "right", "t"),
            edge("in", "mark", "both", "separator"),
            edge("left", "prompt", "both", "text_inputs__0"), edge("right", "prompt", "both", "text_inputs__1"),
            edge("both", "merged_text", "out", "double"),
        ],
    })
}

fn around(nodes: Vec<Value>, edges: Vec<Value>, source: (&str, &str)) -> Value {
    let mut nodes = nodes;
    nodes.push(json!({"id": "out", "type": "core:GroupOutput"}));
    let mut edges = edges;
    edges.push(edge(source.0, source.1, "out", "result"));
    json!({"nodes": nodes, "edges": edges, "interfaceOutputs": {"result": {"dataFlowType": "WILDCARD"}}})
}

#[test]
fn w1_a_group_used_twice_has_its_nodes_twice_with_defaults_and_fan_out() {
    let root = around(
        vec![
            group("a", "double", json!({"text": "x"})),
            group("b", "double", json!({"mark": "+"})),
            json!({"id": "frame", "type": "core:frame"}),
        ],
        vec![edge("a", "double", "b", "text")],
        ("b", "double"),
    );
    let plan = check(
        root,
        &[("double", doubling())],
        json!({"result": "x-x+x-x"}),
    );
    let mut ids: Vec<&str> = plan.nodes.iter().map(|node| &*node.id).collect();
    ids.sort_unstable();
    let expected = [
        "a/both", "a/in", "a/left", "a/out", "a/right", "b/both", "b/in", "b/left", "b/out",
        "b/right", "out",
    ];
    assert_eq!(ids, expected);
}

#[test]
fn groups_may_contain_groups() {
    let middle = json!({
        "interfaceInputs": {"t": text(Some("y"))}, "interfaceOutputs": {"r": text(None)},
        "nodes": [{"id": "i", "type": "core:GroupInput"}, {"id": "o", "type": "core:GroupOutput"},
                  group("inner", "double", json!({}))],
        "edges": [edge("i", "t", "inner", "text"), edge("inner", "double", "o", "r")],
    });
    let children = [("double", doubling()), ("middle", middle)];
    let root = around(vec![group("g", "middle", json!({}))], vec![], ("g", "r"));
    let plan = check(root, &children, json!({"result": "y-y"}));
    assert!(plan.by_id.contains_key("g/inner/left"));
}

#[test]
fn a_bypassed_group_passes_values_by() {
    let mut bypassed = group("g", "double", json!({"text": "x"}));
    bypassed["bypassed"] = json!(true);
    let root = around(vec![bypassed], vec![], ("g", "double"));
    check(root, &[("double", doubling())], json!({"result": "x"}));
}

#[test]
fn workflows_that_contain_each_other_are_named_with_the_path() {
    let one = around(vec![group("g", "two", json!({}))], vec![], ("g", "result"));
    let two = around(vec![group("h", "one", json!({}))], vec![], ("h", "result"));
    let root = around(
        vec![group("start", "one", json!({}))],
        vec![],
        ("start", "result"),
    );
    let violations = compiled(&root, &[("one", one), ("two", two)]).unwrap_err();
    assert_eq!(violations[0].code, "cyclic_reference");
    assert!(
        violations[0].message.ends_with("one -> two -> one"),
        "{violations:?}"
    );
}

#[test]
fn a_reference_that_leads_nowhere_is_a_violation_at_the_group() {
    let at = "/nodes/0/configValues/referencedWorkflowId";
    let root = |id: &str| json!({"nodes": [group("g", id, json!({}))], "edges": []});
    let children = [("double", doubling()), ("broken", json!({"nodes": 3}))];
    refused(
        root("doubled"),
        &children,
        at,
        "unknown_workflow",
        "`doubled`",
    );
    refused(
        root("broken"),
        &children,
        at,
        "invalid_workflow",
        "expected array",
    );
    let unnamed = json!({"nodes": [{"id": "g", "type": "core:NodeGroup"}]});
    refused(unnamed, &[], at, "missing", "names no workflow");
}

#[test]
fn a_required_input_of_a_group_needs_an_edge_or_a_value() {
    let mut child = doubling();
    child["interfaceInputs"]["text"]["required"] = json!(true);
    let root = json!({"nodes": [group("g", "double", json!({}))]});
    refused(
        root,
        &[("double", child)],
        "/nodes/0/inputValues/text",
        "missing_input",
        "`text`",
    );
}
