//! Reading, writing, deleting and listing files of one workspace.

use call_outcome::{Category, Failure};
use std::io::{self, Read, Write};

use cap_std::fs::{Dir, OpenOptions};

use super::{Workspace, failure};
use tool_domain::path::WorkspacePath;

/// The kind of an entry of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A link or something else that tools do not follow.
    Other,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// The path beneath the workspace.
    pub path: String,
    /// The kind of the entry.
    pub kind: EntryKind,
    /// The size of a file, in bytes; zero for anything else.
    pub bytes: u64,
}

/// The contents of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The entries by path.
    pub entries: Vec<ListedFile>,
    /// There are more entries than were listed.
    pub truncated: bool,
}

/// The size of a workspace.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    entries: usize,
    bytes: u64,
}

impl Workspace {
    /// Reads a text file.
    ///
    /// # Errors
    /// A failure when there is no such file, or it is too large or no text.
    pub fn read(&self, path: &WorkspacePath) -> Result<String, Failure> {
        let limit = self.limits().read_bytes;
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
        let _lock = self.locked();
        self.replace(path, content.as_bytes())
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
        let _lock = self.locked();
        let before = match self.read_bytes(path, self.limits().file_bytes) {
            Ok(bytes) => Some(String::from_utf8(bytes).map_err(|_| {
                let message = format!("'{path}' is not UTF-8 text; only text files can be changed");
                Failure::new(Category::Domain, "not_text", message)
            })?),
            Err(failure) if failure.code == "file_not_found" => None,
            Err(failure) => return Err(failure),
        };
        self.replace(path, change(before)?.as_bytes())
    }

    /// Deletes a file. Returns the size that it had.
    ///
    /// # Errors
    /// A failure when there is no such file or it is a directory.
    pub fn delete(&self, path: &WorkspacePath) -> Result<u64, Failure> {
        let _lock = self.locked();
        let place = path.relative();
        let at = |error: io::Error| failure::of_io(&place, &error);
        let metadata = self.dir.symlink_metadata(&place).map_err(at)?;
        if metadata.is_dir() {
            let (category, code, message) = failure::is_directory(&place);
            return Err(Failure::new(category, code, message));
        }
        self.dir.remove_file(&place).map_err(at)?;
        let (parent, _) = path.parent_and_name().unwrap_or_default();
        self.open_directory(&parent)
            .and_then(|dir| sync_directory(&dir))
            .map_err(at)?;
        Ok(metadata.len())
    }

