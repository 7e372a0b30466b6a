//! Measures a directory while untrusted code writes to it.

use std::{
    collections::HashSet,
    ffi::CStr,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::{directory_flags, entries};
use crate::domain::limits::{BLOCK, Limits};

/// The levels that one descent covers, each with a descriptor. Directories further down wait.
const LEVELS: usize = 64;

/// The most directories that wait. Beyond it, a descent covers twice as many levels.
const WAITING: usize = 64;

/// The rights that the owner needs to measure the content of its directory.
const FULL_RIGHTS: u32 = 0o700;

/// The size of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Bytes on the disk. A hole takes none.
    pub bytes: u64,
    /// Files and directories.
    pub files: u64,
    /// The length of the longest file, in bytes, with its holes.
    pub longest: u64,
}

impl Measured {
    /// More than any limit: a directory that cannot be measured.
    pub const BOUNDLESS: Self = Self {
        bytes: u64::MAX,
        files: u64::MAX,
        longest: u64::MAX,
    };

    /// The same, but a size that could not be measured is just above the limits.
    pub(crate) fn or_just_above(self, limits: &Limits) -> Self {
        let files = u64::from(limits.disk_files);
        match self == Self::BOUNDLESS {
            true => Self {
                bytes: (limits.disk as u64).saturating_add(2 * BLOCK),
                files: files.saturating_add(1),
                longest: 0,
            },
            false => self,
        }
    }

    /// Adds a file that takes so many of the kernel's blocks.
    pub(crate) fn add(&mut self, blocks: u64, length: u64) {
        /// The kernel counts in these units, independent of the file system's.
        const UNIT: u64 = 512;
        self.bytes = self.bytes.saturating_add(blocks.saturating_mul(UNIT));
        self.files = self.files.saturating_add(1);
        self.longest = self.longest.max(length);
    }

    /// The sum of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            files: self.files.saturating_add(other.files),
            longest: self.longest.max(other.longest),
        }
    }

    /// The greater of each.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.max(other.bytes),
            files: self.files.max(other.files),
            longest: self.longest.max(other.longest),
        }
    }
}

/// Measures everything below a directory. The answer is [`Measured::BOUNDLESS`] if there are too
/// many directories too deep, or if its owner, our own user, cannot restore the rights of one.
/// Entries that come and go meanwhile may be missed, as may directories that an error of the host
/// makes unreadable. Directories whose owner has removed its own rights have them while the
/// measurement lasts.
pub fn measure(top: OwnedFd) -> Measured {
    let mut walk = MeasureWalk::default();
    let mut next = Some(OpenDirectory {
        directory: top,
        rights: None,
    });
    while let Some(top) = next {
        if walk.directory(&top.directory, 0).is_none() {
            return Measured::BOUNDLESS;
        }
        next = walk.waiting.pop();
    }
    walk.measured
}

#[derive(Default)]
struct MeasureWalk {
    measured: Measured,
    /// Files with several names that were counted already.
    met: HashSet<u64>,
    /// Directories further down.
    waiting: Vec<OpenDirectory>,
}

impl MeasureWalk {
    /// Measures one directory; `None` if that is impossible.
    fn directory(&mut self, directory: &OwnedFd, depth: usize) -> Option<()> {
        if depth > 2 * LEVELS {
            return None;
        }
        // A directory that was removed meanwhile holds no file, and the script is not blamed for
        // errors of the host.
        for (name, kind) in entries(directory.as_fd()).unwrap_or_default() {
            let stat =
                rustix::fs::statat(directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).ok();
            self.entry(stat.as_ref());
            if kind == FileType::Directory
                && let Some(inner) = OpenDirectory::open(directory, &name)?
            {
                if depth + 1 >= LEVELS && self.waiting.len() < WAITING {
                    self.waiting.push(inner);
                } else {
                    self.directory(&inner.directory, depth + 1)?;
                }
            }
        }
        Some(())
    }

    fn entry(&mut self, stat: Option<&Stat>) {
        let Some(stat) = stat else {
            self.measured.add(0, 0);
            return;
        };
        let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if !directory && stat.st_nlink > 1 && !self.met.insert(stat.st_ino) {
            self.measured.add(0, 0);
            return;
        }
        let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
        let length = if directory { 0 } else { stat.st_size };
        self.measured
            .add(blocks, u64::try_from(length).unwrap_or(0));
    }
}

