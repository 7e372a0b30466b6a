//! The state of all plugins as it is stored: one document, whose version is the revision.

use std::collections::BTreeMap;

use core_types::Tenant;
use documents::Collection;
use plugin_package::PluginFiles;
use serde::{Deserialize, Serialize};

/// The most earlier packages of a plugin that are kept.
pub(super) const MAX_EARLIER: usize = 3;

/// The time for which a package with node types stays for runs that began with it, in seconds.
const LIFE_FOR_RUNS: i64 = 30 * 24 * 60 * 60;

/// The most packages that stay for runs; the oldest make room.
const MAX_RETIRED: usize = 1_024;

/// The id of the document.
pub(super) const STATE_ID: &str = "plugins";

/// The document with the state of all plugins.
pub(crate) const STATE: Collection = Collection {
    tenant: Tenant::SYSTEM,
    kind: "plugin_state",
};

/// The plans that can be installed, by their digests.
pub(crate) const PLANS: Collection = Collection {
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
    /// The times until which packages with node types stay that are not in force any more, in seconds since the epoch, by
    /// digest: runs use the package with which they began (rule R107).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) retired: BTreeMap<String, i64>,
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
    /// Returns the digests of all packages that plugins in force may need.
    pub(super) fn packages(&self) -> impl Iterator<Item = &str> {
        self.plugins.values().flat_map(|kept| {
            let packages = kept.earlier.iter().chain([&kept.package]);
            packages.map(|package| &*package.package_digest)
        })
    }

    /// Keeps packages for runs that began with them, and forgets those whose time is over.
    pub(super) fn retire(&mut self, packages: impl Iterator<Item = String>, now: i64) {
        self.retired.retain(|_, until| *until > now);
        for package in packages {
            self.retired.insert(package, now + LIFE_FOR_RUNS);
        }
        while self.retired.len() > MAX_RETIRED {
            let oldest = self.retired.iter().min_by_key(|(_, until)| **until);
            let Some(oldest) = oldest.map(|(package, _)| package.clone()) else {
                break;
            };
            self.retired.remove(&oldest);
        }
    }

    /// Returns the digests of packages that runs may need.
    pub(super) fn for_runs(&self, now: i64) -> impl Iterator<Item = &str> {
        let retired = self.retired.iter();
        let kept = retired.filter(move |(_, until)| **until > now);
        kept.map(|(package, _)| package.as_str())
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
    fn r107_a_package_stays_for_runs_until_its_time_is_over() {
        let mut state = PluginState::default();
        state.retire(["a".to_owned()].into_iter(), 100);
        let end = 100 + LIFE_FOR_RUNS;
        assert_eq!(state.for_runs(end - 1).collect::<Vec<_>>(), ["a"]);
        assert_eq!(state.for_runs(end).count(), 0);
        state.retire(["b".to_owned()].into_iter(), end);
        assert_eq!(state.retired.keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let mut state = PluginState::default();
        state.put("p", "dir", approved("a"));
        state.retire(["b".to_owned()].into_iter(), 1);
        let json = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<PluginState>(&json).unwrap(), state);
        assert_eq!(
            serde_json::from_str::<PluginState>("{}").unwrap(),
            PluginState::default()
        );
    }
}
