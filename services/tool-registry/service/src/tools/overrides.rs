//! The services that backends of plugins in force stand in for (rules R207 and R208).

use std::{collections::BTreeMap, sync::Arc};

use tool_domain::{manifest::StandIn, permissions::Permission};

use super::ActivePlugin;

/// The overrides of the plugins of a revision by service. The plan of an installation lets a service have one owner.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    by_service: BTreeMap<String, Override>,
}

/// A service that a backend of a plugin stands in for.
#[derive(Clone, Debug)]
pub struct Override {
    /// The plugin.
    pub plugin: Arc<ActivePlugin>,
    /// The service, and the backend that stands in.
    pub stand_in: StandIn,
}

impl Overrides {
    /// Takes the overrides of plugins whose permissions are in force.
    pub(super) fn of(plugins: &BTreeMap<String, Arc<ActivePlugin>>) -> Self {
        let mut by_service = BTreeMap::new();
        for plugin in plugins.values() {
            for stand_in in &plugin.plugin.manifest.overrides {
                let service = stand_in.service.clone();
                let needed = Permission::ServiceOverride {
                    service: service.clone(),
                };
                if plugin.may(&needed) {
                    let (plugin, stand_in) = (Arc::clone(plugin), stand_in.clone());
                    by_service
                        .entry(service)
                        .or_insert(Override { plugin, stand_in });
                }
            }
        }
        Self { by_service }
    }

    /// Returns the override of a service.
    pub fn get(&self, service: &str) -> Option<&Override> {
        self.by_service.get(service)
    }

    /// Returns every override, by service.
    pub fn all(&self) -> impl Iterator<Item = &Override> {
        self.by_service.values()
    }

    /// Returns the overridden services, sorted.
    pub fn services(&self) -> impl Iterator<Item = &String> {
        self.by_service.keys()
    }
}
