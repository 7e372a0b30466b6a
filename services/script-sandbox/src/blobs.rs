//! Files that are kept by their content.
//!
//! Each caller has a store of its own, so that nobody learns from a digest what others have. What is
//! kept is bounded in bytes, in all and for each caller, and ages out: [`index`] decides that in
//! memory, [`directory`] does it on disk, [`incoming`] takes a new blob in and [`held`] keeps one
//! that is in use.
//!
//! Everything here blocks, if briefly; an async caller goes through `spawn_blocking`.

mod directory;
mod held;
mod incoming;
mod index;
mod settings;

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, SystemTime},
};

use crate::domain::blob::{BlobDigest, Caller};
use directory::{Directory, FileName};
use index::{Index, Key, Room};

pub use directory::OpenError;
pub use held::Held;
pub use incoming::{Incoming, Stored};
pub use settings::BlobSettings;

/// How often what has aged is looked for when nobody asks for anything.
const SWEEP: Duration = Duration::from_secs(60);

/// Why a blob could not be taken or given.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// No blob of this caller has the digest.
    #[error("there is no blob {0}; upload it")]
    NotFound(BlobDigest),
    /// What lies on the disk is not what the digest says. It has been removed.
    #[error("the blob {0} was damaged and has been removed; upload it again")]
    Corrupt(BlobDigest),
    /// More bytes than a blob may have.
    #[error("a blob may have {maximum} bytes")]
    TooLarge {
        /// How many it may have.
        maximum: u64,
        /// How many came, or were announced.
        observed: u64,
    },
    /// No room, even without everything that may go.
    #[error("{} may have {maximum} bytes in blobs, and what is in use leaves no room", whose.name())]
    NoRoom {
        /// Whose budget is used up.
        whose: Whose,
        /// The budget.
        maximum: u64,
        /// What would be in use with one more.
        observed: u64,
    },
    /// The content is not what was announced.
    #[error("the content has the digest {observed}")]
    OtherContent {
        /// What came.
        observed: BlobDigest,
    },
    /// The disk failed.
    #[error("the blobs' disk failed")]
    Disk(#[from] io::Error),
}

/// Whose budget is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// That of one caller.
    Caller,
    /// That of all callers together.
    All,
}

impl Whose {
    /// The name as it stands in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Caller => "a caller",
            Self::All => "all callers together",
        }
    }
}

/// What is known of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its size.
    pub size: u64,
    /// How long it is kept if it is not used again.
    pub time_to_live: Duration,
}

/// The blobs of a sandbox. Clones are the same store.
#[derive(Clone, Debug)]
pub struct Blobs {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: BlobSettings,
    directory: Directory,
    /// Held for a change together with the one system call that makes it true on disk, so that the
    /// two never part; never while content is read or written.
    index: Mutex<Index>,
}

impl Blobs {
    /// Opens the store and counts what is there.
    ///
    /// # Errors
    /// When the directory cannot be made, read or written, or another process uses it.
    pub fn open(settings: &BlobSettings) -> Result<Self, OpenError> {
        let directory = Directory::open(&settings.directory)?;
        let mut index = Index::new(settings);
        for found in directory.scan()? {
            index.found(found.key, found.size, found.used);
        }
        let blobs = Self {
            shared: Arc::new(Shared {
                settings: settings.clone(),
                directory,
                index: Mutex::new(index),
            }),
        };
        blobs.shared.sweep();
        Ok(blobs)
    }

    /// Looks for what has aged, again and again, until the store is gone. Must be called within a
    /// runtime.
    pub fn sweep_in_background(&self) {
        let shared: Weak<Shared> = Arc::downgrade(&self.shared);
        let pause = SWEEP.min(self.shared.settings.time_to_live);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                let swept = tokio::task::spawn_blocking(move || shared.sweep()).await;
                if let Err(error) = swept {
                    tracing::error!(%error, "looking for aged blobs panicked");
                }
            }
        });
    }

    /// The settings.
    pub fn settings(&self) -> &BlobSettings {
        &self.shared.settings
    }

    /// Begins to take a blob in.
    ///
    /// # Errors
    /// When no file can be made for it.
    pub fn take(&self, caller: &Caller) -> Result<Incoming, BlobError> {
        Incoming::begin(self.shared.clone(), caller.clone())
    }

    /// Holds a blob whose content has been held against its digest. It is not removed before it is
    /// let go.
    ///
    /// # Errors
    /// When it is not there or was damaged.
    pub fn hold(&self, caller: &Caller, digest: BlobDigest) -> Result<Held, BlobError> {
        Held::verified(self.shared.clone(), Key::new(caller, digest))
    }

    /// Tells what is known of a blob, which counts as a use; `None` if it is not there.
    pub fn stat(&self, caller: &Caller, digest: BlobDigest) -> Option<Known> {
        self.shared.touch(&Key::new(caller, digest))
    }
}

impl Shared {
    fn index(&self) -> MutexGuard<'_, Index> {
        // Every change is complete before anything can panic.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what has aged.
    fn sweep(&self) {
        let mut index = self.index();
        let aged = index.take_aged(SystemTime::now());
        self.remove_all(&aged);
    }

    /// Makes `room` larger, for which others may have to go.
    fn enlarge(&self, room: &mut Room, bytes: u64) -> Result<(), BlobError> {
        let mut index = self.index();
        let aged = index.take_aged(SystemTime::now());
        self.remove_all(&aged);
        let outcome = index.enlarge(room, bytes);
        self.remove_all(&outcome.gone);
        outcome.fits
    }

    fn touch(&self, key: &Key) -> Option<Known> {
        let now = SystemTime::now();
        let mut index = self.index();
        let size = index.touch(key, now)?;
        // The time on disk only matters after the next start.
        if let Err(error) = self.directory.touch(&FileName::new(key, size), now) {
            tracing::debug!(%error, "the time of a blob could not be set");
        }
        Some(Known {
            size,
            time_to_live: self.settings.time_to_live,
        })
    }

    /// Called with the index locked.
    fn remove_all(&self, gone: &[(Key, u64)]) {
        for (key, size) in gone {
            if let Err(error) = self.directory.remove(&FileName::new(key, *size)) {
                tracing::error!(%error, digest = %key.digest(), "a blob could not be removed");
            }
        }
    }
}

#[cfg(test)]
mod tests;
