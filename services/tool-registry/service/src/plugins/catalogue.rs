//! All plugins of an installation, and their changes.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

use call_outcome::Violation;
use core_types::Clock;
use documents::{DocumentStore, Request, store::NewDocument};
use plugin_package::{Plugin, PluginFiles, check, read_archive, write_archive};
use tokio::sync::{Mutex, watch};
use workspace_store::Workspaces;

use super::{
    Skipped,
    directory::Directory,
    lock::Lock,
    revise,
    state::{PLANS, PluginState, STATE, STATE_ID, StoredPlan, StoredPlugin},
    surroundings::Surroundings,
};
use crate::{
    ledger::Ledger,
    store::{StoreError, plugins::PackageStore, read_document},
    tenants::Tenants,
    tools::{ActivePlugin, Revision, Tools},
};

/// The most plans that wait to be installed; the oldest make room.
pub(super) const MAX_PLANS: usize = 64;

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
    /// The calls that keep packages.
    pub(super) ledger: Ledger,
    pub(super) workspaces: Workspaces,
    pub(super) surroundings: Surroundings,
    pub(super) clock: Arc<dyn Clock>,
    /// Held by one change at a time, over its writes to the store.
    pub(super) changing: Mutex<Changing>,
    /// The findings of the last look at the plugin directory, by directory. Locked for the time of a pointer copy only.
    pub(super) findings: RwLock<Arc<Findings>>,
    /// Packages that are not in force and were read last. Locked for the time of a pointer copy only.
    pub(super) kept: std::sync::Mutex<Vec<Arc<ActivePlugin>>>,
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
    /// The things that the last scan took over.
    pub(super) scanned: Option<Scanned>,
}

/// The things that a scan took over; there is nothing to do while they are the same.
#[derive(Debug, PartialEq)]
pub(super) struct Scanned {
    /// The version of the state of plugins.
    pub(super) state: u64,
    /// The version of the plugin directory.
    pub(super) directory: u64,
    /// The lock, or the reason for which it cannot be read.
    pub(super) lock: Result<Lock, Box<Violation>>,
}

/// A change that is ready to be stored.
pub(super) struct NextState {
    pub(super) state: PluginState,
    pub(super) revision: Revision,
    /// The packages that it brings, and that may not be stored yet.
    pub(super) packages: Vec<PluginFiles>,
}

