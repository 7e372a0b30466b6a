//! Looks through a working directory.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use crate::{
    domain::{
        collect::{MAX_ENTRIES, MAX_PATH_BYTES, RefusedReason},
        path::MAX_PATH_DEPTH,
        workspace::WorkspaceChanges,
    },
    output_files::{BENEATH, OWNER_READS},
    scratch::entries,
};

/// The entries of a working directory.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// The regular files, by path.
    pub(super) files: BTreeMap<String, Stat>,
    /// The number of directories.
    pub(super) directories: u64,
    /// The directories that were not looked through.
    pub(super) unseen: Vec<String>,
}

impl Entries {
    /// Looks through everything in directories below another one, or through all of it if none is named. Refused entries
    /// are changes that cannot be taken.
    pub(super) fn below(
        work: BorrowedFd<'_>,
        directories: &[String],
        deadline: Instant,
        changes: &mut WorkspaceChanges,
    ) -> Self {
        let mut walk = Walk {
            entries: Self::default(),
            deadline,
            looked_at: 0,
            changes,
        };
        for name in directories {
            match open(work, name) {
                Ok(directory) => walk.directory(&directory, name, 1),
                Err(Errno::NOENT) => {}
                Err(_) => walk.unseen(name, RefusedReason::Unreadable),
            }
        }
        if directories.is_empty() {
            match work.try_clone_to_owned() {
                Ok(work) => walk.directory(&work, "", 0),
                Err(_) => walk.unseen("", RefusedReason::Unreadable),
            }
        }
        walk.entries
    }
}

/// Opens a directory below another one.
pub(super) fn open(work: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(work, path, flags, Mode::empty(), BENEATH)
}

struct Walk<'c> {
    entries: Entries,
    deadline: Instant,
    looked_at: usize,
    changes: &'c mut WorkspaceChanges,
}

impl Walk<'_> {
    /// Looks through a directory. Holds one descriptor per level; the levels are few.
    fn directory(&mut self, directory: &OwnedFd, path: &str, depth: usize) {
        let Ok(names) = entries(directory.as_fd()) else {
            return self.unseen(path, RefusedReason::Unreadable);
        };
        for (name, kind) in names {
            self.looked_at += 1;
            if self.looked_at > MAX_ENTRIES {
                return self.unseen(path, RefusedReason::TooMany);
            }
            if Instant::now() >= self.deadline {
                return self.unseen(path, RefusedReason::Time);
            }
            let mut full = path.as_bytes().to_vec();
            if !full.is_empty() {
                full.push(b'/');
            }
            full.extend(name.as_bytes());
            let Some(full) = sound(&full) else {
                self.changes.refuse(&full, RefusedReason::Name, 0);
                continue;
            };
            if kind != FileType::Directory {
                let stat =
                    rustix::fs::statat(directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
                self.leaf(full, stat);
                continue;
            }
            self.entries.directories += 1;
            if depth + 1 >= MAX_PATH_DEPTH {
                self.unseen(full, RefusedReason::TooDeep);
                continue;
            }
            let name = name.to_str().unwrap_or_default();
            match open(directory.as_fd(), name) {
                Ok(inner) => self.directory(&inner, full, depth + 1),
                // It was removed meanwhile.
                Err(Errno::NOENT) => {}
                Err(_) => self.unseen(full, RefusedReason::Unreadable),
            }
        }
    }

    fn leaf(&mut self, path: &str, stat: Result<Stat, Errno>) {
        let stat = match stat {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return,
            Err(_) => {
                let reason = RefusedReason::Unreadable;
                return self.changes.refuse(path.as_bytes(), reason, 0);
            }
        };
        let reason = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if stat.st_nlink > 1 => RefusedReason::HardLink,
            FileType::RegularFile if stat.st_mode & OWNER_READS == 0 => RefusedReason::Unreadable,
            FileType::RegularFile => {
                self.entries.files.insert(path.to_owned(), stat);
                return;
            }
            // It has become one meanwhile.
            FileType::Directory => RefusedReason::Unreadable,
            FileType::Symlink => RefusedReason::SymbolicLink,
            FileType::Fifo => RefusedReason::Fifo,
            FileType::Socket => RefusedReason::Socket,
            _ => RefusedReason::Device,
        };
        self.changes.refuse(path.as_bytes(), reason, 0);
        self.entries.unseen.push(path.to_owned());
    }

    /// Records a directory that was not looked through.
    fn unseen(&mut self, path: &str, reason: RefusedReason) {
        self.changes.refuse(path.as_bytes(), reason, 0);
        self.entries.unseen.push(path.to_owned());
    }
}

/// Returns a path that a workspace can have.
fn sound(path: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(path).ok()?;
    let fits = path.len() <= MAX_PATH_BYTES && !text.chars().any(char::is_control);
    fits.then_some(text)
}
