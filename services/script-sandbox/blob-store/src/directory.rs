//! Blobs on disk: `<caller>/<digest>-<size>`, and `incoming/` for incomplete ones. The name of a caller of a tenant
//! other than the default one begins with the tenant.
//!
//! The directory is held open and all files are reached beneath it. A blob appears by one rename,
//! so that a crash leaves either the whole blob or a file in `incoming/`, which the next start
//! removes.

use std::{
    collections::HashSet,
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Timespec, Timestamps,
        UTIME_OMIT,
    },
    io::Errno,
};

use crate::{BlobDigest, caller::Caller, error::OpenError, key::Key};

/// The directory of a blob while it is being received.
const INCOMING: &str = "incoming";

/// The beginning of the names of directories for temporary blobs.
const TEMPORARY: &str = "tavern-blobs-";

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// The name of a blob's file. It includes the size, so that a truncated file is recognized by its
/// metadata.
#[derive(Clone, Debug)]
pub(crate) struct FileName {
    caller: String,
    path: String,
}

impl FileName {
    pub(crate) fn new(key: &Key, size: u64) -> Self {
        let caller = key.caller.directory().to_owned();
        let path = format!("{caller}/{}-{size}", key.digest);
        Self { caller, path }
    }
}

/// A blob that is stored in the directory.
#[derive(Debug)]
pub(crate) struct BlobFile {
    pub(crate) key: Key,
    pub(crate) size: u64,
    pub(crate) used: SystemTime,
}

/// The directory of the blobs; a temporary one is removed with its content when it is dropped.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Locked, so that one process uses it at a time.
    root: OwnedFd,
    temporary: bool,
    next: AtomicU64,
}

impl Directory {
    /// Opens the directory at `path`, or a new temporary one if that is empty.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let temporary = path.as_os_str().is_empty();
        let opened = if temporary {
            remove_abandoned();
            let made = claim_new(&std::env::temp_dir(), TEMPORARY, 0o700);
            made.map(|(path, root)| (path, Some(root)))
        } else {
            make(path).and_then(|()| Ok((path.to_owned(), claim(path)?)))
        };
        let unusable = OpenError::at(path);
        let (path, root) = opened.map_err(&unusable)?;
        let Some(root) = root else {
            return Err(OpenError::InUse { path });
        };
        match rustix::fs::mkdirat(&root, INCOMING, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(unusable(error.into())),
        }
        Ok(Self {
            path,
            root,
            temporary,
            next: AtomicU64::new(0),
        })
    }

    /// Its path.
    #[cfg(test)]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The complete blobs, the least recently used first. Incomplete ones are removed.
    pub(crate) fn scan(&self) -> Result<Vec<BlobFile>, OpenError> {
        let mut found = Vec::new();
        self.look(&mut found).map_err(|error| OpenError::Unusable {
            path: self.path.clone(),
            source: error.into(),
        })?;
        found.sort_by_key(|blob| blob.used);
        Ok(found)
    }

    /// Removes the blobs that are not in a list.
    pub(crate) fn keep(&self, stored: Vec<BlobFile>, list: &[BlobFile]) -> io::Result<()> {
        let listed: HashSet<_> = list.iter().map(|blob| (&blob.key, blob.size)).collect();
        for blob in stored {
            if !listed.contains(&(&blob.key, blob.size)) {
                self.remove(&FileName::new(&blob.key, blob.size))?;
            }
        }
        Ok(())
    }

    fn look(&self, found: &mut Vec<BlobFile>) -> Result<(), Errno> {
        for name in names(&self.root)? {
            if name == INCOMING {
                let incoming = open_directory(&self.root, INCOMING)?;
                for left in names(&incoming)? {
                    rustix::fs::unlinkat(&incoming, left.as_str(), AtFlags::empty())?;
                }
            } else if let Some(caller) = Caller::from_directory(&name) {
                let directory = open_directory(&self.root, &name)?;
                for file in names(&directory)? {
                    match read_blob(&directory, &caller, &file)? {
                        Some(blob) => found.push(blob),
                        None => {
                            tracing::warn!(file, "removed a file that is not a whole blob");
                            rustix::fs::unlinkat(&directory, file.as_str(), AtFlags::empty())?;
                        }
                    }
                }
                remove_if_empty(&self.root, &name);
            }
        }
        Ok(())
    }

    /// Makes a file for a blob that is being received; returns its name.
    pub(crate) fn begin(&self) -> io::Result<(String, File)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{INCOMING}/{number}");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat2(&self.root, name.as_str(), flags, mode, BENEATH)?;
        Ok((name, file.into()))
    }

    /// Gives a complete file its final name.
    pub(crate) fn finish(&self, incoming: &str, blob: &FileName) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.root, blob.caller.as_str(), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let to = blob.path.as_str();
        Ok(rustix::fs::renameat(&self.root, incoming, &self.root, to)?)
    }

    /// Removes a file that will not become a blob.
    pub(crate) fn give_up(&self, incoming: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(
            &self.root,
            incoming,
            AtFlags::empty(),
        )?)
    }

    /// Opens a blob for reading.
    pub(crate) fn read(&self, blob: &FileName) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let path = blob.path.as_str();
        let file = rustix::fs::openat2(&self.root, path, flags, Mode::empty(), BENEATH)?;
        Ok(file.into())
    }

    /// Removes a blob.
    pub(crate) fn remove(&self, blob: &FileName) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.root, blob.path.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        remove_if_empty(&self.root, &blob.caller);
        Ok(())
    }

    /// Records the time of a use of a blob.
    pub(crate) fn touch(&self, blob: &FileName, now: SystemTime) -> io::Result<()> {
        let since = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(since.subsec_nanos()),
            },
        };
        let (path, flags) = (blob.path.as_str(), AtFlags::SYMLINK_NOFOLLOW);
        Ok(rustix::fs::utimensat(&self.root, path, &times, flags)?)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.temporary
            && let Err(error) = remove(&self.root, &self.path)
        {
            tracing::error!(path = %self.path.display(), %error, "temporary blobs could not be removed");
        }
    }
}

