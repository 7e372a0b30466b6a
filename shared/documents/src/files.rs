//! The documents of a directory.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use core_types::LoadDiagnostic;
use settings::text_file;

use crate::kind::{FilePlace, Kind};

/// The most files that are looked at.
const MAX_FILES: usize = 10_000;

/// Differences between two readings of a directory. A file that is not valid counts as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileChanges {
    /// The ids of new files, in order.
    pub added: Vec<String>,
    /// The ids of files with another document, in order.
    pub changed: Vec<String>,
    /// The ids of files that are gone, in order.
    pub removed: Vec<String>,
}

/// The paths, times of change and sizes of the files of a directory, by which a change is noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint(Vec<(PathBuf, Option<SystemTime>, u64)>);

impl Fingerprint {
    /// Lists the `*.json` of a directory, and `nested` one level below; a directory that cannot be
    /// listed has none.
    pub fn at(directory: &Path, nested: &str) -> Self {
        let look = |file: PathBuf| {
            let metadata = fs::metadata(&file).ok()?;
            Some((file, metadata.modified().ok(), metadata.len()))
        };
        let files = paths(directory, nested).unwrap_or_default();
        Self(files.into_iter().filter_map(look).collect())
    }
}

/// The documents of a directory by id, as they were when it was read.
#[derive(Debug)]
pub(crate) struct Files<K: Kind> {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) by_id: BTreeMap<String, Arc<K::Document>>,
    by_path: BTreeMap<PathBuf, Arc<K::Document>>,
    /// The mistakes of files that are not valid, by name without extension.
    pub(crate) invalid: BTreeMap<String, K::Invalid>,
    /// A finding for each file that was left out, at most [`LoadDiagnostic::MAX`].
    pub(crate) left_out: Vec<LoadDiagnostic>,
}

impl<K: Kind> Default for Files<K> {
    fn default() -> Self {
        Self {
            fingerprint: Fingerprint::default(),
            by_id: BTreeMap::new(),
            by_path: BTreeMap::new(),
            invalid: BTreeMap::new(),
            left_out: Vec::new(),
        }
    }
}

impl<K: Kind> Files<K> {
    /// Reads every file of a directory; an empty path is no directory.
    ///
    /// A file that cannot be read is left out, and the log names it with all its problems. Of two
    /// documents with one id, the document whose path comes first counts.
    pub(crate) fn read(kind: &K, directory: &Path, before: &Self) -> io::Result<Self> {
        let mut read = Self::default();
        if directory.as_os_str().is_empty() {
            return Ok(read);
        }
        read.fingerprint = Fingerprint::at(directory, K::NESTED);
        let mut texts = BTreeMap::new();
        let mut files = Vec::new();
        for path in paths(directory, K::NESTED)? {
            let stem = path.file_stem().unwrap_or_default();
            let stem = stem.to_string_lossy().into_owned();
            let text = text_file::read(&path, K::MAX_BYTES as u64).map(Arc::<str>::from);
            if let Ok(text) = &text {
                texts.insert(stem.clone(), Arc::clone(text));
            }
            files.push((path, stem, text));
        }
        let texts = Arc::new(texts);
        for (path, stem, text) in files {
            let place = FilePlace {
                stem: &stem,
                texts: &texts,
            };
            let document = match text {
                Ok(text) => kind.read_file(&place, &text),
                Err(error) => Err(kind.unreadable(error.to_string())),
            };
            let shown = path.strip_prefix(directory).unwrap_or(&path);
            let shown = shown.display().to_string();
            match document {
                Ok(document) => read.add(kind, path, &shown, Arc::new(document)),
                Err(invalid) => read.leave_out(kind, path, &shown, stem, invalid, before),
            }
        }
        read.left_out.truncate(LoadDiagnostic::MAX);
        Ok(read)
    }

    fn add(&mut self, kind: &K, path: PathBuf, shown: &str, document: Arc<K::Document>) {
        let id = K::id(&document).to_owned();
        if self.by_id.contains_key(&id) {
            let name = K::NAME;
            tracing::warn!(
                path = shown,
                id,
                "a {name} is left out: its id is taken by an earlier file"
            );
            let problem = format!("its id `{id}` is taken by an earlier file; choose another");
            self.left_out
                .push(LoadDiagnostic::left_out(shown, &problem));
            return;
        }
        kind.remark(shown, &document);
        self.by_path.insert(path, Arc::clone(&document));
        self.by_id.insert(id, document);
    }

    fn leave_out(
        &mut self,
        kind: &K,
        path: PathBuf,
        shown: &str,
        stem: String,
        invalid: K::Invalid,
        before: &Self,
    ) {
        let earlier = before.by_path.get(&path).filter(|_| K::KEEPS_LAST_GOOD);
        let mut problem = invalid.to_string();
        if earlier.is_some() {
            problem.push_str("; it stays in force as it was before");
        }
        tracing::warn!(path = shown, problem, "a {} cannot be read", K::NAME);
        self.left_out
            .push(LoadDiagnostic::left_out(shown, &problem));
        match earlier {
            Some(earlier) => self.add(kind, path, shown, Arc::clone(earlier)),
            None => {
                self.invalid.insert(stem, invalid);
            }
        }
    }

    /// Returns the differences from an earlier reading.
    pub(crate) fn changes_since(&self, before: &Self) -> FileChanges {
        let mut changes = FileChanges::default();
        for (id, document) in &self.by_id {
            match before.by_id.get(id) {
                None => changes.added.push(id.clone()),
                Some(earlier) if K::etag(earlier) != K::etag(document) => {
                    changes.changed.push(id.clone());
                }
                Some(_) => {}
            }
        }
        let gone = before.by_id.keys();
        let gone = gone.filter(|id| !self.by_id.contains_key(*id));
        changes.removed = gone.cloned().collect();
        changes
    }
}

/// Returns the paths of the `*.json` of a directory, and of `nested` one level below, in order; at most 10,000.
///
/// # Errors
/// A directory that cannot be listed.
pub fn paths(directory: &Path, nested: &str) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        if paths.len() >= MAX_FILES {
            tracing::error!(directory = %directory.display(), "more than {MAX_FILES} files; the others are left out");
            break;
        }
        let path = entry?.path();
        let below = path.join(nested);
        let is_json = path
            .extension()
            .is_some_and(|extension| extension == "json");
        if !nested.is_empty() && path.is_dir() && below.is_file() {
            paths.push(below);
        } else if is_json && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
