//! The description of a directory of plugins for the API.

use std::collections::BTreeMap;

use super::{LoadedPlugin, Plugins};
use tool_domain::{catalogue::Catalogue, diagnostic::Diagnostic, tool::Origin};

/// A plugin as the API shows it: one that was loaded, or one that was left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PluginInfo {
    /// Its directory, which no two plugins share.
    pub directory: String,
    /// The name of its manifest; empty if it was left out.
    pub name: String,
    /// The name for people; empty if it was left out.
    pub display_name: String,
    /// The version; empty if none is given.
    pub version: String,
    /// The purpose of the plugin.
    pub description: String,
    /// Whether it was loaded.
    pub loaded: bool,
    /// The ids of its tools that can be called, sorted.
    pub tool_ids: Vec<String>,
    /// The path of the definition of each tool, by id.
    pub definition_files: BTreeMap<String, String>,
    /// Every finding about it and its tools.
    pub diagnostics: Vec<Diagnostic>,
}

/// Describes every plugin of a directory, those that were left out included, by directory name.
pub fn describe(plugins: &Plugins, catalogue: &Catalogue) -> Vec<PluginInfo> {
    let mut all: Vec<PluginInfo> = Vec::new();
    for LoadedPlugin { directory, plugin } in &plugins.loaded {
        let manifest = &plugin.manifest;
        let origin = Origin::Plugin(manifest.name.to_string());
        let mine = catalogue.tools().filter(|tool| *tool.origin() == origin);
        let of_manifest = manifest.diagnostics.iter().cloned();
        let of_tools = plugin.tools.iter().flat_map(|tool| &tool.diagnostics);
        all.push(PluginInfo {
            directory: directory.clone(),
            name: manifest.name.to_string(),
            display_name: manifest.display_name.clone(),
            version: manifest.version.clone(),
            description: manifest.description.clone(),
            loaded: true,
            tool_ids: mine.map(|tool| tool.id().to_owned()).collect(),
            definition_files: plugin.definition_files.clone(),
            diagnostics: of_manifest
                .map(|found| found.in_file("plugin.yaml"))
                .chain(of_tools.cloned())
                .collect(),
        });
    }
    for skipped in &plugins.skipped {
        let found = skipped.violations.iter().map(Diagnostic::from);
        match all
            .iter_mut()
            .find(|plugin| plugin.directory == skipped.directory)
        {
            Some(plugin) => plugin.diagnostics.extend(found),
            None => all.push(PluginInfo {
                directory: skipped.directory.clone(),
                diagnostics: found.collect(),
                ..PluginInfo::default()
            }),
        }
    }
    all.sort_by(|a, b| a.directory.cmp(&b.directory));
    all
}
