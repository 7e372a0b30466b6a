//! The versions of a plugin, and its surroundings, of which a plan is made.

use std::{collections::BTreeMap, sync::Arc};

use approval_rules::EffectClass;
use semver::Version;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::document::Dependents;
use crate::{
    definition::Definition, hook_point::HookPoint, manifest::Manifest, package::PackageFile,
    tool::Origin,
};

/// All that a plan is made of.
#[derive(Clone, Debug)]
pub struct PlanInput<'a> {
    /// The origin of the package, such as `archive` or `directory`.
    pub source: &'a str,
    /// The time from which the plan does not hold any more, as RFC 3339; empty if no server holds it.
    pub expire_time: &'a str,
    /// The version in force; none for a first install.
    pub in_force: Option<PluginVersion<'a>>,
    /// The new version.
    pub new: PluginVersion<'a>,
    /// The version of this service.
    pub tavern: &'a Version,
    /// The names that are held, by this plugin too.
    pub held: &'a [HeldName],
    /// The effects of the tools of the catalogue, by id.
    pub effects: &'a BTreeMap<String, EffectClass>,
    /// The hooks of other plugins.
    pub hooks: &'a [ChainedHook],
    /// The documents that use the plugin.
    pub dependents: &'a Dependents,
    /// The stored values of its options, by whole key.
    pub option_values: &'a Map<String, Value>,
}

/// One version of a plugin.
#[derive(Clone, Copy, Debug)]
pub struct PluginVersion<'a> {
    /// Its manifest.
    pub manifest: &'a Manifest,
    /// Its tools.
    pub tools: &'a [Arc<Definition>],
    /// The full types of its nodes, `<plugin>:<type>`.
    pub nodes: &'a [String],
    /// The versions of the libraries that its lock names, by name; none without a lock.
    pub libraries: Option<&'a BTreeMap<String, String>>,
    /// Its files, sorted by path.
    pub files: &'a [PackedFile],
    /// The digest of its package, with its `sha256:`.
    pub package_digest: &'a str,
}

impl PluginVersion<'_> {
    /// Returns the definitions of its tools.
    pub(super) fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.tools.iter().map(|tool| &**tool)
    }

    /// Returns the origin of its tools.
    pub(super) fn origin(&self) -> Origin {
        Origin::Plugin(self.manifest.name.to_string())
    }
}

/// A file of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedFile {
    /// The path beneath the plugin.
    pub path: String,
    /// The size in bytes.
    pub size: u64,
    /// The SHA-256 of the content, 64 hexadecimal digits.
    pub sha256: String,
}

impl From<&PackageFile> for PackedFile {
    fn from(file: &PackageFile) -> Self {
        Self {
            path: file.path.clone(),
            size: file.content.len() as u64,
            sha256: hex::encode(Sha256::digest(&file.content)),
        }
    }
}

/// A kind of a name that has one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NameKind {
    /// The id of a tool.
    Tool,
    /// A full type of nodes.
    NodeType,
    /// The name of a plugin.
    Plugin,
    /// A service that a backend of a plugin stands in for.
    Override,
}

/// A name that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldName {
    /// The kind.
    pub kind: NameKind,
    /// The name.
    pub id: String,
    /// The alias of a tool; empty for others.
    pub alias: String,
    /// The owner.
    pub owner: Origin,
}

/// A hook of another plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainedHook {
    /// The plugin.
    pub plugin: String,
    /// The id within the plugin.
    pub id: String,
    /// The point.
    pub point: HookPoint,
    /// The place in the chain, the least first.
    pub order: i64,
}
