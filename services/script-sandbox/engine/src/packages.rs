//! Package sets on disk, as scripts use them.
//!
//! A set is a directory below `.sets`, named by its digest, with the libraries in `tree`, prepared files in `caches` and
//! the description in [`MANIFEST`], which is written last: without it there is no set. A link with the name of the set
//! leads there, and is replaced as a whole when the set is built again.

use std::{
    fs::{self, File},
    io,
    num::NonZero,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::FlockOperation;

use crate::domain::{
    limits::Limits,
    package_set::{self, PackageSet},
};

/// The directory of all sets, by digest.
pub const SETS: &str = ".sets";
/// The description of a set.
pub const MANIFEST: &str = "set.json";
/// The libraries of a set.
pub const TREE: &str = "tree";
/// The prepared files of a set.
pub const CACHES: &str = "caches";
/// The directory of package sets in the root of a script.
const PACKAGES: &str = "/packages";
/// The scripts and sessions that use a set, a locked file for each.
const USERS: &str = "users";

/// The package sets below a directory. Sets that are built or removed while the service runs are noticed at the next use.
#[derive(Clone, Debug)]
pub struct PackageStore {
    directory: PathBuf,
}

/// A package set on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packages {
    /// The description.
    pub set: PackageSet,
    /// Its directory.
    directory: PathBuf,
    /// The number of the directory, by which a set that was removed and built again is another one.
    pub(crate) inode: u64,
}

/// The directories of a package set as a script sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The libraries.
    pub tree: PathBuf,
    /// The prepared files.
    pub caches: PathBuf,
}

/// A package set that is in use, which keeps it from being removed.
#[derive(Debug)]
pub struct HeldPackages {
    packages: Arc<Packages>,
    /// Shared lock on the description; none for a set that is being built, which has none.
    _used: Option<File>,
    /// The locked file that names the user, if the directory can be written.
    user: Option<(PathBuf, File)>,
}

/// A package set that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// No set has this name.
    #[error("no package set is named `{name}`; there are: {}", listed(.known))]
    Unknown {
        /// The requested name.
        name: String,
        /// The names of all sets.
        known: Vec<String>,
    },
    /// The set does not fit the runtime or this machine.
    #[error("the package set `{name}` cannot be used: {problem}")]
    Unfit {
        /// The name.
        name: String,
        /// The reason, with the remedy.
        problem: String,
    },
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "none; the operator builds one with `tavern packages build`".to_owned(),
        names => names.join(", "),
    }
}

/// Whether a text is the name of a set: a letter or digit, then letters, digits, `_` and `-`; at most 64 bytes.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    text.len() <= 64
        && text.bytes().all(plain)
        && text
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_alphanumeric())
}

impl PackageStore {
    /// Takes the directory of the sets, which need not exist. Empty: there are no sets.
    pub fn new(directory: &Path) -> Self {
        let absolute = std::path::absolute(directory);
        Self {
            directory: absolute.unwrap_or_default(),
        }
    }

    /// The directory of the sets.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Every set, by name. A set whose description cannot be read is left out.
    pub fn list(&self) -> Vec<Packages> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| is_name(name)).collect();
        names.sort();
        let found = names.iter().filter_map(|name| self.read(name).ok());
        found.collect()
    }

    /// The set of a name.
    ///
    /// # Errors
    /// There is none, or its description cannot be read.
    pub fn named(&self, name: &str) -> Result<Packages, PackageError> {
        let found = match is_name(name) {
            true => self.read(name),
            false => Err(io::ErrorKind::NotFound.into()),
        };
        found.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.unknown(name),
            _ => PackageError::Unfit {
                name: name.to_owned(),
                problem: format!("its description cannot be read: {error}"),
            },
        })
    }

    /// The set of a name, for an interpreter of this runtime, of which there are these versions.
    ///
    /// # Errors
    /// There is none, or it does not fit.
    pub fn find(
        &self,
        name: &str,
        runtime: &str,
        versions: &[&str],
    ) -> Result<Packages, PackageError> {
        let packages = self.named(name)?;
        let fits = packages.set.check(runtime, versions);
        fits.map_err(|problem| PackageError::Unfit {
            name: name.to_owned(),
            problem,
        })?;
        Ok(packages)
    }

    /// Holds the set of a name, as [`Self::find`] finds it, for a user such as a session until the value is dropped.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn hold(
        &self,
        name: &str,
        runtime: &str,
        versions: &[&str],
        user: &str,
    ) -> Result<HeldPackages, PackageError> {
        /// A set that is built again is gone for a moment.
        const TRIES: usize = 3;
        for _ in 0..TRIES {
            if let Some(held) = self.find(name, runtime, versions)?.hold(user) {
                return Ok(held);
            }
        }
        Err(self.unknown(name))
    }

    /// The directory of the set of a name, whether or not its description can be read.
    ///
    /// # Errors
    /// There is none.
    pub fn place(&self, name: &str) -> Result<PathBuf, PackageError> {
        let place = fs::canonicalize(self.directory.join(name));
        let place = place.ok().filter(|_| is_name(name));
        place.ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> PackageError {
        PackageError::Unknown {
            name: name.to_owned(),
            known: self.list().into_iter().map(|it| it.set.name).collect(),
        }
    }

    fn read(&self, name: &str) -> io::Result<Packages> {
        let directory = fs::canonicalize(self.directory.join(name))?;
        let text = fs::read(directory.join(MANIFEST))?;
        let set: PackageSet = serde_json::from_slice(&text)?;
        Ok(Packages::new(set, directory))
    }
}

