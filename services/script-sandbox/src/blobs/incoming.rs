//! A blob that is being taken in.

use std::{fs::File, io::Write, sync::Arc, time::SystemTime};

use sha2::{Digest as _, Sha256};

use crate::domain::blob::{BlobDigest, Caller};

use super::{
    BlobError, Shared,
    directory::FileName,
    held::Pin,
    index::{Key, Room},
};

/// A blob that is being taken in; nothing of it is left if it is dropped before it is finished.
#[derive(Debug)]
pub struct Incoming {
    shared: Arc<Shared>,
    room: Room,
    caller: Caller,
    hasher: Sha256,
    size: u64,
    file: File,
    /// The file's name as long as it is not a blob's.
    name: Option<String>,
}

/// A blob that was taken in. It is not removed before this is dropped.
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
    pub(super) fn begin(shared: Arc<Shared>, caller: Caller) -> Result<Self, BlobError> {
        let (name, file) = shared.directory.begin()?;
        Ok(Self {
            shared,
            room: Room::none(caller.clone()),
            caller,
            hasher: Sha256::new(),
            size: 0,
            file,
            name: Some(name),
        })
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// When the blob becomes too large, there is no room, or the disk fails.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), BlobError> {
        let bytes = piece.len() as u64;
        self.shared.enlarge(&mut self.room, bytes)?;
        self.file.write_all(piece)?;
        self.hasher.update(piece);
        self.size += bytes;
        Ok(())
    }

    /// How many bytes have come.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Makes it a blob. `expected` is the digest that it must have, if one was announced.
    ///
    /// # Errors
    /// When the content is another one, or the disk fails.
    pub fn finish(mut self, expected: Option<BlobDigest>) -> Result<Stored, BlobError> {
        let digest = BlobDigest::finished(std::mem::take(&mut self.hasher));
        if expected.is_some_and(|expected| expected != digest) {
            return Err(BlobError::OtherContent { observed: digest });
        }
        // The bytes are on the disk before they have a name there.
        self.file.sync_data()?;
        let key = Key::new(&self.caller, digest);
        let now = SystemTime::now();
        let mut index = self.shared.index();
        let existed = index.pin(&key, now).is_some();
        if !existed {
            if let Some(name) = &self.name {
                let blob = FileName::new(&key, self.size);
                self.shared.directory.finish(name, &blob)?;
                // The file system's own time is too coarse to tell uses apart.
                if let Err(error) = self.shared.directory.touch(&blob, now) {
                    tracing::debug!(%error, "the time of a blob could not be set");
                }
            }
            self.name = None;
            index.settle(&mut self.room, digest, now);
        }
        drop(index);
        Ok(Stored {
            digest,
            size: self.size,
            existed,
            _pin: Pin::already(self.shared.clone(), key),
        })
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(name) = &self.name
            && let Err(error) = self.shared.directory.give_up(name)
        {
            tracing::error!(%error, "a file that became no blob could not be removed");
        }
        self.shared.index().release(&mut self.room);
    }
}
