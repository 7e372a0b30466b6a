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

use core_types::LoadDiagnostic;
use run_log::Hash;
use tokio::sync::Mutex;

use crate::{
    domain::{
        document::DocumentError,
        profile::{self, Profile},
    },
    store::{AgentStore, StoreError},
};

pub(crate) use files::read_text;
use files::{Files, Look};

/// How often the files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

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
    /// Locked for a look-up or a change, never across an await.
    known: RwLock<Known>,
    /// One change at a time: checking an etag and storing are one step. Held across the commit.
    changing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    files: Arc<Files>,
    stored: BTreeMap<String, Arc<Profile>>,
}

/// A profile and where it comes from.
#[derive(Clone, Debug)]
pub struct KnownProfile {
    /// The profile.
    pub profile: Arc<Profile>,
    /// Whether it is a file.
    pub from_file: bool,
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
    /// The text is not a valid profile.
    #[error(transparent)]
    Invalid(#[from] DocumentError),
    /// The request id was used with another body.
    #[error("the request id was used with another body")]
    RequestIdReused,
    /// The current profile has another etag; empty if there is none.
    #[error("the etag is not the current one")]
    EtagMismatch {
        /// The current etag.
        current: String,
    },
    /// No profile has this id.
    #[error("no profile has this id")]
    NotFound,
    /// The profile is a file.
    #[error("the profile is a file")]
    IsFile,
    /// The store does not work.
    #[error(transparent)]
    Store(#[from] StoreError),
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
    pub async fn open(directory: PathBuf, store: AgentStore) -> Result<Self, StoreError> {
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
        Ok(Self {
            inner: Arc::new(Inner {
                directory,
                first_look,
                store,
                known: RwLock::new(Known {
                    files: Arc::new(files),
                    stored,
                }),
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
        let profile = Arc::new(profile::read(put.text)?);
        let id = profile.id.to_string();
        let stored = KnownProfile {
            profile: Arc::clone(&profile),
            from_file: false,
        };
        let _one_at_a_time = self.inner.changing.lock().await;
        if let Some((request_id, body_hash)) = put.request
            && let Some(known) = self.inner.store.put_request(request_id).await?
        {
            return match known[..] == body_hash.0[..] {
                true => Ok((stored, true)),
                false => Err(ChangeError::RequestIdReused),
            };
        }
        self.check_etag(&id, put.etag)?;
        if !put.validate_only {
            let store = &self.inner.store;
            store.put_profile(&id, put.text, put.request).await?;
            self.write(|known| known.stored.insert(id, profile));
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
        self.write(|known| known.stored.remove(id));
        Ok(())
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
        Ok(self.write(|known| {
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
        }))
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
        if etag.is_empty() || etag == current {
            return Ok(());
        }
        Err(ChangeError::EtagMismatch { current })
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
            })
    }
}