/// A directory below another. Its rights are restored when it is dropped.
struct OpenDirectory {
    directory: OwnedFd,
    /// Its original rights, if they were changed.
    rights: Option<Mode>,
}

impl OpenDirectory {
    /// Opens a directory so that its content can be listed and examined. `None` if that is
    /// impossible, and `Some(None)` if the directory is gone.
    fn open(parent: &OwnedFd, name: &CStr) -> Option<Option<Self>> {
        let opened = match rustix::fs::openat(parent, name, directory_flags(), Mode::empty()) {
            Ok(directory) => Self::allow(directory),
            Err(Errno::ACCESS) => Self::unlock(parent, name),
            Err(error) => Err(error),
        };
        match opened {
            Ok(opened) => Some(Some(opened)),
            Err(Errno::ACCESS | Errno::PERM) => None,
            // Another file has the name now, or it is gone.
            Err(_) => Some(None),
        }
    }

    /// A directory that can be listed may still keep its entries from being examined.
    fn allow(directory: OwnedFd) -> rustix::io::Result<Self> {
        let stat = rustix::fs::fstat(&directory)?;
        let user = rustix::process::geteuid();
        let needed = !user.is_root() && stat.st_uid == user.as_raw() && !has_rights(&stat);
        if needed {
            rustix::fs::fchmod(&directory, with_rights(&stat))?;
        }
        Ok(Self {
            directory,
            rights: needed.then(|| Mode::from_raw_mode(stat.st_mode)),
        })
    }

    /// Restores the rights of a directory's owner and opens it. The directory is opened before it
    /// is changed, so that it does not matter where its name leads meanwhile.
    fn unlock(parent: &OwnedFd, name: &CStr) -> rustix::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = rustix::fs::openat(parent, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&held)?;
        // A descriptor with `O_PATH` cannot be changed through itself, but through its own path.
        let path = format!("/proc/self/fd/{}", held.as_raw_fd());
        rustix::fs::chmod(path, with_rights(&stat))?;
        Ok(Self {
            directory: rustix::fs::openat(&held, c".", directory_flags(), Mode::empty())?,
            rights: Some(Mode::from_raw_mode(stat.st_mode)),
        })
    }
}

impl Drop for OpenDirectory {
    fn drop(&mut self) {
        if let Some(rights) = self.rights {
            // The additional rights harm only the plans of its owner.
            let _ = rustix::fs::fchmod(&self.directory, rights);
        }
    }
}

fn has_rights(stat: &Stat) -> bool {
    stat.st_mode & FULL_RIGHTS == FULL_RIGHTS
}

fn with_rights(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode | FULL_RIGHTS)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        os::unix::fs::{PermissionsExt, symlink},
        path::Path,
    };

    use super::*;

    fn measured(path: &Path) -> Measured {
        measure(OwnedFd::from(File::open(path).unwrap()))
    }

    #[test]
    fn a_file_with_many_names_takes_its_room_once() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("0");
        fs::write(&file, vec![1; 50_000]).unwrap();
        for name in 1..10 {
            fs::hard_link(&file, top.path().join(name.to_string())).unwrap();
        }
        let found = measured(top.path());
        assert!((50_000..100_000).contains(&found.bytes), "{found:?}");
        assert_eq!((found.files, found.longest), (10, 50_000));
    }

    #[test]
    fn holes_are_length_and_no_room() {
        let top = tempfile::tempdir().unwrap();
        let file = File::create(top.path().join("a")).unwrap();
        file.set_len(1 << 30).unwrap();
        symlink("/", top.path().join("b")).unwrap();
        let found = measured(top.path());
        assert!(found.bytes < 100_000, "{found:?}");
        assert_eq!((found.files, found.longest), (2, 1 << 30));
    }

    #[test]
    fn a_directory_without_rights_is_measured_and_stays_as_it_is() {
        let top = tempfile::tempdir().unwrap();
        let modes = [0, 0o100, 0o300, 0o400, 0o600];
        let path = |mode: u32| top.path().join(format!("{mode:o}"));
        for mode in modes {
            let directory = path(mode);
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("a"), vec![1; 50_000]).unwrap();
            fs::set_permissions(&directory, PermissionsExt::from_mode(mode)).unwrap();
        }
        let found = measured(top.path());
        assert!((250_000..400_000).contains(&found.bytes), "{found:?}");
        assert_eq!(found.files, 10);
        for mode in modes {
            let found = fs::metadata(path(mode)).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode);
        }
    }
}
