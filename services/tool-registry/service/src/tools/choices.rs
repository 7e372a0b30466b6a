//! The choices of a tenant about plugins: values of options, and tools that are switched off.

use std::collections::{BTreeMap, BTreeSet};

use core_types::Tenant;
use documents::DocumentStore;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ActivePlugin, NotActive};
use crate::store::{StoreError, plugin_options_of, read_document, switches_of};

/// The id of the document with the switches.
pub(crate) const SWITCHES_ID: &str = "switches";

/// The choices of a tenant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PluginChoices {
    pub(crate) switches: Switches,
    /// The values of options by plugin, each without the prefix of the plugin.
    pub(crate) options: BTreeMap<String, Map<String, Value>>,
}

/// The plugins and tools that are switched off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Switches {
    #[serde(default)]
    pub(crate) plugins: BTreeSet<String>,
    #[serde(default)]
    pub(crate) tools: BTreeSet<String>,
}

impl PluginChoices {
    /// Returns the reason for which a tool cannot be called, of the plugin that brings it if one does.
    pub(crate) fn refuses(
        &self,
        tool_id: &str,
        plugin: Option<&ActivePlugin>,
    ) -> Option<NotActive> {
        if self.switches.tools.contains(tool_id) {
            return Some(NotActive::ToolOff);
        }
        let plugin = plugin?;
        let name = plugin.name();
        if self.switches.plugins.contains(name) {
            return Some(NotActive::PluginOff(name.to_owned()));
        }
        let missing = plugin.missing(self.values(name));
        (!missing.is_empty()).then(|| NotActive::NotConfigured {
            plugin: name.to_owned(),
            missing,
        })
    }

    /// Returns the values of the options of a plugin.
    pub(crate) fn values(&self, plugin: &str) -> Option<&Map<String, Value>> {
        self.options.get(plugin)
    }

    /// Whether a plugin is switched off.
    pub(crate) fn is_off(&self, plugin: &str) -> bool {
        self.switches.plugins.contains(plugin)
    }

    /// Returns the tools of a plugin that are switched off.
    pub(crate) fn tools_off<'a>(&'a self, tools: &'a [String]) -> impl Iterator<Item = &'a String> {
        tools.iter().filter(|id| self.switches.tools.contains(*id))
    }
}

/// Loads the choices of a tenant.
///
/// # Errors
/// The store's failure.
pub(crate) async fn load_choices(
    store: &dyn DocumentStore,
    tenant: Tenant,
) -> Result<PluginChoices, StoreError> {
    let switches = store.get(switches_of(tenant), SWITCHES_ID).await?;
    let switches = switches.map_or_else(|| Ok(Switches::default()), |row| read_document(&row.text));
    let mut options = BTreeMap::new();
    let rows = store.page(plugin_options_of(tenant), "", usize::MAX, usize::MAX);
    for row in rows.await? {
        options.insert(row.id, read_document(&row.text)?);
    }
    Ok(PluginChoices {
        switches: switches?,
        options,
    })
}
