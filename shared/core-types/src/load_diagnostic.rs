//! Findings about definitions that a service loads: profiles, workflows, tools, plugins.

use std::fmt;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSeverity {
    /// A part was left alone on purpose.
    Note,
    /// A part has no effect.
    Warning,
    /// A fault kept the definition from being loaded.
    Error,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadDiagnostic {
    /// The severity.
    pub severity: LoadSeverity,
    /// A JSON pointer into the definition, after the path of the file if there are several.
    pub path: String,
    /// A stable code in snake case.
    pub code: &'static str,
    /// One sentence that describes the finding and the remedy.
    pub message: String,
}

impl LoadDiagnostic {
    /// The most findings about one definition.
    pub const MAX: usize = 100;

    /// Makes the finding that a used feature is not supported.
    pub fn not_supported(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: LoadSeverity::Warning,
            path: path.into(),
            code: "not_supported",
            message: message.into(),
        }
    }

    /// Makes the finding that a key is unknown: a warning if it looks like the known key `nearest`,
    /// otherwise a note.
    pub fn unknown_key(path: impl Into<String>, key: &str, nearest: Option<&str>) -> Self {
        let key: String = key.chars().take(80).collect();
        let (severity, hint) = match nearest {
            Some(nearest) => (
                LoadSeverity::Warning,
                format!("; did you mean `{nearest}`?"),
            ),
            None => (LoadSeverity::Note, String::new()),
        };
        Self {
            severity,
            path: path.into(),
            code: "unknown_key",
            message: format!("nothing reads the key `{key}`{hint}"),
        }
    }

    /// Makes the finding that a definition was left out.
    pub fn left_out(path: impl Into<String>, message: &str) -> Self {
        Self {
            severity: LoadSeverity::Error,
            path: path.into(),
            code: "left_out",
            message: message.chars().take(1_000).collect(),
        }
    }
}

impl fmt::Display for LoadDiagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.message)
    }
}
