//! Planning, installing, rolling back and removing plugins.

use std::time::Duration;

use call_outcome::Violation;
use documents::{Request, Seen};
use plugin_package::{PluginFiles, check, read_archive, write_archive};

use super::{
    catalogue::{
        Changing, NextState, PluginCatalogue, PluginError, ScanError, active_plugin, blocking,
    },
    directory::{Content, Directory},
    planned::{Planned, names_of},
    revise,
    state::{ApprovedPackage, PLANS, RemovedPlugin, STATE, StoredPlan},
};
use crate::store::{StoreError, read_document};
use tool_domain::plan::Dependents;

/// The time for which a plan can be installed.
pub(super) const PLAN_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// The time for which the options of a removed plugin are kept.
const OPTIONS_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The source of a package.
pub(crate) enum Source {
    /// An archive.
    Archive(Vec<u8>),
    /// A directory below the plugin directory.
    Directory(String),
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// A change that was made, now or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PluginChange {
    /// The name of the plugin.
    pub(crate) plugin: String,
    /// The revision in force.
    pub(crate) revision: u64,
    /// Whether the same request made it before.
    pub(crate) replayed: bool,
}

/// The things that a removed plugin had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Removed {
    /// The ids of its tools, sorted.
    pub(crate) tools: Vec<String>,
    /// The documents that name them.
    pub(crate) dependents: Dependents,
}

impl PluginCatalogue {
    /// Plans the installation of a package. A plan without violations can be installed for 24 h.
    ///
    /// # Errors
    /// [`PluginError::NotFound`] for a directory that is no plugin, or the store's failure.
    pub(crate) async fn plan(&self, source: Source) -> Result<Planned, PluginError> {
        let mut changing = self.inner.changing.lock().await;
        let (directory, files) = match source {
            Source::Archive(bytes) => {
                let read = blocking(move || read_archive(&bytes)).await?;
                (String::new(), read)
            }
            Source::Directory(directory) => {
                let files = self.files_in(&mut changing, &directory).await?;
                (directory, files)
            }
        };
        let files = match files {
            Ok(files) => files,
            Err(violations) => return Ok(Planned::refused(violations)),
        };
        let expires = self.inner.clock.now().seconds_and_nanos().0 + seconds(PLAN_LIFE);
        let planned = self.plan_files(&files, &directory, expires).await;
        if planned.violations.is_empty() {
            let packed = files.clone();
            let archive = blocking(move || write_archive(&packed)).await?;
            self.inner.packages.put(files.digest(), &archive).await?;
            let plan = StoredPlan {
                plugin: planned.plugin.clone(),
                package_digest: files.digest().to_owned(),
                directory,
                expires,
            };
            let text = serde_json::to_string(&plan).expect("it has text keys only");
            let (store, now) = (&self.inner.store, self.inner.clock.now());
            let put = store.replace(PLANS, &planned.digest, &text, None, now);
            put.await?;
            self.remove_packages(&changing).await?;
        }
        Ok(planned)
    }

    /// Installs the package of a plan, and approves its permissions.
    ///
    /// # Errors
    /// [`PluginError`] is the reason; nothing is changed then.
    pub(crate) async fn install(
        &self,
        plan_digest: &str,
        request: Option<Request<'_>>,
    ) -> Result<PluginChange, PluginError> {
        let mut changing = self.inner.changing.lock().await;
        let replayed = self.is_repeated(request).await?;
        let (store, now) = (&self.inner.store, self.inner.clock.now());
        let row = store.get(PLANS, plan_digest).await?;
        let plan = row.map(|row| read_document::<StoredPlan>(&row.text));
        let plan = plan.transpose()?;
        if replayed {
            let plugin = plan.map(|plan| plan.plugin).unwrap_or_default();
            return Ok(self.present(plugin, true));
        }
        let plan = plan.ok_or(PluginError::Stale)?;
        if plan.expires <= now.seconds_and_nanos().0 {
            return Err(PluginError::Stale);
        }
        let files = self.stored(&plan.package_digest).await?;
        let planned = self.plan_files(&files, &plan.directory, plan.expires).await;
        if !planned.violations.is_empty() {
            return Err(PluginError::Invalid(planned.violations));
        }
        if planned.digest != plan_digest {
            return Err(PluginError::Stale);
        }
        let place = (&*planned.plugin, &*plan.directory);
        self.put(&mut changing, place, files, planned.permissions, request)
            .await
    }

