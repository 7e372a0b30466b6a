//! Parameters of a chat completion that an agent does not support.

use grpc_kit::Failure;
use serde_json::{Map, Value};

/// A parameter that would change the answer.
struct Unsupported {
    name: &'static str,
    /// Whether a value requests the behaviour that an agent has anyway.
    is_neutral: fn(&Value) -> bool,
    remedy: &'static str,
}

const TOOLS: &str = "is not carried out: the tools of the agent run here; name them in its profile";
const ONE: &str = "is not carried out: a turn happens once; send as many requests instead";
const FORMAT: &str =
    "is not carried out: an agent answers in text; ask for the format in the message";
const MODEL: &str = "is not carried out: the agent's profile sets its model; leave it out";

/// Every known parameter of the chat API that is not supported.
const ALL: [Unsupported; 19] = [
    of("n", |value| value == 1, ONE),
    of("tools", is_empty, TOOLS),
    of("tool_choice", is_no_choice, TOOLS),
    of("functions", is_empty, TOOLS),
    of("function_call", is_no_choice, TOOLS),
    of("parallel_tool_calls", Value::is_boolean, TOOLS),
    of("response_format", |value| value["type"] == "text", FORMAT),
    of(
        "modalities",
        |value| *value == serde_json::json!(["text"]),
        FORMAT,
    ),
    of("audio", is_empty, FORMAT),
    of("stop", is_empty, MODEL),
    of("top_p", |value| value.as_f64() == Some(1.0), MODEL),
    of("presence_penalty", is_zero, MODEL),
    of("frequency_penalty", is_zero, MODEL),
    of("logit_bias", is_empty, MODEL),
    of("logprobs", |value| *value == false, MODEL),
    of("top_logprobs", is_zero, MODEL),
    of("seed", is_empty, MODEL),
    of("prediction", is_empty, MODEL),
    of("web_search_options", is_empty, TOOLS),
];

const fn of(
    name: &'static str,
    is_neutral: fn(&Value) -> bool,
    remedy: &'static str,
) -> Unsupported {
    Unsupported {
        name,
        is_neutral,
        remedy,
    }
}

/// Names every parameter that requests unsupported behaviour.
pub(super) fn refuse(given: &Map<String, Value>, failure: &mut Failure) {
    for Unsupported {
        name,
        is_neutral,
        remedy,
    } in &ALL
    {
        let asked = given.get(*name).filter(|value| !value.is_null());
        if asked.is_some_and(|value| !is_neutral(value)) {
            failure.add_violation(*name, *remedy);
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn is_zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

fn is_no_choice(value: &Value) -> bool {
    value == "auto" || value == "none"
}
