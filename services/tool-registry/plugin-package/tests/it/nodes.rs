//! Node types of plugins (rule R116): each becomes a tool, and every mistake of each file is found at once.

use plugin_package::{Checked, PluginFiles, check, plan_alone};
use serde_json::{Value, json};
use tool_domain::definition::Implementation;
use tool_domain::package::PackageFile;

fn file(path: &str, content: impl Into<Vec<u8>>) -> PackageFile {
    PackageFile {
        path: path.to_owned(),
        content: content.into(),
    }
}

fn node(changes: Value) -> Value {
    let mut node = json!({
        "type": "QrCode",
        "displayName": "QR code",
        "description": "Draws a text as a QR code.",
        "inputs": {"text": {"dataFlowType": "STRING", "required": true}},
        "outputs": {"image": {"dataFlowType": "BINARY"}},
        "configSchema": {"border": {"dataFlowType": "INTEGER", "config": {"default": 4}}},
        "handler": {"script": "python3 qr.py", "timeout": "2s"},
        "effects": {"readOnly": true},
    });
    for (key, value) in changes.as_object().unwrap() {
        node[key] = value.clone();
    }
    node
}

fn files(nodes: &[(&str, Value)]) -> PluginFiles {
    let manifest = "name: qr\nversion: 1.0.0\ntools: {entry: tools}\nnodes: {entry: nodes}\n";
    let tool = json!({
        "id": "qr:read",
        "description": "Reads a QR code.",
        "parameters": {"type": "object"},
        "implementation": {"type": "script", "command": "python3 qr.py"},
    });
    let mut files = vec![
        file("plugin.yaml", manifest),
        file("tools/read.tool.json", tool.to_string()),
        file("qr.py", "print({})"),
    ];
    let nodes = nodes.iter();
    files.extend(nodes.map(|(name, node)| file(&format!("nodes/{name}"), node.to_string())));
    PluginFiles::new(files).unwrap()
}

fn found(nodes: &[(&str, Value)]) -> Vec<(String, String)> {
    let Checked { violations, .. } = check(&files(nodes));
    let found = violations.into_iter();
    found.map(|it| (it.pointer, it.code.into_owned())).collect()
}

#[test]
fn r116_a_node_type_is_a_tool_whose_arguments_are_its_inputs_and_settings() {
    let files = files(&[("qr.node.json", node(json!({})))]);
    let Checked { plugin, violations } = check(&files);
    assert_eq!(violations, []);
    let plugin = plugin.unwrap();
    assert_eq!(plugin.nodes, ["qr:QrCode"]);
    let mut tools = plugin.tools.iter();
    let tool = tools
        .find(|tool| tool.id.as_str() == "node:qr:QrCode")
        .unwrap();
    let parameters = tool.parameters.clone().unwrap();
    assert_eq!(parameters["required"], json!(["text"]));
    assert_eq!(parameters["properties"]["border"]["default"], json!(4));
    assert!(tool.flags.read_only && !tool.flags.idempotent);
    assert_eq!(tool.timeout.unwrap().as_millis(), 2_000);
    let plan = plan_alone(&files, &plugin);
    assert_eq!(plan.nodes, ["qr:QrCode"]);
    assert!(plan.conflicts.is_empty(), "{:?}", plan.conflicts);
}

#[test]
fn r116_a_node_whose_handler_is_a_tool_runs_what_the_tool_runs_and_promises_no_more() {
    let of_tool = |effects: Value| {
        let node = node(json!({"handler": {"tool": "qr:read"}, "effects": effects}));
        check(&files(&[("qr.node.json", node)]))
    };
    let plugin = of_tool(json!({})).plugin.unwrap();
    let by_id = |id: &str| {
        let mut tools = plugin.tools.iter();
        tools.find(|tool| tool.id.as_str() == id).unwrap()
    };
    let (node, tool) = (by_id("node:qr:QrCode"), by_id("qr:read"));
    assert_eq!(node.implementation, tool.implementation);
    assert!(matches!(node.implementation, Implementation::Script(_)));
    let weaker = of_tool(json!({"readOnly": true})).violations;
    assert_eq!(weaker.len(), 1, "{weaker:?}");
    assert_eq!(weaker[0].code, "effects_weaker");
}

