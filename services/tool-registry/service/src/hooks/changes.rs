//! The point `plugin:changed`.

use std::collections::BTreeMap;

use core_types::Tenant;
use grpc_kit::CallContext;
use serde_json::{Value, json};
use tool_domain::hook_point::HookPoint;

use super::{Act, Hooks};
use crate::{plugins::PluginCatalogue, tools::Revision};

/// The version and the digest of each plugin in force.
type Plugins = BTreeMap<String, (String, String)>;

impl Hooks {
    /// Shows each change of a plugin to the hooks that observe it, until the registry ends.
    pub(crate) async fn keep_showing_changes(self, plugins: PluginCatalogue) {
        let mut changes = plugins.changes();
        let mut present = versions(&self.tools.revision());
        while changes.changed().await.is_ok() {
            let next = versions(&self.tools.revision());
            let names = present
                .keys()
                .chain(next.keys().filter(|name| !present.contains_key(*name)));
            for name in names {
                let (from, to) = (present.get(name), next.get(name));
                if from != to {
                    let context = CallContext::of_tenant(Tenant::SYSTEM);
                    let act = || act(name, from, to);
                    self.observe(HookPoint::PluginChanged, &context, act);
                }
            }
            present = next;
        }
    }
}

fn versions(revision: &Revision) -> Plugins {
    let plugins = revision.plugins.values();
    let plugins = plugins.map(|plugin| {
        let version = plugin.plugin.manifest.version.clone();
        (
            plugin.name().to_owned(),
            (version, plugin.plugin.digest.clone()),
        )
    });
    plugins.collect()
}

fn act(name: &str, from: Option<&(String, String)>, to: Option<&(String, String)>) -> Act {
    let version = |version: Option<&(String, String)>| version.map(|(version, _)| version.clone());
    let plugin = json!({
        "name": name,
        "from": version(from),
        "to": version(to),
        "package_digest": to.map(|(_, digest)| digest),
        "state": if to.is_some() { "active" } else { "removed" },
    });
    Act {
        members: [("plugin".to_owned(), plugin)]
            .into_iter()
            .collect::<serde_json::Map<String, Value>>(),
        ..Act::default()
    }
}
