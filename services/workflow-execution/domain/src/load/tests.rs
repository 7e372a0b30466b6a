use serde_json::json;

use super::*;

#[track_caller]
fn loaded(text: &str) -> Workflow {
    let loaded = load(text);
    assert_eq!(loaded.violations, []);
    loaded.workflow.unwrap()
}

#[track_caller]
fn check(text: &str, expected: &[(&str, &str)]) {
    let violations = load(text).violations;
    let found: Vec<(&str, &str)> = violations
        .iter()
        .map(|v| (v.pointer.as_str(), v.code.as_ref()))
        .collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn both_forms_give_the_same_workflow() {
    let storage = r#"{"name":"n","nodes":[{"id":"a","type":"core:TextMerge","position":{"x":0,"y":0},
        "inputValues":{"separator":","},"configValues":{"k":1},"inputConnectionOrders":{"text_inputs":["e1"]}}],
        "edges":[{"id":"e1","source":"a","sourceHandle":"o","target":"b","targetHandle":"i"}]}"#;
    let payload = r#"{"workflowId":"n","nodes":[{"id":"a","fullType":"core:TextMerge","inputs":{"separator":","},
        "configValues":{"k":1},"inputConnectionOrders":{"text_inputs":["e1"]}}],
        "edges":[{"id":"e1","sourceNodeId":"a","sourceHandle":"o","targetNodeId":"b","targetHandle":"i"}]}"#;
    for (text, form) in [(storage, Form::Storage), (payload, Form::Payload)] {
        let workflow = loaded(text);
        assert_eq!(workflow.form, form);
        let node = &workflow.nodes[0];
        assert_eq!(
            (node.id.as_str(), node.full_type.as_str()),
            ("a", "core:TextMerge")
        );
        assert_eq!(json!(node.presets), json!({"separator": ","}));
        assert_eq!(node.connection_orders["text_inputs"], ["e1"]);
        let edge = &workflow.edges[0];
        assert_eq!((edge.source.as_str(), edge.target.as_str()), ("a", "b"));
        assert_eq!(
            (edge.source_handle.as_deref(), edge.target_handle.as_deref()),
            (Some("o"), Some("i"))
        );
    }
}

#[test]
fn an_interface_slot_is_described_by_the_first_of_three_words() {
    for (slot, expected) in [
        (
            json!({"description": "d", "customDescription": "c", "displayName": "n"}),
            "d",
        ),
        (json!({"customDescription": "c", "displayName": "n"}), "c"),
        (json!({"displayName": "n"}), "n"),
        (json!({}), ""),
    ] {
        let text = json!({"nodes": [], "interfaceInputs": {"k": slot}}).to_string();
        let workflow = loaded(&text);
        assert_eq!(workflow.interface_inputs[0].description, expected);
        assert_eq!(&*workflow.interface_inputs[0].key, "k");
    }
}

#[test]
fn an_interface_keeps_its_order_and_what_it_says_of_each_slot() {
    let workflow = loaded(
        r#"{"nodes":[],"interfaceInputs":{
            "z":{"dataFlowType":"STRING","required":true,"matchCategories":["ComboOption"],
                 "config":{"default":"中等","suggestions":[{"value":"简短"}]}},
            "a":{"dataFlowType":"INTEGER","multi":true}}}"#,
    );
    let slots = &workflow.interface_inputs;
    assert_eq!((&*slots[0].key, &*slots[1].key), ("z", "a"));
    assert!(slots[0].required && !slots[0].multi && slots[1].multi);
    assert_eq!(slots[0].categories, ["ComboOption"]);
    assert_eq!(slots[0].default.as_deref(), Some(&json!("中等")));
}

#[test]
fn numbers_keep_every_digit() {
    let text =
        r#"{"nodes":[{"id":"a","type":"t","inputValues":{"n":12345678901234567890.123456789}}]}"#;
    assert_eq!(
        loaded(text).nodes[0].presets["n"].to_string(),
        "12345678901234567890.123456789"
    );
}

