//! The types of a plan. Their JSON is the plan's document.

use std::collections::BTreeMap;

use call_outcome::Violation;
use serde::{Deserialize, Serialize};

use crate::{
    definition::Flags,
    permissions::{Permission, Risk},
};

/// The plan of a change of a plugin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The name of the plugin.
    pub plugin: String,
    /// The version of the new package; empty if none is stated.
    pub version: String,
    /// The digest of the new package, with its `sha256:`.
    pub package_digest: String,
    /// The origin of the package, such as `archive` or `directory`.
    pub source: String,
    /// The time from which the plan does not hold any more, as RFC 3339; empty if no server holds it.
    pub expire_time: String,
    /// The version in force; null for a first install.
    pub replaces: Option<Replaced>,
    /// The files that differ.
    pub files: FileChanges,
    /// The tools of both versions, removed ones last.
    pub tools: Vec<PlannedTool>,
    /// The full types of its nodes.
    pub nodes: Vec<String>,
    /// The workflows that it brings, as `<plugin>:<stem>`.
    pub workflows: Vec<String>,
    /// The versions of the libraries that it brings, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub libraries: BTreeMap<String, String>,
    /// Its hooks.
    pub hooks: Vec<PlannedHook>,
    /// The services for which its backends stand in.
    pub overrides: Vec<PlannedOverride>,
    /// The permissions of both versions in the order of their kinds, removed ones last.
    pub permissions: Vec<PlannedPermission>,
    /// Its options with their states, missing ones first.
    pub config_options: Vec<PlannedOption>,
    /// The names that others hold. A plan with one is not installed.
    pub conflicts: Vec<Conflict>,
    /// The documents that use the plugin.
    pub dependents: Dependents,
    /// Findings that do not stop the plan.
    pub remarks: Vec<PlanRemark>,
    /// Findings that stop the plan.
    pub violations: Vec<PlanRemark>,
    /// The digest that is approved, with its `sha256:`; empty if it cannot be installed, or no server holds it.
    pub plan_digest: String,
}

/// The version of a plugin that a plan replaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// The version; empty if none is stated.
    pub version: String,
    /// The digest of its package, with its `sha256:`.
    pub package_digest: String,
}

/// The files of the new package, and the files that differ, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChanges {
    /// The number of files of the new package.
    pub count: u64,
    /// The bytes of all files of the new package.
    pub bytes: u64,
    /// Files that only the new package has.
    pub added: Vec<String>,
    /// Files of both packages that differ.
    pub changed: Vec<String>,
    /// Files that only the package in force has.
    pub removed: Vec<String>,
}

/// The change of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Only the new version has it.
    Added,
    /// Both have it, and it differs.
    Changed,
    /// Only the version in force has it.
    Removed,
    /// Both have it, and it is the same.
    Kept,
}

/// A class of a change of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeClass {
    /// Texts for models and people.
    Description,
    /// Parameters: every call that was valid still is.
    SchemaWider,
    /// Parameters: a call that was valid may not be any more.
    SchemaNarrower,
    /// The schema of the result.
    Output,
    /// The example calls.
    Examples,
    /// The declared effects.
    Effects,
    /// The implementation, or the files that it runs.
    Implementation,
    /// The rights that the tool asks for.
    Permissions,
    /// The time limit.
    Timeout,
}

/// The declared effects of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedEffects {
    /// It changes nothing.
    pub read_only: bool,
    /// Repeating a call has no further effect.
    pub idempotent: bool,
    /// It destroys data that cannot be restored.
    pub destructive: bool,
    /// Calls may run alongside each other.
    pub parallel_safe: bool,
}

impl From<Flags> for PlannedEffects {
    fn from(flags: Flags) -> Self {
        Self {
            read_only: flags.read_only,
            idempotent: flags.idempotent,
            destructive: flags.destructive,
            parallel_safe: flags.parallel_safe,
        }
    }
}

