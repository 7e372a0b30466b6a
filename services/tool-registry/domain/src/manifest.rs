//! `plugin.yaml`: the contents of a plugin and the permissions that it requests.
//!
//! A manifest with `apiVersion: tavern/v1` is read strictly: unknown keys and doubtful forms are
//! violations. Without it they are diagnostics, as manifests were written before there was a
//! version. Both are read by the same code, and all violations are reported at once.
//!
//! - `yaml`: the text as JSON, with its bounds.
//! - `metadata`: names, version, dependencies, directories.
//! - `frontend`, `hooks`, `overrides`: the parts with fields of their own.
//! - `remarks`: findings about parts that have no effect, or lack their permission.

mod frontend;
mod hooks;
mod metadata;
mod overrides;
mod remarks;
#[cfg(test)]
mod tests;
mod yaml;

use call_outcome::Violation;
use core_types::PluginId;
use serde_json::{Map, Value};

pub use frontend::{ComponentOverride, Frontend, Outlet, Wrap};
pub use hooks::{Hook, HookHandler, OnFailure};
pub use metadata::{Dependencies, PackageRuntime};
pub use overrides::{Fallback, StandIn};
pub use semver::{Version, VersionReq};

use super::{
    diagnostic::Diagnostic,
    options::{self, OptionDeclaration},
    permissions::{self, PermissionRequest},
    section::{Findings, Section},
};

/// The most bytes of a manifest.
pub const MAX_MANIFEST_BYTES: usize = 16 << 10;
/// The version of the form of manifests.
pub const API_VERSION: &str = "tavern/v1";

/// A manifest that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Whether `apiVersion: tavern/v1` stands in it.
    pub is_strict: bool,
    /// The plugin's name for itself.
    pub name: PluginId,
    /// The name for people.
    pub display_name: String,
    /// The version; empty if none is stated. It is a label, and need not be a semantic version.
    pub version: String,
    /// The purpose of the plugin.
    pub description: String,
    /// The license; empty if none is stated.
    pub license: String,
    /// The address of its page; empty if none is stated.
    pub homepage: String,
    /// The author; empty if none is stated.
    pub author: String,
    /// The versions of the service that it works with; none for all.
    pub requires_tavern: Option<VersionReq>,
    /// The packages that its scripts import; none if they need none.
    pub dependencies: Option<Dependencies>,
    /// The directory of its tool definitions; none if it has no tools.
    pub tools_entry: Option<String>,
    /// The directory of its nodes; none if it has no nodes.
    pub nodes_entry: Option<String>,
    /// The directory of its workflows; none if it has no workflows.
    pub workflows_entry: Option<String>,
    /// Its parts of the page.
    pub frontend: Frontend,
    /// Its hooks on the server, in the order of the manifest.
    pub hooks: Vec<Hook>,
    /// The services for which its backends stand in.
    pub overrides: Vec<StandIn>,
    /// The permissions that it asks for, in the order of their kinds.
    pub permissions: Vec<PermissionRequest>,
    /// The options that it declares, in the order of the manifest.
    pub options: Vec<OptionDeclaration>,
    /// Findings that do not keep it from working.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads the text of a `plugin.yaml`.
///
/// # Errors
/// All problems, each with a JSON pointer.
pub fn read(text: &str) -> Result<Manifest, Vec<Violation>> {
    read_root(&yaml::mapping(text)?)
}

fn read_root(object: &Map<String, Value>) -> Result<Manifest, Vec<Violation>> {
    let mut findings = Findings::default();
    let found = &mut findings;
    let mut root = Section::new("", object);
    found.is_strict = metadata::is_strict(&mut root, found);
    let name = metadata::name(&mut root, found);
    let mut text = |key: &'static str| root.text(key, found).unwrap_or_default();
    let display_name = text("displayName");
    let description = text("description");
    let license = text("license");
    let homepage = text("homepage");
    let author = text("author");
    let version = metadata::version(&mut root, found);
    let requires_tavern = metadata::requires(&mut root, found);
    let dependencies = metadata::dependencies(&mut root, found);
    let tools_entry = metadata::entry(&mut root, "tools", found);
    let nodes_entry = metadata::entry(&mut root, "nodes", found);
    let workflows_entry = metadata::entry(&mut root, "workflows", found);
    let frontend = frontend::read(&mut root, found);
    let hooks = hooks::read(&mut root, found);
    let overrides = overrides::read(&mut root, found);
    let permissions = permissions::read(&mut root, found);
    let options = options::read_declarations(&mut root, name.as_ref(), found);
    root.close(found);
    let Some(name) = name.filter(|_| findings.wrong.is_empty()) else {
        return Err(findings.wrong);
    };
    let mut manifest = Manifest {
        is_strict: findings.is_strict,
        display_name: if display_name.is_empty() {
            name.to_string()
        } else {
            display_name
        },
        name,
        version,
        description,
        license,
        homepage,
        author,
        requires_tavern,
        dependencies,
        tools_entry,
        nodes_entry,
        workflows_entry,
        frontend,
        hooks,
        overrides,
        permissions,
        options,
        diagnostics: Vec::new(),
    };
    manifest.diagnostics = remarks::of(&manifest);
    manifest.diagnostics.append(&mut findings.remarks);
    Ok(manifest)
}
