//! Takes the files that a script has left, from a descriptor of its working directory.
//!
//! What lies there was made by a stranger, so this is the place where sandboxes are broken into.
//! Nothing is reached by path: the descriptor was opened before the script began, every step opens
//! one name beneath one that is held, follows no link and crosses no mount, and only what turns out
//! to be a regular file is read. It must be called when nobody of the script lives, so that what was
//! looked at is still what is there; and whatever is there, it is bounded in entries, bytes, depth
//! and time.

mod read;

use std::{
    collections::BTreeMap,
    ffi::CString,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};

use crate::{
    blobs::Blobs,
    domain::{
        blob::{BlobDigest, Caller},
        collect::{
            Collected, INLINE_FILE, INLINE_TOTAL, MAX_ENTRIES, MAX_LISTING_BYTES, MAX_PATH_BYTES,
            OutputFile, RefusedReason, Wanted, name::PathText, pattern::Positions,
        },
    },
};

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Files as they were placed, by path: one that is still so is not new.
pub type Placed = BTreeMap<Vec<u8>, PlacedFile>;

/// A file as it was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedFile {
    /// Its size in bytes.
    pub size: u64,
    /// The digest of its content.
    pub digest: BlobDigest,
    /// Says that it may be executed.
    pub executable: bool,
}

/// What is collected, and where large files go.
#[derive(Clone, Debug)]
pub struct Collection {
    /// Which files, and how much of them.
    pub wanted: Wanted,
    /// What was placed before.
    pub placed: Placed,
    /// The store of files that are too large for an answer.
    pub blobs: Blobs,
    /// Whose store it is.
    pub caller: Caller,
}

impl Collection {
    /// Collects from a working directory. It blocks, at most about as long as is wanted.
    pub fn collect(&self, work: BorrowedFd<'_>) -> Collected {
        let mut walk = Walk {
            collection: self,
            deadline: Instant::now() + self.wanted.caps.time,
            entries: 0,
            bytes: 0,
            inline: 0,
            listing: 0,
            collected: Collected::default(),
        };
        let top = Positions::top(&self.wanted.patterns);
        match work.try_clone_to_owned() {
            Ok(work) => walk.directory(work, &mut Vec::new(), 0, &top),
            Err(_) => walk.collected.refuse(b"", RefusedReason::Unreadable, 0),
        }
        let mut collected = walk.collected;
        collected
            .files
            .sort_by(|one, other| one.path.text.cmp(&other.path.text));
        collected
    }
}

/// One collection under way.
struct Walk<'a> {
    collection: &'a Collection,
    deadline: Instant,
    /// How many entries were looked at.
    entries: usize,
    /// Apparent bytes of the files so far.
    bytes: u64,
    /// Bytes of content in the answer so far.
    inline: u64,
    /// Bytes of paths in the answer so far.
    listing: usize,
    collected: Collected,
}

impl Walk<'_> {
    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Looks at everything in a directory. It holds one descriptor for each level, of which there
    /// are few.
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

    /// The names in a directory, sorted, as many as may still be looked at.
    fn names(&mut self, directory: BorrowedFd<'_>, path: &[u8]) -> io::Result<Vec<CString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = entry?.file_name().to_owned();
            if matches!(name.as_bytes(), b"." | b"..") {
                continue;
            }
            if self.entries >= MAX_ENTRIES || self.is_over() {
                let reason = if self.is_over() {
                    RefusedReason::Time
                } else {
                    RefusedReason::TooMany
                };
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
        let patterns = &self.collection.wanted.patterns;
        let below = positions.enter(patterns, name.as_bytes());
        let wanted = positions.wants(patterns, name.as_bytes());
        if !wanted && below.is_none() {
            return;
        }
        // What it is decides whether it is opened at all: opening a device can have effects.
        let stat = match rustix::fs::statat(directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(_) => return self.collected.refuse(path, RefusedReason::Unreadable, 0),
        };
        let size = size_of(&stat);
        match (FileType::from_raw_mode(stat.st_mode), below) {
            (FileType::Directory, Some(below)) => {
                self.enter(directory, name, &stat, path, depth, &below);
            }
            (FileType::Directory, None) => {}
            _ if !wanted => {}
            (FileType::RegularFile, _) => {
                if let Err(reason) = self.file(directory, name, &stat, path) {
                    self.collected.refuse(path, reason, size);
                }
            }
            (FileType::Symlink, _) => self.refuse(path, RefusedReason::SymbolicLink),
            (FileType::Fifo, _) => self.refuse(path, RefusedReason::Fifo),
            (FileType::Socket, _) => self.refuse(path, RefusedReason::Socket),
            _ => self.refuse(path, RefusedReason::Device),
        }
    }

    fn refuse(&mut self, path: &[u8], reason: RefusedReason) {
        self.collected.refuse(path, reason, 0);
    }

    fn enter(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CString,
        stat: &Stat,
        path: &mut Vec<u8>,
        depth: u32,
        below: &Positions,
    ) {
        const OWNER_ENTERS: u32 = 0o500;
        let refuse = |walk: &mut Self, reason| walk.collected.refuse(path, reason, 0);
        if depth >= self.collection.wanted.caps.depth {
            return refuse(self, RefusedReason::TooDeep);
        }
        if path.len() > MAX_PATH_BYTES {
            return refuse(self, RefusedReason::Name);
        }
        // Root could; the answer must not depend on whether the service is root.
        if stat.st_mode & OWNER_ENTERS != OWNER_ENTERS {
            return refuse(self, RefusedReason::Unreadable);
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat2(directory, name.as_c_str(), flags, Mode::empty(), BENEATH) {
            Ok(inner) => self.directory(inner, path, depth + 1, below),
            Err(_) => refuse(self, RefusedReason::Unreadable),
        }
    }

    /// Takes one regular file, if it may be taken.
    fn file(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CString,
        stat: &Stat,
        path: &[u8],
    ) -> Result<(), RefusedReason> {
        const OWNER_READS: u32 = 0o400;
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
            // Whoever asks for it by name gets it in any case.
            let any = self.collection.wanted.patterns.is_empty();
            any && placed.size == size && placed.executable == executable
        });
        // What may not be taken is not even opened, unless it has to be held against what it was.
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
        let read = self.content(&mut file, size)?;
        self.listing += path.text.len();
        self.bytes += size;
        self.inline += read.content.as_ref().map_or(0, |_| size);
        self.collected.files.push(OutputFile {
            path,
            size,
            digest: read.digest,
            executable,
            content: read.content,
        });
        Ok(())
    }

    /// Says that one more file of this size fits below all caps.
    fn room_for(&self, path: &[u8], size: u64) -> Result<(), RefusedReason> {
        /// What one byte of a path can become when it is escaped.
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

    fn content(&self, file: &mut std::fs::File, size: u64) -> Result<read::Content, RefusedReason> {
        let small = size <= INLINE_FILE && self.inline + size <= INLINE_TOTAL;
        if small && !self.collection.wanted.as_blobs {
            read::inline(file, size)
        } else {
            let Collection { blobs, caller, .. } = self.collection;
            read::blob(file, size, blobs, caller, self.deadline)
        }
    }
}

fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

#[cfg(test)]
mod tests;
