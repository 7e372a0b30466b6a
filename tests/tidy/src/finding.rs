//! The findings of rules.

use std::fmt;

/// One breach of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Path from the root of the repository.
    pub path: String,
    /// Line, from 1; `None` where the breach is about the file as a whole.
    pub line: Option<usize>,
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub remedy: String,
}

impl Finding {
    /// Returns a finding about a whole file or directory.
    pub fn new(
        path: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            path: path.into(),
            line: None,
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }

    /// Returns the finding with the line it is about.
    #[must_use]
    pub fn at_line(mut self, line: usize) -> Self {
        self.line = Some(line);
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.path)?,
            None => f.write_str(&self.path)?,
        }
        write!(f, ": {}\n    remedy: {}", self.problem, self.remedy)
    }
}

/// Writes findings one below the other.
pub fn report(findings: &[Finding]) -> String {
    findings
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}
