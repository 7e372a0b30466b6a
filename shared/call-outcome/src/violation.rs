//! Faults in JSON from outside.

use std::{borrow::Cow, fmt};

/// The most characters of a received value that are kept.
const MAX_RECEIVED_CHARS: usize = 200;
/// The most names that are compared with a misspelt one.
const MAX_COMPARED_NAMES: usize = 256;

/// A fault at a place of a definition, a manifest or a call's arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violation {
    /// A JSON pointer, or for files a path; empty for the whole.
    pub pointer: String,
    /// A stable code in snake case.
    pub code: Cow<'static, str>,
    /// One sentence that names the place and the remedy.
    pub message: String,
    /// The expected value; empty if the code is enough.
    pub expected: String,
    /// The value that was found, cut; empty if none was.
    pub received: String,
    /// Up to three names that may have been meant, the nearest first.
    pub suggestions: Vec<String>,
}

impl Violation {
    /// Makes a violation that consists of a sentence.
    pub fn new(
        pointer: impl Into<String>,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            pointer: pointer.into(),
            code: code.into(),
            message: message.into(),
            ..Self::default()
        }
    }

    /// Adds the expected value and the value that was found.
    #[must_use]
    pub fn found(mut self, expected: impl Into<String>, received: &str) -> Self {
        self.expected = expected.into();
        self.received = json_schema::cut(received, MAX_RECEIVED_CHARS);
        self
    }

    /// Adds the nearest of the `known` names to the message. Compares a bounded number of them.
    #[must_use]
    pub fn nearest<'a>(mut self, given: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        self.received = json_schema::cut(given, MAX_RECEIVED_CHARS);
        let known = known.into_iter().take(MAX_COMPARED_NAMES);
        self.suggestions = json_schema::nearest_names(given, known);
        if let Some(first) = self.suggestions.first() {
            self.message.push_str(&format!("; did you mean `{first}`?"));
        }
        self
    }

    /// Adds the nearest of the `known` names to the message if `suggest` is set.
    #[must_use]
    pub fn nearest_if<'a>(
        self,
        suggest: bool,
        given: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        if suggest {
            self.nearest(given, known)
        } else {
            self.found("", given)
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.as_str() {
            "" => formatter.write_str(&self.message),
            pointer => write!(formatter, "{pointer}: {}", self.message),
        }
    }
}

impl From<json_schema::Violation> for Violation {
    fn from(violation: json_schema::Violation) -> Self {
        Self {
            pointer: violation.pointer,
            code: violation.code.as_str().into(),
            message: violation.message,
            expected: violation.expected,
            received: json_schema::cut(&violation.received, MAX_RECEIVED_CHARS),
            suggestions: violation.suggestions,
        }
    }
}

impl From<json_schema::JsonProblem> for Violation {
    fn from(problem: json_schema::JsonProblem) -> Self {
        Self::new(
            problem.pointer.clone(),
            "malformed_json",
            problem.to_string(),
        )
    }
}

/// Joins violations for a log line or an error of one sentence.
pub fn sentences(violations: &[Violation]) -> String {
    let each: Vec<String> = violations.iter().map(ToString::to_string).collect();
    each.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut_between_characters() {
        let violation = Violation::new("/a", "x", "y").found("", &"字".repeat(300));
        assert_eq!(violation.received, format!("{}…", "字".repeat(200)));
        assert_eq!(
            Violation::new("", "x", "y").found("", "short").received,
            "short"
        );
    }

    #[test]
    fn sentences_name_their_places() {
        let violations = [
            Violation::new("/a", "x", "one"),
            Violation::new("", "x", "two"),
        ];
        assert_eq!(sentences(&violations), "/a: one; two");
    }
}
