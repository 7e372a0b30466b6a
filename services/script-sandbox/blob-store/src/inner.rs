//! The state that all clones of a store share: the index in memory and the directory on disk.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use core_types::Tenant;

use crate::{
    bounds::Bounds,
    directory::{Directory, FileName},
    error::BlobError,
    index::{Index, Reservation},
    key::Key,
    settings::BlobSettings,
};

/// The properties of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobInfo {
    /// Its size in bytes.
    pub size: u64,
    /// The time for which it is kept if it is not used again.
    pub time_to_live: Duration,
}

/// The state that all clones of a store share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) settings: BlobSettings,
    pub(crate) bounds: Arc<dyn Bounds>,
    pub(crate) directory: Directory,
    /// Locked for a change together with the one system call that makes it true on disk, so that
    /// the two never differ; never while content is read or written.
    pub(crate) index: Mutex<Index>,
}

impl Inner {
    pub(crate) fn index(&self) -> MutexGuard<'_, Index> {
        // Every change is complete before anything can panic.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes expired blobs.
    pub(crate) fn sweep(&self) {
        let mut index = self.index();
        let aged = index.take_aged(SystemTime::now());
        self.remove_all(&aged);
    }

    /// Enlarges `room`, for which other blobs may be evicted.
    pub(crate) fn enlarge(&self, room: &mut Reservation, bytes: u64) -> Result<(), BlobError> {
        self.sweep();
        let mut index = self.index();
        let most = self.bounds.most(room.tenant());
        let outcome = index.enlarge(room, bytes, most);
        self.remove_all(&outcome.gone);
        outcome.fits
    }

    pub(crate) fn touch(&self, key: &Key) -> Option<BlobInfo> {
        let now = SystemTime::now();
        let mut index = self.index();
        let size = index.touch(key, now)?;
        // The time on disk only matters after the next start.
        if let Err(error) = self.directory.touch(&FileName::new(key, size), now) {
            tracing::debug!(%error, "the time of a blob could not be set");
        }
        Some(BlobInfo {
            size,
            time_to_live: self.settings.time_to_live,
        })
    }

    /// Removes at most `most` blobs of a tenant that are not in use, and returns the number of those that are left.
    pub(crate) fn remove_of(&self, tenant: Tenant, most: usize) -> Result<u64, BlobError> {
        let mut index = self.index();
        for (key, size) in index.free_of(tenant, most) {
            self.directory.remove(&FileName::new(&key, size))?;
            index.remove(&key);
        }
        Ok(index.count_of(tenant))
    }

    /// Called with the index locked.
    fn remove_all(&self, gone: &[(Key, u64)]) {
        for (key, size) in gone {
            if let Err(error) = self.directory.remove(&FileName::new(key, *size)) {
                tracing::error!(%error, digest = %key.digest, "a blob could not be removed");
            }
        }
    }
}
