//! The Python programs of the tests.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::process::{Process, repository};
use crate::wait::eventually;

/// A Python program that listens; it ends with this.
#[derive(Debug)]
pub struct PythonServer {
    process: Process,
    address: String,
}

/// Returns the interpreter that has the packages of the tests.
///
/// # Errors
/// A missing interpreter; the message names the command that installs it.
pub fn python() -> anyhow::Result<PathBuf> {
    let given = std::env::var_os("TAVERN_TEST_PYTHON").map(PathBuf::from);
    let path = match given {
        Some(path) => path,
        None => crate::process::binary_directory()?.join("../python/bin/python"),
    };
    ensure!(
        path.exists(),
        "{} is missing; run `make python`",
        path.display()
    );
    Ok(path)
}

/// Returns the path of a program under `tests/python`.
pub fn python_program(name: &str) -> String {
    repository()
        .join("tests/python")
        .join(name)
        .display()
        .to_string()
}

/// Generates the Python stubs of the whole contract into a directory, as docs/guide.md does.
///
/// # Errors
/// The generator is missing or fails; the error has its output.
pub fn python_stubs(into: &Path) -> anyhow::Result<()> {
    let proto = repository().join("proto");
    let mut files = Vec::new();
    let mut directories = vec![proto.join("tavern"), proto.join("buf")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|end| end == "proto") {
                files.push(path);
            }
        }
    }
    let shown = into.display();
    let output = std::process::Command::new(python()?)
        .args(["-m", "grpc_tools.protoc", "-I"])
        .arg(&proto)
        .arg(format!("--python_out={shown}"))
        .arg(format!("--grpc_python_out={shown}"))
        .args(files)
        .output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "no stubs: {printed}");
    Ok(())
}

impl PythonServer {
    /// Starts a program that writes to `out` and waits until it listens.
    ///
    /// # Errors
    /// The program does not come up; the error has its output.
    pub async fn start(program: &str, out: &Path, directory: &Path) -> anyhow::Result<Self> {
        Self::start_with(program, out, directory, &[]).await
    }

    /// Starts a program with further arguments.
    ///
    /// # Errors
    /// As [`PythonServer::start`].
    pub async fn start_with(
        program: &str,
        out: &Path,
        directory: &Path,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let script = python_program(program);
        let out = out.display().to_string();
        let arguments = [&[script.as_str(), "--out", &out], arguments].concat();
        Self::run(program, &arguments, &[], directory).await
    }

    /// Starts a program by its arguments, the first of which is its file, with an environment.
    ///
    /// # Errors
    /// As [`PythonServer::start`].
    pub async fn run(
        program: &str,
        arguments: &[&str],
        environment: &[(String, String)],
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let mut process = Process::start(program, &python()?, arguments, environment, directory)?;
        let listening = eventually("a Python program to listen", || {
            let ended = process.ensure_alive().err();
            let printed = process.output();
            async move {
                if let Some(error) = ended {
                    return Some(Err(error));
                }
                let line = printed
                    .lines()
                    .find(|line| line.starts_with("listening "))?;
                Some(Ok(line.trim_start_matches("listening ").to_owned()))
            }
        });
        let address = listening
            .await?
            .with_context(|| format!("{program} does not come up"))?;
        Ok(Self { process, address })
    }

    /// Returns where it listens, as `http://host:port`.
    pub fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns its output so far.
    pub fn output(&self) -> String {
        self.process.output()
    }
}
