//! The plan of files where nothing is installed.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::Map;
use tool_domain::{
    manifest::Version,
    plan::{Dependents, PackedFile, Plan, PlanInput, PluginVersion, make},
};

use crate::{Plugin, PluginFiles};

/// The version of Tavern, as manifests require it.
pub static TAVERN: LazyLock<Version> = LazyLock::new(|| {
    let version = env!("CARGO_PKG_VERSION").parse();
    version.expect("the version of a package is a semantic version")
});

impl Plugin {
    /// Returns the plugin as plans compare it.
    pub fn version<'a>(&'a self, files: &'a [PackedFile]) -> PluginVersion<'a> {
        PluginVersion {
            manifest: &self.manifest,
            tools: &self.tools,
            nodes: &self.nodes,
            libraries: self.package_set.as_ref().map(|set| &set.libraries),
            files,
            package_digest: &self.digest,
        }
    }
}

impl PluginFiles {
    /// Returns every file as plans compare it, sorted by path.
    pub fn packed(&self) -> Vec<PackedFile> {
        self.all().into_iter().map(PackedFile::from).collect()
    }
}

/// Makes the plan of a plugin where nothing is installed: everything that each server says about it. No server holds
/// it, so that it has no digest.
pub fn plan_alone(files: &PluginFiles, plugin: &Plugin) -> Plan {
    let mut plan = make(&PlanInput {
        source: "archive",
        expire_time: "",
        in_force: None,
        new: plugin.version(&files.packed()),
        tavern: &TAVERN,
        held: &[],
        effects: &BTreeMap::new(),
        hooks: &[],
        dependents: &Dependents::default(),
        option_values: &Map::new(),
    });
    // The tools of a server are not known.
    plan.remarks.retain(|found| found.code != "tool_unknown");
    plan
}
