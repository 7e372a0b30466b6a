//! Backends of plugins that stand in for services (rules R207 and R208), over the wire.

mod interaction;
mod knowledge;
mod search;

use plugin_package::PluginFiles;
use serde_json::json;

use super::{file, package};

/// Returns a plugin that overrides a service by the backend of its name.
fn plugin(name: &str, service: &str) -> anyhow::Result<PluginFiles> {
    let manifest = json!({
        "name": name,
        "version": "1.0.0",
        "services": {"override": {service: {"backend": name}}},
        "permissions": {"services": {"override": [service]}},
    });
    package(vec![file("plugin.yaml", manifest.to_string())])
}
