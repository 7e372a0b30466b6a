//! Findings about definitions that a service loads: profiles, workflows, tools, plugins.

use std::fmt;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSeverity {
    /// Something was left alone on purpose.
    Note,
    /// Something has no effect.
    Warning,
    /// Something kept the definition from being loaded.
    Error,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadDiagnostic {
    /// How much it matters.
    pub severity: LoadSeverity,
    /// A JSON pointer into the definition, after the path of the file if there are several.
    pub path: String,
    /// A stable code in snake case.
    pub code: &'static str,
    /// One sentence that names what was found and the remedy.
    pub message: String,
}

impl LoadDiagnostic {
    /// The most findings about one definition.
    pub const MAX: usize = 100;

    /// Makes the finding that a feature is used which is not carried out.
    pub fn not_supported(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: LoadSeverity::Warning,
            path: path.into(),
            code: "not_supported",
            message: message.into(),
        }
    }

    /// Makes the finding that nothing reads a key: a warning if it looks like the known key
    /// `nearest`, else a note.
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
