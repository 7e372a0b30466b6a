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
    server::ServerBlobs,
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
    /// The blobs at a server, of which those of the directory are copies, if they are.
    pub(crate) server: Option<ServerBlobs>,
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
        self.record_use(key, size, now);
        Some(BlobInfo {
            size,
            time_to_live: self.settings.time_to_live,
        })
    }

    /// Records the time of a use, which matters after the next start.
    pub(crate) fn record_use(&self, key: &Key, size: u64, now: SystemTime) {
        let recorded = match &self.server {
            Some(server) => server.put(key, size, now).map_err(BlobError::from),
            // The file system's own time is too coarse to distinguish uses.
            None => self
                .directory
                .touch(&FileName::new(key, size), now)
                .map_err(BlobError::from),
        };
        if let Err(error) = recorded {
            tracing::debug!(%error, "the time of a blob could not be set");
        }
    }

    /// Removes a blob from its directory, and from a server that has it.
    pub(crate) fn remove_file(&self, key: &Key, size: u64) -> Result<(), BlobError> {
        if let Some(server) = &self.server {
            server.remove(key)?;
        }
        Ok(self.directory.remove(&FileName::new(key, size))?)
    }

    /// Removes at most `most` blobs of a tenant that are not in use, and returns the number of those that are left.
    pub(crate) fn remove_of(&self, tenant: Tenant, most: usize) -> Result<u64, BlobError> {
        let mut index = self.index();
        for (key, size) in index.free_of(tenant, most) {
            self.remove_file(&key, size)?;
            index.remove(&key);
        }
        Ok(index.count_of(tenant))
    }

    /// Called with the index locked.
    fn remove_all(&self, gone: &[(Key, u64)]) {
        for (key, size) in gone {
            if let Err(error) = self.remove_file(key, *size) {
                tracing::error!(%error, digest = %key.digest, "a blob could not be removed");
            }
        }
    }
}
