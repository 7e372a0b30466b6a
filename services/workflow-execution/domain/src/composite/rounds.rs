//! The parts of `core:LLM`: a loop round a request to a model and the calls that it requests.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::super::execution::EXECUTION;
use super::super::tool_choice::{LISTING_PART, TOOL_IDS};
use super::{Budgets, Choice, chat, edge, of, setting};

/// The inputs that are no gaps of the prompt.
const OWN: [&str; 2] = ["prompt", "messages"];

/// Calls a model, carries its calls out and reports them to it, until it requests none or its
/// budgets are used up.
pub(super) fn parts(
    config: &Map<String, Value>,
    choice: &Choice,
    budgets: &Budgets,
    given: &BTreeSet<String>,
) -> Value {
    let setting = |key: &str| setting(config, key);
    let variable = |key: &str, data_flow: &str, default: Value| json!({"key": key, "dataFlowType": data_flow, "default": default});
    let variables = json!([
        {"key": "messages", "dataFlowType": "ARRAY", "matchCategories": ["ChatHistory"]},
        variable("observation", "STRING", json!("")),
        variable("text", "STRING", json!("")),
        {"key": "text_stream", "dataFlowType": "STRING", "default": "", "isStream": true},
        variable("calls", "INTEGER", json!(0)),
        variable("usage", "OBJECT", json!({})),
        variable("why", "STRING", json!("")),
    ]);
    let limits = json!({"maxToolCalls": budgets.to_json()});
    let inside = |id: &str, full_type: &str, config: Value, presets: Value| json!({"id": id, "type": full_type, "parentNode": "round", "configValues": config, "inputValues": presets});
    let nodes = vec![
        json!({"id": "in", "type": "core:GroupInput"}),
        json!({"id": "fill", "type": "core:FormatPrompt",
            "inputValues": {"template": config.get("prompt").and_then(Value::as_str).unwrap_or("")}}),
        json!({"id": "start", "type": "core:DecisionPrompt"}),
        json!({"id": LISTING_PART, "type": "core:AvailableTools", "configValues": {TOOL_IDS: choice.ids}}),
        json!({"id": "round", "type": "core:LoopZone",
            "configValues": {"variables": variables, "maxIterations": budgets.iterations + 1}}),
        inside("begin", "core:ZoneInput", json!({}), json!({})),
        inside("limit", "core:LlmRound", limits.clone(), json!({})),
        inside(
            "prompt",
            "core:DecisionPrompt",
            choice.described.clone(),
            json!({}),
        ),
        inside(
            "ask",
            "core:LlmApiRequest",
            json!({EXECUTION: setting(EXECUTION)}),
            json!({"model": setting("profileId"), "parameters": setting("parameters")}),
        ),
        inside(
            "parse",
            "core:ParseLlmDecision",
            json!({"dialect": setting("dialect")}),
            json!({}),
        ),
        inside("count", "core:LlmCallCount", limits, json!({})),
        inside("act", "core:ExecuteTool", json!({}), json!({})),
        inside("end", "core:ZoneOutput", json!({}), json!({})),
        json!({"id": "out", "type": "core:GroupOutput"}),
    ];
    let gaps = given.iter().map(String::as_str);
    let gaps: Vec<&str> = gaps.filter(|key| !OWN.contains(key)).collect();
    let mut interface = Map::from_iter([
        ("prompt".to_owned(), of("STRING")),
        ("messages".to_owned(), chat()),
    ]);
    interface.extend(gaps.iter().map(|gap| ((*gap).to_owned(), of("WILDCARD"))));
    json!({
        "nodes": nodes,
        "edges": edges(&gaps, choice.native, given.contains("prompt")),
        "interfaceInputs": interface,
        "interfaceOutputs": {
            "text": of("STRING"), "messages": chat(), "usage": of("OBJECT"), "calls": of("INTEGER"),
            "stop_reason": of("STRING"),
            "text_stream": {"dataFlowType": "STRING", "isStream": true},
        },
    })
}

fn edges(gaps: &[&str], native: bool, has_prompt: bool) -> Vec<Value> {
    // A prompt that arrives is not a template: it may hold braces of its own.
    let question = match has_prompt {
        true => ("in", "prompt"),
        false => ("fill", "prompt"),
    };
    let mut pairs = vec![
        (question, ("start", "user_query")),
        (("in", "messages"), ("start", "history")),
        (("start", "messages"), ("round", "messages")),
        (("begin", "index"), ("limit", "index")),
        (("begin", "calls"), ("limit", "calls")),
        (("begin", "observation"), ("limit", "observation")),
        (("tools", "tools"), ("limit", "tools")),
        (("begin", "messages"), ("prompt", "history")),
        (("limit", "observation"), ("prompt", "observation")),
        (("limit", "tools"), ("prompt", "tools")),
        (("prompt", "messages"), ("ask", "messages")),
        (("ask", "response"), ("parse", "response")),
        (("limit", "tools"), ("parse", "tools")),
        (("prompt", "messages"), ("parse", "messages")),
        (("parse", "tool_call_requests"), ("count", "requests")),
        (("begin", "calls"), ("count", "calls")),
        (("begin", "usage"), ("count", "usage")),
        (("ask", "usage"), ("count", "used")),
        (("limit", "stop_reason"), ("count", "stop_reason")),
        (("count", "requests"), ("act", "requests")),
        (("ask", "messages"), ("act", "messages")),
        (("act", "messages"), ("end", "messages")),
        (("ask", "text_stream"), ("end", "text_stream")),
        (("act", "observation"), ("end", "observation")),
        (("parse", "llm_text_output"), ("end", "text")),
        (("count", "calls"), ("end", "calls")),
        (("count", "usage"), ("end", "usage")),
        (("count", "stop_reason"), ("end", "why")),
        (("count", "over"), ("end", "break")),
    ];
    pairs.push((("round", "why"), ("out", "stop_reason")));
    let outputs = ["text", "messages", "usage", "calls", "text_stream"];
    pairs.extend(outputs.map(|key| (("round", key), ("out", key))));
    pairs.extend(native.then_some((("limit", "tools"), ("ask", "tools"))));
    if !has_prompt {
        pairs.extend(gaps.iter().map(|gap| (("in", *gap), ("fill", *gap))));
    }
    pairs.into_iter().map(|(from, to)| edge(from, to)).collect()
}
