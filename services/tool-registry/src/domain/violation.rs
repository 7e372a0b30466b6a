//! One thing that is wrong with JSON that came from outside.

/// A place in a definition, a manifest or a call's arguments, and what is wrong there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violation {
    /// A JSON pointer, or for files a path; empty for the whole.
    pub pointer: String,
    /// A stable code in snake case.
    pub code: String,
    /// One sentence that names the place and the remedy.
    pub message: String,
    /// What was expected; empty if the code says it all.
    pub expected: String,
    /// What was found; empty if nothing was.
    pub received: String,
    /// Up to three names that may have been meant, the nearest first.
    pub suggestions: Vec<String>,
}

impl Violation {
    /// Makes a violation without expected and received parts.
    pub fn new(
        pointer: impl Into<String>,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            pointer: pointer.into(),
            code: code.into(),
            message: message.into(),
            ..Self::default()
        }
    }
}

impl From<json_schema::Violation> for Violation {
    fn from(violation: json_schema::Violation) -> Self {
        Self {
            pointer: violation.pointer,
            code: violation.code.as_str().to_owned(),
            message: violation.message,
            expected: violation.expected,
            received: violation.received,
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

/// Joins the messages of violations for a log line or an error of one sentence.
pub fn sentences(violations: &[Violation]) -> String {
    let each: Vec<String> = violations
        .iter()
        .map(|violation| match violation.pointer.as_str() {
            "" => violation.message.clone(),
            pointer => format!("{pointer}: {}", violation.message),
        })
        .collect();
    each.join("; ")
}
