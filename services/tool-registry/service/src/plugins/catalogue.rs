//! All plugins of an installation, and their changes.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

use call_outcome::Violation;
use core_types::Clock;
use documents::{DocumentStore, Request, store::NewDocument};
use plugin_package::{PluginFiles, check, read_archive, write_archive};
use tokio::sync::{Mutex, watch};

use super::{
    Skipped,
    directory::Directory,
    revise,
    state::{Approved, Kept, KeptPlan, PLANS, PluginState, STATE, STATE_ID},
};
use crate::{
    store::{StoreError, plugins::PackageStore},
    tenants::Tenants,
    tools::{InForce, Revision, Tools},
};

/// The plugins of an installation. Clone, cheap.
#[derive(Clone, Debug)]
pub struct PluginCatalogue {
    pub(super) inner: Arc<Inner>,
}

/// The parts of [`PluginCatalogue`].
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) settings: PluginSettings,
    pub(super) tools: Tools,
    pub(super) store: Arc<dyn DocumentStore>,
    pub(super) packages: Arc<dyn PackageStore>,
    pub(super) tenants: Tenants,
    pub(super) clock: Arc<dyn Clock>,
    /// Held by one change at a time, over its writes to the store.
    pub(super) changing: Mutex<Changing>,
    /// The findings of the last look at the plugin directory, by directory. Locked for the time of a pointer copy only.
    pub(super) findings: RwLock<Arc<Findings>>,
    /// Counts the changes of plugins and findings.
    pub(super) changed: watch::Sender<u64>,
}

/// Findings by directory.
pub(super) type Findings = BTreeMap<String, DirectoryFindings>;

/// The findings about a directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DirectoryFindings {
    pub(super) violations: Vec<Violation>,
    /// Whether other files are in force for its plugin.
    pub(super) has_changes: bool,
}

/// The places of plugins.
#[derive(Clone, Debug, Default)]
pub struct PluginSettings {
    /// The plugin directory; empty for none.
    pub directory: PathBuf,
    /// Whether no plugin is in force, whatever is installed.
    pub without_plugins: bool,
}

/// The state that changes start from.
#[derive(Debug, Default)]
pub(super) struct Changing {
    /// The version of the stored state; zero before the first.
    pub(super) version: u64,
    pub(super) state: PluginState,
    pub(super) directory: Directory,
}

/// A change that is ready to be stored.
pub(super) struct NextState {
    pub(super) state: PluginState,
    pub(super) revision: Revision,
    /// The packages that it brings.
    pub(super) packages: Vec<PluginFiles>,
}

