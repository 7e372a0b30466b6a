//! The profiles of a directory.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use agent_domain::profile::{self, MAX_PROFILE_BYTES, Profile};
use core_types::LoadDiagnostic;
use settings::text_file;

/// The most files that are looked at.
const MAX_FILES: usize = 10_000;

/// The profiles of a directory by id.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) by_id: BTreeMap<String, Arc<Profile>>,
    by_path: BTreeMap<PathBuf, Arc<Profile>>,
    /// A finding for each file that was left out, at most [`LoadDiagnostic::MAX`].
    pub(super) left_out: Vec<LoadDiagnostic>,
}

impl Files {
    /// Reads `*.json` in `directory` and `agent_profile.json` one level below.
    ///
    /// A file that cannot be read is left out, and the log names it with everything that is wrong; if it
    /// could be read `before`, it stays as it was (rule G103). Of two profiles with one id, the one whose
    /// path comes first counts.
    pub(super) fn load(directory: &Path, before: &Self) -> io::Result<Self> {
        let mut loaded = Self::default();
        for file in files(directory)? {
            let path = file.display();
            let profile = match read(&file) {
                Ok(profile) => Arc::new(profile),
                Err(mut problem) => {
                    let earlier = before.by_path.get(&file);
                    if earlier.is_some() {
                        problem.push_str("; the profile as it was before stays in force");
                    }
                    tracing::warn!(%path, problem, "an agent profile cannot be read");
                    let path = below(directory, &file);
                    loaded
                        .left_out
                        .push(LoadDiagnostic::left_out(path, &problem));
                    match earlier {
                        Some(earlier) => Arc::clone(earlier),
                        None => continue,
                    }
                }
            };
            let id = profile.id.to_string();
            if loaded.by_id.contains_key(&id) {
                tracing::warn!(%path, id, "an agent profile is left out: its id is taken by an earlier file");
                let problem = format!("its id `{id}` is taken by an earlier file; choose another");
                let path = below(directory, &file);
                loaded
                    .left_out
                    .push(LoadDiagnostic::left_out(path, &problem));
                continue;
            }
            for finding in &profile.diagnostics {
                tracing::warn!(%path, id, %finding, "an agent profile asks for something that has no effect");
            }
            loaded.by_path.insert(file, Arc::clone(&profile));
            loaded.by_id.insert(id, profile);
        }
        loaded.left_out.truncate(LoadDiagnostic::MAX);
        Ok(loaded)
    }
}

/// What the files of a directory look like from outside: path, time of change and size.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Look(Vec<(PathBuf, Option<SystemTime>, u64)>);

impl Look {
    /// Looks at the files of a directory; those of one that cannot be listed are none.
    pub fn at(directory: &Path) -> Self {
        let look = |file: PathBuf| {
            let metadata = fs::metadata(&file).ok()?;
            Some((file, metadata.modified().ok(), metadata.len()))
        };
        let files = files(directory).unwrap_or_default();
        Self(files.into_iter().filter_map(look).collect())
    }
}

/// Returns the path of a file below the directory.
fn below(directory: &Path, file: &Path) -> String {
    let path = file.strip_prefix(directory).unwrap_or(file);
    path.display().to_string()
}

fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)?.take(MAX_FILES) {
        let path = entry?.path();
        let nested = path.join("agent_profile.json");
        if path.is_dir() && nested.is_file() {
            files.push(nested);
        } else if path.is_file()
            && path
                .extension()
                .is_some_and(|extension| extension == "json")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> Result<Profile, String> {
    let text = read_text(file, MAX_PROFILE_BYTES)?;
    profile::read(&text).map_err(|error| error.to_string())
}

/// Returns the paths of `*.json` in a directory, in order.
pub(crate) fn json_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = files(directory)?;
    paths.retain(|path| path.parent() == Some(directory));
    Ok(paths)
}

/// Reads a file of at most `most` bytes.
pub(crate) fn read_text(file: &Path, most: usize) -> Result<String, String> {
    text_file::read(file, most as u64).map_err(|error| error.to_string())
}
