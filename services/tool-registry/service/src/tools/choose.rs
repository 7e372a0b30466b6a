//! Switching plugins and tools off and on, and setting options, each for one tenant.

use std::sync::Arc;

use core_types::Tenant;
use serde_json::{Map, Value};

use super::{ChangeError, PluginChoices, SWITCHES_ID, Switches, Tools};
use crate::store::{StoreError, plugin_options_of, switches_of};

/// A part of an installation that a tenant can switch off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch<'a> {
    /// Every tool of a plugin.
    Plugin(&'a str),
    /// One tool.
    Tool(&'a str),
}

impl Tools {
    /// Returns the choices of a tenant about plugins.
    ///
    /// # Errors
    /// The store's failure.
    pub(crate) async fn choices(&self, tenant: Tenant) -> Result<Arc<PluginChoices>, StoreError> {
        Ok(self.view(tenant).await?.choices)
    }

    /// Switches a plugin or a tool off or on. Calls under way continue.
    ///
    /// # Errors
    /// The store's failure.
    pub(crate) async fn switch(
        &self,
        tenant: Tenant,
        switch: Switch<'_>,
        enabled: bool,
    ) -> Result<(), StoreError> {
        let of_tenant = self.shared.tenants.of(tenant);
        let _changing = of_tenant.changing.lock().await;
        let mut choices = (*self.view(tenant).await?.choices).clone();
        let Switches { plugins, tools } = &mut choices.switches;
        let (set, name) = match switch {
            Switch::Plugin(name) => (plugins, name),
            Switch::Tool(id) => (tools, id),
        };
        let changed = match enabled {
            true => set.remove(name),
            false => set.insert(name.to_owned()),
        };
        if changed {
            let text = serde_json::to_string(&choices.switches).expect("it has text keys only");
            let (store, now) = (&self.shared.store, self.shared.clock.now());
            let collection = switches_of(tenant);
            store
                .replace(collection, SWITCHES_ID, &text, None, now)
                .await?;
            of_tenant.choose(choices);
        }
        Ok(())
    }

    /// Sets the values of the options of a plugin: `values` makes the new ones from the present ones.
    ///
    /// # Errors
    /// [`ChangeError`] is the reason; nothing is changed then.
    pub(crate) async fn set_options(
        &self,
        tenant: Tenant,
        plugin: &str,
        values: impl FnOnce(Option<&Map<String, Value>>) -> Result<Map<String, Value>, ChangeError>,
    ) -> Result<(), ChangeError> {
        let of_tenant = self.shared.tenants.of(tenant);
        let _changing = of_tenant.changing.lock().await;
        let mut choices = (*self.view(tenant).await?.choices).clone();
        let values = values(choices.values(plugin))?;
        let text = serde_json::to_string(&values).expect("it has text keys only");
        let (store, now) = (&self.shared.store, self.shared.clock.now());
        let collection = plugin_options_of(tenant);
        store.replace(collection, plugin, &text, None, now).await?;
        choices.options.insert(plugin.to_owned(), values);
        of_tenant.choose(choices);
        Ok(())
    }

    /// Removes the values of the options of a plugin.
    ///
    /// # Errors
    /// The store's failure.
    pub(crate) async fn remove_options(
        &self,
        tenant: Tenant,
        plugin: &str,
    ) -> Result<(), StoreError> {
        let of_tenant = self.shared.tenants.of(tenant);
        let _changing = of_tenant.changing.lock().await;
        let (store, now) = (&self.shared.store, self.shared.clock.now());
        let collection = plugin_options_of(tenant);
        if store.delete(collection, plugin, None, now).await? {
            let mut choices = (*self.view(tenant).await?.choices).clone();
            choices.options.remove(plugin);
            of_tenant.choose(choices);
        }
        Ok(())
    }
}
