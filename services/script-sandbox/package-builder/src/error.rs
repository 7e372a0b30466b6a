//! The reasons why a package set is not built.

use std::{io, path::PathBuf};

use sandbox_engine::packages::PackageError;

/// A failure to lock, build or remove a package set. No set is left half-made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The file of the set is wrong.
    #[error("{} is wrong: {}", path.display(), problems.join("; "))]
    SetFile {
        /// The file.
        path: PathBuf,
        /// Everything that is wrong with it.
        problems: Vec<String>,
    },
    /// The lock is wrong.
    #[error("{} cannot be used:\n{}", path.display(), listed(problems))]
    Lock {
        /// The file.
        path: PathBuf,
        /// Every wrong line: its number, from 1, and the problem.
        problems: Vec<(usize, String)>,
    },
    /// The runtime of the set is unknown, cannot be used, or has no package sets.
    #[error("the runtime `{runtime}` of the set cannot be used: {problem}")]
    Runtime {
        /// The runtime.
        runtime: String,
        /// The reason.
        problem: String,
    },
    /// The host does not isolate scripts, so that no line of a package may run.
    #[error(
        "this host reaches no isolation level, and libraries are prepared in the sandbox only: {0}"
    )]
    NoIsolation(String),
    /// A program that fetches packages is missing or too old.
    #[error("{program} {least} or later is needed to {purpose}: {problem}")]
    Program {
        /// The program.
        program: &'static str,
        /// The least version.
        least: u32,
        /// The purpose.
        purpose: &'static str,
        /// The finding.
        problem: String,
    },
    /// A program that fetches packages failed.
    #[error("{program} failed:\n{said}")]
    Fetch {
        /// The program.
        program: &'static str,
        /// The end of its output.
        said: String,
    },
    /// A package has content that no set may have.
    #[error("the package {package} is refused: {problem}")]
    Package {
        /// The package or its file.
        package: String,
        /// The problem.
        problem: String,
    },
    /// The test of the set, or the import of its modules, failed in the sandbox.
    #[error("the set does not work in the sandbox: {0}")]
    Unsound(String),
    /// The set is used.
    #[error("the package set `{name}` is in use by {}", named(.users))]
    InUse {
        /// The name of the set.
        name: String,
        /// Its sessions and scripts.
        users: Vec<String>,
    },
    /// Another build or removal is in progress.
    #[error("another build or removal of package sets is in progress in {}", directory.display())]
    Busy {
        /// The directory of the sets.
        directory: PathBuf,
    },
    /// There is no such set.
    #[error(transparent)]
    Set(#[from] PackageError),
    /// The engine of the sandbox cannot be built.
    #[error(transparent)]
    Engine(#[from] sandbox_engine::BuildError),
    /// The store for prepared files cannot be opened.
    #[error(transparent)]
    Blobs(#[from] blob_store::OpenError),
    /// A file cannot be read or written.
    #[error("{doing} {}", path.display())]
    Storage {
        /// The action.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

fn listed(problems: &[(usize, String)]) -> String {
    let lines = problems
        .iter()
        .map(|(line, problem)| format!("line {line}: {problem}"));
    lines.collect::<Vec<_>>().join("\n")
}

fn named(users: &[String]) -> String {
    match users {
        [] => "a service".to_owned(),
        users => users.join(", "),
    }
}

/// Adds the action and the file to an I/O error.
pub(crate) trait At<T> {
    /// Names the action and the file.
    fn at(self, doing: &'static str, path: impl Into<PathBuf>) -> Result<T, BuildError>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, doing: &'static str, path: impl Into<PathBuf>) -> Result<T, BuildError> {
        self.map_err(|error| BuildError::Storage {
            doing,
            path: path.into(),
            source: error.into(),
        })
    }
}
