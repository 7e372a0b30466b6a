//! Findings about definitions that were loaded.

use call_outcome::Violation;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// A part has no effect.
    Warning,
    /// The definition, or a part of it, was not loaded.
    Error,
}

/// A finding about a definition that was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// A JSON pointer into the definition, after the file's path in a plugin; empty for the whole.
    pub path: String,
    /// A stable code in snake case.
    pub code: String,
    /// One sentence that names the problem and the remedy.
    pub message: String,
}

impl Diagnostic {
    /// Makes a finding about a part without effect.
    pub fn warning(
        path: impl Into<String>,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            path: path.into(),
            code: code.into(),
            message: message.into(),
        }
    }

    /// Makes a finding about a feature that is not supported yet.
    pub fn not_supported(path: &str, message: impl Into<String>) -> Self {
        Self::warning(path, "not_supported", message)
    }

    /// Returns the same finding in a file of a plugin.
    #[must_use]
    pub fn in_file(mut self, file: &str) -> Self {
        self.path.insert_str(0, file);
        self
    }
}

impl From<&Violation> for Diagnostic {
    fn from(violation: &Violation) -> Self {
        Self {
            severity: Severity::Error,
            path: violation.pointer.clone(),
            code: violation.code.to_string(),
            message: violation.message.clone(),
        }
    }
}