#[test]
fn keys_that_are_not_known_are_no_mistake() {
    loaded(
        r#"{"nodes":[{"id":"a","type":"t","glow":true}],"viewport":{"x":1},"previewTarget":null,"shiny":[1]}"#,
    );
}

#[test]
fn every_mistake_of_the_text_is_named_at_once() {
    check("", &[("", "not_json")]);
    check("[]", &[("", "type_mismatch")]);
    check("{}", &[("/nodes", "missing")]);
    check(
        r#"{"nodes":{},"edges":3}"#,
        &[("/nodes", "type_mismatch"), ("/edges", "type_mismatch")],
    );
    check(r#"{"nodes":[],"nodes":[]}"#, &[("/nodes", "not_json")]);
    check(
        r#"{"nodes":[{"id":"a"},{"type":"t"},7,{"id":3,"type":"","inputValues":[]}],
            "edges":[{"source":"a"},{"id":1,"source":"a","target":"b","sourceHandle":{}}],
            "interfaceInputs":{"x":{"dataFlowType":"TEXT"},"y":{"dataFlowType":"INTEGER","config":{"default":"1"}},
                "z":{"required":"yes"}},
            "outputInterfaceMappings":{"o":{"sourceNodeId":"a"}}}"#,
        &[
            ("/nodes/0/type", "missing"),
            ("/nodes/1/id", "missing"),
            ("/nodes/2", "type_mismatch"),
            ("/nodes/3/id", "type_mismatch"),
            ("/nodes/3/type", "missing"),
            ("/nodes/3/inputValues", "type_mismatch"),
            ("/edges/0/target", "missing"),
            ("/edges/1/id", "type_mismatch"),
            ("/edges/1/sourceHandle", "type_mismatch"),
            ("/interfaceInputs/x/dataFlowType", "unknown_data_flow_type"),
            ("/interfaceInputs/y/config/default", "type_mismatch"),
            ("/interfaceInputs/z/required", "type_mismatch"),
            ("/outputInterfaceMappings/o/sourceSlotKey", "missing"),
        ],
    );
}

#[test]
fn a_node_of_seed_003_is_read_as_the_node_that_it_means() {
    let settings = json!({"profileId": "gpt-4", "dynamicTools": {"toolIds": ["chart-generator"]}});
    let read = |node: Value| {
        let workflow = loaded(&json!({"nodes": [node]}).to_string());
        let node = &workflow.nodes[0];
        (node.full_type.clone(), json!(&*node.config))
    };
    let meant = ("core:LLM".to_owned(), settings.clone());
    for node in [
        json!({"id": "a", "type": "LLM", "name": "n", "config": settings}),
        json!({"id": "a", "type": "LLM", "configValues": settings}),
        json!({"id": "a", "type": "core:LLM", "config": settings}),
        json!({"id": "a", "type": "core:LLM", "configValues": settings, "config": {"x": 1}}),
    ] {
        assert_eq!(read(node.clone()), meant, "{node}");
    }
}

#[test]
fn size_depth_and_counts_are_bounded() {
    let deep = format!(r#"{{"nodes":[],"x":{}{}}}"#, "[".repeat(70), "]".repeat(70));
    assert_eq!(load(&deep).violations[0].code, "not_json");
    let large = format!(
        r#"{{"nodes":[],"x":"{}"}}"#,
        "y".repeat(MAX_DEFINITION_BYTES)
    );
    assert_eq!(load(&large).violations[0].code, "not_json");
    let many = json!({"nodes": vec![json!({"id": "a", "type": "t"}); MAX_NODES + 1]}).to_string();
    check(&many, &[("/nodes", "limit_exceeded")]);
    let long = json!({"nodes": [{"id": "x".repeat(MAX_NAME_BYTES + 1), "type": "t"}]}).to_string();
    check(&long, &[("/nodes/0/id", "limit_exceeded")]);
}
