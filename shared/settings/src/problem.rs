//! Problems of settings, and their report.

use std::{fmt, io::Write, path::PathBuf, process::ExitCode};

/// The exit code of a program whose settings are wrong (`EX_CONFIG` of sysexits).
pub const EXIT_CONFIG: u8 = 78;

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// No source: the program's default is in force.
    Default,
    /// The settings file.
    File(PathBuf),
    /// An environment variable, by name.
    Environment(String),
    /// A flag of the command line.
    CommandLine,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::CommandLine => f.write_str("command line"),
        }
    }
}

/// One problem of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key, its parts joined by dots; empty when it concerns the whole file.
    pub key: String,
    /// The source of the value.
    pub source: Source,
    /// The fault, to be read after the key: "is 0".
    pub what: String,
    /// The remedy: "give a number from 1 to 64".
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            source,
            what,
            remedy,
        } = self;
        if key.is_empty() {
            write!(f, "{source} {what}: {remedy}")
        } else {
            write!(f, "{key} {what} ({source}): {remedy}")
        }
    }
}

/// Collects the problems that a program's own checks find.
#[derive(Debug, Default)]
pub struct Problems {
    found: Vec<(String, String, String)>,
}

impl Problems {
    /// Adds a problem of the value under `key` (parts joined by dots).
    ///
    /// `what` is read after the key ("is 0").
    pub fn add(
        &mut self,
        key: impl Into<String>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.found.push((key.into(), what.into(), remedy.into()));
    }

    /// Returns whether no problem was found.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns the problems, with the source of each key filled in by `source_of`.
    pub(crate) fn resolve(self, source_of: impl Fn(&[&str]) -> Source) -> Vec<Problem> {
        self.found
            .into_iter()
            .map(|(key, what, remedy)| {
                let parts: Vec<&str> = key.split('.').collect();
                let source = source_of(&parts);
                Problem {
                    key,
                    source,
                    what,
                    remedy,
                }
            })
            .collect()
    }
}

/// The settings are wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// Every problem, at least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.len() {
            1 => f.write_str("one setting is wrong")?,
            count => write!(f, "{count} settings are wrong")?,
        }
        for problem in &self.problems {
            write!(f, "\n  {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SettingsError {}

impl SettingsError {
    /// Adds the problems that another part of the program has found, each once.
    pub fn merge(&mut self, other: Self) {
        for problem in other.problems {
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
    }
}

/// Prints every problem on standard error and returns the code to exit with.
pub fn report_and_exit_code(error: &SettingsError) -> ExitCode {
    // Standard error may be closed; there is no other stream for the report.
    let _ = writeln!(std::io::stderr(), "error: {error}");
    ExitCode::from(EXIT_CONFIG)
}
