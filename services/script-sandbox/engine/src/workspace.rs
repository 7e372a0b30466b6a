//! The files of a working directory that were once the same as those of a workspace.
//!
//! Untrusted code changes the directory, and may do so at this moment. No file is opened but beneath the descriptor of
//! the directory, without a link and without crossing a mount, as in [`crate::output_files`]. A file that changes while
//! it is read is taken the next time.

mod walk;

use std::{
    collections::{BTreeMap, HashSet},
    ffi::CString,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use blob_store::{BlobDigest, BlobStore, Caller};
use rustix::fs::{AtFlags, FileType, Stat};

use crate::{
    domain::{
        collect::{RefusedReason, name::PathText},
        workspace::{
            ChangedFile, MAX_LARGEST, WorkspaceCaps, WorkspaceChanges, WorkspaceFile,
            WorkspaceOverflow,
        },
    },
    output_files::{Placed, PlacedFile, read},
};
use walk::Entries;

/// The longest time of looking for changes.
const LONGEST: Duration = Duration::from_secs(30);

/// The most bytes of the changes that are reported at once; the others are changes of the next time. A message has to
/// hold them beside the output.
const MOST_REPORTED: usize = 1_900_000;

/// The bytes of a change beside its path: its digests, its size, and the marks of fields.
const OF_CHANGE: usize = 150;
const OF_REMOVAL: usize = 80;

/// The files of a working directory as they were when its workspace had the same.
#[derive(Clone, Debug, Default)]
pub struct SyncedFiles {
    files: BTreeMap<String, SyncedFile>,
    /// The changes that cells have reported, of which it is not known whether they were taken; the oldest first.
    reported: Vec<(u64, WorkspaceChanges)>,
}

#[derive(Clone, Copy, Debug)]
struct SyncedFile {
    digest: BlobDigest,
    size: u64,
    /// The version on disk; `None` if it was not looked at.
    version: Option<FileVersion>,
    /// The checksum of the content; `None` if it was not read.
    sum: Option<u32>,
}

impl SyncedFile {
    fn new(digest: BlobDigest, size: u64, version: Option<FileVersion>) -> Self {
        Self {
            digest,
            size,
            version,
            sum: None,
        }
    }

    /// Whether a file has the content that was the same.
    fn has_content_of(
        &self,
        work: BorrowedFd<'_>,
        (path, stat): (&str, &Stat),
        deadline: Instant,
    ) -> bool {
        let Ok(name) = CString::new(path) else {
            return false;
        };
        let read = read::open(work, &name, stat).and_then(|mut file| match self.sum {
            Some(sum) => Ok(sum == read::sum(&mut file, self.size, deadline)?),
            None => Ok(self.digest == read::digest(&mut file, self.size, deadline)?),
        });
        read.unwrap_or(false)
    }
}

/// The marks of a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    file: (u64, u64),
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The difference between a working directory and its workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceDifference {
    /// The files to place, by their positions.
    pub lacking: Vec<usize>,
    /// The paths of files to remove.
    pub surplus: Vec<String>,
}

impl SyncedFiles {
    /// The files that were placed before the code began.
    pub fn placed(placed: &Placed) -> Self {
        let file = |(path, file): (&Vec<u8>, &PlacedFile)| {
            let synced = SyncedFile::new(file.digest, file.size, None);
            Some((String::from_utf8(path.clone()).ok()?, synced))
        };
        Self {
            files: placed.iter().filter_map(file).collect(),
            reported: Vec::new(),
        }
    }

    /// Compares with the files of the workspace.
    pub fn difference(&self, wanted: &[WorkspaceFile]) -> WorkspaceDifference {
        let is_there = |file: &WorkspaceFile| {
            let synced = self.files.get(&file.path);
            synced.is_some_and(|synced| synced.digest == file.digest)
        };
        let lacking = (wanted.iter().enumerate())
            .filter(|(_, file)| !is_there(file))
            .map(|(index, _)| index);
        let named: HashSet<&str> = wanted.iter().map(|file| file.path.as_str()).collect();
        let surplus = (self.files.keys()).filter(|path| !named.contains(path.as_str()));
        WorkspaceDifference {
            lacking: lacking.collect(),
            surplus: surplus.cloned().collect(),
        }
    }

    /// Takes the files out of a difference that the code has changed, removed or made itself: they stay as they are, and
    /// are changes.
    pub fn leave_changed(
        &self,
        work: BorrowedFd<'_>,
        wanted: &[WorkspaceFile],
        difference: &mut WorkspaceDifference,
    ) {
        let deadline = Instant::now() + LONGEST;
        // A directory that is empty gives way to a file, and one that is not refuses it.
        let is_directory =
            |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let found = |path: &str| look(work, path).filter(|stat| !is_directory(stat));
        let is_as_it_was = |path: &str| match (self.files.get(path), found(path)) {
            (None, None) => true,
            (Some(synced), Some(stat)) => {
                synced.version == Some(FileVersion::of(&stat))
                    && synced.has_content_of(work, (path, &stat), deadline)
            }
            _ => false,
        };
        (difference.lacking).retain(|index| is_as_it_was(&wanted[*index].path));
        difference.surplus.retain(|path| is_as_it_was(path));
    }

    /// Records files that were placed just now.
    pub fn record_placed<'f>(
        &mut self,
        work: BorrowedFd<'_>,
        files: impl IntoIterator<Item = &'f WorkspaceFile>,
    ) {
        for file in files {
            let version = look(work, &file.path).map(|stat| FileVersion::of(&stat));
            let synced = SyncedFile::new(file.digest, file.size, version);
            self.files.insert(file.path.clone(), synced);
        }
    }

    /// Records files that were removed just now.
    pub fn record_removed<'f>(&mut self, paths: impl IntoIterator<Item = &'f String>) {
        for path in paths {
            self.files.remove(path);
        }
    }

    /// Finds the changes in these directories, or in all of the working directory if none is named, and stores the
    /// content of changed files. From now on the files are as they are reported. It
    /// blocks for [`LONGEST`] at most.
    pub fn take_changes(
        &mut self,
        (work, directories): (BorrowedFd<'_>, &[String]),
        caps: &WorkspaceCaps,
        (blobs, caller): (&BlobStore, &Caller),
    ) -> WorkspaceChanges {
        let deadline = Instant::now() + LONGEST;
        let mut changes = WorkspaceChanges::default();
        let entries = Entries::below(work, directories, deadline, &mut changes);
        if let Some(overflow) = overflow(&entries, caps) {
            changes.overflow = Some(overflow);
            return changes;
        }
        let mut present = BTreeMap::new();
        let mut room = MOST_REPORTED;
        for (path, stat) in entries.files {
            let known = self.files.get(&path).copied();
            let version = FileVersion::of(&stat);
            let size = size_of(&stat);
            let Some(left) = room.checked_sub(path.len() + OF_CHANGE) else {
                changes.refuse(path.as_bytes(), RefusedReason::TooMany, size);
                present.extend(known.map(|known| (path, known)));
                continue;
            };
            let store = (blobs, caller, deadline);
            match content(work, (&path, &stat), known.as_ref(), store) {
                Ok((digest, sum)) => {
                    let synced = SyncedFile {
                        sum,
                        ..SyncedFile::new(digest, size, Some(version))
                    };
                    present.insert(path.clone(), synced);
                    if known.is_none_or(|known| known.digest != digest) {
                        room = left;
                        let base = known.map(|known| known.digest);
                        changes.changed.push(ChangedFile {
                            path,
                            digest,
                            size,
                            base,
                        });
                    }
                }
                Err(reason) => {
                    changes.refuse(path.as_bytes(), reason, size);
                    // The next time it is compared with the same version.
                    present.extend(known.map(|known| (path, known)));
                }
            }
        }
        let gone = self.files.iter().filter(|(path, _)| {
            !present.contains_key(*path) && !entries.unseen.iter().any(|it| is_below(path, it))
        });
        let mut later = Vec::new();
        for (path, known) in gone {
            match room.checked_sub(path.len() + OF_REMOVAL) {
                Some(left) => {
                    room = left;
                    changes.removed.push((path.clone(), known.digest));
                }
                None => later.push((path.clone(), *known)),
            }
        }
        for (path, known) in later {
            changes.refuse(path.as_bytes(), RefusedReason::TooMany, 0);
            present.insert(path, known);
        }
        self.files = present;
        changes
    }

    /// Keeps the changes that a cell reports, until [`Self::settle`] decides about them.
    pub fn report(&mut self, cell: u64, changes: &WorkspaceChanges) {
        if !changes.changed.is_empty() || !changes.removed.is_empty() {
            self.reported.push((cell, changes.clone()));
        }
    }

    /// Decides about the changes that cells have reported: those of cells after `taken`, and those of the paths
    /// `not_taken`, are taken again. Without `taken` all were taken.
    pub fn settle(&mut self, taken: Option<u64>, not_taken: &[String]) {
        let reported = std::mem::take(&mut self.reported);
        let Some(taken) = taken else {
            return;
        };
        // The newest first, so that each file has the base of its oldest change then.
        for (cell, mut changes) in reported.into_iter().rev() {
            if cell == taken {
                changes.keep(not_taken);
            }
            if cell >= taken {
                self.forget_taken(&changes);
            }
        }
    }

    /// Forgets that changes were taken: they are taken again.
    pub fn forget_taken(&mut self, changes: &WorkspaceChanges) {
        for file in &changes.changed {
            match file.base {
                None => drop(self.files.remove(&file.path)),
                Some(digest) => {
                    let synced = SyncedFile::new(digest, file.size, None);
                    self.files.insert(file.path.clone(), synced);
                }
            }
        }
        for (path, digest) in &changes.removed {
            self.files
                .insert(path.clone(), SyncedFile::new(*digest, 0, None));
        }
    }
}

