//! All definitions: the files of the workflows directory and those that were stored.

mod files;
mod plans;

use call_outcome::Violation;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use core_types::LoadDiagnostic;
use grpc_kit::Failure;
use tokio::sync::Mutex;

use crate::error::{Error, directory_failure, store_failure, workflow_invalid, workflow_not_found};
use crate::store::{DeleteOutcome, Put, PutOutcome, StoredWorkflow, WorkflowStore};
use workflow_domain::bundle::{Bundle, Children};
use workflow_domain::compile::compile_bundle;
use workflow_domain::flatten::references;
use workflow_domain::limits::{MAX_BUNDLE_BYTES, MAX_CHILDREN};
use workflow_domain::load::load;
use workflow_domain::node_type::Catalogue;
use workflow_domain::plan::Plan;

pub use files::FileChanges;
use files::{File, Files};
use plans::Plans;

/// All definitions.
#[derive(Debug)]
pub struct Library {
    directory: PathBuf,
    /// Locked to copy or replace the handle, never across an await.
    files: RwLock<Arc<Files>>,
    /// Held while the directory is read again, so that two reloads do not overtake each other.
    reloading: Mutex<()>,
    store: Arc<dyn WorkflowStore>,
    catalogue: Arc<Catalogue>,
    plans: Plans,
}

/// A definition as it is stored.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The id.
    pub id: String,
    /// The text.
    pub text: Arc<str>,
    /// Whether it is a file of the workflows directory.
    pub from_file: bool,
}

/// What an id belongs to.
enum Found {
    Definition(Definition),
    /// A file with these mistakes.
    Invalid(Vec<Violation>),
    Nothing,
}

/// The most ids that an unknown one is compared with.
const MOST_COMPARED: usize = 1_000;

impl Library {
    /// Reads every file of `directory`. A file that is not a valid workflow is logged and left out;
    /// an empty path is not a directory.
    ///
    /// # Errors
    /// A directory that cannot be listed.
    pub fn open(
        directory: &Path,
        store: Arc<dyn WorkflowStore>,
        catalogue: Arc<Catalogue>,
    ) -> Result<Self, Error> {
        let files = Files::read(directory, &catalogue).map_err(|source| Error::Workflows {
            path: directory.to_owned(),
            source,
        })?;
        Ok(Self {
            directory: directory.to_owned(),
            files: RwLock::new(Arc::new(files)),
            reloading: Mutex::default(),
            store,
            catalogue,
            plans: Plans::default(),
        })
    }

    /// Reads the directory again and returns what changed.
    ///
    /// # Errors
    /// A directory that cannot be listed; the definitions are as they were.
    pub async fn reload(&self) -> Result<FileChanges, Failure> {
        let _one_at_a_time = self.reloading.lock().await;
        let (directory, catalogue) = (self.directory.clone(), Arc::clone(&self.catalogue));
        let read = tokio::task::spawn_blocking(move || Files::read(&directory, &catalogue)).await;
        let files = read
            .map_err(std::io::Error::other)
            .flatten()
            .map_err(|error| directory_failure(&self.directory, &error))?;
        let changes = files.changes_since(&self.files());
        *self.files.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(files);
        Ok(changes)
    }

