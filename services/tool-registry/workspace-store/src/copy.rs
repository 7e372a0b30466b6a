//! The copy of a workspace whose files are at a server.

use std::{
    collections::HashSet,
    io::{self, Error},
    sync::MutexGuard,
};

use call_outcome::Failure;
use server_files::{FileChange, FilesError, ServerFiles, StoredFile};
use tool_domain::path::WorkspacePath;

use crate::{
    File, Staged, Staging, Workspace,
    digests::Digests,
    failure::{self, WORKSPACE},
    tree::{EntryKind, walk},
};

impl Workspace {
    /// Compares the copy with the files at the server, which another process may have changed.
    pub(crate) fn compare(&self) -> Result<(), Failure> {
        let Some(server) = self.server() else {
            return Ok(());
        };
        let mut digests = self.locked();
        let stored = server.open(self.place.tenant, &self.place.stored(), None);
        let stored = stored.map_err(failed)?;
        if digests.version == Some(stored.version) {
            return Ok(());
        }
        digests.version = None;
        self.refresh(server, &mut digests)
    }

    /// Locks the workspace, as it is at the server where it is a copy.
    pub(crate) fn current(&self) -> Result<MutexGuard<'_, Digests>, Failure> {
        let mut digests = self.locked();
        if let Some(server) = self.server()
            && digests.version.is_none()
        {
            self.refresh(server, &mut digests)?;
        }
        Ok(digests)
    }

    /// Stores content at the server, for a change that is going to be recorded.
    pub(crate) fn store(&self, staged: &Staged) -> Result<(), Failure> {
        let Some(server) = self.server() else {
            return Ok(());
        };
        let mut content = staged.open().map_err(|error| failed(error.into()))?;
        let stored = server.store(
            self.place.tenant,
            staged.digest(),
            staged.bytes(),
            &mut content,
        );
        stored.map_err(failed)
    }

    /// Records changes at the server, of which the copy had `version` before them. If that fails, the copy is compared
    /// again, and they are undone.
    pub(crate) fn commit(
        &self,
        digests: &mut Digests,
        version: Option<i64>,
        changes: Vec<FileChange>,
    ) -> Result<(), Failure> {
        let Some(server) = self.server() else {
            return Ok(());
        };
        let stored = self.place.stored();
        let version = server.change((self.place.tenant, &stored), version, &changes);
        digests.version = Some(version.map_err(failed)?);
        Ok(())
    }

    /// Makes the copy anew, as far as it differs.
    fn refresh(&self, server: &ServerFiles, digests: &mut Digests) -> Result<(), Failure> {
        let stored = server.files(self.place.tenant, &self.place.stored());
        let stored = stored.and_then(|stored| stored.ok_or(FilesError::Changed));
        let (version, files) = stored.map_err(failed)?;
        self.remove_others(&files)
            .map_err(|error| failure::of_io(WORKSPACE, &error))?;
        for file in &files {
            self.fetch(server, digests, file)?;
        }
        digests.version = Some(version);
        self.notify();
        Ok(())
    }

    /// Copies a file from a server unless the workspace has it.
    pub(crate) fn fetch(
        &self,
        server: &ServerFiles,
        digests: &mut Digests,
        file: &StoredFile,
    ) -> Result<(), Failure> {
        let path = WorkspacePath::file(&file.path)?;
        let known = self.known(digests, &path)?;
        if known.is_some_and(|known| known.digest == file.digest) {
            return Ok(());
        }
        let staged = self.copy_of(server, file).map_err(failed)?;
        self.place(digests, &path, staged).map(drop)
    }

    fn copy_of(&self, server: &ServerFiles, file: &StoredFile) -> Result<Staged, FilesError> {
        let mut staging = Staging::begin(&self.shared)?;
        let take = |piece: &[u8]| {
            let taken = staging.write(piece);
            taken.map_err(|failure| Error::other(failure.message.clone()))
        };
        server.read(self.place.tenant, file.digest, take)?;
        staging.set_modified(file.modified)?;
        let staged = staging.finish();
        let staged = staged.map_err(|failure| Error::other(failure.message.clone()))?;
        if staged.digest() != file.digest {
            let path = &file.path;
            let damaged = format!("the content of '{path}' in the database is damaged or missing");
            return Err(Error::other(damaged).into());
        }
        Ok(staged)
    }

    /// Removes the files that are not at the server, and the directories that are empty then.
    fn remove_others(&self, files: &[StoredFile]) -> io::Result<()> {
        let files: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let (mut others, mut directories) = (Vec::new(), Vec::new());
        walk(&self.dir, "", 0, &mut |entry, _| {
            match entry.kind {
                EntryKind::Directory => directories.push(entry.path),
                EntryKind::File if files.contains(entry.path.as_str()) => {}
                EntryKind::File | EntryKind::Other => others.push(entry.path),
            }
            true
        })?;
        for path in others {
            self.dir.remove_file(path)?;
        }
        for path in directories.iter().rev() {
            // One that is not empty stays.
            let _ = self.dir.remove_dir(path);
        }
        Ok(())
    }
}

/// Returns the change that puts a file.
pub(crate) fn put(file: &File) -> FileChange {
    FileChange::Put(StoredFile {
        path: file.path.clone(),
        digest: file.digest,
        bytes: file.bytes,
        modified: file.modified,
    })
}

fn failed(error: FilesError) -> Failure {
    failure::of_io(WORKSPACE, &error.into())
}
