//! The description of plugins for the API.

use std::collections::BTreeMap;

use call_outcome::Violation;
use tool_domain::{
    diagnostic::{Diagnostic, Severity},
    tool::Origin,
};

use super::{
    approval::APPROVAL_NEEDED,
    catalogue::PluginCatalogue,
    scan::{REMOVED, REPLACED},
};
use crate::tools::{ActivePlugin, PluginChoices, Revision};

/// A plugin as the API shows it: one in force, or one that was left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PluginInfo {
    /// Its directory, which no two plugins share; empty for an archive.
    pub directory: String,
    /// The name of its manifest; empty if it was left out.
    pub name: String,
    /// The name for people; empty if it was left out.
    pub display_name: String,
    /// The version; empty if none is given.
    pub version: String,
    /// The purpose of the plugin.
    pub description: String,
    /// Whether it is in force.
    pub loaded: bool,
    /// The ids of its tools that can be called, sorted.
    pub tool_ids: Vec<String>,
    /// The path of the definition of each tool, by id.
    pub definition_files: BTreeMap<String, String>,
    /// Every finding about it and its tools.
    pub diagnostics: Vec<Diagnostic>,
    /// The digest of the package in force.
    pub package_digest: String,
    /// The digests of earlier packages, the last first.
    pub earlier_digests: Vec<String>,
    /// The permissions in force.
    pub permissions: Vec<String>,
    /// Whether the files of its directory are not those in force.
    pub has_changes: bool,
    /// Whether the tenant has switched it off.
    pub disabled: bool,
    /// The required options without a value.
    pub missing_options: Vec<String>,
    /// The tools that the tenant has switched off.
    pub disabled_tool_ids: Vec<String>,
}

impl PluginCatalogue {
    /// Describes every plugin of a revision for a tenant, and those of the plugin directory that were left out, by
    /// directory, then by name.
    pub(crate) fn describe(&self, revision: &Revision, choices: &PluginChoices) -> Vec<PluginInfo> {
        let plugins = revision.plugins.values();
        let mut all: Vec<PluginInfo> = plugins
            .map(|plugin| describe(plugin, revision, choices))
            .collect();
        for (directory, found) in &*self.findings() {
            let violations = found.violations.iter().map(finding);
            match all.iter_mut().find(|plugin| plugin.directory == *directory) {
                Some(plugin) => {
                    plugin.diagnostics.extend(violations);
                    plugin.has_changes = found.has_changes;
                }
                None => all.push(PluginInfo {
                    directory: directory.clone(),
                    diagnostics: violations.collect(),
                    ..PluginInfo::default()
                }),
            }
        }
        all.sort_by(|a, b| (&a.directory, &a.name).cmp(&(&b.directory, &b.name)));
        all
    }
}

/// Returns a finding about files: an error unless they have no fault, and wait for a person.
fn finding(violation: &Violation) -> Diagnostic {
    let mut found = Diagnostic::from(violation);
    if [APPROVAL_NEEDED, REMOVED, REPLACED].contains(&&*found.code) {
        found.severity = Severity::Warning;
    }
    found
}

fn describe(in_force: &ActivePlugin, revision: &Revision, choices: &PluginChoices) -> PluginInfo {
    let (plugin, name) = (&in_force.plugin, in_force.name());
    let manifest = &plugin.manifest;
    let origin = Origin::Plugin(name.to_owned());
    let mine = revision
        .catalogue
        .tools()
        .filter(|tool| *tool.origin() == origin);
    let tool_ids: Vec<String> = mine.map(|tool| tool.id().to_owned()).collect();
    let of_manifest = manifest.diagnostics.iter().cloned();
    let of_tools = plugin.tools.iter().flat_map(|tool| &tool.diagnostics);
    PluginInfo {
        directory: in_force.directory.clone(),
        name: name.to_owned(),
        display_name: manifest.display_name.clone(),
        version: manifest.version.clone(),
        description: manifest.description.clone(),
        loaded: true,
        definition_files: plugin.definition_files.clone(),
        diagnostics: of_manifest
            .map(|found| found.in_file("plugin.yaml"))
            .chain(of_tools.cloned())
            .collect(),
        package_digest: plugin.digest.clone(),
        earlier_digests: in_force.earlier.clone(),
        permissions: in_force.permissions.clone(),
        has_changes: false,
        disabled: choices.is_off(name),
        missing_options: in_force.missing(choices.values(name)),
        disabled_tool_ids: choices.tools_off(&tool_ids).cloned().collect(),
        tool_ids,
    }
}