/// The reason for which plugins were not changed.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// There is no such plugin, or no such earlier package of it.
    #[error("there is no such plugin or package")]
    NotFound,
    /// The plan is unknown, expired, or would be another one by now.
    #[error("the plan is stale")]
    Stale,
    /// The package cannot be installed, with all reasons.
    #[error("the package cannot be installed")]
    Invalid(Vec<Violation>),
    /// The request id was used with another body.
    #[error("the request id was used before with another body")]
    RequestIdReused(String),
    /// Another process changed the plugins first.
    #[error("another change came first")]
    Conflict,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PluginCatalogue {
    /// Puts the stored plugins in force, and then looks at the plugin directory.
    ///
    /// # Errors
    /// The store's failure. A plugin that cannot be loaded is left out, and listed with the reason.
    pub(crate) async fn open(
        settings: PluginSettings,
        (tools, tenants): (Tools, Tenants),
        (store, packages): (Arc<dyn DocumentStore>, Arc<dyn PackageStore>),
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let row = store.get(STATE, STATE_ID).await?;
        let changing = match row {
            Some(row) => Changing {
                version: row.version,
                state: super::state::read(&row.text)?,
                directory: Directory::default(),
            },
            None => Changing::default(),
        };
        let catalogue = Self {
            inner: Arc::new(Inner {
                settings,
                tools,
                store,
                packages,
                tenants,
                clock,
                changing: Mutex::default(),
                findings: RwLock::default(),
                changed: watch::Sender::default(),
            }),
        };
        if !catalogue.inner.settings.without_plugins {
            catalogue.restore(&changing).await?;
        }
        *catalogue.inner.changing.lock().await = changing;
        Ok(catalogue)
    }

    /// Puts the plugins of a stored state in force.
    async fn restore(&self, changing: &Changing) -> Result<(), StoreError> {
        let mut revision = (*self.inner.tools.revision()).clone();
        revision.removed = changing.state.removed_tools.clone();
        for (name, kept) in &changing.state.plugins {
            match self.load(kept).await? {
                Ok(plugin) => (revision, _) = revise::with(&revision, plugin),
                Err(violations) => {
                    let reason = call_outcome::sentences(&violations);
                    tracing::error!(plugin = name, reason, "a stored plugin is left out");
                }
            }
        }
        revision.number = changing.version;
        self.inner.tools.put_in_force(revision);
        Ok(())
    }

    /// Loads a plugin from its stored package.
    pub(super) async fn load(
        &self,
        kept: &Kept,
    ) -> Result<Result<InForce, Vec<Violation>>, StoreError> {
        let digest = &kept.package.package_digest;
        let Some(archive) = self.inner.packages.get(digest).await? else {
            let message = format!("its package {digest} is missing; install it again");
            return Ok(Err(vec![Violation::new("", "package_missing", message)]));
        };
        Ok(read_archive(&archive).and_then(|files| in_force(files, kept)))
    }

    /// Stores a change, and puts it in force: one write and one pointer.
    pub(super) async fn commit(
        &self,
        changing: &mut Changing,
        next: NextState,
        request: Option<Request<'_>>,
    ) -> Result<u64, PluginError> {
        let NextState {
            mut state,
            mut revision,
            packages,
        } = next;
        for files in packages {
            let digest = files.digest().to_owned();
            let archive = tokio::task::spawn_blocking(move || write_archive(&files)).await;
            let archive = archive.map_err(|_| PluginError::Conflict)?;
            self.inner.packages.put(&digest, &archive).await?;
        }
        state.removed_tools.clone_from(&revision.removed);
        let new = NewDocument {
            id: STATE_ID,
            text: &serde_json::to_string(&state).expect("it has text keys only"),
            replaces: changing.version,
            request,
            now: self.inner.clock.now(),
        };
        if !self.inner.store.put(STATE, new).await? {
            return Err(PluginError::Conflict);
        }
        changing.version += 1;
        changing.state = state;
        revision.number = changing.version;
        if !self.inner.settings.without_plugins {
            self.inner.tools.put_in_force(revision);
        }
        self.has_changed();
        if let Err(error) = self.remove_packages(changing).await {
            tracing::warn!(%error, "packages that no plugin needs stay in the store");
        }
        Ok(changing.version)
    }

    /// Removes packages that neither a plugin nor a plan needs, and plans that are over.
    pub(super) async fn remove_packages(&self, changing: &Changing) -> Result<(), StoreError> {
        let (store, now) = (&self.inner.store, self.inner.clock.now());
        let mut planned = Vec::new();
        for row in store.page(PLANS, "", usize::MAX, usize::MAX).await? {
            let plan: KeptPlan = super::state::read(&row.text)?;
            match plan.expires > now.seconds_and_nanos().0 {
                true => planned.push(plan.package_digest),
                false => drop(store.delete(PLANS, &row.id, None, now).await?),
            }
        }
        let planned = planned.iter().map(String::as_str);
        let kept: Vec<&str> = changing.state.packages().chain(planned).collect();
        self.inner.packages.retain(&kept).await
    }

    /// Returns the findings of the last look at the plugin directory.
    pub(super) fn findings(&self) -> Arc<Findings> {
        let findings = self.inner.findings.read();
        Arc::clone(&findings.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the plugins, and single tools, of the plugin directory that are not in force, with the reasons.
    pub fn skipped(&self) -> Vec<Skipped> {
        let findings = self.findings();
        let skipped = findings.iter().map(|(directory, found)| Skipped {
            directory: directory.clone(),
            violations: found.violations.clone(),
        });
        skipped.collect()
    }

    /// Records that something changed that lists of plugins show.
    pub(crate) fn has_changed(&self) {
        self.inner.changed.send_modify(|count| *count += 1);
    }

    /// Returns a receiver that sees each change of plugins or findings.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }
}

/// Makes a plugin in force of its files.
///
/// # Errors
/// All violations of its manifest; tools that have one are left out, and listed.
pub(super) fn in_force(files: PluginFiles, kept: &Kept) -> Result<InForce, Vec<Violation>> {
    let checked = check(&files);
    let Some(plugin) = checked.plugin else {
        return Err(checked.violations);
    };
    let earlier = kept.earlier.iter();
    Ok(InForce {
        plugin,
        files,
        directory: kept.directory.clone(),
        permissions: kept.package.permissions.clone(),
        earlier: earlier
            .map(|earlier| earlier.package_digest.clone())
            .collect(),
    })
}

/// Returns the approval of a package with everything that its manifest asks for.
pub(super) fn approved(files: &PluginFiles, permissions: Vec<String>) -> Approved {
    Approved {
        package_digest: files.digest().to_owned(),
        permissions,
    }
}