/// A tool of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedTool {
    /// The id.
    pub tool_id: String,
    /// The digest of definition and package, with its `sha256:`; of a removed tool, the present one.
    pub digest: String,
    /// The declared effects; of a removed tool, the present ones.
    pub effects: PlannedEffects,
    /// The change.
    pub change: Change,
    /// The classes of a change; empty unless it is changed.
    pub classes: Vec<ChangeClass>,
}

/// A hook of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedHook {
    /// The id within the plugin.
    pub id: String,
    /// The point.
    pub point: String,
    /// The hooks of the point in the order in which they will run, as `<plugin>/<id>`.
    pub chain: Vec<String>,
    /// The decisions that it may take.
    pub may: Vec<String>,
    /// The effect of a failure, `deny` or `skip`.
    pub on_failure: String,
}

/// A service for which a backend stands in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedOverride {
    /// The service.
    pub service: String,
    /// The name of the backend.
    pub backend: String,
    /// The act when the backend cannot be reached, `fail` or `builtin`.
    pub fallback: String,
    /// The gRPC service that the backend must have.
    pub implements: String,
    /// The methods that the backend was found not to have.
    pub missing_methods: Vec<String>,
}

/// A permission of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedPermission {
    /// The permission, in its canonical spelling.
    pub permission: Permission,
    /// The harm that it can do.
    pub risk: Risk,
    /// The reason that the author gives; empty if none is given.
    pub reason: String,
    /// The parts that use it.
    pub used_by: Vec<String>,
    /// The change.
    pub change: Change,
}

/// An option of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedOption {
    /// The whole key.
    pub key: String,
    /// The state after the install, in words.
    pub state: String,
}

/// A name that another owner holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conflict {
    /// The kind of the name: `tool_id`, `alias`, `node_type`, `plugin` or `override`.
    pub kind: String,
    /// The name in the new package.
    pub id: String,
    /// The owner of the other name, such as `plugin:weather-pro`.
    pub held_by: String,
    /// The likeness of both.
    pub how: String,
    /// The remedy.
    pub remedy: String,
}

/// The documents that use a plugin, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependents {
    /// Profiles of agents.
    pub profiles: Vec<String>,
    /// Workflows.
    pub workflows: Vec<String>,
    /// Other plugins.
    pub plugins: Vec<String>,
}

/// A finding about a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRemark {
    /// A stable code in snake case.
    pub code: String,
    /// The place, a JSON pointer into the manifest, behind a path for other files.
    pub pointer: String,
    /// One sentence.
    pub message: String,
}

impl Plan {
    /// Whether nothing stops an install.
    pub fn is_installable(&self) -> bool {
        self.conflicts.is_empty() && self.violations.is_empty()
    }

    /// Adds findings that stop the plan, and computes its digest anew.
    pub fn refuse(&mut self, violations: impl IntoIterator<Item = PlanRemark>) {
        self.violations.extend(violations);
        self.plan_digest = match self.is_installable() && !self.expire_time.is_empty() {
            true => self.digest(),
            false => String::new(),
        };
    }

    /// Returns everything that stops an install.
    pub fn reasons(&self) -> Vec<Violation> {
        let found = self.violations.iter().map(|found| {
            let (place, code) = (found.pointer.clone(), found.code.clone());
            Violation::new(place, code, found.message.clone())
        });
        let conflicts = self.conflicts.iter().map(|conflict| {
            let message = format!(
                "'{}' is taken by {}: {}; {}",
                conflict.id, conflict.held_by, conflict.how, conflict.remedy
            );
            Violation::new("", "conflict", message)
        });
        found.chain(conflicts).collect()
    }

    /// Computes the digest of the plan, with its `sha256:`: SHA-256 over the canonical JSON without
    /// `plan_digest`, `expire_time` and `dependents`, so that the same change, planned twice, has the same
    /// digest: an approval then holds for the change, and not for the moment at which it was planned or
    /// its users at that moment.
    pub(super) fn digest(&self) -> String {
        let mut document = serde_json::to_value(self).unwrap_or_default();
        if let Some(members) = document.as_object_mut() {
            for key in ["plan_digest", "expire_time", "dependents"] {
                members.remove(key);
            }
        }
        format!("sha256:{}", hex::encode(canonical_json::digest(&document)))
    }
}
