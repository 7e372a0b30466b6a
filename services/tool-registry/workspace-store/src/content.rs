//! Files of any size and content.

use std::io;

use call_outcome::{Category, Failure};
use core_types::ContentDigest;
use serde_json::json;
use server_files::FileChange;
use tool_domain::path::WorkspacePath;

use crate::{
    File, Staged, Workspace,
    copy::put,
    digests::Digests,
    failure,
    files::sync_directory,
    tree::{EntryKind, Tree, walk},
};

/// The condition of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// None.
    Any,
    /// There is no file.
    IsNew,
    /// There is a file.
    Exists,
    /// The file has this content.
    Is(ContentDigest),
}

/// A file that is open for reading. It stays as it is whatever happens to its name.
#[derive(Debug)]
pub struct OpenFile {
    /// Its description.
    pub file: File,
    /// Its content, from the beginning.
    pub content: cap_std::fs::File,
}

impl Workspace {
    /// Describes every file, by path.
    ///
    /// # Errors
    /// A failure when the disk fails.
    pub fn files(&self) -> Result<Vec<File>, Failure> {
        self.described(&mut *self.current()?)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// A failure when there is no such file.
    pub fn open(&self, path: &WorkspacePath) -> Result<OpenFile, Failure> {
        let place = path.relative();
        let at = |error: io::Error| failure::of_io(&place, &error);
        let mut digests = self.current()?;
        let file = self.describe(&mut digests, path)?;
        let content = self.dir.open(&place).map_err(at)?;
        Ok(OpenFile { file, content })
    }

    /// Puts content in the place of a file, or makes it with the directories above it. Returns its description, and
    /// whether it is new.
    ///
    /// # Errors
    /// A failure; the file is then as it was.
    pub fn put(
        &self,
        path: &WorkspacePath,
        staged: Staged,
        condition: Condition,
    ) -> Result<(File, bool), Failure> {
        self.store(&staged)?;
        let mut digests = self.current()?;
        let known = self.known(&mut digests, path)?;
        condition.check(path, known.as_ref())?;
        let is_same = |file: &File| file.digest == staged.digest() && file.bytes == staged.bytes();
        if let Some(known) = known.clone().filter(is_same) {
            return Ok((known, false));
        }
        self.tree()?.put(path, staged.bytes(), self.limits())?;
        let version = digests.version.take();
        let file = self.place(&mut digests, path, staged)?;
        let (parent, _) = path.parent_and_name().unwrap_or_default();
        self.sync(&parent)?;
        self.commit(&mut digests, version, vec![put(&file)])?;
        drop(digests);
        self.notify();
        Ok((file, known.is_none()))
    }

    /// Gives a file another path. Returns its description.
    ///
    /// # Errors
    /// A failure when there is no such file, the path is taken, or the condition is not met; nothing has changed then.
    pub fn rename(
        &self,
        path: &WorkspacePath,
        new: &WorkspacePath,
        condition: Condition,
    ) -> Result<File, Failure> {
        let mut digests = self.current()?;
        let file = self.describe(&mut digests, path)?;
        condition.check(path, Some(&file))?;
        let mut tree = self.tree()?;
        tree.remove(&file.path);
        if tree.has(&new.to_string()) {
            return Err(failure::taken(&new.to_string()));
        }
        tree.put(new, file.bytes, self.limits())?;
        let at = |error: io::Error| failure::of_io(&new.to_string(), &error);
        let (from, _) = path.parent_and_name().unwrap_or_default();
        let (parent, name) = new.parent_and_name().unwrap_or_default();
        let version = digests.version.take();
        let directory = self.make_directory(&parent).map_err(at)?;
        let moved = self.dir.rename(path.relative(), &directory, name);
        moved.map_err(at)?;
        self.prune(path);
        self.sync(&parent)?;
        self.sync(&from)?;
        let file = self.describe(&mut digests, new)?;
        let changes = vec![FileChange::Remove(path.to_string()), put(&file)];
        self.commit(&mut digests, version, changes)?;
        drop(digests);
        self.notify();
        Ok(file)
    }

    /// Deletes a file. Returns the size that it had.
    ///
    /// # Errors
    /// A failure when there is no such file, or the condition is not met.
    pub fn remove(&self, path: &WorkspacePath, condition: Condition) -> Result<u64, Failure> {
        let mut digests = self.current()?;
        if let Condition::Is(_) = condition {
            let file = self.describe(&mut digests, path)?;
            condition.check(path, Some(&file))?;
        }
        let version = digests.version.take();
        let bytes = self.unlink(path)?;
        let (parent, _) = path.parent_and_name().unwrap_or_default();
        self.sync(&parent)?;
        let gone = FileChange::Remove(path.to_string());
        self.commit(&mut digests, version, vec![gone])?;
        drop(digests);
        self.notify();
        Ok(bytes)
    }

    pub(crate) fn tree(&self) -> Result<Tree, Failure> {
        let tree = Tree::of(&self.dir, self.limits());
        tree.map_err(|error| failure::of_io(failure::WORKSPACE, &error))
    }

    /// Describes every file, by path.
    pub(crate) fn described(&self, digests: &mut Digests) -> Result<Vec<File>, Failure> {
        let mut files = Vec::new();
        let mut failed = Ok(());
        let walked = walk(&self.dir, "", 0, &mut |entry, metadata| {
            if let (EntryKind::File, Some(metadata)) = (entry.kind, metadata) {
                match digests.describe(&self.dir, &entry.path, &metadata) {
                    Ok(file) => files.push(file),
                    Err(error) => failed = Err(error),
                }
            }
            failed.is_ok()
        });
        let walked = walked.and(failed);
        walked.map_err(|error| failure::of_io(failure::WORKSPACE, &error))?;
        files.sort_by(|one, other| one.path.cmp(&other.path));
        digests.keep(&files);
        Ok(files)
    }

    /// Describes a file.
    pub(crate) fn describe(
        &self,
        digests: &mut Digests,
        path: &WorkspacePath,
    ) -> Result<File, Failure> {
        let place = path.relative();
        let at = |error: io::Error| failure::of_io(&place, &error);
        let metadata = self.dir.metadata(&place).map_err(at)?;
        if !metadata.is_file() {
            let (category, code, message) = failure::is_directory(&place);
            return Err(Failure::new(category, code, message));
        }
        digests.describe(&self.dir, &place, &metadata).map_err(at)
    }

    /// Describes a file, if there is one.
    pub(crate) fn known(
        &self,
        digests: &mut Digests,
        path: &WorkspacePath,
    ) -> Result<Option<File>, Failure> {
        match self.describe(digests, path) {
            Err(failure) if failure.code == "file_not_found" => Ok(None),
            described => described.map(Some),
        }
    }

    /// Moves content to its path. The directory is not synced.
    pub(crate) fn place(
        &self,
        digests: &mut Digests,
        path: &WorkspacePath,
        staged: Staged,
    ) -> Result<File, Failure> {
        let place = path.relative();
        let at = |error: io::Error| failure::of_io(&place, &error);
        let Some((parent, name)) = path.parent_and_name() else {
            return Err(at(io::ErrorKind::IsADirectory.into()));
        };
        let parent = self.make_directory(&parent).map_err(at)?;
        let old = parent.symlink_metadata(name);
        if old.is_ok_and(|metadata| metadata.is_dir()) {
            return Err(at(io::ErrorKind::IsADirectory.into()));
        }
        let facts = staged.place(&parent, name).map_err(at)?;
        let metadata = parent.symlink_metadata(name).map_err(at)?;
        Ok(digests.know(&place, &metadata, facts))
    }

    /// Removes the name of a file, and the directories above it that are empty then. No directory is synced. Returns the
    /// size that it had.
    pub(crate) fn unlink(&self, path: &WorkspacePath) -> Result<u64, Failure> {
        let place = path.relative();
        let at = |error: io::Error| failure::of_io(&place, &error);
        let metadata = self.dir.symlink_metadata(&place).map_err(at)?;
        if metadata.is_dir() {
            let (category, code, message) = failure::is_directory(&place);
            return Err(Failure::new(category, code, message));
        }
        self.dir.remove_file(&place).map_err(at)?;
        self.prune(path);
        Ok(metadata.len())
    }

    /// Removes the directories above a file that is gone, as far as they are empty.
    fn prune(&self, path: &WorkspacePath) {
        let mut directories: Vec<String> = path.with_directories().collect();
        directories.pop();
        for directory in directories.iter().rev() {
            // A directory that is not empty stays, and so does each one above it.
            if self.dir.remove_dir(directory).is_err() {
                return;
            }
        }
    }

    /// Syncs a directory, so that its names survive a power loss; of one that is gone, the directory above it.
    pub(crate) fn sync(&self, directory: &str) -> Result<(), Failure> {
        if self.server().is_some() {
            return Ok(());
        }
        let mut place = directory;
        loop {
            let opened = self.open_directory(place);
            // A file can have its name.
            let is_gone = |error: &io::Error| {
                use io::ErrorKind::{NotADirectory, NotFound};
                matches!(error.kind(), NotFound | NotADirectory)
            };
            if !place.is_empty() && opened.as_ref().is_err_and(is_gone) {
                place = place.rsplit_once('/').map_or("", |(above, _)| above);
                continue;
            }
            let synced = opened.and_then(|directory| sync_directory(&directory));
            return synced.map_err(|error| failure::of_io(directory, &error));
        }
    }
}

impl Condition {
    fn check(self, path: &WorkspacePath, file: Option<&File>) -> Result<(), Failure> {
        let message = match (self, file) {
            (Self::Any, _) | (Self::IsNew, None) | (Self::Exists, Some(_)) => return Ok(()),
            (Self::Is(digest), Some(file)) if file.digest == digest => return Ok(()),
            (Self::IsNew, Some(_)) => format!("there is a file '{path}' already"),
            (Self::Exists | Self::Is(_), None) => format!("there is no file '{path}'"),
            (Self::Is(_), Some(_)) => format!("'{path}' was changed meanwhile; read it again"),
        };
        let etag = file.map_or_else(String::new, |file| file.digest.to_string());
        let mut failure = Failure::new(Category::Domain, "etag_mismatch", message);
        failure.details.insert("etag".to_owned(), json!(etag));
        Err(failure)
    }
}
