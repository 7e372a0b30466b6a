//! The programs that fetch packages: pip and npm, as they are installed. They run outside of the sandbox, for they need a
//! network, and execute no line of a package: pip takes wheels only, npm runs no scripts.

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use package_lock::Lock;
use sandbox_engine::{domain::profile::Installer, runtimes::Interpreter};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::error::{At as _, BuildError};

/// The longest time that a program may take.
const LONGEST: Duration = Duration::from_secs(1800);

/// The most bytes of a failure that are reported.
const SAID: usize = 4096;

/// The installer of a runtime, for one of its interpreters.
pub(crate) struct Fetcher<'a> {
    pub(crate) installer: Installer,
    pub(crate) interpreter: &'a Interpreter,
}

impl Fetcher<'_> {
    /// Resolves packages and returns a lock with a hash for every file.
    pub(crate) async fn resolve(
        &self,
        packages: &[String],
        scratch: &Path,
    ) -> Result<String, BuildError> {
        if let Some(package) = packages.iter().find(|package| !is_named(package)) {
            return Err(BuildError::Package {
                package: package.clone(),
                problem:
                    "only names of an index are resolved, such as `numpy`, `numpy>=2` or `lodash@4`"
                        .to_owned(),
            });
        }
        self.demand("resolve packages").await?;
        match self.installer {
            Installer::Pip => self.resolve_wheels(packages, scratch).await,
            Installer::Npm => self.resolve_modules(packages, scratch).await,
        }
    }

    /// Fetches the files of a lock into a directory. They are the wheels of pip, or the tree of npm.
    pub(crate) async fn fetch(&self, lock: &Lock, into: &Path) -> Result<(), BuildError> {
        self.demand("fetch packages").await?;
        match self.installer {
            Installer::Pip => {
                let file = into.join("lock.txt");
                std::fs::write(&file, &lock.text).at("writing", &file)?;
                let mut pip = self.pip("download");
                pip.args([
                    "--no-deps",
                    "--require-hashes",
                    "--only-binary",
                    ":all:",
                    "--no-input",
                ])
                .arg("--dest")
                .arg(into)
                .arg("--requirement")
                .arg(&file);
                run("pip", pip).await?;
                std::fs::remove_file(&file).at("removing", &file)
            }
            Installer::Npm => {
                write(into, "package.json", &root_of(&lock.text))?;
                write(into, "package-lock.json", &lock.text)?;
                let mut npm = npm(into, "ci");
                npm.arg("--no-bin-links");
                run("npm", npm).await.map(drop)
            }
        }
    }

    async fn resolve_wheels(
        &self,
        packages: &[String],
        scratch: &Path,
    ) -> Result<String, BuildError> {
        let report = scratch.join("report.json");
        let mut pip = self.pip("install");
        pip.args([
            "--dry-run",
            "--ignore-installed",
            "--only-binary",
            ":all:",
            "--no-input",
            "--quiet",
        ])
        .arg("--report")
        .arg(&report)
        .arg("--")
        .args(packages)
        // No file here has the name of a package.
        .current_dir(scratch);
        run("pip", pip).await?;
        let text = std::fs::read_to_string(&report).at("reading", &report)?;
        let report: Value = serde_json::from_str(&text).at("reading", &report)?;
        let resolved = report.get("install").and_then(Value::as_array);
        let mut lines = Vec::new();
        for package in resolved.into_iter().flatten() {
            let text = |pointer: &str| package.pointer(pointer).and_then(Value::as_str);
            let name = text("/metadata/name").unwrap_or_default();
            let version = text("/metadata/version").unwrap_or_default();
            let Some(digest) = text("/download_info/archive_info/hashes/sha256") else {
                return Err(BuildError::Package {
                    package: name.to_owned(),
                    problem: "the index gives no SHA-256 of its file".to_owned(),
                });
            };
            let name = package_lock::normalized(name);
            lines.push(format!(
                "{name}=={version} \\\n    --hash=sha256:{digest}\n"
            ));
        }
        lines.sort();
        Ok(lines.concat())
    }

    async fn resolve_modules(
        &self,
        packages: &[String],
        scratch: &Path,
    ) -> Result<String, BuildError> {
        write(scratch, "package.json", "{\"private\": true}\n")?;
        let mut npm = npm(scratch, "install");
        npm.args([
            "--package-lock-only",
            "--save-exact",
            "--omit-lockfile-registry-resolved",
        ])
        .arg("--")
        .args(packages);
        run("npm", npm).await?;
        let lock = scratch.join("package-lock.json");
        let text = std::fs::read_to_string(&lock).at("reading", &lock)?;
        let mut lock: Value = serde_json::from_str(&text).at("reading", &lock)?;
        if let Some(root) = lock.pointer_mut("/name") {
            // It is the name of a temporary directory.
            *root = json!("packages");
        }
        let mut text = serde_json::to_string_pretty(&lock).at("writing", scratch)?;
        text.push('\n');
        Ok(text)
    }

    /// Checks that the program is there and not too old.
    async fn demand(&self, purpose: &'static str) -> Result<(), BuildError> {
        let (program, least) = match self.installer {
            Installer::Pip => ("pip", 23),
            Installer::Npm => ("npm", 9),
        };
        let missing = |problem: String| BuildError::Program {
            program,
            least,
            purpose,
            problem,
        };
        let asked = Command::new(program)
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .await;
        let answer = asked.map_err(|error| missing(format!("it cannot be started: {error}")))?;
        let said = String::from_utf8_lossy(&answer.stdout);
        let numbers = said.split(|each: char| !each.is_ascii_digit());
        let major = numbers
            .filter_map(|number| number.parse::<u32>().ok())
            .next();
        match major {
            Some(major) if answer.status.success() && major >= least => Ok(()),
            _ => Err(missing(format!("it reports: {}", said.trim()))),
        }
    }

    /// pip as it works for the interpreter of the set, whichever it was installed for.
    fn pip(&self, command: &str) -> Command {
        let mut pip = Command::new("pip");
        pip.arg("--python")
            .arg(&self.interpreter.executable)
            .args(["--disable-pip-version-check", command]);
        pip
    }
}

