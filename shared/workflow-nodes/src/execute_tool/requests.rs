//! The requests that a model made, and the outputs of their calls.

use std::sync::Arc;

use call_outcome::Failure;
use call_prompt::observation;
use call_text::native::EndedCall;
use serde_json::{Map, Value, json};

use workflow_domain::data_flow::NULL;
use workflow_domain::model::{ModelMessage, Role};
use workflow_domain::tool::{ToolOutcome, ToolRequest};

use crate::messages;

/// The most requests of one node.
const MAX_REQUESTS: usize = 64;

/// The longest observation of all calls together, in bytes.
const MAX_OBSERVATION_BYTES: usize = 64 << 10;

/// A request.
pub(super) struct Request {
    id: Value,
    tool_id: String,
    arguments: Map<String, Value>,
    parallel_safe: bool,
    /// Whether the model made it in the form of its API.
    native: bool,
    /// What a model reads about it if it does not run; nothing if it runs.
    refused: Option<String>,
}

/// Reads one request or a list of them.
///
/// # Errors
/// Something is not a request, or there are too many.
pub(super) fn read(given: &Value) -> Result<Vec<Request>, Failure> {
    let one = std::slice::from_ref(given);
    let items = match given {
        Value::Null => &[],
        Value::Array(items) => items.as_slice(),
        _ => one,
    };
    if items.len() > MAX_REQUESTS {
        let message = format!(
            "there are {} requests; at most {MAX_REQUESTS} are accepted",
            items.len()
        );
        return Err(Failure::limit("too_many_requests", message));
    }
    items
        .iter()
        .enumerate()
        .map(|(at, item)| request(at, item))
        .collect()
}

fn request(at: usize, item: &Value) -> Result<Request, Failure> {
    let wrong = |what: &str| {
        let message = format!("request {at} {what}");
        Failure::invalid("invalid_request", message)
    };
    let tool_id = item.get("toolName").and_then(Value::as_str);
    let tool_id = tool_id
        .ok_or_else(|| wrong("has no `toolName`"))?
        .to_owned();
    let arguments = match item.get("arguments") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments.clone(),
        Some(_) => return Err(wrong("has `arguments` that are not an object")),
    };
    let is = |key: &str| item.get(key).and_then(Value::as_bool).unwrap_or(false);
    let problems = item.get("problems").and_then(Value::as_array);
    let runs = !tool_id.is_empty()
        && !is("needsConfirmation")
        && problems.is_none_or(|problems| problems.is_empty());
    let refused = (!runs).then(|| {
        let observed = item.get("observation").and_then(Value::as_str);
        let unnamed = || format!("Observation: Error - Tool {tool_id} was not run.");
        observed.map_or_else(unnamed, str::to_owned)
    });
    Ok(Request {
        id: item.get("id").cloned().unwrap_or(Value::Null),
        tool_id,
        arguments,
        parallel_safe: is("parallelSafe"),
        native: item.get("source").and_then(Value::as_str) == Some("native"),
        refused,
    })
}

/// Returns the calls of the requests that run.
pub(super) fn to_call(requests: &[Request]) -> Vec<ToolRequest> {
    let runs = requests.iter().filter(|request| request.refused.is_none());
    let call = |request: &Request| ToolRequest {
        tool_id: request.tool_id.clone(),
        arguments: request.arguments.clone(),
        parallel_safe: request.parallel_safe,
    };
    runs.map(call).collect()
}

/// Makes the node's outputs of what became of the requests that ran, in their order. The results of native
/// ones are added to the chat.
pub(super) fn outputs(
    requests: &[Request],
    outcomes: Vec<ToolOutcome>,
    chat: Option<&Arc<Value>>,
    written: &str,
) -> Vec<Arc<Value>> {
    let mut outcomes = outcomes.into_iter();
    let (mut result, mut status, mut error) = (Value::Null, "succeeded", Arc::clone(&NULL));
    let (mut results, mut observations) = (Vec::new(), Vec::new());
    let chat = chat.filter(|chat| !chat.is_null());
    let mut messages = chat.map_or_else(Vec::new, |chat| messages::read(chat));
    let mut room = MAX_OBSERVATION_BYTES;
    for request in requests {
        let outcome = match &request.refused {
            Some(observation) => rejected(observation),
            None => match outcomes.next() {
                Some(outcome) => outcome,
                None => break,
            },
        };
        let failed = outcome.failure.as_ref().map_or(Value::Null, report);
        if !failed.is_null() && error.is_null() {
            status = outcome.status;
            error = Arc::new(failed.clone());
        }
        let mut observed = outcome.observation.clone();
        observed.truncate(observed.floor_char_boundary(room));
        room -= observed.len();
        if request.native {
            messages.push(result_message(request, !failed.is_null(), &observed));
        }
        if !request.native || chat.is_none() {
            observations.push(observed);
        }
        results.push(json!({
            "id": request.id,
            "toolName": request.tool_id,
            "status": outcome.status,
            "result": outcome.output,
            "error": failed,
            "observation": outcome.observation,
        }));
        if outcome.failure.is_none() {
            result = outcome.output;
        }
    }
    vec![
        Arc::new(result),
        Arc::new(status.into()),
        error,
        Arc::new(Value::Array(results)),
        Arc::new(observations.join("\n").into()),
        Arc::new(written.into()),
        Arc::new(Value::Array(messages)),
    ]
}

fn result_message(request: &Request, failed: bool, observed: &str) -> Value {
    let id = request.id.as_str().unwrap_or_default().to_owned();
    messages::write(&ModelMessage {
        result_of: Some(EndedCall { id, failed }),
        ..ModelMessage::new(Role::Tool, observed)
    })
}

/// Makes the node's outputs of the call of the tool that it names. Its result is not listed again, so
/// that it may be as large as any value.
pub(super) fn outputs_of_one(outcome: ToolOutcome, written: &str) -> Vec<Arc<Value>> {
    let error = outcome.failure.as_ref().map_or(Value::Null, report);
    let mut observation = outcome.observation;
    observation.truncate(observation.floor_char_boundary(MAX_OBSERVATION_BYTES));
    vec![
        Arc::new(outcome.output),
        Arc::new(outcome.status.into()),
        Arc::new(error),
        Arc::new(json!([])),
        Arc::new(observation.into()),
        Arc::new(written.into()),
        Arc::new(json!([])),
    ]
}

fn rejected(observation: &str) -> ToolOutcome {
    ToolOutcome {
        status: "rejected",
        output: Value::Null,
        failure: Some(Failure::invalid("not_run", observation)),
        observation: observation.to_owned(),
    }
}

fn report(failure: &Failure) -> Value {
    json!({
        "code": failure.code,
        "message": failure.message,
        "retryable": failure.retryable,
    })
}

/// Words a failed call for a model.
pub(super) fn failed(tool: &str, failure: &Failure) -> String {
    observation::failure(
        tool,
        &observation::Failure {
            category: failure.category.as_str(),
            code: &failure.code,
            message: &failure.message,
            retryable: failure.retryable,
        },
    )
}
