//! A working directory on the host's own disk, for the level without a root of its own.
//!
//! Untrusted code has written its content. No file below it is ever reached by its path: every step
//! goes one name down from an open descriptor, and follows no link.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{DirBuilderExt, chown},
    },
    path::{Path, PathBuf},
};

use blob_store::{claim_left, claim_new};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

mod filled;
mod measure;

pub use filled::Filled;
pub(crate) use filled::device_name;
pub use measure::{Measured, measure};

/// Directories that every script gets.
const PARTS: [&str; 3] = ["work", "input", "tmp"];

/// The beginning of the name of each directory; the id of the service's process follows.
const PREFIX: &str = "tavern-script-";

/// A directory that is removed with its content when it is dropped. As long as its service lives it
/// is locked: the kernel releases the lock when the service dies in any way.
#[derive(Debug)]
pub struct ScratchDirectory {
    path: PathBuf,
    directory: OwnedFd,
}

impl ScratchDirectory {
    /// Makes a directory below `parent` with a part for each purpose, owned by `user`.
    ///
    /// # Errors
    /// Fails when the directory cannot be made.
    pub fn make(parent: &Path, user: Option<u32>) -> io::Result<Self> {
        let (path, directory) = claim_new(parent, PREFIX, 0o711)?;
        let made = Self { path, directory };
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700);
        for part in PARTS {
            let path = made.path.join(part);
            builder.create(&path)?;
            chown(&path, user, user)?;
        }
        Ok(made)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size of everything in it; see [`measure`].
    pub fn measure(&self) -> Measured {
        match self.directory.try_clone() {
            Ok(top) => measure(top),
            Err(_) => Measured::default(),
        }
    }

    /// The device that it is on.
    ///
    /// # Errors
    /// Fails when the kernel does not report it.
    pub fn device(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.directory)?.st_dev)
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path, &self.directory) {
            tracing::error!(
                path = %self.path.display(),
                %error,
                "a script's directory could not be removed"
            );
        }
    }
}

/// Removes a directory with everything in it. Deep trees are flattened on the way, so that neither the
/// stack nor the number of open files depends on their depth.
fn remove(path: &Path, directory: &OwnedFd) -> io::Result<()> {
    let mut flattened = 0_u64;
    let mut left = true;
    while left {
        left = false;
        for (name, kind) in entries(directory.as_fd())? {
            if kind == FileType::Directory {
                left |= empty(directory, &name, &mut flattened)?;
            } else {
                rustix::fs::unlinkat(directory, name.as_c_str(), AtFlags::empty())?;
            }
        }
    }
    std::fs::remove_dir(path)
}

/// Empties one directory of the top level; its own directories move up. Returns whether some did.
fn empty(top: &OwnedFd, name: &std::ffi::CString, flattened: &mut u64) -> io::Result<bool> {
    let mode = Mode::from_raw_mode(0o700);
    // The owner may have removed its own rights. This cannot be a link: its kind was examined
    // without following, and no other process is left to change it.
    let _ = rustix::fs::chmodat(top, name.as_c_str(), mode, AtFlags::empty());
    let inner = rustix::fs::openat(top, name.as_c_str(), directory_flags(), Mode::empty())?;
    let mut moved = false;
    for (entry, kind) in entries(inner.as_fd())? {
        if kind == FileType::Directory {
            if rustix::fs::unlinkat(&inner, entry.as_c_str(), AtFlags::REMOVEDIR).is_ok() {
                continue;
            }
            // Moving a directory changes its `..`, which requires the right to write to it.
            let _ = rustix::fs::chmodat(&inner, entry.as_c_str(), mode, AtFlags::empty());
            *flattened += 1;
            let up = format!("flat-{flattened}");
            rustix::fs::renameat(&inner, entry.as_c_str(), top, up)?;
            moved = true;
        } else {
            rustix::fs::unlinkat(&inner, entry.as_c_str(), AtFlags::empty())?;
        }
    }
    rustix::fs::unlinkat(top, name.as_c_str(), AtFlags::REMOVEDIR)?;
    Ok(moved)
}

/// Removes the directories below `parent` of services that were killed, if they belong to our user.
/// Returns whether none is left.
pub fn sweep(parent: &Path) -> bool {
    let mut clean = true;
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let path = entry.path();
        if name.to_string_lossy().starts_with(PREFIX)
            && let Ok(Some(directory)) = claim_left(&path)
        {
            // A process that is being ended may still write there.
            clean &= remove(&path, &directory).is_ok();
        }
    }
    clean
}

fn directory_flags() -> OFlags {
    OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// The entries of a directory, with their kinds.
pub(crate) fn entries(
    directory: std::os::fd::BorrowedFd<'_>,
) -> io::Result<Vec<(std::ffi::CString, FileType)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            known => known,
        };
        found.push((name.to_owned(), kind));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, sync::atomic::Ordering};

    use super::*;

    #[test]
    fn a_directory_is_measured_and_vanishes_without_touching_what_links_point_to() {
        let parent = tempfile::tempdir().unwrap();
        let canary = parent.path().join("canary");
        fs::write(&canary, "alive").unwrap();
        let scratch = ScratchDirectory::make(parent.path(), None).unwrap();
        let work = scratch.path().join("work");
        fs::write(work.join("a"), vec![1; 10_000]).unwrap();
        symlink(parent.path(), work.join("up")).unwrap();
        let found = scratch.measure();
        assert!((10_000..100_000).contains(&found.bytes), "{found:?}");
        assert_eq!(found.files, 5);
        let path = scratch.path().to_owned();
        drop(scratch);
        assert!(!path.exists());
        assert_eq!(fs::read_to_string(canary).unwrap(), "alive");
    }

    #[test]
    fn e39_deep_and_locked_trees_vanish() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = ScratchDirectory::make(parent.path(), None).unwrap();
        let mut directory = scratch.directory.try_clone().unwrap();
        for level in 0..4000 {
            let name = if level == 0 { "work" } else { "d" };
            if level > 0 {
                rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(0o700)).unwrap();
            }
            directory =
                rustix::fs::openat(&directory, name, directory_flags(), Mode::empty()).unwrap();
        }
        rustix::fs::mkdirat(&directory, "locked", Mode::empty()).unwrap();
        assert_eq!(scratch.measure().files, 4003);
        let path = scratch.path().to_owned();
        drop((directory, scratch));
        assert!(!path.exists());
    }

    #[test]
    fn a_sweep_takes_no_directory_that_is_being_made() {
        let parent = tempfile::tempdir().unwrap();
        let made_all = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !made_all.load(Ordering::Relaxed) {
                    sweep(parent.path());
                }
            });
            let makers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        (0..250)
                            .map(|_| ScratchDirectory::make(parent.path(), None))
                            .filter(|made| !made.as_ref().is_ok_and(|made| made.path().is_dir()))
                            .count()
                    })
                })
                .collect();
            let lost: usize = makers.into_iter().map(|it| it.join().unwrap()).sum();
            made_all.store(true, Ordering::Relaxed);
            assert_eq!(lost, 0);
        });
    }
}
