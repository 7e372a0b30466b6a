//! Tools of packages that are not in force any more, for calls that began with them (rule R107).

use std::sync::{Arc, PoisonError};

use core_types::Tenant;
use plugin_package::{check, read_archive};
use tool_domain::{
    catalogue::Catalogue,
    definition::Implementation,
    plugin_node::node_type_of,
    tool::{Origin, Tool},
};

use super::{
    PluginCatalogue,
    catalogue::{active_plugin, blocking},
    state::StoredPlugin,
};
use crate::{dispatch::ScriptTerms, tools::ActivePlugin};

/// The most packages that stay in memory after a call of a tool that is not in force any more.
const MAX_KEPT: usize = 4;

impl PluginCatalogue {
    /// Returns a script or the tool of a node type of a stored package, with the terms on which it runs for a tenant now.
    /// `None` if the package has no such tool or is not stored any more, where the tenant has switched the tool or the
    /// plugin off or required options have no value, and in a registry without plugins.
    pub(crate) async fn kept_tool(
        &self,
        tenant: Tenant,
        package_digest: &str,
        tool_id: &str,
    ) -> Option<(Arc<Tool>, ScriptTerms)> {
        if self.inner.settings.without_plugins {
            return None;
        }
        let plugin = self.kept_plugin(package_digest).await?;
        let mut tools = plugin.plugin.tools.iter();
        let definition = tools.find(|tool| tool.id.as_str() == tool_id)?;
        // The targets of other tools are not in the package, but a node keeps its slots.
        let is_script = matches!(definition.implementation, Implementation::Script(_));
        if !is_script && node_type_of(tool_id).is_none() {
            return None;
        }
        let origin = Origin::Plugin(plugin.name().to_owned());
        let tool = Catalogue::default()
            .add(Arc::clone(definition), origin)
            .ok()?;
        let tool = self.inner.tools.complete(tenant, &tool).await?;
        let choices = self.inner.tools.choices(tenant).await.ok()?;
        let is_on = choices.refuses(tool_id, Some(&plugin)).is_none();
        let terms = plugin.terms(choices.values(plugin.name()));
        is_on.then_some((tool, terms))
    }

    /// Reads a stored package, or finds it among those that were read last.
    async fn kept_plugin(&self, package_digest: &str) -> Option<Arc<ActivePlugin>> {
        let lock = || {
            let kept = self.inner.kept.lock();
            kept.unwrap_or_else(PoisonError::into_inner)
        };
        let is_it = |plugin: &&Arc<ActivePlugin>| plugin.plugin.digest == package_digest;
        if let Some(plugin) = lock().iter().find(is_it) {
            return Some(Arc::clone(plugin));
        }
        let archive = self.inner.packages.get(package_digest).await.ok()??;
        let read = blocking(move || {
            let files = read_archive(&archive).ok()?;
            let plugin = check(&files).plugin?;
            Some((files, plugin))
        });
        let (files, plugin) = read.await.ok()??;
        let plugin = Arc::new(active_plugin(files, plugin, &StoredPlugin::default()));
        let mut kept = lock();
        kept.truncate(MAX_KEPT - 1);
        kept.insert(0, Arc::clone(&plugin));
        Some(plugin)
    }
}
