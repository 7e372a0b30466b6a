use super::*;

/// The interface of seed 000 §2.3.1, verbatim.
const SEED_000_2_3_1_WORKFLOW: &str = r#"{
  "description": "对提供的长文本进行摘要。当需要理解大量文本的核心内容时使用。",
  "interfaceInputs": {
    "text_to_summarize": {
      "description": "需要进行摘要处理的原始长文本内容。",
      "dataFlowType": "STRING",
      "required": true
    },
    "summary_length": {
      "description": "期望的摘要长度。",
      "dataFlowType": "STRING",
      "required": false,
      "matchCategories": ["ComboOption"],
      "config": {
        "default": "中等",
        "suggestions": [{ "value": "简短" }, { "value": "中等" }, { "value": "详细" }]
      }
    }
  },
  "interfaceOutputs": {
    "summary_result": {
      "description": "生成的摘要文本。",
      "dataFlowType": "STRING"
    }
  }
}"#;

/// The schema of seed 000 §2.3.1, verbatim.
const SEED_000_2_3_1_SCHEMA: &str = r#"{
  "name": "workflow:summarize_text",
  "description": "对提供的长文本进行摘要。当需要理解大量文本的核心内容时使用。",
  "parameters": {
    "type": "object",
    "properties": {
      "text_to_summarize": {
        "type": "string",
        "description": "需要进行摘要处理的原始长文本内容。"
      },
      "summary_length": {
        "type": "string",
        "description": "期望的摘要长度。",
        "enum": ["简短", "中等", "详细"]
      }
    },
    "required": ["text_to_summarize"]
  }
}"#;

#[test]
fn seed_000_2_3_1_gives_the_same_bytes() {
    let file = serde_json::from_str(SEED_000_2_3_1_WORKFLOW).unwrap();
    let tool = workflow_tool("summarize_text", "", &file).unwrap();
    let expected: Value = serde_json::from_str(SEED_000_2_3_1_SCHEMA).unwrap();
    assert_eq!(published_schema(&tool).to_string(), expected.to_string());
}

/// Derives the property of one slot and compares it as text.
fn check(slot: Value, expected: Value) {
    let file = json!({"interfaceInputs": {"x": slot}});
    let tool = workflow_tool("w", "", &file).unwrap();
    let property = tool.parameters.unwrap()["properties"]["x"].to_string();
    assert_eq!(property, expected.to_string(), "{file}");
}

#[test]
fn each_type_is_mapped() {
    for (flow, kind) in [
        ("STRING", "string"),
        ("INTEGER", "integer"),
        ("FLOAT", "number"),
        ("BOOLEAN", "boolean"),
        ("OBJECT", "object"),
        ("ARRAY", "array"),
    ] {
        check(json!({"dataFlowType": flow}), json!({"type": kind}));
    }
    check(json!({"dataFlowType": "WILDCARD"}), json!({}));
    check(json!({"dataFlowType": "CONVERTIBLE_ANY"}), json!({}));
    check(
        json!({"dataFlowType": "BINARY"}),
        json!({"type": "string", "contentEncoding": "base64"}),
    );
}

#[test]
fn descriptions_fall_back_and_bounds_and_suggestions_narrow() {
    check(
        json!({"dataFlowType": "STRING", "customDescription": "c", "displayName": "d"}),
        json!({"type": "string", "description": "c"}),
    );
    check(
        json!({"dataFlowType": "STRING", "displayName": "d"}),
        json!({"type": "string", "description": "d"}),
    );
    check(
        json!({"dataFlowType": "INTEGER", "config": {"min": 1, "max": 9007199254740993u64, "default": 2}}),
        json!({"type": "integer", "minimum": 1, "maximum": 9007199254740993u64}),
    );
    check(
        json!({"dataFlowType": "STRING", "matchCategories": ["ComboOption"],
               "config": {"suggestions": ["a", {"value": "b", "label": "B"}, "a", {"label": "none"}]}}),
        json!({"type": "string", "enum": ["a", "b"]}),
    );
    check(
        json!({"dataFlowType": "STRING", "config": {"suggestions": ["a"]}}),
        json!({"type": "string"}),
    );
    check(
        json!({"dataFlowType": "STRING", "multi": true, "description": "texts"}),
        json!({"type": "array", "description": "texts", "items": {"type": "string"}}),
    );
    for (flow, schema) in [
        (
            "INTEGER",
            json!({"type": "array", "items": {"type": "integer"}}),
        ),
        ("STRING", json!({"type": "string"})),
        ("WILDCARD", json!({})),
    ] {
        check(json!({"dataFlowType": flow, "isStream": true}), schema);
    }
}

#[test]
fn a_workflow_without_inputs_or_description_is_a_tool_all_the_same() {
    let tool = workflow_tool("w", "A name", &json!({"name": "A name"})).unwrap();
    assert_eq!(tool.description, "A name");
    assert_eq!(
        tool.parameters.unwrap(),
        json!({"type": "object", "properties": {}, "required": []})
    );
}

#[test]
fn an_interface_that_is_no_object_or_too_large_is_refused() {
    let large: Map<String, Value> = (0..257).map(|n| (n.to_string(), json!({}))).collect();
    for inputs in [json!([]), json!("x"), Value::Object(large)] {
        let wrong = workflow_tool("w", "", &json!({"interfaceInputs": inputs})).unwrap_err();
        assert_eq!(wrong[0].pointer, "/interfaceInputs");
    }
}

#[test]
fn a_pure_node_is_a_read_only_tool() {
    let inputs = [Input {
        key: "a".into(),
        data_flow_type: "FLOAT".into(),
        required: true,
        ..Input::default()
    }];
    let interface = NodeInterface {
        inputs: inputs.into(),
        ..NodeInterface::default()
    };
    let tool = node_tool("core:MathOperation", "Math", "computes", interface, true).unwrap();
    assert_eq!(tool.id.as_str(), "node:core:MathOperation");
    assert!(tool.flags.read_only && tool.flags.idempotent && !tool.flags.destructive);
    assert_eq!(tool.parameters.unwrap()["required"], json!(["a"]));
}
