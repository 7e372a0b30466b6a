//! Reads the fields of a JSON object and collects all problems.

use call_outcome::Violation;
use serde_json::{Map, Value};

/// An object that is being read.
pub(super) struct Fields<'a> {
    pub(super) object: &'a Map<String, Value>,
    pub(super) wrong: Vec<Violation>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(object: &'a Map<String, Value>) -> Self {
        Self {
            object,
            wrong: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, pointer: &str, code: &'static str, message: impl Into<String>) {
        self.wrong.push(Violation::new(pointer, code, message));
    }

    /// Returns the text at `key` of the root; a missing text and a value of another type are
    /// problems.
    pub(super) fn required_text(&mut self, parent: &str, key: &str) -> Option<String> {
        let object = self.object;
        self.text_of(object, parent, key, true)
    }

    /// Returns the text at `key` of the root if it exists and is not longer than `limit` bytes.
    pub(super) fn bounded_text(&mut self, key: &str, limit: usize) -> Option<String> {
        let object = self.object;
        let text = self.text_of(object, "", key, false)?;
        if text.len() > limit {
            let message = format!(
                "{key} has {} bytes; at most {limit} are accepted",
                text.len()
            );
            self.add(&format!("/{key}"), "too_long", message);
            return None;
        }
        Some(text)
    }

    /// Returns the text at `key` of `object`, whose pointer is `parent`.
    pub(super) fn text_of(
        &mut self,
        object: &Map<String, Value>,
        parent: &str,
        key: &str,
        required: bool,
    ) -> Option<String> {
        let pointer = format!("{parent}/{key}");
        match object.get(key) {
            Some(Value::String(text)) if !text.trim().is_empty() || !required => Some(text.clone()),
            Some(Value::String(_)) => {
                self.add(
                    &pointer,
                    "too_short",
                    format!("{key} is empty; give it a value"),
                );
                None
            }
            Some(other) => {
                let message = format!("{key} must be a string; found {}", kind_of(other));
                self.add(&pointer, "type_mismatch", message);
                None
            }
            None if required => {
                self.add(
                    &pointer,
                    "missing_parameter",
                    format!("{key} is missing; add it"),
                );
                None
            }
            None => None,
        }
    }

    /// Returns the object at `key` of the root; a missing object and a value of another type are
    /// problems.
    pub(super) fn required_object(&mut self, key: &str) -> Option<&'a Map<String, Value>> {
        match self.object.get(key) {
            Some(Value::Object(object)) => Some(object),
            Some(other) => {
                let message = format!("{key} must be an object; found {}", kind_of(other));
                self.add(&format!("/{key}"), "type_mismatch", message);
                None
            }
            None => {
                let message = format!("{key} is missing; it says how the tool is carried out");
                self.add(&format!("/{key}"), "missing_parameter", message);
                None
            }
        }
    }

    /// Returns the flag with either spelling; missing means no.
    pub(super) fn flag(&mut self, camel: &str, snake: &str) -> bool {
        for key in [camel, snake] {
            match self.object.get(key) {
                Some(Value::Bool(flag)) => return *flag,
                Some(other) => {
                    let message = format!("{key} must be true or false; found {}", kind_of(other));
                    self.add(&format!("/{key}"), "type_mismatch", message);
                    return false;
                }
                None => {}
            }
        }
        false
    }
}

/// Returns the JSON type of a value, in words.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