impl FileVersion {
    fn of(stat: &Stat) -> Self {
        let nanos = |nanos| i64::try_from(nanos).unwrap_or(0);
        Self {
            file: (stat.st_dev, stat.st_ino),
            size: stat.st_size,
            modified: (stat.st_mtime, nanos(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanos(stat.st_ctime_nsec)),
        }
    }
}

/// Returns the digest of a file, whose content is stored unless it is the known one, and its checksum where that is known.
///
/// The marks of the kernel do not suffice: a write to memory that a file in memory is mapped to leaves none.
fn content(
    work: BorrowedFd<'_>,
    (path, stat): (&str, &Stat),
    known: Option<&SyncedFile>,
    (blobs, caller, deadline): (&BlobStore, &Caller, Instant),
) -> Result<(BlobDigest, Option<u32>), RefusedReason> {
    let size = size_of(stat);
    let name = CString::new(path).map_err(|_| RefusedReason::Name)?;
    let mut file = read::open(work, &name, stat)?;
    if let Some(known) = known.filter(|known| known.size == size) {
        let is_marked_same = known.version == Some(FileVersion::of(stat));
        if is_marked_same
            && let Some(sum) = known.sum
            && read::sum(&mut file, size, deadline)? == sum
        {
            return Ok((known.digest, known.sum));
        }
        let (digest, sum) = read::digest_and_sum(&mut file, size, deadline)?;
        if digest == known.digest {
            return Ok((digest, Some(sum)));
        }
    }
    let digest = read::blob(&mut file, size, blobs, caller, deadline)?;
    Ok((digest, None))
}

/// Compares with the limits.
fn overflow(entries: &Entries, caps: &WorkspaceCaps) -> Option<WorkspaceOverflow> {
    let sizes = || entries.files.values().map(size_of);
    let total_bytes = sizes().fold(0, u64::saturating_add);
    let count = entries.directories + entries.files.len() as u64;
    let fits = total_bytes <= caps.total_bytes
        && count <= u64::from(caps.entries)
        && sizes().all(|size| size <= caps.file_bytes);
    if fits {
        return None;
    }
    let mut largest: Vec<(&String, u64)> = (entries.files.iter())
        .map(|(path, stat)| (path, size_of(stat)))
        .collect();
    largest.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    let largest = largest.into_iter().take(MAX_LARGEST);
    Some(WorkspaceOverflow {
        total_bytes,
        entries: count,
        largest: largest
            .map(|(path, size)| (PathText::of(path.as_bytes()), size))
            .collect(),
    })
}

/// Reads the status of a file or anything else of this path.
fn look(work: BorrowedFd<'_>, path: &str) -> Option<Stat> {
    let (parent, name) = match path.rsplit_once('/') {
        Some((parent, name)) => (Some(walk::open(work, parent).ok()?), name),
        None => (None, path),
    };
    let directory = parent.as_ref().map_or(work, AsFd::as_fd);
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}

fn is_below(path: &str, directory: &str) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| directory.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

fn size_of(stat: &Stat) -> u64 {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => u64::try_from(stat.st_size).unwrap_or(0),
        _ => 0,
    }
}
