//! The node that writes the pieces of a streaming output.

use serde_json::{Value, json};
use workflow_domain::compile::compile_text;
use workflow_domain::plan::{NodeIndex, Plan};
use workflow_domain::stream::streamed_outputs;

/// Compiles a script whose output goes through `between` to a streaming output.
fn plan(script: &Value, between: &Value, edges: &[[&str; 4]]) -> Plan {
    let edges = edges.iter().map(|[source, output, target, input]| {
        json!({"source": source, "sourceHandle": output, "target": target, "targetHandle": input})
    });
    let text = json!({
        "nodes": [script, between, {"id": "out", "type": "core:GroupOutput"}],
        "edges": edges.collect::<Vec<_>>(),
        "interfaceOutputs": {"live": {"dataFlowType": "STRING", "isStream": true}},
    });
    compile_text(&text.to_string(), &workflow_nodes::builtin()).unwrap()
}

#[track_caller]
fn check(between: &Value, edges: &[[&str; 4]], expected: (Option<&str>, &str)) {
    let script = json!({"id": "say", "type": "core:Script", "inputValues": {"code": "1"}});
    let plan = plan(&script, between, edges);
    let streamed = streamed_outputs(&plan);
    let id = |node: NodeIndex| &*plan.nodes[node as usize].id;
    let found = streamed
        .iter()
        .map(|found| (found.writer.map(|(node, _)| id(node)), id(found.node)));
    assert_eq!(found.collect::<Vec<_>>(), [expected]);
}

#[test]
fn values_are_pieces_of_values_and_not_of_text() {
    for (data_flow, writer) in [
        ("OBJECT", Some("say")),
        ("WILDCARD", Some("say")),
        ("STRING", None),
    ] {
        let text = json!({
            "nodes": [
                {"id": "say", "type": "core:Script", "inputValues": {"code": "1"},
                 "configValues": {"yields": "WILDCARD"}},
                {"id": "out", "type": "core:GroupOutput"},
            ],
            "edges": [{"source": "say", "sourceHandle": "values", "target": "out", "targetHandle": "live"}],
            "interfaceOutputs": {"live": {"dataFlowType": data_flow, "isStream": true}},
        });
        let plan = compile_text(&text.to_string(), &workflow_nodes::builtin()).unwrap();
        let found = streamed_outputs(&plan)[0].writer;
        let found = found.map(|(node, _)| &*plan.nodes[node as usize].id);
        assert_eq!(found, writer, "{data_flow}");
    }
}

#[test]
fn pieces_pass_relays_and_no_other_node() {
    let relay = json!({"id": "relay", "type": "core:StreamSuffixRelay"});
    let through_relay = [
        ["say", "stdout", "relay", "inputStream"],
        ["relay", "outputStream", "out", "live"],
    ];
    check(&relay, &through_relay, (Some("say"), "relay"));
    let mut bypassed = relay.clone();
    bypassed["bypassed"] = json!(true);
    check(&bypassed, &through_relay, (None, "relay"));
    check(
        &relay,
        &[["say", "stdout", "out", "live"]],
        (Some("say"), "say"),
    );
    check(&relay, &[["say", "stderr", "out", "live"]], (None, "say"));
    let collect = json!({"id": "all", "type": "core:StreamToString"});
    let through_text = [
        ["say", "stdout", "all", "stream"],
        ["all", "text", "out", "live"],
    ];
    check(&collect, &through_text, (None, "all"));
}
