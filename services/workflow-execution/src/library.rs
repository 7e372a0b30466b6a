//! All definitions: the files of the workflows directory and what was saved.

mod plans;

use call_outcome::Violation;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use core_types::{LoadDiagnostic, WorkflowId};
use grpc_kit::Failure;

use crate::domain::compile::compile_text;
use crate::domain::diagnose::diagnose;
use crate::domain::limits::MAX_DEFINITION_BYTES;
use crate::domain::load::load;
use crate::domain::node_type::Catalogue;
use crate::domain::plan::Plan;
use crate::error::{Error, store_failure, workflow_invalid, workflow_not_found};
use crate::store::{Put, PutOutcome, Store, StoredWorkflow};

use plans::Plans;

/// The most files that are read from the workflows directory.
const MAX_FILES: usize = 10_000;

/// All definitions.
#[derive(Debug)]
pub struct Library {
    files: BTreeMap<String, File>,
    store: Arc<dyn Store>,
    catalogue: Arc<Catalogue>,
    plans: Plans,
}

/// A file of the workflows directory.
#[derive(Debug)]
enum File {
    Good(Arc<str>),
    Broken(Vec<Violation>),
}

/// A definition as it is stored.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The id.
    pub id: String,
    /// The text.
    pub text: Arc<str>,
}

impl Library {
    /// Reads every file of `directory`. A file that is no workflow is logged and kept out; an
    /// empty path is no directory.
    ///
    /// # Errors
    /// A directory that cannot be listed.
    pub fn open(
        directory: &Path,
        store: Arc<dyn Store>,
        catalogue: Arc<Catalogue>,
    ) -> Result<Self, Error> {
        let files = if directory.as_os_str().is_empty() {
            BTreeMap::new()
        } else {
            read_directory(directory, &catalogue).map_err(|source| Error::Workflows {
                path: directory.to_owned(),
                source,
            })?
        };
        Ok(Self {
            files,
            store,
            catalogue,
            plans: Plans::default(),
        })
    }

    /// Returns the node types.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// Returns the store of what was saved.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Says whether the id belongs to a file, which nobody can replace.
    pub fn is_file(&self, id: &str) -> bool {
        self.files.contains_key(id)
    }

    /// Finds a definition.
    ///
    /// # Errors
    /// WORKFLOW_NOT_FOUND, or WORKFLOW_INVALID for a file that is none.
    pub async fn get(&self, id: &str) -> Result<Definition, Failure> {
        match self.files.get(id) {
            Some(File::Good(text)) => {
                return Ok(Definition {
                    id: id.to_owned(),
                    text: Arc::clone(text),
                });
            }
            Some(File::Broken(violations)) => {
                return Err(workflow_invalid("definition_json", violations));
            }
            None => {}
        }
        let found = self
            .store
            .get(id)
            .await
            .map_err(|error| store_failure(&error))?;
        found
            .map(Definition::from)
            .ok_or_else(|| workflow_not_found(id))
    }

    /// Returns the ids after `after`, in order, at most `limit`. Files that are none are left out.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn ids(&self, after: &str, limit: usize) -> Result<Vec<String>, Failure> {
        let mut ids = self
            .store
            .ids(after, limit)
            .await
            .map_err(|error| store_failure(&error))?;
        let good = self
            .files
            .iter()
            .filter(|(_, file)| matches!(file, File::Good(_)));
        ids.extend(
            good.map(|(id, _)| id.clone())
                .filter(|id| id.as_str() > after),
        );
        ids.sort_unstable();
        ids.dedup();
        ids.truncate(limit);
        Ok(ids)
    }

    /// Saves a definition.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn put(&self, put: Put<'_>) -> Result<PutOutcome, Failure> {
        self.store
            .put(put)
            .await
            .map_err(|error| store_failure(&error))
    }

    /// Returns a finding for each file that is not valid, at most [`LoadDiagnostic::MAX`].
    pub fn left_out(&self) -> Vec<LoadDiagnostic> {
        let broken = self.files.iter().filter_map(|(id, file)| match file {
            File::Broken(violations) => Some((id, violations)),
            File::Good(_) => None,
        });
        broken
            .map(|(id, violations)| {
                let problem = call_outcome::sentences(violations);
                LoadDiagnostic::left_out(format!("{id}.json"), &problem)
            })
            .take(LoadDiagnostic::MAX)
            .collect()
    }

    /// Compiles a text, or finds what it was compiled to before.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub async fn compile(&self, text: &Arc<str>) -> Result<Arc<Plan>, Vec<Violation>> {
        if let Some(plan) = self.plans.get(text) {
            return Ok(plan);
        }
        let (text, catalogue) = (Arc::clone(text), Arc::clone(&self.catalogue));
        let for_cache = Arc::clone(&text);
        // A large definition takes longer than other tasks should wait.
        let compiled = tokio::task::spawn_blocking(move || compile_text(&text, &catalogue)).await;
        let plan = compiled.unwrap_or_else(|_| {
            Err(vec![Violation::new(
                "",
                "internal",
                "the definition could not be checked; this is a mistake in Tavern",
            )])
        });
        plan.map(|plan| self.plans.insert(for_cache, plan))
    }
}

impl From<StoredWorkflow> for Definition {
    fn from(stored: StoredWorkflow) -> Self {
        Self {
            id: stored.id,
            text: stored.text.into(),
        }
    }
}

fn read_directory(
    directory: &Path,
    catalogue: &Catalogue,
) -> std::io::Result<BTreeMap<String, File>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
            && path.is_file()
        {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.len() > MAX_FILES {
        tracing::error!(
            files = paths.len(),
            "the workflows directory has more files than are read"
        );
        paths.truncate(MAX_FILES);
    }
    let mut files = BTreeMap::new();
    for path in paths {
        let Some(id) = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .and_then(|stem| WorkflowId::new(stem).ok())
        else {
            tracing::error!(path = %path.display(), "the name of a workflow file is no workflow id");
            continue;
        };
        let file = match read_file(&path, catalogue) {
            Ok(text) => File::Good(text),
            Err(violations) => {
                let problems: Vec<String> =
                    violations.iter().take(8).map(ToString::to_string).collect();
                tracing::error!(path = %path.display(), ?problems, "a workflow file is not valid");
                File::Broken(violations)
            }
        };
        files.insert(id.to_string(), file);
    }
    Ok(files)
}

fn read_file(path: &Path, catalogue: &Catalogue) -> Result<Arc<str>, Vec<Violation>> {
    let unreadable = |problem: String| {
        vec![Violation::new(
            "",
            "unreadable",
            format!("the file cannot be read: {problem}"),
        )]
    };
    let length = std::fs::metadata(path)
        .map_err(|error| unreadable(error.to_string()))?
        .len();
    if length > MAX_DEFINITION_BYTES as u64 {
        return Err(unreadable(format!(
            "it has {length} bytes; at most {MAX_DEFINITION_BYTES} are accepted"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    compile_text(&text, catalogue)?;
    let loaded = load(&text);
    if let Some(workflow) = &loaded.workflow {
        for finding in diagnose(&loaded.source, workflow, catalogue) {
            let path = path.display();
            tracing::warn!(%path, %finding, "a workflow file asks for something that has no effect");
        }
    }
    Ok(text.into())
}
