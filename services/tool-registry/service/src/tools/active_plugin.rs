//! A plugin in force.

use plugin_package::{Plugin, PluginFiles};
use serde_json::{Map, Value};
use tool_domain::{options::OptionValues, permissions::Permission};

use crate::dispatch::ScriptTerms;

/// A plugin whose tools can be called. It never changes: a change puts another one in its place.
#[derive(Clone, Debug)]
pub struct ActivePlugin {
    /// Its manifest and its tools.
    pub plugin: Plugin,
    /// Its files.
    pub files: PluginFiles,
    /// Its directory below the plugin directory; empty for an archive.
    pub directory: String,
    /// The permissions in force, as plans spell them.
    pub permissions: Vec<String>,
    /// The digests of earlier packages, the last first.
    pub earlier: Vec<String>,
}

impl ActivePlugin {
    /// Returns its name.
    pub fn name(&self) -> &str {
        self.plugin.manifest.name.as_str()
    }

    /// Whether a permission is in force.
    pub(super) fn may(&self, permission: &Permission) -> bool {
        self.permissions.contains(&permission.to_string())
    }

    /// Returns the ids of its tools, sorted.
    pub fn tool_ids(&self) -> Vec<String> {
        let ids = self.plugin.tools.iter().map(|tool| tool.id.to_string());
        let mut ids: Vec<String> = ids.collect();
        ids.sort();
        ids
    }

    /// Returns the stored values of a tenant that its options take.
    pub(crate) fn values(&self, stored: Option<&Map<String, Value>>) -> OptionValues {
        let declared = &self.plugin.manifest.options;
        let values = stored.map(|stored| OptionValues::carried_over(declared, stored));
        values.map(|(values, _)| values).unwrap_or_default()
    }

    /// Returns the required options that have no value, without the prefix of the plugin.
    pub(crate) fn missing(&self, stored: Option<&Map<String, Value>>) -> Vec<String> {
        let declared = &self.plugin.manifest.options;
        if !declared.iter().any(|option| option.required) {
            return Vec::new();
        }
        let values = self.values(stored);
        let missing = values.missing(declared);
        missing.map(|option| option.name.clone()).collect()
    }

    /// Returns the terms on which its scripts run.
    pub(crate) fn terms(&self, stored: Option<&Map<String, Value>>) -> ScriptTerms {
        let manifest = &self.plugin.manifest;
        let declared = &manifest.options;
        let document = || self.values(stored).document(declared).to_string();
        let mut terms = ScriptTerms {
            package_digest: self.plugin.digest.clone(),
            options: (!declared.is_empty()).then(|| document().into()),
            package_set: self.plugin.package_set.clone(),
            ..ScriptTerms::default()
        };
        for request in &manifest.permissions {
            match &request.permission {
                Permission::Resources(resources) => terms.resources = Some(*resources),
                Permission::Workspace { access } => terms.workspace = Some(*access),
                Permission::Storage { bytes } => terms.storage = Some(*bytes),
                _ => {}
            }
        }
        terms
    }
}
