//! Taking over changes of the plugin directory (rule R109).
//!
//! A plugin that asks for nothing is in force as soon as its files are there. A change that asks for more than was
//! approved, or that has a fault, waits: the earlier files stay in force, and the finding is listed.

use std::{
    collections::BTreeSet,
    io,
    path::Path,
    sync::{Arc, PoisonError},
    time::Duration,
};

use call_outcome::Violation;
use plugin_package::{Checked, Plugin, PluginFiles};

use super::{
    approval,
    catalogue::{
        Changing, DirectoryFindings, Findings, NextState, PluginCatalogue, ScanError, Scanned,
        active_plugin, blocking,
    },
    directory::{Content, Directory},
    lock::{LOCK_FILE, Lock},
    revise,
    state::{ApprovedPackage, PluginState, RemovedPlugin},
};
use crate::tools::Revision;

/// The time between two scans of the plugin directory.
const PERIOD: Duration = Duration::from_secs(2);

/// The scans between two removals of values whose time is over.
const ROUNDS_PER_EXPIRY: u32 = 1_800;

/// The code of a finding about files in whose place another package was installed.
pub(super) const REPLACED: &str = "plugin_replaced";

/// The code of a finding about files of a plugin that was removed.
pub(super) const REMOVED: &str = "plugin_removed";

/// The plugins as a scan of the directory changes them.
struct Scan<'a> {
    state: PluginState,
    revision: Revision,
    packages: Vec<PluginFiles>,
    findings: Findings,
    lock: &'a Lock,
    /// The time of the scan, in seconds since the epoch.
    time: i64,
    has_changed: bool,
}

impl PluginCatalogue {
    /// Scans the plugin directory every 2 s, and removes values whose time is over every hour, until it is dropped.
    pub(crate) async fn keep_scanning(self) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut failed = false;
        for round in 0_u32.. {
            ticks.tick().await;
            if round.is_multiple_of(ROUNDS_PER_EXPIRY)
                && let Err(error) = self.expire().await
            {
                tracing::warn!(%error, "plans and options whose time is over stay in the store");
            }
            let scanned = self.scan().await;
            if let Err(error) = &scanned
                && !failed
            {
                tracing::warn!(%error, "the plugin directory cannot be read; plugins stay as they are");
            }
            failed = scanned.is_err();
        }
    }

    /// Takes over what has changed in the plugin directory.
    ///
    /// # Errors
    /// The directory cannot be listed, or the store does not work; the plugins stay as they are.
    pub(crate) async fn scan(&self) -> Result<(), ScanError> {
        let settings = &self.inner.settings;
        if settings.directory.as_os_str().is_empty() || settings.without_plugins {
            return Ok(());
        }
        let mut changing = self.inner.changing.lock().await;
        let lock = self
            .read_directory(&mut changing, Directory::scan_if_changed)
            .await?;
        let seen = Scanned {
            state: changing.version,
            directory: changing.directory.version(),
            lock,
        };
        if changing.scanned.as_ref() == Some(&seen) {
            return Ok(());
        }
        let nothing = Lock::default();
        let mut scan = Scan {
            state: changing.state.clone(),
            revision: (*self.inner.tools.revision()).clone(),
            packages: Vec::new(),
            findings: Findings::default(),
            lock: seen.lock.as_ref().unwrap_or(&nothing),
            time: self.inner.clock.now().seconds_and_nanos().0,
            has_changed: false,
        };
        scan.take_over(&changing.directory);
        if let Err(violation) = &seen.lock {
            let found = DirectoryFindings {
                violations: vec![(**violation).clone()],
                has_changes: false,
            };
            scan.findings.insert(LOCK_FILE.to_owned(), found);
        }
        let findings = std::mem::take(&mut scan.findings);
        if scan.has_changed {
            let next = NextState {
                state: scan.state,
                revision: scan.revision,
                packages: scan.packages,
            };
            self.commit(&mut changing, next, None).await?;
        }
        self.show(findings);
        let state = changing.version;
        changing.scanned = Some(Scanned { state, ..seen });
        Ok(())
    }

    /// Reads the files of the plugin directory that have changed by a scan of it, and the lock.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(super) async fn read_directory(
        &self,
        changing: &mut Changing,
        scan: fn(&mut Directory, &Path) -> io::Result<()>,
    ) -> Result<Result<Lock, Box<Violation>>, ScanError> {
        let path = self.inner.settings.directory.clone();
        if path.as_os_str().is_empty() {
            return Ok(Ok(Lock::default()));
        }
        let mut directory = std::mem::take(&mut changing.directory);
        let read = blocking(move || {
            let scanned = scan(&mut directory, &path);
            (directory, scanned, Lock::read(&path))
        });
        let (directory, scanned, lock) = read.await?;
        changing.directory = directory;
        scanned?;
        Ok(lock)
    }

    /// Lists findings in the place of the earlier ones; new ones are logged.
    fn show(&self, findings: Findings) {
        let earlier = self.findings();
        if *earlier == findings {
            return;
        }
        for (directory, found) in &findings {
            if earlier.get(directory) != Some(found) {
                let reason = call_outcome::sentences(&found.violations);
                tracing::warn!(directory, reason, "files of a plugin are not in force");
            }
        }
        let present = self.inner.findings.write();
        *present.unwrap_or_else(PoisonError::into_inner) = Arc::new(findings);
        self.has_changed();
    }
}

