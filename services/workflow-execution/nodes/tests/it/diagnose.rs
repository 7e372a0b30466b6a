//! The requests of a definition that have no effect.

use serde_json::{Value, json};
use workflow_domain::diagnose::diagnose;
use workflow_domain::load::load;

#[track_caller]
fn check(definition: Value, expected: &[(&str, &str)]) {
    let catalogue = workflow_nodes::builtin();
    let workflow = load(&definition.to_string()).workflow.unwrap();
    let found = diagnose(&definition, &workflow, &catalogue);
    let found: Vec<(&str, &str)> = found
        .iter()
        .map(|finding| (finding.path.as_str(), finding.code))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn what_has_no_effect_is_found_where_it_stands() {
    check(
        json!({
            "availableTools": {"initial": ["a"]},
            "interfaceInputs": {"a/b": {"dataFlowType": "OBJECT", "isStream": true, "multi": true, "requierd": true}},
            "nodes": [{
                "id": "m", "type": "core:TextMerge", "colour": 1,
                "configValues": {"execution": {"timeout": 1, "priority": 1}, "mode": "x"},
                "inputValues": {"text_inputs": ["a"], "seperator": ","},
            }],
        }),
        &[
            ("/interfaceInputs/a~1b/requierd", "unknown_key"),
            ("/interfaceInputs/a~1b/isStream", "not_supported"),
            ("/nodes/0/colour", "unknown_key"),
            ("/nodes/0/configValues/execution/priority", "not_supported"),
            ("/nodes/0/configValues/mode", "unknown_key"),
            ("/nodes/0/inputValues/seperator", "unknown_key"),
        ],
    );
}

#[test]
fn a_node_as_seed_003_writes_it_is_no_finding_but_for_what_nothing_reads() {
    check(
        json!({"nodes": [
            {"id": "llm-1", "type": "LLM", "name": "分析数据", "config": {"profileId": "gpt-4", "prompt": "p", "colour": 1}},
            {"id": "llm-2", "type": "LLM", "config": {"profileId": "x"}, "configValues": {"profileId": "y"}},
        ]}),
        &[
            ("/nodes/1/config", "unknown_key"),
            ("/nodes/0/configValues/colour", "unknown_key"),
        ],
    );
}

#[test]
fn what_is_read_or_left_empty_is_no_finding() {
    check(
        json!({
            "availableTools": {},
            "viewport": {"x": 0, "y": 0, "zoom": 1},
            "interfaceOutputs": {"r": {"dataFlowType": "OBJECT", "isStream": true}},
            "nodes": [
                {"id": "s", "type": "core:Script", "configValues": {"timeoutSeconds": 1},
                 "inputValues": {"code": "1", "anything": 2}},
                {"id": "t", "type": "core:ExecuteTool", "configValues": {"continueOnError": true},
                 "inputValues": {"tool_id": "x"}},
                {"id": "c", "type": "core:MathOperation", "configValues": {"operationMode": "add"}},
            ],
        }),
        &[],
    );
}

#[test]
fn a_misspelt_key_names_the_one_that_was_meant() {
    let definition = json!({"nodes": [], "interfaceInput": {}});
    let workflow = load(&definition.to_string()).workflow.unwrap();
    let found = diagnose(&definition, &workflow, &workflow_nodes::builtin());
    assert!(
        found[0]
            .message
            .ends_with("did you mean `interfaceInputs`?"),
        "{found:?}"
    );
}
