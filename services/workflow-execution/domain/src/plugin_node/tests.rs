use serde_json::json;

use super::*;
use crate::bundle::Bundle;
use crate::compile::compile_bundle;

fn described(changes: &Value) -> PluginNodeType {
    let mut file = json!({
        "type": "QrCode",
        "inputs": {"text": {"dataFlowType": "STRING", "required": true}},
        "outputs": {"image": {"dataFlowType": "BINARY"}, "size": {"dataFlowType": "INTEGER"}},
        "configSchema": {"border": {"dataFlowType": "INTEGER", "config": {"default": 4}}},
        "handler": {"script": "python qr.py"},
    });
    for (key, value) in changes.as_object().unwrap() {
        file[key] = value.clone();
    }
    PluginNodeType {
        full_type: "qr:QrCode".to_owned(),
        definition: file.to_string(),
        tool_id: "node:qr:QrCode".to_owned(),
        package_digest: "sha256:1".to_owned(),
    }
}

fn settle(changes: &Value, output: Value) -> Result<Vec<Arc<Value>>, Failure> {
    let node = described(changes).node_type().unwrap();
    let settled = Settled::Tool {
        output,
        child_run_id: String::new(),
    };
    let call = NodeCall {
        shape: &node.definition().shape,
        config: &Map::new(),
        inputs: &[],
        id: "qr",
        run_seed: 0,
        written: "",
    };
    node.settle(call, settled)
}

#[test]
fn r116_a_type_reads_back_from_its_text() {
    let described = described(&json!({}));
    let node = PluginNodeType::read(&described.to_text()).unwrap();
    let definition = node.definition();
    assert_eq!(definition.full_type, "qr:QrCode");
    assert_eq!(definition.category, "qr");
    assert_eq!(definition.effects, NodeEffects::External);
    assert_eq!(definition.plugin.as_ref().unwrap().name.as_ref(), "qr");
    assert!(PluginNodeType::read("{").is_none());
}

#[test]
fn r116_a_call_has_the_settings_and_the_inputs_as_arguments() {
    let node = described(&json!({})).node_type().unwrap();
    let config = json!({"border": 2, "other": 1});
    let text = Arc::new(json!("hello"));
    let call = NodeCall {
        shape: &node.definition().shape,
        config: config.as_object().unwrap(),
        inputs: &[Some(Cow::Borrowed(&text))],
        id: "qr",
        run_seed: 0,
        written: "",
    };
    let Ok(Step::Effect(Effect::CallTool { tool_id, arguments })) = node.run(call) else {
        panic!("the node calls its tool");
    };
    assert_eq!(tool_id, "node:qr:QrCode");
    assert_eq!(
        Value::Object(arguments),
        json!({"border": 2, "text": "hello"})
    );
}

#[test]
fn r116_an_answer_must_have_each_output_of_its_type_and_no_other() {
    let whole = json!({"image": "aGk=", "size": 2});
    let outputs = settle(&json!({}), whole).unwrap();
    assert_eq!(*outputs[1], json!(2));
    for (output, named) in [
        (json!("text"), "an object"),
        (json!({"image": "aGk="}), "`size`"),
        (json!({"image": 1, "size": 2}), "`image`"),
        (json!({"image": "aGk=", "size": "2"}), "`size`"),
        (json!({"image": "aGk=", "size": 2, "more": 3}), "`more`"),
    ] {
        let failure = settle(&json!({}), output).unwrap_err();
        assert_eq!(failure.code, "output_invalid");
        assert!(failure.message.contains(named), "{}", failure.message);
    }
}

#[test]
fn r116_a_stream_is_empty_where_the_answer_lacks_it() {
    let settled = |of: &str, output: Value| {
        let outputs = json!({"outputs": {"out": {"dataFlowType": of, "isStream": true}}});
        let settled = settle(&outputs, output);
        settled
            .map(|outputs| Value::clone(&outputs[0]))
            .map_err(|failure| failure.code.clone())
    };
    for (of, output, expected) in [
        ("STRING", json!({}), json!("")),
        ("STRING", json!({"out": "ab"}), json!("ab")),
        ("INTEGER", json!({}), json!([])),
        ("INTEGER", json!({"out": [3]}), json!([3])),
    ] {
        assert_eq!(settled(of, output.clone()), Ok(expected), "{output}");
    }
    for output in [json!({"out": ["3"]}), json!({"out": 3})] {
        let failure = settled("INTEGER", output.clone());
        assert_eq!(failure, Err("output_invalid".to_owned()), "{output}");
    }
}

#[test]
fn r116_a_mode_selects_the_slots() {
    let modes = json!({
        "modeConfigKey": "mode",
        "modes": {"svg": {"outputs": {"text": {"dataFlowType": "STRING"}}}},
    });
    let of_default = json!({
        "modeConfigKey": "mode",
        "modes": modes["modes"],
        "configSchema": {"mode": {"dataFlowType": "STRING", "config": {"default": "svg"}}},
    });
    for (changes, config, output) in [
        (&modes, json!({}), "image"),
        (&modes, json!({"mode": "svg"}), "text"),
        (&of_default, json!({}), "text"),
    ] {
        let shape = shape_of_mode(changes, &config).unwrap();
        assert!(shape.output(output).is_some(), "{config}");
    }
    let unknown = shape_of_mode(&modes, &json!({"mode": "png"})).unwrap_err();
    assert_eq!(unknown[0].code, "unknown_mode");
}

/// Returns the slots of a node with these settings.
fn shape_of_mode(changes: &Value, config: &Value) -> Result<Shape, Vec<Violation>> {
    let node = described(changes).node_type().unwrap();
    node.shape(&ShapeContext {
        definition: node.definition(),
        config: config.as_object().unwrap(),
        presets: &Map::new(),
        connected: &[],
        interface_inputs: &[],
        interface_outputs: &[],
        own_interface: None,
    })
}

#[test]
fn r110_a_workflow_without_its_plugin_has_one_violation_for_each_such_node() {
    let text = json!({
        "nodes": [
            {"id": "qr", "type": "qr:QrCode", "inputValues": {"text": "hello"}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [{"source": "qr", "sourceHandle": "size", "target": "out", "targetHandle": "size"}],
        "interfaceInputs": {},
        "interfaceOutputs": {"size": {"dataFlowType": "INTEGER"}},
    });
    let mut bundle = Bundle::of(text.to_string());
    let none = Catalogue::default();
    let found = compile_bundle(&bundle, &none).unwrap_err();
    let of_qr = found
        .iter()
        .filter(|violation| violation.code == PLUGIN_MISSING);
    assert_eq!(of_qr.count(), 1, "{found:?}");
    assert!(found[0].message.contains("`qr`"), "{found:?}");
    let types = Children::from([(
        "qr:QrCode".to_owned(),
        described(&json!({})).to_text().into(),
    )]);
    bundle.node_types = Arc::new(types);
    let found = compile_bundle(&bundle, &none).unwrap_err();
    assert!(
        found
            .iter()
            .all(|violation| violation.code != PLUGIN_MISSING),
        "{found:?}"
    );
}

#[test]
fn the_plugin_of_a_type_is_the_word_before_the_colon() {
    assert_eq!(plugin_of("qr:QrCode"), Some("qr"));
    for own in ["core:TextMerge", "Frame", "LLM", ":x", "x:", ""] {
        assert_eq!(plugin_of(own), None, "{own}");
    }
}
