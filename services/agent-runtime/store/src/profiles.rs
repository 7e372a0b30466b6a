//! The agent profiles: those of a directory, and those that were put, which hide files of their ids.

mod files;

use std::{
    collections::BTreeMap,
    io,
    ops::Bound,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use agent_domain::{
    profile::{self, Profile},
    scene::{Instance, Scene},
};
use core_types::LoadDiagnostic;
use run_log::Hash;
use tokio::sync::Mutex;

use crate::{
    error::PutError,
    revisions::{DocumentKind, Revisions},
    store::{AgentStore, NewRevision, RevisionRow, StoreError},
};

use files::Files;
pub use files::Look;
pub(crate) use files::{json_files, read_text};

/// How often the files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A revision that was written by another version of this program.
const UNREADABLE: StoreError = StoreError::Damaged {
    table: "revisions",
    column: "text",
};

/// The profiles by id. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Profiles {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    /// The files as they looked before they were read for the first time.
    first_look: Look,
    store: AgentStore,
    revisions: Revisions,
    /// Locked for a look-up or a change, never across an await.
    known: RwLock<Known>,
    /// One change at a time: checking an etag and storing are one step. Held across the commit.
    changing: Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    files: Arc<Files>,
    stored: BTreeMap<String, Arc<Profile>>,
    /// The revisions in force.
    revisions: BTreeMap<String, RevisionRow>,
}

/// A profile and where it comes from.
#[derive(Clone, Debug)]
pub struct KnownProfile {
    /// The profile.
    pub profile: Arc<Profile>,
    /// Whether it is a file.
    pub from_file: bool,
    /// The revision; none of a profile that was only checked.
    pub revision: Option<RevisionRow>,
}

impl KnownProfile {
    /// Returns the number of the revision; zero for none.
    pub fn revision_number(&self) -> u64 {
        self.revision.as_ref().map_or(0, |row| row.number)
    }

    fn new_revision(&self) -> NewRevision {
        NewRevision {
            id: self.profile.id.to_string(),
            etag: self.profile.etag(),
            label: self.profile.version.clone(),
            from_file: self.from_file,
            text: self.profile.text.clone(),
        }
    }
}

/// A profile to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// The text.
    pub text: &'a str,
    /// The etag of the profile to replace; empty replaces any, or none.
    pub etag: &'a str,
    /// Whether to check only.
    pub validate_only: bool,
    /// The caller's request id and the digest of the request.
    pub request: Option<(&'a str, Hash)>,
}

/// Why a profile is neither stored nor deleted.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// As for any document.
    #[error(transparent)]
    Put(#[from] PutError),
    /// The request id was used with another body.
    #[error("the request id was used with another body")]
    RequestIdReused,
    /// No profile has this id.
    #[error("no profile has this id")]
    NotFound,
    /// The profile is a file.
    #[error("the profile is a file")]
    IsFile,
}

impl From<StoreError> for ChangeError {
    fn from(error: StoreError) -> Self {
        PutError::from(error).into()
    }
}

/// What a reload changed, by id and in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// New files.
    pub added: Vec<String>,
    /// Files with another profile than before.
    pub changed: Vec<String>,
    /// Files that are gone or no longer valid.
    pub removed: Vec<String>,
}

