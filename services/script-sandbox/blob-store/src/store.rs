//! The store: blobs are received, pinned and expire.

use std::{
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use core_types::Tenant;
use server_files::ServerFiles;

use crate::{
    BlobDigest,
    bounds::{Bounds, Unbounded},
    caller::Caller,
    directory::Directory,
    error::{BlobError, OpenError},
    incoming::Incoming,
    index::Index,
    inner::{BlobInfo, Inner},
    key::Key,
    pinned::PinnedBlob,
    server::ServerBlobs,
    settings::BlobSettings,
};

/// The interval at which expired blobs are removed in the absence of requests.
const SWEEP: Duration = Duration::from_secs(60);

/// Content kept by its digest. Clones are the same store.
#[derive(Clone, Debug)]
pub struct BlobStore {
    inner: Arc<Inner>,
}

impl BlobStore {
    /// Opens the store and counts the blobs that it holds.
    ///
    /// # Errors
    /// Fails when the directory cannot be made, read or written, or another process uses it.
    pub fn open(settings: &BlobSettings) -> Result<Self, OpenError> {
        Self::open_bounded(settings, Arc::new(Unbounded), None)
    }

    /// Opens the store with bounds of tenants, and counts the blobs that it holds. With files at a server, it holds
    /// those, and has copies of them in its directory.
    ///
    /// # Errors
    /// As [`BlobStore::open`].
    pub fn open_bounded(
        settings: &BlobSettings,
        bounds: Arc<dyn Bounds>,
        server: Option<ServerFiles>,
    ) -> Result<Self, OpenError> {
        let directory = Directory::open(&settings.directory)?;
        let server = server.map(ServerBlobs);
        let mut found = directory.scan()?;
        if let Some(server) = &server {
            let copies = std::mem::replace(&mut found, server.scan()?);
            let kept = directory.keep(copies, &found);
            kept.map_err(OpenError::at(&settings.directory))?;
        }
        let mut index = Index::new(settings);
        for found in found {
            index.found(found.key, found.size, found.used);
        }
        let blobs = Self {
            inner: Arc::new(Inner {
                settings: settings.clone(),
                bounds,
                directory,
                server,
                index: Mutex::new(index),
            }),
        };
        blobs.inner.sweep();
        Ok(blobs)
    }

    /// Removes expired blobs, again and again, until the store is dropped. Must be called within a
    /// runtime.
    pub fn sweep_in_background(&self) {
        let inner: Weak<Inner> = Arc::downgrade(&self.inner);
        let pause = SWEEP.min(self.inner.settings.time_to_live);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(pause).await;
                let Some(inner) = inner.upgrade() else {
                    return;
                };
                let swept = tokio::task::spawn_blocking(move || inner.sweep()).await;
                if let Err(error) = swept {
                    tracing::error!(%error, "looking for aged blobs panicked");
                }
            }
        });
    }

    /// The settings.
    pub fn settings(&self) -> &BlobSettings {
        &self.inner.settings
    }

    /// Begins to store a blob.
    ///
    /// # Errors
    /// Fails when no file can be made for it.
    pub fn take(&self, caller: &Caller) -> Result<Incoming, BlobError> {
        Incoming::begin(self.inner.clone(), caller.clone())
    }

    /// Pins a blob whose content has been compared with its digest. It is not removed before it is
    /// unpinned.
    ///
    /// # Errors
    /// Fails when it does not exist or was damaged.
    pub fn hold(&self, caller: &Caller, digest: BlobDigest) -> Result<PinnedBlob, BlobError> {
        PinnedBlob::verified(self.inner.clone(), Key::new(caller, digest))
    }

    /// Describes a blob, which counts as a use; `None` if it does not exist.
    pub fn stat(&self, caller: &Caller, digest: BlobDigest) -> Option<BlobInfo> {
        self.inner.touch(&Key::new(caller, digest))
    }

    /// Returns the bytes of each tenant that has some, stored or being received, in whole blocks of 4 KiB.
    pub fn bytes_by_tenant(&self) -> Vec<(Tenant, u64)> {
        self.inner.index().bytes_by_tenant()
    }

    /// Removes at most `most` blobs of a tenant that are not in use, and returns the number of those that are left.
    ///
    /// # Errors
    /// The disk fails; a repeat continues.
    pub fn remove_of(&self, tenant: Tenant, most: usize) -> Result<u64, BlobError> {
        self.inner.remove_of(tenant, most)
    }
}

#[cfg(test)]
mod tests;
