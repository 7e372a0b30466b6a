//! Blobs at a server, of which the directory has copies.

use std::{
    fs::File,
    io::{Seek, SeekFrom, Write},
    time::{Duration, SystemTime},
};

use core_types::Tenant;
use server_files::{FileChange, FilesError, ServerFiles, StoredFile};

use crate::{
    caller::{BLOBS, Caller},
    directory::{BlobFile, Directory, FileName},
    key::Key,
};

/// The blobs of all callers at a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerBlobs(pub(crate) ServerFiles);

impl ServerBlobs {
    /// Returns all blobs, the least recently used first.
    pub(crate) fn scan(&self) -> Result<Vec<BlobFile>, FilesError> {
        let mut found = Vec::new();
        for (tenant, place) in self.0.places(BLOBS)? {
            let Some(caller) = Caller::from_place(tenant, &place) else {
                continue;
            };
            let files = self.0.files(tenant, &place)?;
            for file in files.map_or_else(Vec::new, |(_, files)| files) {
                found.push(BlobFile {
                    key: Key::new(&caller, file.digest),
                    size: file.bytes,
                    used: SystemTime::UNIX_EPOCH
                        + Duration::from_nanos(file.modified.unsigned_abs()),
                });
            }
        }
        found.sort_by_key(|blob| blob.used);
        Ok(found)
    }

    /// Stores the content of a blob, from its beginning.
    pub(crate) fn store(&self, key: &Key, size: u64, content: &mut File) -> Result<(), FilesError> {
        content.seek(SeekFrom::Start(0))?;
        let tenant = key.caller.tenant();
        self.0.store(tenant, key.digest, size, content)?;
        self.0.open(tenant, &key.caller.place(), None).map(drop)
    }

    /// Records a blob whose content is stored, or the time of its last use.
    pub(crate) fn put(&self, key: &Key, size: u64, used: SystemTime) -> Result<(), FilesError> {
        let file = StoredFile {
            path: key.digest.to_string(),
            digest: key.digest,
            bytes: size,
            modified: nanos(used),
        };
        self.change(key, FileChange::Put(file))
    }

    /// Removes a blob unless it was used after a time.
    pub(crate) fn remove(&self, key: &Key, since: SystemTime) -> Result<(), FilesError> {
        let path = key.digest.to_string();
        self.change(key, FileChange::RemoveOlder(path, nanos(since)))
    }

    /// Removes the blobs of at most `most` callers of a tenant. Returns the number of callers that are left.
    pub(crate) fn remove_of(&self, tenant: Tenant, most: usize) -> Result<u64, FilesError> {
        self.0.remove_of(tenant, BLOBS, most)
    }

    /// Copies the content of a blob to the directory, if it is there; the caller compares it.
    pub(crate) fn fetch(
        &self,
        directory: &Directory,
        key: &Key,
        name: &FileName,
    ) -> Result<(), FilesError> {
        let (incoming, mut file) = directory.begin()?;
        let copied = self.0.read(key.caller.tenant(), key.digest, |piece| {
            file.write_all(piece)
        });
        let kept = match copied {
            Ok(true) => directory.finish(&incoming, name),
            Ok(false) | Err(_) => directory.give_up(&incoming),
        };
        copied?;
        Ok(kept?)
    }

    fn change(&self, key: &Key, change: FileChange) -> Result<(), FilesError> {
        let place = key.caller.place();
        let changed = self
            .0
            .change((key.caller.tenant(), &place), None, &[change]);
        changed.map(drop)
    }
}

fn nanos(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    })
}
