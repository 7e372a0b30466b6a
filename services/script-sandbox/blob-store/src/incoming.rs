//! A blob that is being received.

use std::{fs::File, io::Write, sync::Arc, time::SystemTime};

use sha2::{Digest as _, Sha256};

use crate::{
    BlobDigest, caller::Caller, directory::FileName, error::BlobError, index::Reservation,
    inner::Inner, key::Key, pinned::Pin,
};

/// A blob that is being received; it leaves nothing behind if it is dropped before it is finished.
#[derive(Debug)]
pub struct Incoming {
    inner: Arc<Inner>,
    reservation: Reservation,
    caller: Caller,
    hasher: Sha256,
    size: u64,
    file: File,
    /// The file's name until it is a blob's.
    name: Option<String>,
}

/// A stored blob. It is not removed before this is dropped.
#[derive(Debug)]
pub struct Stored {
    /// Its digest.
    pub digest: BlobDigest,
    /// Its size in bytes.
    pub size: u64,
    /// Whether the caller had it already.
    pub existed: bool,
    _pin: Pin,
}

impl Incoming {
    pub(crate) fn begin(inner: Arc<Inner>, caller: Caller) -> Result<Self, BlobError> {
        let (name, file) = inner.directory.begin()?;
        Ok(Self {
            inner,
            reservation: Reservation::none(caller.clone()),
            caller,
            hasher: Sha256::new(),
            size: 0,
            file,
            name: Some(name),
        })
    }

    /// Writes the next piece.
    ///
    /// # Errors
    /// Fails when the blob becomes too large, there is no room, or the disk fails.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        let bytes = piece.len() as u64;
        self.inner.enlarge(&mut self.reservation, bytes)?;
        self.file.write_all(piece)?;
        self.hasher.update(piece);
        self.size += bytes;
        Ok(())
    }

    /// The number of bytes written.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Stores it as a blob. `expected` is the announced digest, if there is one.
    ///
    /// # Errors
    /// Fails when the content differs from `expected`, or the disk fails.
    pub fn finish(mut self, expected: Option<BlobDigest>) -> Result<Stored, BlobError> {
        let digest = BlobDigest::finished(std::mem::take(&mut self.hasher));
        if expected.is_some_and(|expected| expected != digest) {
            return Err(BlobError::OtherContent { observed: digest });
        }
        if self.size == 0 {
            // An empty blob takes a block as well, which no piece has reserved.
            self.inner.enlarge(&mut self.reservation, 0)?;
        }
        let key = Key::new(&self.caller, digest);
        match &self.inner.server {
            Some(server) => server.store(&key, self.size, &mut self.file)?,
            // The bytes are on the disk before they have a name there.
            None => self.file.sync_data()?,
        }
        let mut index = self.inner.index();
        let now = SystemTime::now();
        let existed = index.pin(&key, now).is_some();
        if !existed {
            if let Some(name) = &self.name {
                let blob = FileName::new(&key, self.size);
                self.inner.directory.finish(name, &blob)?;
            }
            self.name = None;
            index.settle(&mut self.reservation, digest, now);
        }
        drop(index);
        let stored = Stored {
            digest,
            size: self.size,
            existed,
            _pin: Pin::already(self.inner.clone(), key.clone()),
        };
        match &self.inner.server {
            Some(server) => server.put(&key, self.size, now)?,
            None => self.inner.record_use(&key, self.size, now),
        }
        Ok(stored)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(name) = &self.name
            && let Err(error) = self.inner.directory.give_up(name)
        {
            tracing::error!(%error, "a file that became no blob could not be removed");
        }
        self.inner.index().release(&mut self.reservation);
    }
}
