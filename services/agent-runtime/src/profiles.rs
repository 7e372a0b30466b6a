//! The agent profiles of a directory.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use core_types::LoadDiagnostic;

use crate::domain::profile::{self, MAX_PROFILE_BYTES, Profile};

/// The most files that are looked at.
const MAX_FILES: usize = 10_000;

/// The profiles by id. Clone, cheap.
#[derive(Clone, Debug, Default)]
pub struct Profiles {
    by_id: Arc<BTreeMap<String, Arc<Profile>>>,
    left_out: Arc<[LoadDiagnostic]>,
}

impl Profiles {
    /// Reads `*.json` in `directory` and `agent_profile.json` one level below.
    ///
    /// A file that cannot be read is left out, and the log names it with everything that is wrong.
    /// Of two profiles with one id, the one whose path comes first counts.
    pub fn load(directory: &Path) -> Self {
        let mut by_id = BTreeMap::new();
        let mut left_out = Vec::new();
        let files = match files(directory) {
            Ok(files) => files,
            Err(error) => {
                let path = directory.display();
                tracing::warn!(%path, %error, "the directory of agent profiles cannot be read; there are no agents");
                return Self::default();
            }
        };
        for file in files {
            let path = file.display();
            let profile = match read(&file) {
                Ok(profile) => profile,
                Err(problem) => {
                    tracing::warn!(%path, problem, "an agent profile is left out");
                    left_out.push(LoadDiagnostic::left_out(below(directory, &file), &problem));
                    continue;
                }
            };
            let id = profile.id.to_string();
            if by_id.contains_key(&id) {
                tracing::warn!(%path, id, "an agent profile is left out: its id is taken by an earlier file");
                let problem = format!("its id `{id}` is taken by an earlier file; choose another");
                left_out.push(LoadDiagnostic::left_out(below(directory, &file), &problem));
                continue;
            }
            for finding in &profile.diagnostics {
                tracing::warn!(%path, id, %finding, "an agent profile asks for something that has no effect");
            }
            by_id.insert(id, Arc::new(profile));
        }
        left_out.truncate(LoadDiagnostic::MAX);
        Self {
            by_id: Arc::new(by_id),
            left_out: left_out.into(),
        }
    }

    /// Returns a finding for each file that was left out, at most [`LoadDiagnostic::MAX`].
    pub fn left_out(&self) -> &[LoadDiagnostic] {
        &self.left_out
    }

    /// Returns the profile with this id.
    pub fn get(&self, id: &str) -> Option<Arc<Profile>> {
        self.by_id.get(id).cloned()
    }

    /// Returns the profiles by id, those after `id` only.
    pub fn after<'a>(&'a self, id: Option<&'a str>) -> impl Iterator<Item = &'a Arc<Profile>> {
        self.by_id
            .iter()
            .filter(move |(known, _)| id.is_none_or(|id| known.as_str() > id))
            .map(|(_, profile)| profile)
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
    let size = fs::metadata(file).map_err(|error| error.to_string())?.len();
    if usize::try_from(size).map_or(true, |size| size > MAX_PROFILE_BYTES) {
        return Err(format!(
            "it has {size} bytes; {MAX_PROFILE_BYTES} are the most"
        ));
    }
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    profile::read(&text).map_err(|error| error.to_string())
}
