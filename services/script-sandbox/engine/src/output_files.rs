//! Collects the files that a script has left, from a descriptor of its working directory.
//!
//! Untrusted code has written these files, and collecting them is a usual place of escapes from
//! sandboxes. No file is opened by its path: the descriptor was opened before the script began,
//! every step opens one name beneath an open directory, follows no link and crosses no mount, and
//! only regular files are read. The collection must run when no process of the script lives, so
//! that a file does not change after it was examined. It is bounded in entries, bytes, depth and
//! time, whatever the directory holds.

pub(crate) mod read;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use blob_store::{BlobDigest, BlobStore, Caller};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

use crate::domain::collect::{
    CollectSpec, Collected, INLINE_FILE, INLINE_TOTAL, MAX_ENTRIES, MAX_LISTING_BYTES,
    MAX_PATH_BYTES, OutputFile, RefusedReason,
    name::PathText,
    pattern::{Pattern, Positions},
};

/// Every name is resolved beneath a directory, without links.
pub(crate) const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// The right of the owner to read a file.
pub(crate) const OWNER_READS: u32 = 0o400;

/// Files as they were placed, by path. An unchanged file is not new.
pub type Placed = BTreeMap<Vec<u8>, PlacedFile>;

/// A file as it was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedFile {
    /// Its size in bytes.
    pub size: u64,
    /// The digest of its content.
    pub digest: BlobDigest,
    /// Whether it may be executed.
    pub executable: bool,
}

/// A collection: the files wanted of a script, and the destination of large ones.
#[derive(Clone, Debug)]
pub struct Collection {
    /// The patterns and the caps.
    pub wanted: CollectSpec,
    /// The files that were placed before the start.
    pub placed: Placed,
    /// The store of files that are too large for an answer.
    pub blobs: BlobStore,
    /// The owner of the blobs.
    pub caller: Caller,
}

impl Collection {
    /// Collects from a working directory. It blocks for about the wanted time at most.
    pub fn collect(&self, work: BorrowedFd<'_>) -> Collected {
        let (declared, globs): (Vec<Pattern>, Vec<Pattern>) = self
            .wanted
            .patterns
            .iter()
            .cloned()
            .partition(|pattern| pattern.literal().is_some());
        let mut walk = Traversal {
            collection: self,
            globs,
            declared: BTreeSet::new(),
            deadline: Instant::now() + self.wanted.caps.time,
            entries: 0,
            bytes: 0,
            inline: 0,
            listing: 0,
            collected: Collected::default(),
        };
        // Files that are named come first: no other file may use up the caps.
        for names in declared.iter().filter_map(Pattern::literal) {
            walk.declared(work, &names);
        }
        let top = Positions::top(&walk.globs);
        match work.try_clone_to_owned() {
            Ok(work) if declared.is_empty() || !walk.globs.is_empty() => {
                walk.directory(work, &mut Vec::new(), 0, &top);
            }
            Ok(_) => {}
            Err(_) => walk.collected.refuse(b"", RefusedReason::Unreadable, 0),
        }
        let mut collected = walk.collected;
        collected
            .files
            .sort_by(|one, other| one.path.text.cmp(&other.path.text));
        collected
    }
}

/// An entry that was examined: its directory, its name, its status from the kernel, and its path.
type Entry<'a> = (BorrowedFd<'a>, &'a CString, &'a Stat, &'a [u8]);

/// One collection in progress.
struct Traversal<'a> {
    collection: &'a Collection,
    /// The patterns that may match several files; empty also where there are no patterns at all.
    globs: Vec<Pattern>,
    /// The paths of the patterns that name one file, which the walk leaves alone.
    declared: BTreeSet<Vec<u8>>,
    deadline: Instant,
    /// The number of entries examined so far.
    entries: usize,
    /// Apparent bytes of the files so far.
    bytes: u64,
    /// Bytes of content in the answer so far.
    inline: u64,
    /// Bytes of paths in the answer so far.
    listing: usize,
    collected: Collected,
}