    /// Installs an earlier package of a plugin; empty for the last one.
    ///
    /// # Errors
    /// [`PluginError`] is the reason; nothing is changed then.
    pub(crate) async fn roll_back(
        &self,
        name: &str,
        package_digest: &str,
        request: Option<Request<'_>>,
    ) -> Result<PluginChange, PluginError> {
        let mut changing = self.inner.changing.lock().await;
        if self.is_repeated(request).await? {
            return Ok(self.present(name.to_owned(), true));
        }
        let kept = changing
            .state
            .plugins
            .get(name)
            .ok_or(PluginError::NotFound)?;
        let mut earlier = kept.earlier.iter();
        let wanted = |earlier: &&ApprovedPackage| {
            package_digest.is_empty() || earlier.package_digest == package_digest
        };
        let ApprovedPackage {
            package_digest,
            permissions,
        } = earlier
            .find(wanted)
            .cloned()
            .ok_or(PluginError::NoEarlierPackage)?;
        let directory = kept.directory.clone();
        let files = self.stored(&package_digest).await?;
        let place = (name, &*directory);
        self.put(&mut changing, place, files, permissions, request)
            .await
    }

    /// Removes a plugin; with `validate_only` it only checks that there is one. Returns its tools and their users as well.
    ///
    /// # Errors
    /// [`PluginError`] is the reason; nothing is changed then.
    pub(crate) async fn uninstall(
        &self,
        name: &str,
        validate_only: bool,
        request: Option<Request<'_>>,
    ) -> Result<(PluginChange, Removed), PluginError> {
        let mut changing = self.inner.changing.lock().await;
        if self.is_repeated(request).await? {
            return Ok((self.present(name.to_owned(), true), Removed::default()));
        }
        let kept = changing
            .state
            .plugins
            .get(name)
            .ok_or(PluginError::NotFound)?;
        let revision = self.inner.tools.revision();
        let mut removed = Removed::default();
        if let Some(plugin) = revision.plugins.get(name) {
            removed.tools = plugin.tool_ids();
            removed.dependents = self.dependents(&names_of(&revision, name)).await;
        }
        if validate_only {
            return Ok((self.present(name.to_owned(), false), removed));
        }
        let mut state = changing.state.clone();
        let ignored_digest = match kept.directory.is_empty() {
            true => String::new(),
            false => kept.package.package_digest.clone(),
        };
        state.plugins.remove(name);
        let time = self.inner.clock.now().seconds_and_nanos().0;
        let gone = RemovedPlugin {
            time,
            ignored_digest,
        };
        state.removed.insert(name.to_owned(), gone);
        let next = NextState {
            state,
            revision: revise::without(&revision, name),
            packages: Vec::new(),
        };
        self.commit(&mut changing, next, request).await?;
        Ok((self.present(name.to_owned(), false), removed))
    }

    /// Removes plans that are over, packages that nothing needs, and the options of plugins that were removed long ago.
    ///
    /// # Errors
    /// The store's failure.
    pub(super) async fn expire(&self) -> Result<(), StoreError> {
        let changing = self.inner.changing.lock().await;
        self.remove_packages(&changing).await?;
        let oldest = self.inner.clock.now().seconds_and_nanos().0 - seconds(OPTIONS_LIFE);
        let removed = changing.state.removed.iter();
        for (name, _) in removed.filter(|(_, removed)| removed.time <= oldest) {
            self.purge(name).await?;
        }
        Ok(())
    }

