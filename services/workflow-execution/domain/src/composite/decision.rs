//! The parts of `core:LLMDecisionWithTools`.

use serde_json::{Map, Value, json};

use super::super::execution::EXECUTION;
use super::super::tool_choice::{LISTING_PART, TOOL_IDS};
use super::{Choice, chat, edge, of, setting};

/// Lists tools, calls a model once and reads its calls.
pub(super) fn parts(config: &Map<String, Value>, choice: &Choice, has_tools: bool) -> Value {
    let setting = |key: &str| setting(config, key);
    let source = match has_tools {
        true => ("in", "tools"),
        false => ("tools", "tools"),
    };
    let mut nodes = vec![
        json!({"id": "in", "type": "core:GroupInput"}),
        json!({"id": "prompt", "type": "core:DecisionPrompt", "configValues": choice.described}),
        json!({"id": "ask", "type": "core:LlmApiRequest",
            "inputValues": {"model": setting("profileId"), "parameters": setting("parameters")},
            "configValues": {EXECUTION: setting(EXECUTION)}}),
        json!({"id": "parse", "type": "core:ParseLlmDecision", "configValues": {"dialect": setting("dialect")}}),
        json!({"id": "out", "type": "core:GroupOutput"}),
    ];
    if !has_tools {
        nodes.push(
            json!({"id": LISTING_PART, "type": "core:AvailableTools", "configValues": {TOOL_IDS: choice.ids}}),
        );
    }
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
        edge(("ask", "text_stream"), ("out", "text_stream")),
    ];
    if choice.native {
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
    json!({
        "nodes": nodes,
        "edges": edges,
        "interfaceInputs": {
            "user_query": of("STRING"), "history": chat(), "observation": of("STRING"), "tools": of("ARRAY"),
        },
        "interfaceOutputs": {
            "llm_text_output": of("STRING"), "tool_call_requests": of("ARRAY"), "reply_text": of("STRING"),
            "has_calls": of("BOOLEAN"), "feedback": of("STRING"), "response": of("OBJECT"), "messages": chat(),
            "text_stream": {"dataFlowType": "STRING", "isStream": true},
        },
    })
}