impl Profiles {
    /// Reads the directory and the store. A directory that cannot be read has no profiles.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn open(
        directory: PathBuf,
        store: AgentStore,
        revisions: Revisions,
    ) -> Result<Self, StoreError> {
        let first_look = Look::at(&directory);
        let files = Files::load(&directory, &Files::default()).unwrap_or_else(|error| {
            let path = directory.display();
            tracing::warn!(%path, %error, "the directory of agent profiles cannot be read; it has no agents");
            Files::default()
        });
        let mut stored = BTreeMap::new();
        for text in store.profiles().await? {
            match profile::read(&text) {
                Ok(profile) => {
                    stored.insert(profile.id.to_string(), Arc::new(profile));
                }
                Err(error) => tracing::error!(%error, "a stored agent profile is left out"),
            }
        }
        let mut known = Known {
            files: Arc::new(files),
            stored,
            revisions: revisions.newest(DocumentKind::Profile).await?,
        };
        let new = known.new_revisions();
        let noted = revisions.note(DocumentKind::Profile, new).await?;
        known.revisions.extend(noted);
        Ok(Self {
            inner: Arc::new(Inner {
                directory,
                first_look,
                store,
                revisions,
                known: RwLock::new(known),
                changing: Mutex::default(),
            }),
        })
    }

    /// Returns a finding for each file that was left out, at most [`LoadDiagnostic::MAX`].
    pub fn left_out(&self) -> Vec<LoadDiagnostic> {
        self.read(|known| known.files.left_out.clone())
    }

    /// Returns the profile with this id.
    pub fn get(&self, id: &str) -> Option<KnownProfile> {
        self.read(|known| known.get(id))
    }

    /// Returns a profile at a revision; none if it is not kept.
    ///
    /// # Errors
    /// A store that does not work, or a revision that can no longer be read.
    pub async fn at(&self, id: &str, revision: u64) -> Result<Option<KnownProfile>, StoreError> {
        let current = self.get(id);
        if let Some(known) = current.filter(|known| known.revision_number() == revision) {
            return Ok(Some(known));
        }
        let kept = self
            .inner
            .revisions
            .at(DocumentKind::Profile, id, Some(revision));
        let Some((row, text)) = kept.await? else {
            return Ok(None);
        };
        Ok(Some(KnownProfile {
            profile: Arc::new(profile::read(&text).map_err(|_| UNREADABLE)?),
            from_file: row.from_file,
            revision: Some(row),
        }))
    }

    /// Returns the profile of an agent of a scene: the revision that is pinned, else the newest (rule G104).
    ///
    /// # Errors
    /// A store that does not work, or a revision that can no longer be read.
    pub async fn of_instance(
        &self,
        instance: &Instance,
    ) -> Result<Option<KnownProfile>, StoreError> {
        match instance.tavern.profile_revision {
            Some(pinned) => self.at(&instance.profile_id, pinned).await,
            None => Ok(self.get(&instance.profile_id)),
        }
    }

    /// Returns the profiles of the agents of a scene, in their order; none for those that are not there.
    ///
    /// # Errors
    /// A store that does not work, or a revision that can no longer be read.
    pub async fn of_scene(&self, scene: &Scene) -> Result<Vec<Option<KnownProfile>>, StoreError> {
        let mut profiles = Vec::new();
        for instance in &scene.instances {
            profiles.push(self.of_instance(instance).await?);
        }
        Ok(profiles)
    }

    /// Returns where the revisions are kept.
    pub fn revisions(&self) -> &Revisions {
        &self.inner.revisions
    }

    /// Returns at most `limit` profiles by id, those after `id` only.
    pub fn page(&self, id: Option<&str>, limit: usize) -> Vec<KnownProfile> {
        self.read(|known| {
            let after = (
                id.map_or(Bound::Unbounded, Bound::Excluded),
                Bound::Unbounded,
            );
            let stored = known.stored.range::<str, _>(after).take(limit);
            let files = known.files.by_id.range::<str, _>(after).take(limit);
            let mut ids: Vec<&String> = stored.chain(files).map(|(id, _)| id).collect();
            ids.sort();
            ids.dedup();
            let page = ids.into_iter().take(limit);
            page.filter_map(|id| known.get(id)).collect()
        })
    }

    /// Stores a profile; returns it, and whether the request was seen before.
    ///
    /// # Errors
    /// Everything that is wrong with the profile, or why it is not stored.
    pub async fn put(&self, put: Put<'_>) -> Result<(KnownProfile, bool), ChangeError> {
        let profile = Arc::new(profile::read(put.text).map_err(PutError::from)?);
        let id = profile.id.to_string();
        let mut stored = KnownProfile {
            profile: Arc::clone(&profile),
            from_file: false,
            revision: None,
        };
        let _one_at_a_time = self.inner.changing.lock().await;
        if let Some((request_id, body_hash)) = put.request
            && let Some(known) = self.inner.store.put_request(request_id).await?
        {
            if known[..] != body_hash.0[..] {
                return Err(ChangeError::RequestIdReused);
            }
            // The revision that the first request made, as long as it is kept.
            let kept = self
                .revisions()
                .list(DocumentKind::Profile, &id, None, usize::MAX)
                .await?;
            let etag = profile.etag();
            stored.revision = kept
                .into_iter()
                .find(|row| row.etag == etag && !row.from_file);
            return Ok((stored, true));
        }
        self.check_etag(&id, put.etag)?;
        if !put.validate_only {
            let store = &self.inner.store;
            store.put_profile(&id, put.text, put.request).await?;
            let change = |known: &mut Known| known.stored.insert(id.clone(), profile);
            self.change(change).await?;
            stored = self.get(&id).unwrap_or(stored);
        }
        Ok((stored, false))
    }

    /// Deletes a stored profile.
    ///
    /// # Errors
    /// Why it is not deleted.
    pub async fn delete(&self, id: &str, etag: &str) -> Result<(), ChangeError> {
        let _one_at_a_time = self.inner.changing.lock().await;
        match self.get(id) {
            None => return Err(ChangeError::NotFound),
            Some(known) if known.from_file => return Err(ChangeError::IsFile),
            Some(_) => self.check_etag(id, etag)?,
        }
        self.inner.store.delete_profile(id).await?;
        self.change(|known| known.stored.remove(id)).await?;
        match self.get(id) {
            Some(_) => Ok(()),
            None => {
                self.write(|known| known.revisions.remove(id));
                let revisions = &self.inner.revisions;
                Ok(revisions.forget(DocumentKind::Profile, id).await?)
            }
        }
    }

    /// Changes what is known, and notes what comes into force as revisions before it does.
    async fn change<T>(&self, change: impl FnOnce(&mut Known) -> T) -> Result<T, StoreError> {
        let mut known = self.read(Known::clone);
        let changed = change(&mut known);
        let new = known.new_revisions();
        let noted = self
            .inner
            .revisions
            .note(DocumentKind::Profile, new)
            .await?;
        known.revisions.extend(noted);
        self.write(|present| *present = known);
        Ok(changed)
    }

    /// Reads the directory again.
    ///
    /// # Errors
    /// A directory that cannot be listed; the profiles are then as they were.
    pub async fn reload(&self) -> io::Result<Reloaded> {
        let _one_at_a_time = self.inner.changing.lock().await;
        let directory = self.inner.directory.clone();
        let before = self.read(|known| Arc::clone(&known.files));
        let load = tokio::task::spawn_blocking(move || Files::load(&directory, &before));
        let now = Arc::new(load.await.map_err(io::Error::other)??);
        let reload = |known: &mut Known| {
            let before = std::mem::replace(&mut known.files, now);
            let now = &known.files.by_id;
            let mut reloaded = Reloaded::default();
            for (id, profile) in now {
                match before.by_id.get(id) {
                    None => reloaded.added.push(id.clone()),
                    Some(earlier) if earlier.etag() != profile.etag() => {
                        reloaded.changed.push(id.clone());
                    }
                    Some(_) => {}
                }
            }
            let removed = before.by_id.keys().filter(|id| !now.contains_key(*id));
            reloaded.removed.extend(removed.cloned());
            reloaded
        };
        self.change(reload).await.map_err(io::Error::other)
    }

    /// Reads the directory again whenever a file in it has changed, within two seconds (rule G103).
    /// Never returns.
    pub async fn follow_files(&self) {
        let mut seen = None;
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let directory = self.inner.directory.clone();
            let Ok(look) = tokio::task::spawn_blocking(move || Look::at(&directory)).await else {
                continue;
            };
            if seen.as_ref().unwrap_or(&self.inner.first_look) != &look {
                match self.reload().await {
                    Ok(reloaded) => tracing::info!(?reloaded, "agent profiles were read again"),
                    Err(error) => tracing::warn!(%error, "agent profiles cannot be read again"),
                }
            }
            seen = Some(look);
        }
    }

    fn check_etag(&self, id: &str, etag: &str) -> Result<(), ChangeError> {
        let current = self.get(id).map(|known| known.profile.etag());
        let current = current.unwrap_or_default();
        Ok(PutError::check_etag(etag, current)?)
    }

    fn read<T>(&self, read: impl FnOnce(&Known) -> T) -> T {
        let known = self.inner.known.read();
        read(&known.unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, write: impl FnOnce(&mut Known) -> T) -> T {
        let known = self.inner.known.write();
        write(&mut known.unwrap_or_else(PoisonError::into_inner))
    }
}

impl Known {
    fn get(&self, id: &str) -> Option<KnownProfile> {
        let stored = self.stored.get(id);
        stored
            .or_else(|| self.files.by_id.get(id))
            .map(|profile| KnownProfile {
                profile: Arc::clone(profile),
                from_file: stored.is_none(),
                revision: self.revisions.get(id).cloned(),
            })
    }

    /// Returns the profiles in force that are no revision yet.
    fn new_revisions(&self) -> Vec<NewRevision> {
        let files = self.files.by_id.keys();
        let files = files.filter(|id| !self.stored.contains_key(*id));
        let in_force = self.stored.keys().chain(files);
        let new = in_force.filter_map(|id| self.get(id)).filter(|known| {
            let row = known.revision.as_ref();
            !row.is_some_and(|row| {
                row.etag == known.profile.etag() && row.from_file == known.from_file
            })
        });
        new.map(|known| known.new_revision()).collect()
    }
}