#[test]
fn r116_the_tool_of_a_type_with_modes_takes_the_inputs_of_each() {
    let slot = |of: &str, required: bool| json!({"dataFlowType": of, "required": required});
    let with_modes = node(json!({
        "inputs": {"a": slot("STRING", true), "b": {"dataFlowType": "STRING", "config": {"default": "x"}}},
        "modeConfigKey": "mode",
        "modes": {
            "one": {"inputs": {"a": slot("STRING", true)}},
            "two": {"inputs": {"a": slot("INTEGER", true), "c": slot("STRING", true)}},
        },
    }));
    let plugin = check(&files(&[("qr.node.json", with_modes)]))
        .plugin
        .unwrap();
    let mut tools = plugin.tools.iter();
    let tool = tools.find(|tool| tool.id.as_str().starts_with("node:"));
    let parameters = tool.unwrap().parameters.clone().unwrap();
    assert_eq!(parameters["required"], json!(["a"]));
    let properties = &parameters["properties"];
    assert_eq!(properties["a"]["type"], Value::Null);
    assert_eq!(properties["b"]["default"], json!("x"));
    assert_eq!(properties["c"]["type"], json!("string"));
    assert_eq!(properties["mode"]["enum"], json!(["one", "two"]));
}

#[test]
fn r116_every_mistake_of_every_node_type_is_found_at_once() {
    let found = found(&[
        ("a.node.json", node(json!({"type": "core:TextMerge"}))),
        (
            "b.node.json",
            node(json!({"handler": {"script": "python3 gone.py"}})),
        ),
        (
            "c.node.json",
            node(json!({"handler": {"tool": "qr:rread"}})),
        ),
        (
            "d.node.json",
            node(json!({"handler": {"script": "sh -c 'rm x'"}})),
        ),
        (
            "e.node.json",
            node(json!({"handler": {"script": "python3 qr.py", "packages": "data"}})),
        ),
        (
            "f.node.json",
            node(json!({"inputs": {"a": {"dataFlowType": "TEXT"}}})),
        ),
        (
            "j.node.json",
            node(json!({"handler": {"script": "python3 qr.py", "timeout": "soon"}})),
        ),
        ("g.node.json", node(json!({}))),
        ("h.node.json", node(json!({}))),
        ("i.node.json", json!("no object")),
    ]);
    let expected = [
        ("nodes/a.node.json/type", "foreign_type"),
        ("nodes/b.node.json", "script_not_found"),
        ("nodes/c.node.json/handler/tool", "unknown_tool"),
        ("nodes/d.node.json/handler/script", "invalid_command"),
        ("nodes/e.node.json/handler/packages", "permission_missing"),
        ("nodes/f.node.json/inputs/a/dataFlowType", "not_in_enum"),
        ("nodes/h.node.json", "id_taken"),
        ("nodes/j.node.json/handler/timeout", "out_of_range"),
    ];
    for (place, code) in expected {
        let is_it = |(found, with): &(String, String)| found == place && with == code;
        assert!(found.iter().any(is_it), "{place} {code}: {found:?}");
    }
    assert!(
        found
            .iter()
            .any(|(place, _)| place.starts_with("nodes/i.node.json")),
        "{found:?}"
    );
}

#[test]
fn r116_definitions_in_typescript_are_reported_with_the_file_to_write() {
    let files = files(&[("qr.ts", json!("export default {}"))]);
    let Checked { plugin, violations } = check(&files);
    assert_eq!(violations, []);
    let plan = plan_alone(&files, &plugin.unwrap());
    let remark = plan
        .remarks
        .iter()
        .find(|remark| remark.code == "not_loadable");
    let remark = remark.unwrap();
    assert_eq!(remark.pointer, "nodes/qr.ts");
    assert!(remark.message.contains("nodes/qr.node.json"), "{remark:?}");
    let none = self::files(&[]);
    let plan = plan_alone(&none, &check(&none).plugin.unwrap());
    assert!(plan.remarks.iter().any(|remark| remark.code == "no_nodes"));
    // A wrong definition is one.
    let wrong = self::files(&[("qr.node.json", node(json!({"type": "core:TextMerge"})))]);
    let plan = plan_alone(&wrong, &check(&wrong).plugin.unwrap());
    assert!(plan.remarks.iter().all(|remark| remark.code != "no_nodes"));
}
