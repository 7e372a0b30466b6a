//! A value that is made again when the files that it is made of change.
//!
//! The content is compared, not the time of a change: so it makes no difference whether a file is written in place,
//! replaced, or reached by a symlink that changes its target, as mounted secrets do.

use std::{
    collections::hash_map::RandomState,
    fmt, fs,
    hash::BuildHasher,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::error::TlsError;

/// The largest file that is read, in bytes: a file with the CAs of a machine has a quarter of it.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A file as it was read.
pub(super) struct Content {
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

impl Content {
    pub(super) fn read(path: &Path) -> Result<Self, TlsError> {
        let failed = |source| TlsError::Read {
            path: path.to_owned(),
            source,
        };
        let mut bytes = Vec::new();
        let file = fs::File::open(path).map_err(failed)?;
        let mut bounded = file.take(MAX_FILE_BYTES + 1);
        bounded.read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(failed(io::Error::other("it is larger than 1MiB")));
        }
        Ok(Self {
            path: path.to_owned(),
            bytes,
        })
    }
}

type Make<T> = Box<dyn Fn(&[Content]) -> Result<T, TlsError> + Send + Sync>;

/// A value made of files.
pub(super) struct FromFiles<T> {
    paths: Vec<PathBuf>,
    make: Make<T>,
    hasher: RandomState,
    /// Locked for a moment, never while files are read.
    state: Mutex<InForce<T>>,
}

struct InForce<T> {
    value: Arc<T>,
    /// The fingerprint of the files that the value was made of.
    made_of: u64,
    /// The fingerprint of files that one look found unfit: it may have seen a certificate without its key.
    doubtful: Option<u64>,
    /// The fingerprint of the files that were refused and reported.
    refused: Option<u64>,
}

/// The result of a look at the files.
#[derive(Debug)]
pub(crate) enum Look {
    /// They have not changed since the last look, or they are about to be written.
    Unchanged,
    /// A new value is in force.
    Renewed,
    /// The files are refused, and the earlier value stays in force.
    Refused(TlsError),
    /// Files that were refused are as they were before.
    Restored,
}

impl<T> fmt::Debug for FromFiles<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FromFiles").field(&self.paths).finish()
    }
}

impl<T> FromFiles<T> {
    /// Makes the first value; the files are given to `make` in the order of `paths`.
    pub(super) fn new(
        paths: Vec<PathBuf>,
        make: impl Fn(&[Content]) -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        let hasher = RandomState::new();
        let (fingerprint, files) = read(&paths, &hasher);
        let value = make(&files?)?;
        Ok(Self {
            paths,
            make: Box::new(make),
            hasher,
            state: Mutex::new(InForce {
                value: Arc::new(value),
                made_of: fingerprint,
                doubtful: None,
                refused: None,
            }),
        })
    }

    /// Returns the value in force.
    pub(super) fn get(&self) -> Arc<T> {
        Arc::clone(&self.state().value)
    }

    /// Whether the files are refused, so that an earlier value is in force.
    pub(super) fn is_refused(&self) -> bool {
        self.state().refused.is_some()
    }

    /// Reads the files, and makes a new value if they have changed. Files are refused when two looks in a row find
    /// them unfit, and reported once.
    pub(super) fn look(&self) -> Look {
        let (fingerprint, files) = read(&self.paths, &self.hasher);
        {
            let mut state = self.state();
            if fingerprint == state.made_of {
                state.doubtful = None;
                return match state.refused.take() {
                    Some(_) => Look::Restored,
                    None => Look::Unchanged,
                };
            }
            if state.refused == Some(fingerprint) {
                return Look::Unchanged;
            }
        }
        let made = files.and_then(|files| (self.make)(&files));
        let mut state = self.state();
        match made {
            Ok(value) => {
                state.value = Arc::new(value);
                state.made_of = fingerprint;
                state.doubtful = None;
                state.refused = None;
                Look::Renewed
            }
            Err(error) if state.doubtful == Some(fingerprint) => {
                state.doubtful = None;
                state.refused = Some(fingerprint);
                Look::Refused(error)
            }
            Err(_) => {
                state.doubtful = Some(fingerprint);
                Look::Unchanged
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, InForce<T>> {
        // Each change is one assignment after the other without a panic between them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the files, with a fingerprint of their content; of a file that cannot be read, of the error.
fn read(paths: &[PathBuf], hasher: &RandomState) -> (u64, Result<Vec<Content>, TlsError>) {
    let files: Vec<_> = paths.iter().map(|path| Content::read(path)).collect();
    let seen: Vec<_> = files
        .iter()
        .map(|file| match file {
            Ok(content) => Ok(&content.bytes),
            Err(error) => Err(crate::failure::chain(error)),
        })
        .collect();
    let fingerprint = hasher.hash_one(&seen);
    (fingerprint, files.into_iter().collect())
}