    /// Lists a directory with everything beneath it.
    ///
    /// # Errors
    /// A failure when there is no such directory.
    pub fn list(&self, path: &WorkspacePath) -> Result<Listing, Failure> {
        let place = path.relative();
        let at = |error: io::Error| failure::of_io(&place, &error);
        let prefix = path.to_string();
        let dir = self.open_directory(&prefix).map_err(at)?;
        let mut entries = Vec::new();
        let limit = self.limits().listing;
        let complete = walk(&dir, &prefix, 0, &mut |entry| {
            entries.push(entry);
            entries.len() <= limit
        });
        let truncated = !complete.map_err(at)?;
        entries.truncate(limit);
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Listing { entries, truncated })
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, ()> {
        // The lock guards no data, so a panic of another holder spoils nothing.
        self.shared
            .lock_of(&self.place)
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
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
            let message = format!(
                "'{path}' has {} bytes; at most {limit} can be read in one call: split the file",
                metadata.len()
            );
            return Err(failure::beyond("too_large", message));
        }
        Ok(bytes)
    }

    fn replace(&self, path: &WorkspacePath, content: &[u8]) -> Result<u64, Failure> {
        let place = path.relative();
        let at = |error: io::Error| failure::of_io(&place, &error);
        self.check_room(path, content.len())?;
        let Some((parent, name)) = path.parent_and_name() else {
            return Err(failure::of_io(&place, &io::ErrorKind::IsADirectory.into()));
        };
        let parent = self.make_directory(&parent).map_err(at)?;
        if parent
            .symlink_metadata(name)
            .is_ok_and(|metadata| metadata.is_dir())
        {
            return Err(failure::of_io(&place, &io::ErrorKind::IsADirectory.into()));
        }
        let staged = self.shared.ids.next_uuid().simple().to_string();
        let written = write_staged(&self.shared.staging, &staged, content)
            .and_then(|()| self.shared.staging.rename(&staged, &parent, name));
        if let Err(error) = written {
            // It may never have been made; either way nothing of it must stay.
            let _ = self.shared.staging.remove_file(&staged);
            return Err(at(error));
        }
        sync_directory(&parent).map_err(at)?;
        Ok(content.len() as u64)
    }

    fn check_room(&self, path: &WorkspacePath, bytes: usize) -> Result<(), Failure> {
        let limits = self.limits();
        if bytes > limits.file_bytes {
            let message = format!(
                "'{path}' would have {bytes} bytes; a file has at most {}: split it",
                limits.file_bytes
            );
            return Err(failure::beyond("too_large", message));
        }
        let mut usage = Usage::default();
        walk(&self.dir, "", 0, &mut |entry| {
            usage.entries += 1;
            usage.bytes += entry.bytes;
            usage.entries <= limits.entries
        })
        .map_err(|error| failure::of_io("the conversation's workspace", &error))?;
        let replaced = self
            .dir
            .metadata(path.relative())
            .map_or(0, |metadata| metadata.len());
        if usage.bytes.saturating_sub(replaced) + bytes as u64 > limits.total_bytes as u64 {
            let message = format!(
                "the conversation's files would have more than {} bytes; delete some first",
                limits.total_bytes
            );
            return Err(failure::beyond("workspace_full", message));
        }
        if usage.entries >= limits.entries {
            let message = format!(
                "the conversation has {} files and directories, the most there may be; delete some first",
                limits.entries
            );
            return Err(failure::beyond("workspace_full", message));
        }
        Ok(())
    }

    /// Opens a directory beneath the workspace; empty text is the workspace itself.
    fn open_directory(&self, path: &str) -> io::Result<Dir> {
        if path.is_empty() {
            self.dir.try_clone()
        } else {
            self.dir.open_dir(path)
        }
    }

    /// Opens a directory and makes it first if need be, each new level synced.
    fn make_directory(&self, path: &str) -> io::Result<Dir> {
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

fn write_staged(staging: &Dir, name: &str, content: &[u8]) -> io::Result<()> {
    let mut file = staging.open_with(name, OpenOptions::new().write(true).create_new(true))?;
    file.write_all(content)?;
    file.sync_all()
}

/// Syncs a directory, so that a name in it survives a power loss.
pub(super) fn sync_directory(dir: &Dir) -> io::Result<()> {
    dir.open(".")?.sync_all()
}

/// Shows every entry beneath a directory, parents first, until `visit` has enough. Links are shown
/// and not followed. Returns whether everything was shown.
fn walk(
    dir: &Dir,
    prefix: &str,
    depth: usize,
    visit: &mut impl FnMut(ListedFile) -> bool,
) -> io::Result<bool> {
    for entry in dir.entries()? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if prefix.is_empty() {
            name.clone()
        } else {
            format!("{prefix}/{name}")
        };
        let kind = entry.file_type()?;
        let (kind, bytes) = if kind.is_dir() {
            (EntryKind::Directory, 0)
        } else if kind.is_file() {
            (EntryKind::File, entry.metadata()?.len())
        } else {
            (EntryKind::Other, 0)
        };
        if !visit(ListedFile {
            path: path.clone(),
            kind,
            bytes,
        }) {
            return Ok(false);
        }
        let deeper = kind == EntryKind::Directory && depth < tool_domain::path::MAX_DEPTH;
        if deeper && !walk(&dir.open_dir(&name)?, &path, depth + 1, visit)? {
            return Ok(false);
        }
    }
    Ok(true)
}
