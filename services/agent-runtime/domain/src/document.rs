//! Reads values of a JSON document, and collects all its problems.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The longest id of a document, in bytes.
pub(crate) const MAX_ID_BYTES: usize = 256;

/// All problems of a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct DocumentError {
    /// The problems in the order in which they were found; never empty.
    pub problems: Vec<DocumentProblem>,
}

/// One problem of a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{message}", .pointer, if .pointer.is_empty() { "" } else { ": " })]
pub struct DocumentProblem {
    /// JSON pointer into the document; empty for the document as a whole.
    pub pointer: String,
    /// The problem, with the remedy.
    pub message: String,
}

impl DocumentError {
    /// Reports one problem of the document as a whole.
    pub fn whole(message: impl ToString) -> Self {
        Self {
            problems: vec![DocumentProblem {
                pointer: String::new(),
                message: message.to_string(),
            }],
        }
    }
}

/// Returns the places of the problems.
#[cfg(test)]
pub(crate) fn places(problems: &[DocumentProblem]) -> Vec<&str> {
    problems.iter().map(|one| one.pointer.as_str()).collect()
}

/// Collects the problems of a document.
#[derive(Default)]
pub(crate) struct DocumentReader {
    pub(crate) problems: Vec<DocumentProblem>,
}

impl DocumentReader {
    pub(crate) fn problem(&mut self, pointer: &str, message: impl std::fmt::Display) {
        self.problems.push(DocumentProblem {
            pointer: pointer.to_owned(),
            message: message.to_string(),
        });
    }

    /// Reads the id of an object; an invalid id is a problem.
    pub(crate) fn id(&mut self, object: &Map<String, Value>, place: &str, key: &str) -> String {
        let id = object.get(key).and_then(Value::as_str).unwrap_or_default();
        if id.is_empty() || id.len() > MAX_ID_BYTES || id.chars().any(char::is_control) {
            let problem = format!("give a text of 1 to {MAX_ID_BYTES} bytes");
            self.problem(&format!("{place}/{key}"), problem);
        }
        id.to_owned()
    }

    pub(crate) fn required_text(
        &mut self,
        object: &Map<String, Value>,
        key: &str,
    ) -> Option<String> {
        let text = self.optional_text(object, "", key);
        if !object.contains_key(key) {
            self.problem(&format!("/{key}"), "it is missing; give a text");
        }
        text
    }

    pub(crate) fn optional_text(
        &mut self,
        object: &Map<String, Value>,
        above: &str,
        key: &str,
    ) -> Option<String> {
        match object.get(key) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => {
                self.problem(
                    &format!("{above}/{key}"),
                    "it is not a text; put it in quotes",
                );
                None
            }
        }
    }

    /// Reads a whole number from 1; none if it is missing, none and a problem if it is any other
    /// value.
    pub(crate) fn optional_count(
        &mut self,
        object: &Map<String, Value>,
        above: &str,
        key: &str,
        most: u64,
    ) -> Option<u64> {
        let value = object.get(key).filter(|value| !value.is_null())?;
        let count = value.as_u64().filter(|count| (1..=most).contains(count));
        if count.is_none() {
            let problem = format!("give a whole number from 1 to {most}");
            self.problem(&format!("{above}/{key}"), problem);
        }
        count
    }

    pub(crate) fn ids(&mut self, object: &Map<String, Value>, key: &str) -> Vec<String> {
        let entries = match object.get(key) {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Array(entries)) => entries,
            Some(_) => {
                self.problem(&format!("/{key}"), "it is not a list; give a list of ids");
                return Vec::new();
            }
        };
        let mut ids = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            match entry.as_str().map(core_types::ToolId::new) {
                Some(Ok(id)) => ids.push(id.to_string()),
                Some(Err(error)) => self.problem(&format!("/{key}/{index}"), error),
                None => self.problem(
                    &format!("/{key}/{index}"),
                    "it is not a text; give a tool's id",
                ),
            }
        }
        ids
    }
}

/// Returns the etag of a text, which changes with it.
pub(crate) fn etag(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

/// Returns the author's label of a document; empty if it has none.
pub(crate) fn label(document: &Map<String, Value>) -> String {
    let label = document.get("version").and_then(Value::as_str);
    label.unwrap_or_default().to_owned()
}

/// Whether a value is used: it is neither null nor empty.
pub(crate) fn is_used(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    }
}

/// A strict part of a document: an object all of whose keys are known.
pub(crate) struct Section<'a> {
    reader: &'a mut DocumentReader,
    object: &'a Map<String, Value>,
    place: String,
}

impl<'a> Section<'a> {
    /// Opens the part at a place; none, and a problem, if it is not an object.
    pub(crate) fn open(
        reader: &'a mut DocumentReader,
        value: &'a Value,
        place: &str,
    ) -> Option<Self> {
        let Value::Object(object) = value else {
            reader.problem(place, "it is not an object; give settings by name");
            return None;
        };
        let place = place.to_owned();
        Some(Self {
            reader,
            object,
            place,
        })
    }

    /// Refuses every key that is not known.
    pub(crate) fn refuse_others(&mut self, known: impl IntoIterator<Item = &'static str>) {
        let known: Vec<&str> = known.into_iter().collect();
        for key in self.object.keys() {
            if !known.contains(&key.as_str()) {
                let problem = format!("no such setting; the settings are {}", known.join(", "));
                self.problem(key, problem);
            }
        }
    }

    /// Opens a part of the part; none if it is missing.
    pub(crate) fn section(&mut self, key: &str) -> Option<Section<'_>> {
        let value = self.object.get(key).filter(|value| !value.is_null())?;
        let place = format!("{}/{key}", self.place);
        Section::open(self.reader, value, &place)
    }

    /// Returns the items of a list; none if it is missing, none and a problem if it is not a list.
    pub(crate) fn list(&mut self, key: &str) -> &'a [Value] {
        match self.object.get(key) {
            None | Some(Value::Null) => &[],
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.problem(key, "it is not a list");
                &[]
            }
        }
    }

    /// Records a problem at a path below this part.
    pub(crate) fn problem(&mut self, path: &str, message: impl std::fmt::Display) {
        let pointer = format!("{}/{path}", self.place);
        self.reader.problem(&pointer, message);
    }

    /// Reads a text; none if it is missing.
    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        self.reader.optional_text(self.object, &self.place, key)
    }

    /// Reads a whole number from 1; none if it is missing.
    pub(crate) fn count(&mut self, key: &str, most: u64) -> Option<u64> {
        self.read(key, &format!("a whole number from 1 to {most}"), |value| {
            value.as_u64().filter(|count| (1..=most).contains(count))
        })
    }

    /// Reads a value; none if it is missing, none and a problem if it is not the expected kind.
    pub(crate) fn read<T>(
        &mut self,
        key: &str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.object.get(key).filter(|value| !value.is_null())?;
        let read = read(value);
        if read.is_none() {
            // A long value would hide the remedy.
            let written = match value.to_string() {
                written if written.len() <= 200 => format!("it is {written}"),
                _ => "it is something else".to_owned(),
            };
            let problem = format!("{written}; give {expected}");
            self.problem(key, problem);
        }
        read
    }
}
