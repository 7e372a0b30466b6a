//! Taking over changes of the plugin directory (rule R109).
//!
//! A plugin that asks for nothing is in force as soon as its files are there. A change that asks for more than was
//! approved, or that has a fault, waits: the earlier files stay in force, and the finding is listed.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError},
    time::Duration,
};

use call_outcome::Violation;
use plugin_package::{Checked, Plugin, PluginFiles};

use super::{
    catalogue::{
        DirectoryFindings, Findings, NextState, PluginCatalogue, PluginError, approved, in_force,
    },
    directory::{Content, Directory},
    lock::{LOCK_FILE, Lock},
    permits, revise,
    state::PluginState,
};
use crate::tools::Revision;

/// The time between two looks at the plugin directory.
const PERIOD: Duration = Duration::from_secs(2);

/// The looks between two removals of values whose time is over.
const ROUNDS_PER_EXPIRY: u32 = 1_800;

/// The plugins as a look at the directory changes them.
struct Look<'a> {
    state: PluginState,
    revision: Revision,
    packages: Vec<PluginFiles>,
    findings: Findings,
    lock: &'a Lock,
    has_changed: bool,
}

impl PluginCatalogue {
    /// Looks at the plugin directory every 2 s, and removes values whose time is over every hour, until it is dropped.
    pub(crate) async fn keep_looking(self) {
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
            let looked = self.look().await;
            if let Err(error) = &looked
                && !failed
            {
                tracing::warn!(%error, "the plugin directory cannot be read; plugins stay as they are");
            }
            failed = looked.is_err();
        }
    }

    /// Takes over what has changed in the plugin directory.
    ///
    /// # Errors
    /// The directory cannot be listed, or the store does not work; the plugins stay as they are.
    pub(crate) async fn look(&self) -> Result<(), LookError> {
        let settings = &self.inner.settings;
        if settings.directory.as_os_str().is_empty() || settings.without_plugins {
            return Ok(());
        }
        let mut changing = self.inner.changing.lock().await;
        let (path, mut directory) = (
            settings.directory.clone(),
            std::mem::take(&mut changing.directory),
        );
        let looked = tokio::task::spawn_blocking(move || {
            let found = directory.look(&path);
            (directory, found, Lock::read(&path))
        });
        let (directory, found, lock) = looked.await.map_err(|_| LookError::Panicked)?;
        changing.directory = directory;
        found?;
        let (lock, of_lock) = match lock {
            Ok(lock) => (lock, None),
            Err(violation) => (Lock::default(), Some(violation)),
        };
        let mut look = Look {
            state: changing.state.clone(),
            revision: (*self.inner.tools.revision()).clone(),
            packages: Vec::new(),
            findings: Findings::default(),
            lock: &lock,
            has_changed: false,
        };
        look.take_over(&changing.directory);
        if let Some(violation) = of_lock {
            let found = DirectoryFindings {
                violations: vec![*violation],
                has_changes: false,
            };
            look.findings.insert(LOCK_FILE.to_owned(), found);
        }
        let findings = std::mem::take(&mut look.findings);
        if look.has_changed {
            let next = NextState {
                state: look.state,
                revision: look.revision,
                packages: look.packages,
            };
            self.commit(&mut changing, next, None).await?;
        }
        self.show(findings);
        Ok(())
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

/// The reason for which a look at the plugin directory changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The directory cannot be listed.
    #[error(transparent)]
    Directory(#[from] std::io::Error),
    /// A change could not be stored.
    #[error(transparent)]
    Store(#[from] PluginError),
    /// The code that reads the directory failed.
    #[error("the plugin directory could not be read")]
    Panicked,
}

impl Look<'_> {
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
            return vec![Violation::new("", "plugin_replaced", message)];
        }
        let removed = self.state.removed.get(name);
        if removed.is_some_and(|removed| removed.ignored_digest == files.digest()) {
            let message = "was removed; change a file of it, or plan and install it again";
            return vec![Violation::new("", "plugin_removed", message)];
        }
        if is_present && !checked.violations.is_empty() {
            return checked.violations.clone();
        }
        let permissions = permits::asked_for(plugin);
        let before = self.revision.plugins.get(name);
        let is_approved = self.lock.approves(name, files.digest());
        if let Err(mut findings) =
            permits::check(plugin, before.map(|before| &**before), is_approved)
        {
            findings.extend(checked.violations.iter().cloned());
            return findings;
        }
        let mut state = self.state.clone();
        state.put(name, place, approved(files, permissions));
        let kept = &state.plugins[name];
        let plugin = match in_force(files.clone(), kept) {
            Ok(plugin) => plugin,
            Err(violations) => return violations,
        };
        let (revision, left_out) = revise::with(&self.revision, plugin);
        if is_present && !left_out.is_empty() {
            return left_out;
        }
        tracing::info!(plugin = name, digest = files.digest(), "a plugin is loaded");
        (self.state, self.revision) = (state, revision);
        self.packages.push(files.clone());
        self.has_changed = true;
        names.insert(name.to_owned());
        let found = checked.violations.iter().cloned();
        found.chain(left_out).collect()
    }
}
