//! A blob that is in use.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    sync::Arc,
    time::SystemTime,
};

use sha2::{Digest as _, Sha256};

use crate::{
    BlobDigest,
    directory::{Directory, FileName},
    error::BlobError,
    inner::Inner,
    key::Key,
};

/// The size of one read, in bytes.
const PIECE: usize = 256 << 10;

/// A blob whose content matches its digest, and which stays until this is dropped.
#[derive(Debug)]
pub struct PinnedBlob {
    size: u64,
    file: File,
    pin: Pin,
}

impl PinnedBlob {
    /// Pins a blob and reads it once from end to end.
    pub(crate) fn verified(inner: Arc<Inner>, key: Key) -> Result<Self, BlobError> {
        let now = SystemTime::now();
        let digest = key.digest;
        let pinned = inner.index().pin(&key, now);
        let size = pinned.ok_or(BlobError::NotFound(digest))?;
        let pin = Pin::already(inner.clone(), key);
        let name = FileName::new(&pin.key, size);
        let mut read = content_at(&inner.directory, &name);
        let is_whole = |read: &io::Result<(Content, File)>| {
            read.as_ref()
                .is_ok_and(|(content, _)| *content == (digest, size))
        };
        if let Some(server) = &inner.server
            && !is_whole(&read)
        {
            server.fetch(&inner.directory, &pin.key, &name)?;
            read = content_at(&inner.directory, &name);
        }
        match read {
            Ok((content, file)) if content == (digest, size) => {
                inner.record_use(&pin.key, size, now);
                Ok(Self { size, file, pin })
            }
            Ok(_) => {
                tracing::error!(%digest, "a blob is damaged and is removed");
                inner.remove(&pin.key, size);
                Err(BlobError::Corrupt(digest))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                inner.remove(&pin.key, size);
                Err(BlobError::NotFound(digest))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Its digest.
    pub fn digest(&self) -> BlobDigest {
        self.pin.key.digest
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fills `buffer` with the content from an offset on.
    ///
    /// # Errors
    /// Fails when the disk fails, or the blob ends before.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

/// The digest and the length of a content.
type Content = (BlobDigest, u64);

/// Opens a file, and reads it once from end to end.
fn content_at(directory: &Directory, name: &FileName) -> io::Result<(Content, File)> {
    let mut file = directory.read(name)?;
    Ok((content_of(&mut file)?, file))
}

fn content_of(file: &mut File) -> io::Result<Content> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; PIECE];
    let mut length = 0;
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => return Ok((BlobDigest::finished(hasher), length)),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&buffer[..read]);
        length += read as u64;
    }
}

/// Keeps a blob from being removed.
#[derive(Debug)]
pub(crate) struct Pin {
    inner: Arc<Inner>,
    key: Key,
}

impl Pin {
    /// Adopts a pin that the index has counted.
    pub(crate) fn already(inner: Arc<Inner>, key: Key) -> Self {
        Self { inner, key }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.inner.index().unpin(&self.key);
    }
}