impl Packages {
    /// A set in this directory.
    pub fn new(set: PackageSet, directory: PathBuf) -> Self {
        let inode = fs::metadata(&directory).map_or(0, |about| about.ino());
        Self {
            set,
            directory,
            inode,
        }
    }

    /// The set as a script sees it that has no root of its own.
    pub(crate) fn on_host(&self) -> Library {
        Library::below(&self.directory)
    }

    /// The set as a script sees it in its own root, where it has the same place on every host.
    pub(crate) fn inside(&self) -> Library {
        Library::below(&Path::new(PACKAGES).join(&self.set.name))
    }

    /// The directories that a script with the set has to see.
    pub(crate) fn readable(&self) -> Vec<PathBuf> {
        self.parts(&self.on_host())
    }

    /// The same directories, with their places in the script's own root.
    pub(crate) fn moved(&self) -> Vec<(PathBuf, PathBuf)> {
        let inside = self.parts(&self.inside());
        self.readable().into_iter().zip(inside).collect()
    }

    fn parts(&self, library: &Library) -> Vec<PathBuf> {
        let caches = (!self.set.caches.is_empty()).then(|| library.caches.clone());
        std::iter::once(library.tree.clone())
            .chain(caches)
            .collect()
    }

    /// Holds the set for a user until the value is dropped; `None` if it has been removed meanwhile.
    fn hold(self, user: &str) -> Option<HeldPackages> {
        let manifest = self.directory.join(MANIFEST);
        let used = File::open(&manifest).ok()?;
        rustix::fs::flock(&used, FlockOperation::NonBlockingLockShared).ok()?;
        // The lock of a file that was removed keeps nothing.
        let (held, there) = (used.metadata().ok()?, fs::metadata(&manifest).ok()?);
        if held.ino() != there.ino() {
            return None;
        }
        // A service that may not write here cannot remove the set either, so that its users need no names.
        let user = claim(&self.directory.join(USERS), user).ok();
        Some(HeldPackages {
            packages: Arc::new(self),
            _used: Some(used),
            user,
        })
    }

    /// The set while it is being built, by its only user.
    pub fn unfinished(self) -> HeldPackages {
        HeldPackages {
            packages: Arc::new(self),
            _used: None,
            user: None,
        }
    }

    /// The digest, and the number of the directory.
    pub(crate) fn identity(&self) -> (&str, u64) {
        (&self.set.digest, self.inode)
    }

    /// The directory of the set.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Library {
    fn below(directory: &Path) -> Self {
        Self {
            tree: directory.join(TREE),
            caches: directory.join(CACHES),
        }
    }
}

/// Claims the set in a directory alone, so that it can be removed; no use begins until the lock is dropped. Without a
/// description there is no set, and nothing to claim.
///
/// # Errors
/// The names of its users.
pub fn claim_alone(directory: &Path) -> Result<Option<File>, Vec<String>> {
    let Ok(manifest) = File::open(directory.join(MANIFEST)) else {
        return Ok(None);
    };
    match rustix::fs::flock(&manifest, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(manifest)),
        Err(_) => Err(users(&directory.join(USERS))),
    }
}

/// The number of threads of numeric libraries in a script with these limits.
pub(crate) fn threads(limits: &Limits) -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    package_set::threads(limits, processors)
}

fn claim(directory: &Path, user: &str) -> io::Result<(PathBuf, File)> {
    fs::create_dir_all(directory)?;
    let path = directory.join(user);
    let file = File::create(&path)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok((path, file))
}

/// The users whose files are locked; others belong to services that were killed.
fn users(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let alive = entries.filter(|entry| {
        let locked =
            |file: File| rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err();
        File::open(entry.path()).is_ok_and(locked)
    });
    let mut names: Vec<String> = alive
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

impl HeldPackages {
    /// The set.
    pub fn packages(&self) -> &Arc<Packages> {
        &self.packages
    }
}

impl Drop for HeldPackages {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.user {
            // A file that stays is recognized by its missing lock.
            let _ = fs::remove_file(path);
        }
    }
}
