//! The requests that a model made, and the outputs of their calls.
//!
//! They are carried out like the calls of a text (rule A2): in their order, up to the first that
//! fails. A request that cannot be read or must not run counts as a rejected call in its place.

use std::sync::Arc;

use call_outcome::{Category, Failure};
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

/// The name in results of a request that names no tool.
const UNNAMED: &str = "(no name)";

/// A request.
pub(super) struct Request {
    id: Value,
    /// The tool; none if the request names none.
    tool_id: Option<String>,
    arguments: Map<String, Value>,
    parallel_safe: bool,
    /// Whether the model made it in the form of its API.
    native: bool,
    /// Whether the next one runs even if this one fails.
    continue_on_error: bool,
    /// The reason for which it does not run; missing if it runs.
    refusal: Option<Failure>,
    /// A remark for the model behind its result, about blocks that were left out of the answer.
    left_out: String,
}

/// Reads one request or a list of them.
///
/// # Errors
/// There are too many.
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
    Ok(items.iter().map(request).collect())
}

fn request(item: &Value) -> Request {
    let text = |key: &str| item.get(key).and_then(Value::as_str);
    let is = |key: &str| item.get(key).and_then(Value::as_bool).unwrap_or(false);
    let tool_id = text("toolName").filter(|name| !name.is_empty());
    let arguments = match item.get("arguments") {
        None | Some(Value::Null) => Some(Map::new()),
        Some(Value::Object(arguments)) => Some(arguments.clone()),
        Some(_) => None,
    };
    Request {
        id: item.get("id").cloned().unwrap_or(Value::Null),
        tool_id: tool_id.map(str::to_owned),
        parallel_safe: is("parallelSafe"),
        native: item.get("source").and_then(Value::as_str) == Some("native"),
        continue_on_error: is("continueOnError"),
        refusal: refusal(item, tool_id, arguments.is_some()),
        arguments: arguments.unwrap_or_default(),
        left_out: text("leftOut").unwrap_or("").to_owned(),
    }
}

/// Returns the reason for which a request does not run, as a model reads it.
fn refusal(item: &Value, tool_id: Option<&str>, has_arguments: bool) -> Option<Failure> {
    let refused = |code: &str, what: &str| {
        let tool = tool_id.unwrap_or(UNNAMED);
        let observed = format!("Observation: Error - Tool {tool} was not run{what}.");
        Some(Failure::invalid(code, observed))
    };
    if has_problems(item) {
        let observed = item.get("observation").and_then(Value::as_str);
        return match observed {
            Some(observed) => Some(Failure::invalid("not_run", observed)),
            None => refused("not_run", ""),
        };
    }
    match (tool_id, has_arguments) {
        (None, _) => refused("invalid_request", ": the request has no `toolName`"),
        (_, false) => refused("invalid_request", ": its `arguments` are not an object"),
        (Some(_), true) => None,
    }
}

/// Whether a request has problems or waits for a confirmation; unreadable values count as problems.
fn has_problems(item: &Value) -> bool {
    let none = |key: &str, is_none: fn(&Value) -> bool| {
        let given = item.get(key);
        given.is_none_or(|given| given.is_null() || is_none(given))
    };
    let is_empty = |problems: &Value| problems.as_array().is_some_and(Vec::is_empty);
    let is_false = |flag: &Value| flag == &Value::Bool(false);
    !none("problems", is_empty) || !none("needsConfirmation", is_false)
}

/// Returns the calls of the requests that run: up to the first refused request that does not
/// continue on errors.
pub(super) fn to_call(requests: &[Request]) -> Vec<ToolRequest> {
    let stops = |request: &Request| request.refusal.is_some() && !request.continue_on_error;
    let before = requests.iter().take_while(|request| !stops(request));
    let runs = before.filter(|request| request.refusal.is_none());
    let call = |request: &Request| ToolRequest {
        tool_id: request.name().to_owned(),
        arguments: request.arguments.clone(),
        parallel_safe: request.parallel_safe,
        continue_on_error: request.continue_on_error,
    };
    runs.map(call).collect()
}

impl Request {
    fn name(&self) -> &str {
        self.tool_id.as_deref().unwrap_or(UNNAMED)
    }

    /// Returns the outcome of the request: it was refused, its call ended, or it was skipped
    /// because of a failed call.
    fn ended(
        &self,
        outcomes: &mut impl Iterator<Item = ToolOutcome>,
        failed: Option<&str>,
    ) -> ToolOutcome {
        let without_output = |status, failure, observation| ToolOutcome {
            status,
            output: Value::Null,
            failure: Some(failure),
            observation,
        };
        if let Some(refusal) = &self.refusal {
            return without_output("rejected", refusal.clone(), refusal.message.clone());
        }
        outcomes.next().unwrap_or_else(|| {
            let failed = failed.unwrap_or(UNNAMED);
            let message = format!("`{failed}` failed before it");
            let failure = Failure::new(Category::Cancelled, "skipped", message);
            let observation = observation::skipped(self.name(), failed);
            without_output("skipped", failure, observation)
        })
    }
}

/// Makes the node's outputs of the outcomes of the requests, in their order. The results of native
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
    let mut stopped: Option<&str> = None;
    let chat = chat.filter(|chat| !chat.is_null());
    let mut messages = chat.map_or_else(Vec::new, |chat| messages::read(chat));
    let mut room = MAX_OBSERVATION_BYTES;
    for request in requests {
        let mut outcome = request.ended(&mut outcomes, stopped);
        let failed = outcome.failure.as_ref().map_or(Value::Null, report);
        if !failed.is_null() {
            if error.is_null() {
                status = outcome.status;
                error = Arc::new(failed.clone());
            }
            if !request.continue_on_error {
                stopped.get_or_insert(request.name());
            }
        }
        if !request.left_out.is_empty() {
            outcome.observation = format!("{}\n{}", outcome.observation, request.left_out);
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

/// Makes the node's outputs of the call of its own tool. The result is not listed again, so that it
/// may be as large as any value.
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
