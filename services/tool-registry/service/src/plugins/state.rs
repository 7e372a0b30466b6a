//! The state of all plugins as it is stored: one document, whose version is the revision.

use std::collections::BTreeMap;

use core_types::Tenant;
use documents::Collection;
use plugin_package::PluginFiles;
use serde::{Deserialize, Serialize};

/// The most earlier packages of a plugin that are kept.
pub(super) const MAX_EARLIER: usize = 3;

/// The id of the document.
pub(super) const STATE_ID: &str = "plugins";

/// The document with the state of all plugins.
pub(super) const STATE: Collection = Collection {
    tenant: Tenant::SYSTEM,
    kind: "plugin_state",
};

/// The plans that can be installed, by their digests.
pub(super) const PLANS: Collection = Collection {
    tenant: Tenant::SYSTEM,
    kind: "plugin_plan",
};

/// The state of all plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PluginState {
    /// The plugins in force by name.
    #[serde(default)]
    pub(super) plugins: BTreeMap<String, StoredPlugin>,
    /// The plugins that were removed, by name.
    #[serde(default)]
    pub(super) removed: BTreeMap<String, RemovedPlugin>,
    /// The plugins that brought tools that are gone, by the ids of the tools.
    #[serde(default)]
    pub(super) removed_tools: BTreeMap<String, String>,
}

/// A plugin in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredPlugin {
    /// Its package.
    #[serde(flatten)]
    pub(super) package: ApprovedPackage,
    /// The directory of the package below the plugin directory; empty for an archive.
    #[serde(default)]
    pub(super) directory: String,
    /// The digest of other files in that directory, which stay away until they change; empty for none.
    #[serde(default)]
    pub(super) ignored_digest: String,
    /// Packages that were in force before, the last first.
    #[serde(default)]
    pub(super) earlier: Vec<ApprovedPackage>,
}

/// A package with its permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ApprovedPackage {
    /// The digest of the package.
    pub(super) package_digest: String,
    /// The permissions that were approved, as plans spell them.
    #[serde(default)]
    pub(super) permissions: Vec<String>,
}

impl ApprovedPackage {
    /// Returns the approval of a package with these permissions.
    pub(super) fn of(files: &PluginFiles, permissions: Vec<String>) -> Self {
        Self {
            package_digest: files.digest().to_owned(),
            permissions,
        }
    }
}

/// A plugin that was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RemovedPlugin {
    /// The time, in seconds since the epoch.
    pub(super) time: i64,
    /// The digest of its package in the plugin directory, which stays away until the files change; empty for an archive.
    #[serde(default)]
    pub(super) ignored_digest: String,
}

/// A plan that can be installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredPlan {
    /// The name of the plugin.
    pub(super) plugin: String,
    /// The digest of its package.
    pub(super) package_digest: String,
    /// The directory of the package below the plugin directory; empty for an archive.
    #[serde(default)]
    pub(super) directory: String,
    /// The time from which it cannot be installed, in seconds since the epoch.
    pub(super) expires: i64,
}

impl PluginState {
    /// Returns the digests of all packages that it names.
    pub(super) fn packages(&self) -> impl Iterator<Item = &str> {
        self.plugins.values().flat_map(|kept| {
            let packages = kept.earlier.iter().chain([&kept.package]);
            packages.map(|package| &*package.package_digest)
        })
    }

    /// Puts a package of a plugin in force, and keeps the one before.
    pub(super) fn put(&mut self, name: &str, directory: &str, package: ApprovedPackage) {
        let kept = self.plugins.entry(name.to_owned()).or_default();
        let before = std::mem::replace(&mut kept.package, package);
        kept.directory = directory.to_owned();
        let present = &kept.package.package_digest;
        if !before.package_digest.is_empty() && before.package_digest != *present {
            kept.earlier.insert(0, before);
        }
        kept.earlier
            .retain(|earlier| earlier.package_digest != *present);
        kept.earlier.truncate(MAX_EARLIER);
        self.removed.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approved(digest: &str) -> ApprovedPackage {
        ApprovedPackage {
            package_digest: digest.to_owned(),
            permissions: Vec::new(),
        }
    }

    #[test]
    fn the_last_three_packages_of_a_plugin_are_kept() {
        let mut state = PluginState::default();
        for digest in ["a", "b", "b", "c", "d", "e", "c"] {
            state.put("p", "", approved(digest));
        }
        assert_eq!(state.packages().collect::<Vec<_>>(), ["e", "d", "b", "c"]);
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let mut state = PluginState::default();
        state.put("p", "dir", approved("a"));
        let json = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<PluginState>(&json).unwrap(), state);
        assert_eq!(
            serde_json::from_str::<PluginState>("{}").unwrap(),
            PluginState::default()
        );
    }
}