impl Scan<'_> {
    fn take_over(&mut self, directory: &Directory) {
        let mut names = BTreeSet::new();
        for (place, content) in directory.contents() {
            let found = match &**content {
                Content::Refused(violations) => {
                    self.keep_present(place, &mut names);
                    violations.clone()
                }
                Content::Files(files, checked) => match &checked.plugin {
                    None => {
                        self.keep_present(place, &mut names);
                        checked.violations.clone()
                    }
                    Some(plugin) => self.consider(place, files, (plugin, checked), &mut names),
                },
            };
            if !found.is_empty() {
                let found = DirectoryFindings {
                    violations: found,
                    has_changes: self.has_changes(place, content),
                };
                self.findings.insert(place.to_owned(), found);
            }
        }
        let of_directories = self.state.plugins.iter();
        let gone = of_directories
            .filter(|(name, kept)| !kept.directory.is_empty() && !names.contains(*name));
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.state.plugins.remove(&name);
            let removed = RemovedPlugin {
                time: self.time,
                ..RemovedPlugin::default()
            };
            self.state.removed.insert(name.clone(), removed);
            self.revision = revise::without(&self.revision, &name);
            self.has_changed = true;
            tracing::info!(plugin = name, "a plugin is gone from the plugin directory");
        }
    }

    /// Whether the plugin of a directory has other files in force.
    fn has_changes(&self, place: &str, content: &Content) -> bool {
        let mut plugins = self.state.plugins.values();
        let kept = plugins.find(|kept| kept.directory == place);
        let digest = match content {
            Content::Files(files, _) => files.digest(),
            Content::Refused(_) => "",
        };
        kept.is_some_and(|kept| kept.package.package_digest != digest)
    }

    /// Counts the plugin in force of a directory as present, whose files cannot be read now.
    fn keep_present(&self, place: &str, names: &mut BTreeSet<String>) {
        let mut plugins = self.state.plugins.iter();
        if let Some((name, _)) = plugins.find(|(_, kept)| kept.directory == place) {
            names.insert(name.clone());
        }
    }

    /// Decides about the files of a plugin. Returns the findings about them.
    fn consider(
        &mut self,
        place: &str,
        files: &PluginFiles,
        (plugin, checked): (&Plugin, &Checked),
        names: &mut BTreeSet<String>,
    ) -> Vec<Violation> {
        let name = plugin.manifest.name.as_str();
        let present = self.state.plugins.get(name);
        if let Some(kept) = present.filter(|kept| kept.directory != place) {
            let owner = match kept.directory.as_str() {
                "" => "an installed package".to_owned(),
                directory => format!("the plugin in '{directory}'"),
            };
            let message = format!("{owner} has the name '{name}' already; rename one of them");
            return vec![Violation::new("plugin.yaml/name", "name_taken", message)];
        }
        let is_present = present.is_some();
        if is_present {
            names.insert(name.to_owned());
        }
        // A stored package that cannot be read is brought again.
        let is_loaded = self.revision.plugins.contains_key(name);
        if is_loaded && present.is_some_and(|kept| kept.package.package_digest == files.digest()) {
            let found = checked.violations.iter().cloned();
            let left_out = revise::left_out(&self.revision, plugin);
            return found.chain(left_out).collect();
        }
        if present.is_some_and(|kept| kept.ignored_digest == files.digest()) {
            let message = "is not in force, because another package was installed in its place; change a file of it, or plan and install it again";
            return vec![Violation::new("", REPLACED, message)];
        }
        let removed = self.state.removed.get(name);
        if removed.is_some_and(|removed| removed.ignored_digest == files.digest()) {
            let message = "was removed; change a file of it, or plan and install it again";
            return vec![Violation::new("", REMOVED, message)];
        }
        if is_present && !checked.violations.is_empty() {
            return checked.violations.clone();
        }
        let permissions = approval::asked_for(plugin);
        let before = self.revision.plugins.get(name);
        let is_approved = self.lock.approves(name, files.digest());
        if let Err(mut findings) = approval::check(
            (files, plugin),
            place,
            before.map(|before| &**before),
            is_approved,
        ) {
            findings.extend(checked.violations.iter().cloned());
            return findings;
        }
        let before = is_present.then(|| (self.state.clone(), self.revision.clone()));
        let package = ApprovedPackage::of(files, permissions);
        self.state.put(name, place, package);
        let plugin = active_plugin(files.clone(), plugin.clone(), &self.state.plugins[name]);
        let revision = std::mem::take(&mut self.revision);
        let (revision, left_out) = revise::with(revision, plugin);
        self.revision = revision;
        if let Some(before) = before
            && !left_out.is_empty()
        {
            (self.state, self.revision) = before;
            return left_out;
        }
        tracing::info!(plugin = name, digest = files.digest(), "a plugin is loaded");
        self.packages.push(files.clone());
        self.has_changed = true;
        names.insert(name.to_owned());
        let found = checked.violations.iter().cloned();
        found.chain(left_out).collect()
    }
}
