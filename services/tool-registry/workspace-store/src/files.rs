//! Reading, writing, deleting and listing files of one workspace.

use std::io::{self, Read};

use call_outcome::{Category, Failure};
use cap_std::fs::Dir;

use crate::{
    Condition, ListedFile, Staging, Workspace, copy::put, digests::Digests, failure, tree::walk,
};
use tool_domain::path::WorkspacePath;

/// The contents of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The entries by path.
    pub entries: Vec<ListedFile>,
    /// There are more entries than were listed.
    pub truncated: bool,
}

/// The most text that is changed in one call, in bytes: it is held in memory.
const MAX_TEXT: usize = 4 << 20;

impl Workspace {
    /// Reads a text file.
    ///
    /// # Errors
    /// A failure when there is no such file, or it is too large or no text.
    pub fn read(&self, path: &WorkspacePath) -> Result<String, Failure> {
        let limit = self.limits().read_bytes;
        let _current = self.current()?;
        let bytes = self.read_bytes(path, limit)?;
        String::from_utf8(bytes).map_err(|_| {
            let message = format!("'{path}' is not UTF-8 text; only text files can be read");
            Failure::new(Category::Domain, "not_text", message)
        })
    }

    /// Replaces a file, or makes it with the directories above it. Returns its size.
    ///
    /// # Errors
    /// A failure; the file is then as it was.
    pub fn write(&self, path: &WorkspacePath, content: &str) -> Result<u64, Failure> {
        let mut digests = self.current()?;
        self.replace(&mut digests, path, content.as_bytes())
    }

    /// Reads a file, and replaces it with the result of `change`, which gets `None` if the file
    /// does not exist. Returns the new size.
    ///
    /// # Errors
    /// A failure of reading, of `change` or of writing; the file is then as it was.
    pub fn modify(
        &self,
        path: &WorkspacePath,
        change: impl FnOnce(Option<String>) -> Result<String, Failure>,
    ) -> Result<u64, Failure> {
        let mut digests = self.current()?;
        let before = match self.read_bytes(path, MAX_TEXT) {
            Ok(bytes) => Some(String::from_utf8(bytes).map_err(|_| {
                let message = format!("'{path}' is not UTF-8 text; only text files can be changed");
                Failure::new(Category::Domain, "not_text", message)
            })?),
            Err(failure) if failure.code == "file_not_found" => None,
            Err(failure) => return Err(failure),
        };
        self.replace(&mut digests, path, change(before)?.as_bytes())
    }

    /// Deletes a file. Returns the size that it had.
    ///
    /// # Errors
    /// A failure when there is no such file or it is a directory.
    pub fn delete(&self, path: &WorkspacePath) -> Result<u64, Failure> {
        self.remove(path, Condition::Any)
    }

    /// Lists a directory with everything beneath it.
    ///
    /// # Errors
    /// A failure when there is no such directory.
    pub fn list(&self, path: &WorkspacePath) -> Result<Listing, Failure> {
        let place = path.relative();
        let at = |error: io::Error| failure::of_io(&place, &error);
        let prefix = path.to_string();
        let _current = self.current()?;
        let dir = self.open_directory(&prefix).map_err(at)?;
        let mut entries = Vec::new();
        let limit = self.limits().listing;
        let complete = walk(&dir, &prefix, 0, &mut |entry, _| {
            entries.push(entry);
            entries.len() <= limit
        });
        let truncated = !complete.map_err(at)?;
        entries.truncate(limit);
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Listing { entries, truncated })
    }

    fn read_bytes(&self, path: &WorkspacePath, limit: usize) -> Result<Vec<u8>, Failure> {
        let place = path.relative();
        let at = |error: io::Error| failure::of_io(&place, &error);
        let metadata = self.dir.metadata(&place).map_err(at)?;
        if !metadata.is_file() {
            let (category, code, message) = failure::is_directory(&place);
            return Err(Failure::new(category, code, message));
        }
        let file = self.dir.open(&place).map_err(at)?;
        let mut bytes = Vec::new();
        file.take(limit as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(at)?;
        if bytes.len() > limit {
            return Err(failure::too_long(&path.to_string(), metadata.len(), limit));
        }
        Ok(bytes)
    }

    fn replace(
        &self,
        digests: &mut Digests,
        path: &WorkspacePath,
        content: &[u8],
    ) -> Result<u64, Failure> {
        let bytes = content.len() as u64;
        self.tree()?.put(path, bytes, self.limits())?;
        let staging = Staging::begin(&self.shared);
        let mut staging = staging.map_err(|error| failure::of_io(&path.relative(), &error))?;
        staging.write(content)?;
        let staged = staging.finish()?;
        self.store(&staged)?;
        let version = digests.version.take();
        let file = self.place(digests, path, staged)?;
        let (parent, _) = path.parent_and_name().unwrap_or_default();
        self.sync(&parent)?;
        self.commit(digests, version, vec![put(&file)])?;
        self.notify();
        Ok(bytes)
    }

    /// Opens a directory beneath the workspace; empty text is the workspace itself.
    pub(crate) fn open_directory(&self, path: &str) -> io::Result<Dir> {
        if path.is_empty() {
            self.dir.try_clone()
        } else {
            self.dir.open_dir(path)
        }
    }

    /// Opens a directory and makes it first if need be, each new level synced.
    pub(crate) fn make_directory(&self, path: &str) -> io::Result<Dir> {
        match self.open_directory(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let mut dir = self.dir.try_clone()?;
        let mut walked = String::new();
        for name in path.split('/') {
            if !walked.is_empty() {
                walked.push('/');
            }
            walked.push_str(name);
            match dir.create_dir(name) {
                Ok(()) => sync_directory(&dir)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            // From the top each time, so that a link on the way is followed inside the workspace.
            dir = self.dir.open_dir(&walked)?;
        }
        Ok(dir)
    }
}

/// Syncs a directory, so that a name in it survives a power loss.
pub(crate) fn sync_directory(dir: &Dir) -> io::Result<()> {
    dir.open(".")?.sync_all()
}
