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
    /// the two never differ; never while content is read or written, or a server is waited for.
    pub(crate) index: Mutex<Index>,
}

impl Inner {
    pub(crate) fn index(&self) -> MutexGuard<'_, Index> {
        // Every change is complete before anything can panic.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes expired blobs.
    pub(crate) fn sweep(&self) {
        let now = SystemTime::now();
        let mut index = self.index();
        let aged = index.take_aged(now);
        self.remove_files(&aged);
        drop(index);
        self.remove_stored(&aged, now);
    }

    /// Enlarges `room`, for which other blobs may be evicted.
    pub(crate) fn enlarge(&self, room: &mut Reservation, bytes: u64) -> Result<(), BlobError> {
        self.sweep();
        let most = self.bounds.most(room.tenant());
        let mut index = self.index();
        let now = SystemTime::now();
        let outcome = index.enlarge(room, bytes, most);
        self.remove_files(&outcome.gone);
        drop(index);
        self.remove_stored(&outcome.gone, now);
        outcome.fits
    }

    pub(crate) fn touch(&self, key: &Key) -> Option<BlobInfo> {
        let now = SystemTime::now();
        let size = self.index().touch(key, now)?;
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

    /// Removes at most `most` blobs of a tenant that are not in use, and returns the number of those that are left; once
    /// none is, that of the callers with blobs at the server.
    pub(crate) fn remove_of(&self, tenant: Tenant, most: usize) -> Result<u64, BlobError> {
        let mut index = self.index();
        for (key, size) in index.free_of(tenant, most) {
            self.directory.remove(&FileName::new(&key, size))?;
            index.remove(&key);
        }
        let left = index.count_of(tenant);
        drop(index);
        match &self.server {
            Some(server) if left == 0 => Ok(server.remove_of(tenant, most)?),
            _ => Ok(left),
        }
    }

    /// Removes a damaged blob in spite of all pins: readers that have its content open keep it.
    pub(crate) fn remove(&self, key: &Key, size: u64) {
        let now = SystemTime::now();
        let gone = [(key.clone(), size)];
        let mut index = self.index();
        index.remove(key);
        self.remove_files(&gone);
        drop(index);
        self.remove_stored(&gone, now);
    }

    /// Called with the index locked.
    fn remove_files(&self, gone: &[(Key, u64)]) {
        for (key, size) in gone {
            if let Err(error) = self.directory.remove(&FileName::new(key, *size)) {
                tracing::error!(%error, digest = %key.digest, "a blob could not be removed");
            }
        }
    }

    /// Removes blobs at the server that were not stored or used since. Called with the index unlocked: it waits.
    fn remove_stored(&self, gone: &[(Key, u64)], since: SystemTime) {
        for (key, _) in gone {
            let removed = self.server.as_ref().map(|server| server.remove(key, since));
            if let Some(Err(error)) = removed {
                tracing::error!(%error, digest = %key.digest, "a blob could not be removed");
            }
        }
    }
}
