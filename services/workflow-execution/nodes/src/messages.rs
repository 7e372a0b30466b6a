//! Chat messages in the form of values between nodes: an array, or its JSON text (rule W35).

use call_text::native::NativeCall;
use serde_json::{Map, Value, json};

use workflow_domain::data_flow::DataFlow;
use workflow_domain::model::ModelMessage;
use workflow_domain::slot::Slot;

/// The field of a tool's message with whether its call failed.
pub(super) const IS_ERROR: &str = "is_error";

/// Makes a slot for messages as JSON text.
pub(super) fn text_slot(key: &str, description: &str) -> Slot {
    Slot::new(key, DataFlow::String, description).category(Slot::CHAT_HISTORY)
}

/// Returns the messages of a value; values other than messages are passed over.
pub(super) fn read(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items.iter().flat_map(read).collect(),
        Value::String(text) => match json_schema::parse_json_strict(text) {
            // A text of messages is not unpacked again, so that a message stays one.
            Ok(Value::Array(items)) => items.into_iter().filter(is_message).collect(),
            Ok(one) if is_message(&one) => vec![one],
            _ => Vec::new(),
        },
        other if is_message(other) => vec![other.clone()],
        _ => Vec::new(),
    }
}

/// Writes one message.
pub(super) fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// Writes a message to or from a model.
pub(super) fn write(said: &ModelMessage) -> Value {
    let mut written = message(said.role.as_str(), &said.text);
    if !said.calls.is_empty() {
        written["tool_calls"] = said.calls.iter().map(NativeCall::to_json).collect();
        add_reasoning(&mut written, said.reasoning.as_ref());
    }
    if let Some(ended) = &said.result_of {
        written["tool_call_id"] = ended.id.as_str().into();
        if ended.failed {
            written[IS_ERROR] = true.into();
        }
    }
    written
}

/// The fields in which the APIs of models return a model's thought and accept it back with the
/// calls.
const REASONING: [&str; 4] = [
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "thinking_blocks",
];

/// Adds a model's thought to a message with calls.
pub(super) fn add_reasoning(message: &mut Value, reasoning: Option<&Value>) {
    for (key, value) in reasoning.and_then(Value::as_object).into_iter().flatten() {
        message[key.as_str()] = value.clone();
    }
}

/// Returns a model's thought before the calls of a message; none if the message has none.
pub(super) fn reasoning(message: &Value) -> Option<Value> {
    let fields = REASONING.iter().filter_map(|key| {
        let value = message.get(key).filter(|value| !value.is_null())?;
        Some(((*key).to_owned(), value.clone()))
    });
    let fields: Map<String, Value> = fields.collect();
    (!fields.is_empty()).then_some(Value::Object(fields))
}

fn is_message(value: &Value) -> bool {
    let has = |fields: &Map<String, Value>, key: &str| fields.get(key).is_some();
    value.as_object().is_some_and(|fields| {
        fields.get("role").is_some_and(Value::is_string)
            && (has(fields, "content") || has(fields, "tool_calls"))
    })
}
