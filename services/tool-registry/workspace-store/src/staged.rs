//! Content that waits for its place in a workspace.

use std::{
    io::{self, Write},
    sync::Arc,
    time::{Duration, SystemTime},
};

use call_outcome::Failure;
use cap_std::fs::{Dir, OpenOptions};
use core_types::ContentDigest;
use sha2::{Digest as _, Sha256};

use crate::{
    digests::Facts,
    failure,
    media_type::{HEAD, media_type},
    store::{SharedWorkspaces, Workspaces},
};

/// Content that is being received. Dropping it removes it.
pub struct Staging {
    staged: Staged,
    file: cap_std::fs::File,
    hasher: Sha256,
}

/// Content that has been received, and synced. Dropping it removes it.
pub struct Staged {
    shared: Arc<SharedWorkspaces>,
    /// The name in the staging directory; empty once it has its place.
    name: String,
    bytes: u64,
    digest: ContentDigest,
    head: Vec<u8>,
}

impl Workspaces {
    /// Begins to receive content.
    ///
    /// # Errors
    /// A failure fit for the caller when the disk fails.
    pub fn stage(&self) -> Result<Staging, Failure> {
        Staging::begin(&self.shared).map_err(|error| failure::of_io("a new file", &error))
    }
}

impl Staging {
    pub(crate) fn begin(shared: &Arc<SharedWorkspaces>) -> io::Result<Self> {
        let name = shared.ids.next_uuid().simple().to_string();
        let options = &mut OpenOptions::new();
        let file = shared
            .staging
            .open_with(&name, options.write(true).create_new(true))?;
        let staged = Staged {
            shared: Arc::clone(shared),
            name,
            bytes: 0,
            digest: ContentDigest::of(b""),
            head: Vec::new(),
        };
        Ok(Self {
            staged,
            file,
            hasher: Sha256::new(),
        })
    }

    /// The number of bytes so far.
    pub fn bytes(&self) -> u64 {
        self.staged.bytes
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// A failure fit for the caller when the content is larger than a file may be, or the disk fails.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), Failure> {
        let staged = &mut self.staged;
        staged.bytes += piece.len() as u64;
        let most = staged.shared.limits.file_bytes;
        if staged.bytes > most as u64 {
            return Err(failure::too_large("the file", staged.bytes, most));
        }
        let head = HEAD.saturating_sub(staged.head.len()).min(piece.len());
        staged.head.extend_from_slice(&piece[..head]);
        self.hasher.update(piece);
        let written = self.file.write_all(piece);
        written.map_err(|error| failure::of_io("a new file", &error))
    }

    /// Sets the time of the last change, in nanoseconds since the Unix epoch.
    pub(crate) fn set_modified(&self, modified: i64) -> io::Result<()> {
        let since = Duration::from_nanos(modified.unsigned_abs());
        let file = self.file.try_clone()?.into_std();
        file.set_modified(SystemTime::UNIX_EPOCH + since)
    }

    /// Ends and syncs the content; a copy of files at a server needs no sync.
    ///
    /// # Errors
    /// A failure fit for the caller when the disk fails.
    pub fn finish(mut self) -> Result<Staged, Failure> {
        if self.staged.shared.server.is_none() {
            let synced = self.file.sync_all();
            synced.map_err(|error| failure::of_io("a new file", &error))?;
        }
        self.staged.digest = ContentDigest::finished(self.hasher);
        Ok(self.staged)
    }
}

impl Staged {
    /// The size, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The digest.
    pub fn digest(&self) -> ContentDigest {
        self.digest
    }

    /// Opens the content for reading.
    pub(crate) fn open(&self) -> io::Result<cap_std::fs::File> {
        self.shared.staging.open(&self.name)
    }

    /// Moves the content to a name in a directory, in the place of a file of that name. Returns its facts.
    pub(crate) fn place(mut self, directory: &Dir, name: &str) -> io::Result<Facts> {
        (self.shared.staging).rename(&self.name, directory, name)?;
        self.name.clear();
        Ok(Facts {
            digest: self.digest,
            media_type: media_type(name, &self.head),
        })
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.name.is_empty()
            && let Err(error) = self.shared.staging.remove_file(&self.name)
        {
            tracing::warn!(%error, "a file that found no place could not be removed");
        }
    }
}

impl std::fmt::Debug for Staged {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = self.bytes;
        write!(formatter, "Staged({bytes} bytes, {})", self.digest)
    }
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Staging({} bytes)", self.staged.bytes)
    }
}