fn directory_flags() -> OFlags {
    OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn open_directory(above: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(above, name, directory_flags(), Mode::empty(), BENEATH)
}

fn make(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// Makes and claims a directory below `parent` whose name begins with `prefix` and the process's
/// id, and cannot be guessed: a process that knows a path can read the sizes and times of the files
/// there.
///
/// # Errors
/// Fails when it cannot be made.
pub fn claim_new(parent: &Path, prefix: &str, mode: u32) -> io::Result<(PathBuf, OwnedFd)> {
    let mut builder = fs::DirBuilder::new();
    builder.mode(mode);
    loop {
        let secret = uuid::Uuid::new_v4().simple();
        let path = parent.join(format!("{prefix}{}-{secret}", std::process::id()));
        match builder.create(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        }
        // A process that starts at this moment may have taken it for a leftover.
        if let Some(directory) = claim(&path)? {
            return Ok((path, directory));
        }
    }
}

/// Opens and locks a directory; `None` where another process has locked or removed it. The kernel
/// releases the lock when the process dies in any way.
///
/// # Errors
/// Fails when it cannot be opened.
pub fn claim(path: &Path) -> io::Result<Option<OwnedFd>> {
    let directory = match rustix::fs::open(path, directory_flags(), Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    let held = rustix::fs::fstat(&directory)?;
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let there = rustix::fs::stat(path).is_ok_and(|it| it.st_ino == held.st_ino);
    Ok(there.then_some(directory))
}

/// Does the same for a directory that an earlier process of our user may have left.
///
/// # Errors
/// Fails when it cannot be opened.
pub fn claim_left(path: &Path) -> io::Result<Option<OwnedFd>> {
    let own = rustix::process::geteuid().as_raw();
    let is_own =
        |directory: &OwnedFd| rustix::fs::fstat(directory).is_ok_and(|it| it.st_uid == own);
    Ok(claim(path)?.filter(is_own))
}

/// Removes the temporary directories of processes that were killed, and skips those that cannot be
/// removed.
fn remove_abandoned() {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(TEMPORARY))
            && let Ok(Some(root)) = claim_left(&path)
        {
            let _ = remove(&root, &path);
        }
    }
}

/// Removes a directory of blobs: files, and directories with files.
fn remove(root: &OwnedFd, path: &Path) -> io::Result<()> {
    for name in names(root)? {
        if let Ok(inner) = open_directory(root, &name) {
            for file in names(&inner)? {
                rustix::fs::unlinkat(&inner, file.as_str(), AtFlags::empty())?;
            }
            rustix::fs::unlinkat(root, name.as_str(), AtFlags::REMOVEDIR)?;
        } else {
            rustix::fs::unlinkat(root, name.as_str(), AtFlags::empty())?;
        }
    }
    fs::remove_dir(path)
}

/// Removes a caller's directory unless another blob keeps it, which is no failure.
fn remove_if_empty(root: &OwnedFd, caller: &str) {
    let _ = rustix::fs::unlinkat(root, caller, AtFlags::REMOVEDIR);
}

/// The names in a directory; a name that is no UTF-8 is not ours.
fn names(directory: &OwnedFd) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().to_str()
            && !matches!(name, "." | "..")
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Reads the name of a file and compares it with the file; `None` if it is not a complete blob.
fn read_blob(directory: &OwnedFd, caller: &Caller, name: &str) -> Result<Option<BlobFile>, Errno> {
    let parts = name.split_once('-');
    let parts = parts
        .and_then(|(digest, size)| Some((BlobDigest::parse(digest)?, size.parse::<u64>().ok()?)));
    let Some((digest, size)) = parts else {
        return Ok(None);
    };
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let whole = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && u64::try_from(stat.st_size) == Ok(size);
    let seconds = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    let nanos = Duration::from_nanos(stat.st_mtime_nsec);
    Ok(whole.then(|| BlobFile {
        key: Key::new(caller, digest),
        size,
        used: SystemTime::UNIX_EPOCH + seconds + nanos,
    }))
}
