//! Tools of packages that are not in force any more, for calls that began with them (rule R107).

use std::sync::Arc;

use core_types::Tenant;
use plugin_package::{check, read_archive};
use tool_domain::{
    catalogue::Catalogue,
    definition::Implementation,
    tool::{Origin, Tool},
};

use super::{
    PluginCatalogue,
    catalogue::{active_plugin, blocking},
    state::StoredPlugin,
};
use crate::dispatch::ScriptTerms;

impl PluginCatalogue {
    /// Returns a script of a stored package as a tool, with the terms on which it runs for a tenant now. `None` if the
    /// package has no such script or is not stored any more, where the tenant has switched the tool or the plugin off or
    /// required options have no value, and in a registry without plugins.
    pub(crate) async fn kept_tool(
        &self,
        tenant: Tenant,
        package_digest: &str,
        tool_id: &str,
    ) -> Option<(Arc<Tool>, ScriptTerms)> {
        if self.inner.settings.without_plugins {
            return None;
        }
        let archive = self.inner.packages.get(package_digest).await.ok()??;
        let read = blocking(move || {
            let files = read_archive(&archive).ok()?;
            let plugin = check(&files).plugin?;
            Some((files, plugin))
        });
        let (files, plugin) = read.await.ok()??;
        let plugin = active_plugin(files, plugin, &StoredPlugin::default());
        let mut tools = plugin.plugin.tools.iter();
        let definition = tools.find(|tool| tool.id.as_str() == tool_id)?;
        // The targets of other tools are not in the package.
        if !matches!(definition.implementation, Implementation::Script(_)) {
            return None;
        }
        let origin = Origin::Plugin(plugin.name().to_owned());
        let tool = Catalogue::default().add(Arc::clone(definition), origin);
        let choices = self.inner.tools.choices(tenant).await.ok()?;
        let is_on = choices.refuses(tool_id, Some(&plugin)).is_none();
        let terms = plugin.terms(choices.values(plugin.name()));
        tool.ok().filter(|_| is_on).map(|tool| (tool, terms))
    }
}
