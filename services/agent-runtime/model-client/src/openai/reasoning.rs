//! The thought of a model before its calls, as chat completions send and accept it: DeepSeek and
//! Kimi as `reasoning_content`, OpenRouter as `reasoning` with signed or encrypted
//! `reasoning_details`.

use agent_domain::message::ChatMessage;
use serde_json::{Map, Value};

/// The names of a thought as text; an answer has one of them, or both with the same text.
const TEXTS: [&str; 2] = ["reasoning_content", "reasoning"];
/// The name of the parts of a thought.
const DETAILS: &str = "reasoning_details";

/// The members of a part that arrive in pieces; every other one is whole.
const IN_PIECES: [&str; 3] = ["text", "summary", "data"];

/// A thought as far as it has arrived.
#[derive(Debug, Default)]
pub(super) struct Reasoning {
    texts: [String; 2],
    details: Vec<Map<String, Value>>,
}

impl Reasoning {
    /// Adds a piece of an answer; returns the text that its reader may see.
    pub(super) fn take<'a>(&mut self, delta: &'a Value) -> Option<&'a str> {
        let mut shown = None;
        for (key, so_far) in TEXTS.iter().zip(&mut self.texts) {
            let text = delta.get(key).and_then(Value::as_str);
            let Some(text) = text.filter(|text| !text.is_empty()) else {
                continue;
            };
            so_far.push_str(text);
            shown = shown.or(Some(text));
        }
        let details = delta.get(DETAILS).and_then(Value::as_array);
        for detail in details.into_iter().flatten().filter_map(Value::as_object) {
            self.take_detail(detail);
        }
        shown
    }

    /// Adds a part, or a piece of the last one, which has the same index and type.
    fn take_detail(&mut self, detail: &Map<String, Value>) {
        let same = |key: &str, last: &Map<String, Value>| last.get(key) == detail.get(key);
        let last = self.details.last_mut();
        let last = last.filter(|last| {
            detail.contains_key("index") && same("index", last) && same("type", last)
        });
        let Some(last) = last else {
            self.details.push(detail.clone());
            return;
        };
        for (key, value) in detail {
            match (last.get_mut(key), value) {
                (Some(Value::String(so_far)), Value::String(piece))
                    if IN_PIECES.contains(&key.as_str()) =>
                {
                    so_far.push_str(piece);
                }
                (Some(_), Value::Null) => {}
                _ => drop(last.insert(key.clone(), value.clone())),
            }
        }
    }

    /// Returns the members that are sent back; none if there was no thought.
    pub(super) fn into_json(self) -> Option<Value> {
        let mut members = Map::new();
        for (key, text) in TEXTS.into_iter().zip(self.texts) {
            if !text.is_empty() {
                members.insert(key.to_owned(), text.into());
            }
        }
        if !self.details.is_empty() {
            members.insert(DETAILS.to_owned(), self.details.into());
        }
        (!members.is_empty()).then_some(Value::Object(members))
    }
}

/// Writes a message with the thought that belongs to its calls.
pub(super) fn with_message(message: &ChatMessage) -> Value {
    let mut written = message.to_json();
    if let Some(reasoning) = message.reasoning_of_calls() {
        for key in TEXTS.into_iter().chain([DETAILS]) {
            if let Some(value) = reasoning.get(key) {
                written[key] = value.clone();
            }
        }
    }
    written
}
