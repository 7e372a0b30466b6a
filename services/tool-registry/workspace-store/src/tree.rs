//! The entries of a workspace, and the room that is left.

use std::{collections::BTreeMap, io};

use call_outcome::Failure;
use cap_std::fs::{Dir, Metadata};
use tool_domain::path::{MAX_DEPTH, WorkspacePath};

use crate::{WorkspaceLimits, failure};

/// The most files that the failure of a full workspace names.
const NAMED: usize = 5;

/// The most bytes of the paths of all files together: a message has to hold the names and digests of all of them.
pub(crate) const MAX_PATHS_BYTES: usize = 2 << 20;

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

/// Every entry of a workspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// The sizes of the files, by path.
    files: BTreeMap<String, u64>,
    /// The paths of all entries, by their folded names.
    folded: BTreeMap<String, String>,
    bytes: u64,
    /// The bytes of the paths of all files.
    path_bytes: usize,
}

impl Tree {
    /// Reads the entries of a workspace, as many as it may have.
    pub(crate) fn of(dir: &Dir, limits: &WorkspaceLimits) -> io::Result<Self> {
        let mut tree = Self::default();
        walk(dir, "", 0, &mut |entry, _| {
            tree.folded.insert(fold(&entry.path), entry.path.clone());
            if entry.kind == EntryKind::File {
                tree.bytes += entry.bytes;
                tree.path_bytes += entry.path.len();
                tree.files.insert(entry.path, entry.bytes);
            }
            tree.folded.len() <= limits.entries
        })?;
        Ok(tree)
    }

    /// Whether there is an entry of this path, or one that differs only in case.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.folded.contains_key(&fold(path))
    }

    /// Adds a file, in the place of the file that had its path, with the directories above it.
    ///
    /// # Errors
    /// It is too large, the workspace has no room for it, or an entry has a path that differs only in case.
    pub(crate) fn put(
        &mut self,
        path: &WorkspacePath,
        bytes: u64,
        limits: &WorkspaceLimits,
    ) -> Result<(), Failure> {
        if bytes > limits.file_bytes as u64 {
            let most = limits.file_bytes;
            return Err(failure::too_large(&path.to_string(), bytes, most));
        }
        let mut added = Vec::new();
        for above in path.with_directories() {
            let folded = fold(&above);
            match self.folded.get(&folded) {
                Some(other) if *other != above => return Err(failure::other_case(&above, other)),
                Some(_) => {}
                None => added.push((folded, above)),
            }
        }
        let path = path.to_string();
        let total = self.bytes - self.files.get(&path).copied().unwrap_or(0) + bytes;
        if total > limits.total_bytes as u64 {
            let most = limits.total_bytes;
            let message =
                format!("its files would have {total} bytes together, and at most {most}");
            return Err(failure::full(&message, &self.largest()));
        }
        if self.folded.len() + added.len() > limits.entries {
            let most = limits.entries;
            let message = format!("it would have more than {most} files and directories");
            return Err(failure::full(&message, &self.largest()));
        }
        let is_new = !self.files.contains_key(&path);
        let path_bytes = self.path_bytes + if is_new { path.len() } else { 0 };
        if is_new && path_bytes > MAX_PATHS_BYTES {
            let message = format!(
                "the paths of its files would have {path_bytes} bytes together, and at most {MAX_PATHS_BYTES}"
            );
            return Err(failure::full(&message, &self.largest()));
        }
        self.folded.extend(added);
        self.files.insert(path, bytes);
        self.bytes = total;
        self.path_bytes = path_bytes;
        Ok(())
    }

    /// Removes a file, and the directories above it that are empty then.
    pub(crate) fn remove(&mut self, path: &str) {
        let Some(bytes) = self.files.remove(path) else {
            return;
        };
        self.bytes -= bytes;
        self.path_bytes -= path.len();
        self.folded.remove(&fold(path));
        let mut place = path;
        while let Some((above, _)) = place.rsplit_once('/') {
            let below = fold(&format!("{above}/"));
            let mut after = self.folded.range(below.clone()..);
            if after
                .next()
                .is_some_and(|(path, _)| path.starts_with(&below))
            {
                return;
            }
            self.folded.remove(&fold(above));
            place = above;
        }
    }

    /// The largest files, the largest first.
    fn largest(&self) -> Vec<(String, u64)> {
        let mut all: Vec<(&String, &u64)> = self.files.iter().collect();
        all.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
        let named = all.into_iter().take(NAMED);
        named.map(|(path, bytes)| (path.clone(), *bytes)).collect()
    }
}

/// Names that are equal after this are one name to some of the systems that files go to.
fn fold(path: &str) -> String {
    path.to_lowercase()
}

/// Shows every entry beneath a directory, parents first, until `visit` has enough. Links are shown
/// and not followed, and an entry that is removed meanwhile is left out. Returns whether everything was shown.
pub(crate) fn walk(
    dir: &Dir,
    prefix: &str,
    depth: usize,
    visit: &mut impl FnMut(ListedFile, Option<Metadata>) -> bool,
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
        let (kind, metadata) = if kind.is_dir() {
            (EntryKind::Directory, None)
        } else if kind.is_file() {
            match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => (EntryKind::File, Some(metadata?)),
            }
        } else {
            (EntryKind::Other, None)
        };
        let listed = ListedFile {
            path: path.clone(),
            kind,
            bytes: metadata.as_ref().map_or(0, Metadata::len),
        };
        if !visit(listed, metadata) {
            return Ok(false);
        }
        if kind != EntryKind::Directory || depth >= MAX_DEPTH {
            continue;
        }
        match dir.open_dir(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            deeper => {
                if !walk(&deeper?, &path, depth + 1, visit)? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}
