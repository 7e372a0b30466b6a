//! The shared conversions of nodes that call models: messages and parameters in, a standard
//! response out.

use std::sync::Arc;

use call_outcome::Failure;
use call_text::native::{self, EndedCall};
use serde_json::{Map, Value, json};

use workflow_domain::model::{ModelAnswer, ModelMessage, Role};

use super::messages;

/// Converts messages to the form of a request to a model.
///
/// # Errors
/// The first message that a request to a model cannot hold.
pub(super) fn to_model(given: &Value) -> Result<Vec<ModelMessage>, Failure> {
    let messages = messages::read(given);
    if messages.is_empty() {
        let message = "there is no message; a model needs at least one";
        return Err(Failure::invalid("no_messages", message));
    }
    messages.iter().map(message_to_model).collect()
}

/// Converts one message.
///
/// # Errors
/// A request to a model cannot hold it.
pub(super) fn message_to_model(message: &Value) -> Result<ModelMessage, Failure> {
    let ended = message.get("tool_call_id").and_then(Value::as_str);
    let role = match message.get("role").and_then(Value::as_str).unwrap_or("") {
        "system" | "developer" => Role::System,
        "tool" if ended.is_some() => Role::Tool,
        // A result that names no call is a report like any other.
        "user" | "tool" => Role::User,
        "assistant" => Role::Assistant,
        other => {
            let shown: String = other.chars().take(80).collect();
            let message = format!("`{shown}` is not a role; use system, user, assistant or tool");
            return Err(Failure::invalid("unknown_role", message));
        }
    };
    let text = match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let part = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
            let texts: Option<Vec<String>> = parts.iter().map(part).collect();
            texts.map(|texts| texts.concat()).ok_or_else(unreadable)?
        }
        None | Some(Value::Null) => String::new(),
        Some(_) => return Err(unreadable()),
    };
    let calls = message.get("tool_calls").map(native::read);
    let is_error = message.get(messages::IS_ERROR).and_then(Value::as_bool);
    Ok(ModelMessage {
        reasoning: match role {
            Role::Assistant => messages::reasoning(message),
            _ => None,
        },
        calls: match role {
            Role::Assistant => calls.unwrap_or_default().calls,
            _ => Vec::new(),
        },
        result_of: ended.filter(|_| role == Role::Tool).map(|id| EndedCall {
            id: id.to_owned(),
            failed: is_error.unwrap_or(false),
        }),
        ..ModelMessage::new(role, text)
    })
}

fn unreadable() -> Failure {
    let message = "the content of a message must be a text or an array of parts with `text`";
    Failure::invalid("unsupported_content", message)
}

/// Appends the model's answer to its messages.
pub(super) fn with_answer(given: &Value, answer: &ModelAnswer) -> Value {
    let mut messages = messages::read(given);
    messages.push(message_of(answer));
    Value::Array(messages)
}

/// Returns the tokens of a request and its answer.
pub(super) fn usage(answer: &ModelAnswer) -> Value {
    let (prompt, completion) = (answer.input_tokens, answer.output_tokens);
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": u64::from(prompt) + u64::from(completion),
    })
}

/// Writes an answer as a standard response: `text`, `model`, `choices`, `usage`, and `tool_calls`
/// if it holds calls.
pub(super) fn response(model: &str, answer: &ModelAnswer) -> Value {
    let mut response = json!({
        "text": answer.text,
        "model": model,
        "choices": [{"index": 0, "message": message_of(answer), "finish_reason": answer.finish_reason}],
        "usage": usage(answer),
    });
    if let Some(fields) = response.as_object_mut() {
        add_calls(fields, answer);
    }
    response
}

fn message_of(answer: &ModelAnswer) -> Value {
    let mut message = messages::message("assistant", &answer.text);
    messages::add_reasoning(&mut message, answer.reasoning.as_ref());
    if let Some(fields) = message.as_object_mut() {
        add_calls(fields, answer);
    }
    message
}

fn add_calls(fields: &mut Map<String, Value>, answer: &ModelAnswer) {
    if !answer.tool_calls.is_empty() {
        let calls = Value::Array(answer.tool_calls.clone());
        fields.insert("tool_calls".to_owned(), calls);
    }
}

/// Wraps the outputs of a node.
pub(super) fn outputs(values: impl IntoIterator<Item = Value>) -> Vec<Arc<Value>> {
    values.into_iter().map(Arc::new).collect()
}

/// Returns the text of a standard response.
pub(super) fn text_of(response: &Value) -> &str {
    let text = response.get("text").and_then(Value::as_str);
    let of_choice = || response.pointer("/choices/0/message/content")?.as_str();
    text.or_else(of_choice).unwrap_or("")
}

/// Returns the model's reason to stop, as a standard response names it; empty if it does not.
pub(super) fn finish_reason_of(response: &Value) -> &str {
    let reason = response.pointer("/choices/0/finish_reason");
    reason.and_then(Value::as_str).unwrap_or("")
}

/// Returns the native calls of a standard response.
pub(super) fn tool_calls_of(response: &Value) -> Option<&Value> {
    let calls = response.get("tool_calls").filter(|calls| !calls.is_null());
    calls.or_else(|| response.pointer("/choices/0/message/tool_calls"))
}
