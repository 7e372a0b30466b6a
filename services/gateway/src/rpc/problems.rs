//! The faults of a request, collected to be refused at once.

use call_catalogue::Dialect;
use grpc_kit::Failure;
use serde_json::Value;
use tonic::Status;

use crate::domain::scope::Scope;

/// The most tools that a scope may name.
const MAX_SCOPE: usize = 500;

/// The most untrusted texts, and the most bytes of all of them together.
const MAX_UNTRUSTED: (usize, usize) = (256, 1 << 20);

/// The most bytes of native calls, and of arguments to write.
const MAX_JSON: usize = 1 << 20;

/// Collects the wrong fields of a request by their paths.
pub(super) struct Problems {
    failure: Failure,
    /// The path of the message that is being checked, with a dot at its end; empty for the request.
    path: &'static str,
}

impl Problems {
    /// Begins with the fields of the request itself.
    pub(super) fn new() -> Self {
        Self {
            failure: Failure::invalid_fields(),
            path: "",
        }
    }

    /// Continues with the fields of the message at `path`, which ends with a dot.
    pub(super) fn below(path: &'static str) -> Self {
        Self {
            path,
            ..Self::new()
        }
    }

    pub(super) fn add(&mut self, field: &str, problem: impl Into<String>) {
        self.failure
            .add_violation(format!("{}{field}", self.path), problem);
    }

    pub(super) fn text(&mut self, field: &str, text: &str, most: usize) {
        let bytes = text.len();
        if bytes > most {
            self.add(
                field,
                format!("is {bytes} bytes, but at most {most} are allowed"),
            );
        }
    }

    pub(super) fn scope(&mut self, scope: &Scope) {
        let count = scope.tool_ids.len();
        if count > MAX_SCOPE {
            let problem = format!("names {count} tools, but at most {MAX_SCOPE} are allowed");
            self.add("scope.tool_ids", problem);
        }
    }

    pub(super) fn dialect(&mut self, number: i32) -> Option<Dialect> {
        call_wire::dialect_from_proto(number).unwrap_or_else(|error| {
            self.add("dialect", error.to_string());
            None
        })
    }

    pub(super) fn untrusted(&mut self, texts: &[String]) {
        let bytes: usize = texts.iter().map(String::len).sum();
        let (most, most_bytes) = MAX_UNTRUSTED;
        if texts.len() > most || bytes > most_bytes {
            let count = texts.len();
            let problem = format!(
                "are {count} texts of {bytes} bytes, but at most {most} texts of {most_bytes} bytes are allowed"
            );
            self.add("untrusted_texts", problem);
        }
    }

    /// Reads a field that holds JSON; `None` if it is empty.
    pub(super) fn json(&mut self, field: &str, text: &str) -> Option<Value> {
        if text.is_empty() {
            return None;
        }
        if text.len() > MAX_JSON {
            self.text(field, text, MAX_JSON);
            return None;
        }
        match json_schema::parse_json_strict(text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(field, format!("is not valid JSON: {error}"));
                None
            }
        }
    }

    /// Returns whether there is no fault so far.
    pub(super) fn is_empty(&self) -> bool {
        self.failure.is_empty()
    }

    /// Returns the checked value, or the refusal that names every wrong field.
    pub(super) fn or<T>(self, checked: T) -> Result<T, Status> {
        self.failure.refuse_if_any().map(|()| checked)
    }
}