impl Traversal<'_> {
    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Collects the file with this path, whatever other files exist, or records the reason for
    /// refusing it.
    fn declared(&mut self, work: BorrowedFd<'_>, names: &[&[u8]]) {
        let path = names.join(&b'/');
        if !self.declared.insert(path.clone()) {
            return;
        }
        let mut above: Option<OwnedFd> = None;
        let mut size = 0;
        let mut find = || {
            for (depth, name) in names.iter().enumerate() {
                let directory = above.as_ref().map_or(work, OwnedFd::as_fd);
                let name = CString::new(*name).map_err(|_| RefusedReason::Name)?;
                let stat = look(directory, &name)?;
                let entry = (directory, &name, &stat, path.as_slice());
                if depth + 1 == names.len() {
                    size = size_of(&stat);
                    return self.leaf(entry);
                }
                let depth = u32::try_from(depth).unwrap_or(u32::MAX);
                above = Some(match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Directory => self.open(entry, depth)?,
                    FileType::Symlink => return Err(RefusedReason::SymbolicLink),
                    _ => return Err(RefusedReason::NotFound),
                });
            }
            Ok(())
        };
        if let Err(reason) = find() {
            self.collected.refuse(&path, reason, size);
        }
    }

    /// Examines everything in a directory. Holds one descriptor per level; the levels are few.
    fn directory(
        &mut self,
        directory: OwnedFd,
        path: &mut Vec<u8>,
        depth: u32,
        positions: &Positions,
    ) {
        let names = match self.names(directory.as_fd(), path) {
            Ok(names) => names,
            Err(_) => return self.collected.refuse(path, RefusedReason::Unreadable, 0),
        };
        for name in names {
            if self.is_over() {
                return self.collected.refuse(path, RefusedReason::Time, 0);
            }
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend(name.as_bytes());
            self.entry(directory.as_fd(), &name, path, depth, positions);
            path.truncate(length);
        }
    }

    /// The names in a directory, sorted, as many as the cap on entries still allows.
    fn names(&mut self, directory: BorrowedFd<'_>, path: &[u8]) -> io::Result<Vec<CString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = entry?.file_name().to_owned();
            if matches!(name.as_bytes(), b"." | b"..") {
                continue;
            }
            let reason = match (self.is_over(), self.entries >= MAX_ENTRIES) {
                (true, _) => Some(RefusedReason::Time),
                (false, true) => Some(RefusedReason::TooMany),
                (false, false) => None,
            };
            if let Some(reason) = reason {
                self.collected.refuse(path, reason, 0);
                break;
            }
            self.entries += 1;
            names.push(name);
        }
        names.sort();
        Ok(names)
    }

    fn entry(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CString,
        path: &mut Vec<u8>,
        depth: u32,
        positions: &Positions,
    ) {
        let below = positions.enter(&self.globs, name.as_bytes());
        let wanted = positions.wants(&self.globs, name.as_bytes());
        if !wanted && below.is_none() {
            return;
        }
        let stat = match look(directory, name) {
            Ok(stat) => stat,
            Err(reason) => return self.collected.refuse(path, reason, 0),
        };
        let entry = (directory, name, &stat, path.as_slice());
        let taken = match (FileType::from_raw_mode(stat.st_mode), below) {
            (FileType::Directory, Some(below)) => self
                .open(entry, depth)
                .map(|inner| self.directory(inner, path, depth + 1, &below)),
            (FileType::Directory, None) => Ok(()),
            _ if !wanted || self.declared.contains(path) => Ok(()),
            _ => self.leaf(entry),
        };
        if let Err(reason) = taken {
            let file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            let size = if file { size_of(&stat) } else { 0 };
            self.collected.refuse(path, reason, size);
        }
    }

    /// Collects an entry that is no directory, if it is a regular file.
    fn leaf(&mut self, entry: Entry<'_>) -> Result<(), RefusedReason> {
        let (_, _, stat, _) = entry;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.file(entry),
            FileType::Directory => Err(RefusedReason::NotFound),
            FileType::Symlink => Err(RefusedReason::SymbolicLink),
            FileType::Fifo => Err(RefusedReason::Fifo),
            FileType::Socket => Err(RefusedReason::Socket),
            _ => Err(RefusedReason::Device),
        }
    }

    /// Opens a directory, if its depth, its path and its rights allow that.
    fn open(&self, entry: Entry<'_>, depth: u32) -> Result<OwnedFd, RefusedReason> {
        let (directory, name, stat, path) = entry;
        const OWNER_ENTERS: u32 = 0o500;
        if depth >= self.collection.wanted.caps.depth {
            return Err(RefusedReason::TooDeep);
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(RefusedReason::Name);
        }
        // Root could enter it; the answer must not depend on whether the service is root.
        if stat.st_mode & OWNER_ENTERS != OWNER_ENTERS {
            return Err(RefusedReason::Unreadable);
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat2(directory, name.as_c_str(), flags, Mode::empty(), BENEATH)
            .map_err(|_| RefusedReason::Unreadable)
    }

    /// Collects one regular file, if the caps and its rights allow that.
    fn file(&mut self, entry: Entry<'_>) -> Result<(), RefusedReason> {
        let (directory, name, stat, path) = entry;
        const OWNER_EXECUTES: u32 = 0o100;
        let size = size_of(stat);
        let executable = stat.st_mode & OWNER_EXECUTES != 0;
        if path.len() > MAX_PATH_BYTES {
            return Err(RefusedReason::Name);
        }
        if stat.st_nlink != 1 {
            return Err(RefusedReason::HardLink);
        }
        if stat.st_mode & OWNER_READS == 0 {
            return Err(RefusedReason::Unreadable);
        }
        let placed = self.collection.placed.get(path).filter(|placed| {
            // A file that a pattern names is collected in any case.
            let any = self.collection.wanted.patterns.is_empty();
            any && placed.size == size && placed.executable == executable
        });
        // A file above the caps is not even opened, unless it has to be compared with the placed
        // one.
        if placed.is_none() {
            self.room_for(path, size)?;
        }
        let mut file = read::open(directory, name, stat)?;
        if let Some(placed) = placed {
            if read::digest(&mut file, size, self.deadline)? == placed.digest {
                return Ok(());
            }
            self.room_for(path, size)?;
        }
        let path = PathText::of(path);
        let (digest, content) = self.content(&mut file, size)?;
        self.listing += path.text.len();
        self.bytes += size;
        self.inline += content.as_ref().map_or(0, |_| size);
        self.collected.files.push(OutputFile {
            path,
            size,
            digest,
            executable,
            content,
        });
        Ok(())
    }

    /// Checks whether one more file of this size fits below all caps.
    fn room_for(&self, path: &[u8], size: u64) -> Result<(), RefusedReason> {
        /// The most bytes that one byte of a path becomes when it is escaped.
        const WIDEST: usize = 4;
        let caps = self.collection.wanted.caps;
        let count = u32::try_from(self.collected.files.len()).unwrap_or(u32::MAX);
        if size > caps.file_bytes {
            Err(RefusedReason::TooLarge)
        } else if count >= caps.files || self.listing + WIDEST * path.len() > MAX_LISTING_BYTES {
            Err(RefusedReason::TooMany)
        } else if self.bytes.saturating_add(size) > caps.total_bytes {
            Err(RefusedReason::TotalTooLarge)
        } else {
            Ok(())
        }
    }

    fn content(
        &self,
        file: &mut std::fs::File,
        size: u64,
    ) -> Result<(BlobDigest, Option<Vec<u8>>), RefusedReason> {
        let small = size <= INLINE_FILE && self.inline + size <= INLINE_TOTAL;
        if small && !self.collection.wanted.as_blobs {
            let content = read::inline(file, size)?;
            Ok((BlobDigest::of(&content), Some(content)))
        } else {
            let Collection { blobs, caller, .. } = self.collection;
            let digest = read::blob(file, size, blobs, caller, self.deadline)?;
            Ok((digest, None))
        }
    }
}

/// Reads the status of a name. It decides whether the file is opened at all: opening a device can
/// have effects.
fn look(directory: BorrowedFd<'_>, name: &CString) -> Result<Stat, RefusedReason> {
    let looked = rustix::fs::statat(directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
    looked.map_err(|error| match error {
        Errno::NOENT => RefusedReason::NotFound,
        _ => RefusedReason::Unreadable,
    })
}

fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

#[cfg(test)]
mod tests;