/// The reason for which plugins were not changed.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// There is no such plugin.
    #[error("there is no such plugin")]
    NotFound,
    /// The plugin has no such earlier package.
    #[error("the plugin has no such earlier package")]
    NoEarlierPackage,
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
    /// Work on files was cut off.
    #[error("work on the files of plugins was cut off")]
    CutOff,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The reason for which a scan of the plugin directory changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The directory cannot be listed.
    #[error(transparent)]
    Directory(#[from] std::io::Error),
    /// A change could not be stored.
    #[error(transparent)]
    Store(#[from] PluginError),
}

impl PluginCatalogue {
    /// Puts the stored plugins in force, and takes over the changes of the plugin directory.
    ///
    /// # Errors
    /// The plugin directory cannot be listed, or the store does not work. A plugin that cannot be loaded is left out, and
    /// logged.
    pub(crate) async fn open(
        (settings, surroundings): (PluginSettings, Surroundings),
        ((tools, tenants), ledger): ((Tools, Tenants), Ledger),
        (store, packages, workspaces): (Arc<dyn DocumentStore>, Arc<dyn PackageStore>, Workspaces),
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ScanError> {
        let row = store
            .get(STATE, STATE_ID)
            .await
            .map_err(PluginError::from)?;
        let mut changing = Changing::default();
        if let Some(row) = row {
            changing.version = row.version;
            changing.state = read_document(&row.text).map_err(PluginError::from)?;
        }
        let catalogue = Self {
            inner: Arc::new(Inner {
                settings,
                tools,
                store,
                packages,
                tenants,
                ledger,
                workspaces,
                surroundings,
                clock,
                changing: Mutex::default(),
                findings: RwLock::default(),
                kept: std::sync::Mutex::default(),
                changed: watch::Sender::default(),
            }),
        };
        if !catalogue.inner.settings.without_plugins {
            // The scan below reads the lock again.
            drop(
                catalogue
                    .read_directory(&mut changing, Directory::scan)
                    .await?,
            );
            catalogue.restore(&changing).await?;
        }
        *catalogue.inner.changing.lock().await = changing;
        catalogue.scan().await?;
        Ok(catalogue)
    }

    /// Puts the plugins of a stored state in force.
    async fn restore(&self, changing: &Changing) -> Result<(), PluginError> {
        let mut revision = (*self.inner.tools.revision()).clone();
        revision.removed = changing.state.removed_tools.clone();
        for (name, kept) in &changing.state.plugins {
            // Files of the directory that are in force were just read.
            let plugin = match changing.directory.plugin(kept) {
                Some((files, plugin)) => Ok(active_plugin(files.clone(), plugin.clone(), kept)),
                None => self.load(kept).await?,
            };
            match plugin {
                Ok(plugin) => (revision, _) = revise::with(revision, plugin),
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
    async fn load(
        &self,
        kept: &StoredPlugin,
    ) -> Result<Result<ActivePlugin, Vec<Violation>>, PluginError> {
        let digest = &kept.package.package_digest;
        let Some(archive) = self.inner.packages.get(digest).await? else {
            let message = format!("its package {digest} is missing; install it again");
            return Ok(Err(vec![Violation::new("", "package_missing", message)]));
        };
        let read = blocking(move || {
            let files = read_archive(&archive)?;
            let checked = check(&files);
            let plugin = checked.plugin.ok_or(checked.violations)?;
            Ok((files, plugin))
        });
        let read: Result<_, Vec<Violation>> = read.await?;
        Ok(read.map(|(files, plugin)| active_plugin(files, plugin, kept)))
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
            let archive = blocking(move || write_archive(&files)).await?;
            self.inner.packages.put(&digest, &archive).await?;
        }
        let has_plugins = !self.inner.settings.without_plugins;
        if has_plugins {
            state.removed_tools.clone_from(&revision.removed);
            let superseded = superseded(&self.inner.tools.revision(), &revision);
            let (now, _) = self.inner.clock.now().seconds_and_nanos();
            state.retire(superseded.into_iter(), now);
        }
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
        if has_plugins {
            self.inner.tools.put_in_force(revision);
        }
        self.has_changed();
        if let Err(error) = self.remove_packages(changing).await {
            tracing::warn!(%error, "packages that no plugin needs stay in the store");
        }
        Ok(changing.version)
    }

    /// Removes packages that no plugin, plan, run or open call needs, and plans that are over or too many.
    pub(super) async fn remove_packages(&self, changing: &Changing) -> Result<(), StoreError> {
        let (store, now) = (&self.inner.store, self.inner.clock.now());
        let mut plans = Vec::new();
        for row in store.page(PLANS, "", usize::MAX, usize::MAX).await? {
            let plan: StoredPlan = read_document(&row.text)?;
            plans.push((plan.expires, row.id, plan.package_digest));
        }
        plans.sort_by(|a, b| b.cmp(a));
        let is_open = |(expires, ..): &(i64, _, _)| *expires > now.seconds_and_nanos().0;
        let open = plans.partition_point(is_open).min(MAX_PLANS);
        for (_, id, _) in plans.drain(open..) {
            store.delete(PLANS, &id, None, now).await?;
        }
        let called = match self.inner.ledger.open_packages().await {
            Ok(called) => called,
            Err(error) => {
                tracing::warn!(%error, "packages that nothing needs stay until the ledger can be read");
                return Ok(());
            }
        };
        let planned = plans.iter().map(|(.., package_digest)| &**package_digest);
        let called = called.iter().map(String::as_str);
        let state = &changing.state;
        let for_runs = state.for_runs(now.seconds_and_nanos().0);
        let kept = state
            .packages()
            .chain(for_runs)
            .chain(planned)
            .chain(called);
        self.inner.packages.retain(&kept.collect::<Vec<_>>()).await
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

/// Returns the digests of the packages with node types that another revision does not have in force.
fn superseded(present: &Revision, next: &Revision) -> Vec<String> {
    let with_nodes = |plugin: &&Arc<ActivePlugin>| !plugin.plugin.nodes.is_empty();
    let digests = present
        .plugins
        .values()
        .filter(with_nodes)
        .map(|plugin| &plugin.plugin.digest);
    let stays = |digest: &&String| {
        let mut next = next.plugins.values();
        next.any(|plugin| plugin.plugin.digest == **digest)
    };
    digests.filter(|digest| !stays(digest)).cloned().collect()
}

/// Makes the plugin in force of checked files.
pub(super) fn active_plugin(
    files: PluginFiles,
    plugin: Plugin,
    kept: &StoredPlugin,
) -> ActivePlugin {
    let earlier = kept.earlier.iter();
    ActivePlugin {
        plugin,
        files,
        directory: kept.directory.clone(),
        permissions: kept.package.permissions.clone(),
        earlier: earlier
            .map(|earlier| earlier.package_digest.clone())
            .collect(),
    }
}

/// Runs work on files on a thread that may block.
///
/// # Errors
/// The work panicked, or the process ends.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PluginError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| {
        tracing::error!(%error, "work on the files of plugins was cut off");
        PluginError::CutOff
    })
}
