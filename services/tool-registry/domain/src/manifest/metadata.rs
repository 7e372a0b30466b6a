//! Names, version, dependencies and directories of a plugin.

use core_types::PluginId;
use semver::{Version, VersionReq};

use super::API_VERSION;
use crate::{
    package,
    section::{Findings, Section},
};

/// The longest name of a plugin, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The language of a plugin's packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackageRuntime {
    /// Packages of PyPI.
    Python,
    /// Packages of npm.
    Node,
}

impl PackageRuntime {
    /// Returns the runtime of its package sets.
    pub fn runtime(self) -> &'static str {
        match self {
            Self::Python => "python3",
            Self::Node => "node",
        }
    }

    /// Whether an interpreter, as a command names it, is one of this language.
    pub fn is_of(self, interpreter: &str) -> bool {
        let name = match self {
            Self::Python => "python",
            Self::Node => "node",
        };
        interpreter.starts_with(name)
    }
}

/// The packages that the scripts of a plugin import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependencies {
    /// The language.
    pub runtime: PackageRuntime,
    /// The path of the lock file with hashes, beneath the plugin.
    pub lock: String,
}

/// Whether the manifest states the version of its form, which makes its reading strict.
pub(super) fn is_strict(root: &mut Section<'_>, findings: &mut Findings) -> bool {
    root.word("apiVersion", &[API_VERSION], findings).is_some()
}

pub(super) fn name(root: &mut Section<'_>, findings: &mut Findings) -> Option<PluginId> {
    let text = root.text("name", findings).unwrap_or_default();
    match PluginId::new(text) {
        Ok(name) => {
            if !has_form(name.as_str()) {
                let message = format!(
                    "the name '{name}' should have lower-case letters, digits and '-' only, at most \
                     {MAX_NAME_BYTES}, and begin with a letter or a digit, as addresses and options contain it; \
                     rename the plugin"
                );
                findings.strictly("/name", "invalid_name", message);
            }
            Some(name)
        }
        Err(error) => {
            findings.wrong("/name", "invalid_name", error.to_string());
            None
        }
    }
}

fn has_form(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= MAX_NAME_BYTES && name.chars().all(plain) && !name.starts_with('-')
}

/// Reads the version, a label that should be a semantic version.
pub(super) fn version(root: &mut Section<'_>, findings: &mut Findings) -> String {
    let version = root.text("version", findings).unwrap_or_default();
    if !version.is_empty()
        && let Err(error) = Version::parse(&version)
    {
        let message = format!(
            "the version '{version}' is not a semantic version ({error}), so versions of this plugin \
             cannot be ordered; write three numbers, like 1.4.0"
        );
        findings.remark("/version", "version_form", message);
    }
    version
}

/// Reads `requires.tavern`.
pub(super) fn requires(root: &mut Section<'_>, findings: &mut Findings) -> Option<VersionReq> {
    let wanted = "a mapping, such as tavern: \">=0.5, <1.0\"";
    let mut requires = root.section("requires", wanted, findings)?;
    let place = requires.place("tavern");
    let text = requires.text("tavern", findings);
    requires.close(findings);
    let text = text?;
    match VersionReq::parse(&text) {
        Ok(range) => Some(range),
        Err(error) => {
            let message = format!(
                "'{text}' is not a range of versions ({error}); write it like \">=0.5, <1.0\""
            );
            findings.wrong(place, "invalid_range", message);
            None
        }
    }
}

/// Reads `dependencies`.
pub(super) fn dependencies(
    root: &mut Section<'_>,
    findings: &mut Findings,
) -> Option<Dependencies> {
    let wanted = "a mapping with 'runtime' and 'lock'";
    let mut section = root.section("dependencies", wanted, findings)?;
    let (runtime_place, lock_place) = (section.place("runtime"), section.place("lock"));
    let runtime = section.required_text("runtime", "python", findings);
    let lock = section.required_text("lock", "requirements.lock", findings);
    section.close(findings);
    let runtime = runtime.and_then(|runtime| match runtime.as_str() {
        "python" => Some(PackageRuntime::Python),
        "node" => Some(PackageRuntime::Node),
        _ => {
            let message = format!("runtime is '{runtime}'; write python or node");
            findings.wrong(runtime_place, "not_in_enum", message);
            None
        }
    });
    let lock = lock.and_then(|lock| path(&lock_place, &lock, findings));
    runtime
        .zip(lock)
        .map(|(runtime, lock)| Dependencies { runtime, lock })
}

/// Reads `<key>.entry`, a directory beneath the plugin.
pub(super) fn entry(
    root: &mut Section<'_>,
    key: &'static str,
    findings: &mut Findings,
) -> Option<String> {
    let value = root.get(key)?;
    let pointer = format!("/{key}/entry");
    let missing = format!("{key} must name its directory as 'entry', such as ./{key}");
    let Some(object) = value.as_object() else {
        findings.wrong(pointer, "missing_parameter", missing);
        return None;
    };
    let mut section = Section::new(root.place(key), object);
    let written = match section.get("entry").and_then(|entry| entry.as_str()) {
        Some(written) => path(&pointer, written, findings),
        None => {
            findings.wrong(pointer, "missing_parameter", missing);
            None
        }
    };
    section.close(findings);
    written
}

/// Checks a path and returns it without `./`.
pub(super) fn path(pointer: &str, written: &str, findings: &mut Findings) -> Option<String> {
    match package::relative_path(written) {
        Ok(path) => Some(path),
        Err(problem) => {
            let message = format!("the path '{written}' {problem}");
            findings.wrong(pointer, "invalid_path", message);
            None
        }
    }
}