    /// Returns the node types.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<dyn WorkflowStore> {
        &self.store
    }

    /// Returns whether the id belongs to a file, which is read only.
    pub fn is_file(&self, id: &str) -> bool {
        self.files().get(id).is_some()
    }

    /// Returns a definition.
    ///
    /// # Errors
    /// WORKFLOW_NOT_FOUND, or WORKFLOW_INVALID for a file that is not valid.
    pub async fn get(&self, id: &str) -> Result<Definition, Failure> {
        match self.find(id).await? {
            Found::Definition(definition) => Ok(definition),
            Found::Invalid(violations) => Err(workflow_invalid("definition_json", &violations)),
            Found::Nothing => Err(self.not_found(id).await),
        }
    }

    /// Reports that no workflow has this id.
    pub async fn not_found(&self, id: &str) -> Failure {
        let known = self.ids("", MOST_COMPARED).await;
        workflow_not_found(id, &known.unwrap_or_default())
    }

    /// Returns a definition if it is there and valid.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn get_valid(&self, id: &str) -> Result<Option<Definition>, Failure> {
        match self.find(id).await? {
            Found::Definition(definition) => Ok(Some(definition)),
            Found::Invalid(_) | Found::Nothing => Ok(None),
        }
    }

    async fn find(&self, id: &str) -> Result<Found, Failure> {
        match self.files().get(id) {
            Some(File::Valid(text)) => {
                return Ok(Found::Definition(Definition {
                    id: id.to_owned(),
                    text: Arc::clone(text),
                    from_file: true,
                }));
            }
            Some(File::Invalid(violations)) => return Ok(Found::Invalid(violations.clone())),
            None => {}
        }
        let stored = self.store.get(id).await;
        let stored = stored.map_err(|error| store_failure(&error))?;
        Ok(stored.map_or(Found::Nothing, |stored| Found::Definition(stored.into())))
    }

    /// Returns the ids after `after`, in order, at most `limit`. Files that are not valid are left
    /// out, unless their ids are stored as well.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn ids(&self, after: &str, limit: usize) -> Result<Vec<String>, Failure> {
        let mut ids = self
            .store
            .ids(after, limit)
            .await
            .map_err(|error| store_failure(&error))?;
        let files = self.files();
        ids.extend(files.ids().filter(|id| id.as_str() > after).cloned());
        ids.sort_unstable();
        ids.dedup();
        ids.truncate(limit);
        Ok(ids)
    }

    /// Stores a definition.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn put(&self, put: Put<'_>) -> Result<PutOutcome, Failure> {
        self.store
            .put(put)
            .await
            .map_err(|error| store_failure(&error))
    }

    /// Deletes a stored definition.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn delete(&self, id: &str, expected: Option<&str>) -> Result<DeleteOutcome, Failure> {
        self.store
            .delete(id, expected)
            .await
            .map_err(|error| store_failure(&error))
    }

    /// Returns a finding for each file that is not valid, at most [`LoadDiagnostic::MAX`].
    pub fn left_out(&self) -> Vec<LoadDiagnostic> {
        self.files().left_out()
    }

    /// Puts a text together with the workflows that it refers to. What does not exist or is too much
    /// is left out, and a violation once the bundle is compiled.
    ///
    /// # Errors
    /// A store that does not work.
    pub async fn bundle(&self, text: &Arc<str>) -> Result<Bundle, Failure> {
        let mut children = Children::new();
        let mut bytes = text.len();
        let mut unread = vec![Arc::clone(text)];
        while let Some(text) = unread.pop() {
            for (id, part) in referenced_by(&text) {
                if children.contains_key(&id) || children.len() >= MAX_CHILDREN {
                    continue;
                }
                let Some(child) = self.get_valid(&id).await? else {
                    continue;
                };
                bytes += child.text.len();
                if bytes > MAX_BUNDLE_BYTES {
                    break;
                }
                if part {
                    unread.push(Arc::clone(&child.text));
                }
                children.insert(id, child.text);
            }
        }
        Ok(Bundle {
            root: Arc::clone(text),
            children: Arc::new(children),
        })
    }

    /// Compiles a bundle, or finds what it was compiled to before.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub async fn compile(&self, bundle: &Bundle) -> Result<Arc<Plan>, Vec<Violation>> {
        if let Some(plan) = self.plans.get(bundle) {
            return Ok(plan);
        }
        let (bundle, catalogue) = (bundle.clone(), Arc::clone(&self.catalogue));
        let for_cache = bundle.clone();
        // A large definition takes longer than other tasks should wait.
        let compiled =
            tokio::task::spawn_blocking(move || compile_bundle(&bundle, &catalogue)).await;
        let plan = compiled.unwrap_or_else(|_| {
            Err(vec![Violation::new(
                "",
                "internal",
                "internal error: the definition could not be checked; please report this",
            )])
        });
        plan.map(|plan| self.plans.insert(for_cache, plan))
    }

    fn files(&self) -> Arc<Files> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&files)
    }
}

/// Returns the ids of the workflows that a text refers to, and for each whether it becomes part of
/// the workflow.
fn referenced_by(text: &str) -> Vec<(String, bool)> {
    // Reading a large text costs more than finding that it refers to nothing.
    if !text.contains("orkflowId") {
        return Vec::new();
    }
    let workflow = load(text).workflow;
    let ids = workflow.iter().flat_map(references);
    ids.map(|(id, part)| (id.to_owned(), part)).collect()
}

impl From<StoredWorkflow> for Definition {
    fn from(stored: StoredWorkflow) -> Self {
        Self {
            id: stored.id,
            text: stored.text.into(),
            from_file: false,
        }
    }
}