    /// Removes the values of the options of a plugin and the files that it keeps, of all tenants.
    ///
    /// # Errors
    /// The store's failure.
    pub(crate) async fn purge(&self, name: &str) -> Result<(), StoreError> {
        let tenants = self.inner.tenants.records();
        for tenant in tenants.all() {
            self.inner.tools.remove_options(tenant.name, name).await?;
            let (workspaces, tenant) = (self.inner.workspaces.clone(), tenant.name);
            let plugin = name.to_owned();
            let removed = blocking(move || workspaces.remove_of_plugin(tenant, &plugin)).await;
            if !matches!(removed, Ok(Ok(()))) {
                tracing::warn!(
                    plugin = name,
                    ?removed,
                    "the files of a removed plugin stay"
                );
            }
        }
        Ok(())
    }

    /// Puts a stored package in force, in the place of an earlier one of the plugin.
    async fn put(
        &self,
        changing: &mut Changing,
        (name, directory): (&str, &str),
        files: PluginFiles,
        permissions: Vec<String>,
        request: Option<Request<'_>>,
    ) -> Result<PluginChange, PluginError> {
        if self.inner.settings.without_plugins {
            let message =
                "the registry was started without plugins; start it with them, and install it then";
            let violation = Violation::new("", "without_plugins", message);
            return Err(PluginError::Invalid(vec![violation]));
        }
        let mut state = changing.state.clone();
        state.put(name, directory, ApprovedPackage::of(&files, permissions));
        // Other files in its directory stay away until they change.
        if let Some(Content::Files(files, _)) =
            changing.directory.get(directory).map(|found| &**found)
            && let Some(kept) = state.plugins.get_mut(name)
        {
            files.digest().clone_into(&mut kept.ignored_digest);
        }
        let checked = check(&files);
        let plugin = checked
            .plugin
            .ok_or(PluginError::Invalid(checked.violations))?;
        let plugin = active_plugin(files, plugin, &state.plugins[name]);
        let (revision, left_out) = revise::with((*self.inner.tools.revision()).clone(), plugin);
        if !left_out.is_empty() {
            return Err(PluginError::Invalid(left_out));
        }
        let next = NextState {
            state,
            revision,
            packages: Vec::new(),
        };
        self.commit(changing, next, request).await?;
        Ok(self.present(name.to_owned(), false))
    }

    /// Whether a request was carried out before.
    async fn is_repeated(&self, request: Option<Request<'_>>) -> Result<bool, PluginError> {
        let Some(request) = request else {
            return Ok(false);
        };
        match self.inner.store.seen(STATE.tenant, request).await? {
            Seen::New => Ok(false),
            Seen::Same(_) => Ok(true),
            Seen::OtherBody => Err(PluginError::RequestIdReused(request.id.to_owned())),
        }
    }

    /// Returns the files of a stored package.
    async fn stored(&self, digest: &str) -> Result<PluginFiles, PluginError> {
        let archive = self.inner.packages.get(digest).await?;
        let archive = archive.ok_or(PluginError::NoEarlierPackage)?;
        let read = blocking(move || read_archive(&archive)).await?;
        read.map_err(PluginError::Invalid)
    }

    /// Returns the files of a directory below the plugin directory as they are now.
    async fn files_in(
        &self,
        changing: &mut Changing,
        name: &str,
    ) -> Result<Result<PluginFiles, Vec<Violation>>, PluginError> {
        match self.read_directory(changing, Directory::scan).await {
            Err(ScanError::Store(error)) => return Err(error),
            Err(ScanError::Directory(_)) => return Err(PluginError::NotFound),
            Ok(_) => {}
        }
        let content = changing.directory.get(name).ok_or(PluginError::NotFound)?;
        Ok(match &**content {
            Content::Files(files, _) => Ok(files.clone()),
            Content::Refused(violations) => Err(violations.clone()),
        })
    }

    fn present(&self, plugin: String, replayed: bool) -> PluginChange {
        PluginChange {
            plugin,
            revision: self.inner.tools.revision().number,
            replayed,
        }
    }
}