fn npm(directory: &Path, command: &str) -> Command {
    let mut npm = Command::new("npm");
    npm.current_dir(directory).args([
        command,
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ]);
    npm
}

/// Whether a text names a package of an index, with a version or extras: no option, no path, no URL.
fn is_named(package: &str) -> bool {
    let (scope, name) = match package
        .strip_prefix('@')
        .and_then(|rest| rest.split_once('/'))
    {
        Some((scope, name)) => (scope, name),
        None => ("scope", package),
    };
    let begins = |text: &str| {
        text.bytes()
            .next()
            .is_some_and(|first| first.is_ascii_alphanumeric())
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-[],=<>!~^*+@".contains(&byte);
    begins(scope) && begins(name) && scope.bytes().chain(name.bytes()).all(plain)
}

/// The `package.json` to which a lock belongs.
fn root_of(lock: &str) -> String {
    let lock: Value = serde_json::from_str(lock).unwrap_or_default();
    let root = lock.pointer("/packages/").cloned().unwrap_or_default();
    let mut package = json!({"private": true});
    for part in ["dependencies", "optionalDependencies"] {
        if let Some(dependencies) = root.get(part) {
            package[part] = dependencies.clone();
        }
    }
    package.to_string()
}

fn write(directory: &Path, name: &str, text: &str) -> Result<(), BuildError> {
    let path: PathBuf = directory.join(name);
    std::fs::write(&path, text).at("writing", path)
}

/// Runs a program to its end.
async fn run(program: &'static str, mut command: Command) -> Result<Output, BuildError> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let failed = |said: String| BuildError::Fetch { program, said };
    let output = tokio::time::timeout(LONGEST, command.output()).await;
    let output = output.map_err(|_| failed("it did not end in half an hour".to_owned()))?;
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = [output.stderr, output.stdout].concat();
    let end = &said[said.len().saturating_sub(SAID)..];
    Err(failed(String::from_utf8_lossy(end).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_an_index_are_resolved() {
        for named in [
            "numpy",
            "numpy>=2,<3",
            "scikit-learn[all]==1.0",
            "lodash@4",
            "@scope/x@^1.2",
        ] {
            assert!(is_named(named), "{named}");
        }
        for other in [
            "",
            "-e",
            "--index-url=x",
            "./six",
            "/tmp/six",
            "a/b",
            "../six",
            "git+https://x",
            "https://x/y.whl",
            "npm:x",
            "file:x",
            "x @ file:///y",
            "@/x",
            "@a/b/c",
            "six\nevil",
        ] {
            assert!(!is_named(other), "{other}");
        }
    }
}
