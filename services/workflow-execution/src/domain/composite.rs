//! Node types that stand for several nodes (rule W32): before a run begins they are replaced by their
//! parts, as a group is by the nodes of its workflow.

use call_outcome::Violation;
use serde_json::{Map, Value, json};

use super::execution::EXECUTION;
use super::tool_choice::{DynamicTools, LLM_DECISION, TOOL_IDS};
use super::violation::join;
use super::workflow::NodeEntry;

/// Whether nodes of a type are replaced by their parts.
pub fn is_composite(full_type: &str) -> bool {
    full_type == LLM_DECISION
}

/// Returns the workflow of which a composite node consists, as a text in the storage form.
/// `has_tools` is whether an edge or a preset value gives its tools.
///
/// # Errors
/// Everything that is wrong with its settings; pointers are relative to the node.
pub fn parts(node: &NodeEntry, has_tools: bool) -> Result<String, Vec<Violation>> {
    let mut violations = Vec::new();
    let config = &node.config;
    if !config.get("profileId").is_some_and(Value::is_string) {
        let message = "the node names no model";
        let place = join("/configValues", "profileId");
        violations.push(Violation::new(place, "missing", message));
    }
    let dynamic = DynamicTools::read(config).unwrap_or_else(|wrong| {
        violations.extend(wrong);
        DynamicTools::default()
    });
    match violations.is_empty() {
        true => Ok(decision(config, dynamic, has_tools).to_string()),
        false => Err(violations),
    }
}

fn decision(config: &Map<String, Value>, dynamic: DynamicTools, has_tools: bool) -> Value {
    let setting = |key: &str| config.get(key).cloned().unwrap_or(Value::Null);
    let mut ids = config
        .get(TOOL_IDS)
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    ids.extend(dynamic.tool_ids.iter().map(|id| json!(id)));
    let native = config.get("dialect").and_then(Value::as_str) == Some("native");
    let source = match has_tools {
        true => ("in", "tools"),
        false => ("tools", "tools"),
    };
    let mut nodes = vec![
        json!({"id": "in", "type": "core:GroupInput"}),
        json!({"id": "prompt", "type": "core:DecisionPrompt", "configValues": {
            "dialect": setting("dialect"), "descriptionTemplate": dynamic.template}}),
        json!({"id": "ask", "type": "core:LlmApiRequest",
            "inputValues": {"model": setting("profileId"), "parameters": setting("parameters")},
            "configValues": {EXECUTION: setting(EXECUTION)}}),
        json!({"id": "parse", "type": "core:ParseLlmDecision", "configValues": {"dialect": setting("dialect")}}),
        json!({"id": "out", "type": "core:GroupOutput"}),
    ];
    if !has_tools {
        nodes.push(
            json!({"id": "tools", "type": "core:AvailableTools", "configValues": {TOOL_IDS: ids}}),
        );
    }
    let edge = |from: (&str, &str), to: (&str, &str)| json!({"source": from.0, "sourceHandle": from.1, "target": to.0, "targetHandle": to.1});
    let mut edges = vec![
        edge(("in", "user_query"), ("prompt", "user_query")),
        edge(("in", "history"), ("prompt", "history")),
        edge(("in", "observation"), ("prompt", "observation")),
        edge(source, ("prompt", "tools")),
        edge(("prompt", "messages"), ("ask", "messages")),
        edge(("prompt", "messages"), ("parse", "messages")),
        edge(source, ("parse", "tools")),
        edge(("ask", "response"), ("parse", "response")),
        edge(("ask", "response"), ("out", "response")),
        edge(("ask", "messages"), ("out", "messages")),
    ];
    if native {
        edges.push(edge(source, ("ask", "tools")));
    }
    for key in [
        "llm_text_output",
        "tool_call_requests",
        "reply_text",
        "has_calls",
        "feedback",
    ] {
        edges.push(edge(("parse", key), ("out", key)));
    }
    let chat = json!({"dataFlowType": "ARRAY", "matchCategories": ["ChatHistory"]});
    let of = |data_flow: &str| json!({"dataFlowType": data_flow});
    json!({
        "nodes": nodes,
        "edges": edges,
        "interfaceInputs": {
            "user_query": of("STRING"), "history": chat, "observation": of("STRING"), "tools": of("ARRAY"),
        },
        "interfaceOutputs": {
            "llm_text_output": of("STRING"), "tool_call_requests": of("ARRAY"), "reply_text": of("STRING"),
            "has_calls": of("BOOLEAN"), "feedback": of("STRING"), "response": of("OBJECT"), "messages": chat,
        },
    })
}
