//! The tools of the platform and of plugins, which all tenants have.

use std::{collections::BTreeMap, sync::Arc};

use tool_domain::{catalogue::Catalogue, tool::Origin};

use super::{ActivePlugin, HookChains, Overrides};

/// One state of all plugins. It never changes: a change makes another one, and readers keep theirs.
#[derive(Clone, Debug, Default)]
pub struct Revision {
    /// Its number, which only grows; zero before the first change.
    pub number: u64,
    /// The tools of the platform and of the plugins.
    pub catalogue: Arc<Catalogue>,
    /// The plugins by name.
    pub plugins: BTreeMap<String, Arc<ActivePlugin>>,
    /// The hooks of the plugins; made when the revision is put in force.
    pub hooks: Arc<HookChains>,
    /// The services that backends of the plugins stand in for; made when the revision is put in force.
    pub overrides: Arc<Overrides>,
    /// The plugins that brought tools that were removed, by the ids of these tools.
    pub removed: BTreeMap<String, String>,
}

impl Revision {
    /// Returns the plugin that brings the tools of an origin.
    pub fn plugin_of(&self, origin: &Origin) -> Option<&Arc<ActivePlugin>> {
        match origin {
            Origin::Plugin(name) => self.plugins.get(name),
            _ => None,
        }
    }
}
