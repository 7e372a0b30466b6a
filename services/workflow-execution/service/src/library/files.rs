//! The files of the workflows directory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use call_outcome::Violation;
use core_types::{LoadDiagnostic, WorkflowId};
use settings::text_file;

use workflow_domain::bundle::{Bundle, Children};
use workflow_domain::compile::compile_bundle;
use workflow_domain::diagnose::diagnose;
use workflow_domain::limits::MAX_DEFINITION_BYTES;
use workflow_domain::load::load_with_source;
use workflow_domain::node_type::Catalogue;

/// The most files that are read from the workflows directory.
const MAX_FILES: usize = 10_000;

/// The files of the workflows directory by workflow id, as they were when it was read.
#[derive(Debug, Default)]
pub(super) struct Files {
    by_id: BTreeMap<String, File>,
}

/// A file of the workflows directory.
#[derive(Debug)]
pub(super) enum File {
    Valid(Arc<str>),
    Invalid(Vec<Violation>),
}

/// What differs between two readings of the workflows directory. A file that is not valid counts as
/// absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileChanges {
    /// The ids of new files, in order.
    pub added: Vec<String>,
    /// The ids of files with another text, in order.
    pub changed: Vec<String>,
    /// The ids of files that are gone, in order.
    pub removed: Vec<String>,
}

impl Files {
    /// Reads every file of `directory`; an empty path is not a directory. A file that is not a valid
    /// workflow is logged and kept with its mistakes.
    pub(super) fn read(directory: &Path, catalogue: &Catalogue) -> std::io::Result<Self> {
        if directory.as_os_str().is_empty() {
            return Ok(Self::default());
        }
        let mut texts = BTreeMap::new();
        for path in paths(directory)? {
            let id = path.file_stem().and_then(|stem| stem.to_str());
            let Some(id) = id.and_then(|stem| WorkflowId::new(stem).ok()) else {
                tracing::error!(path = %path.display(), "the name of a workflow file is not a valid workflow id");
                continue;
            };
            texts.insert(id.to_string(), (read_file(&path), path));
        }
        let readable = texts
            .iter()
            .filter_map(|(id, (text, _))| Some((id.clone(), Arc::clone(text.as_ref().ok()?))));
        // A file refers to other files only, so that the directory is whole by itself.
        let children: Arc<Children> = Arc::new(readable.collect());
        let mut by_id = BTreeMap::new();
        for (id, (text, path)) in texts {
            let checked = text.and_then(|root| {
                let children = Arc::clone(&children);
                check_file(&path, Bundle { root, children }, catalogue)
            });
            let file = match checked {
                Ok(text) => File::Valid(text),
                Err(violations) => {
                    let problems: Vec<String> =
                        violations.iter().take(8).map(ToString::to_string).collect();
                    tracing::error!(path = %path.display(), ?problems, "a workflow file is not valid");
                    File::Invalid(violations)
                }
            };
            by_id.insert(id, file);
        }
        Ok(Self { by_id })
    }

    pub(super) fn get(&self, id: &str) -> Option<&File> {
        self.by_id.get(id)
    }

    /// Returns the ids of the valid files, in order.
    pub(super) fn ids(&self) -> impl Iterator<Item = &String> {
        self.valid().map(|(id, _)| id)
    }

    /// Returns a finding for each file that is not valid, at most [`LoadDiagnostic::MAX`].
    pub(super) fn left_out(&self) -> Vec<LoadDiagnostic> {
        let invalid = self.by_id.iter().filter_map(|(id, file)| match file {
            File::Invalid(violations) => Some((id, violations)),
            File::Valid(_) => None,
        });
        invalid
            .map(|(id, violations)| {
                let problem = call_outcome::sentences(violations);
                LoadDiagnostic::left_out(format!("{id}.json"), &problem)
            })
            .take(LoadDiagnostic::MAX)
            .collect()
    }

    /// Returns what differs from an earlier reading.
    pub(super) fn changes_since(&self, before: &Files) -> FileChanges {
        let mut changes = FileChanges::default();
        for (id, text) in self.valid() {
            match before.get(id) {
                Some(File::Valid(earlier)) if earlier == text => {}
                Some(File::Valid(_)) => changes.changed.push(id.clone()),
                Some(File::Invalid(_)) | None => changes.added.push(id.clone()),
            }
        }
        let gone = before
            .ids()
            .filter(|id| !matches!(self.get(id), Some(File::Valid(_))));
        changes.removed = gone.cloned().collect();
        changes
    }

    fn valid(&self) -> impl Iterator<Item = (&String, &Arc<str>)> {
        self.by_id.iter().filter_map(|(id, file)| match file {
            File::Valid(text) => Some((id, text)),
            File::Invalid(_) => None,
        })
    }
}

/// Returns the JSON files of a directory in order, at most [`MAX_FILES`].
fn paths(directory: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let is_json = path
            .extension()
            .is_some_and(|extension| extension == "json");
        if is_json && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.len() > MAX_FILES {
        tracing::error!(
            files = paths.len(),
            maximum = MAX_FILES,
            "the workflows directory has more files than are read"
        );
        paths.truncate(MAX_FILES);
    }
    Ok(paths)
}

fn read_file(path: &Path) -> Result<Arc<str>, Vec<Violation>> {
    let unreadable = |problem: std::io::Error| {
        let message = format!("the file cannot be read: {problem}");
        vec![Violation::new("", "unreadable", message)]
    };
    let text = text_file::read(path, MAX_DEFINITION_BYTES as u64);
    Ok(text.map_err(unreadable)?.into())
}

fn check_file(
    path: &Path,
    bundle: Bundle,
    catalogue: &Catalogue,
) -> Result<Arc<str>, Vec<Violation>> {
    compile_bundle(&bundle, catalogue)?;
    let (loaded, source) = load_with_source(&bundle.root);
    if let Some(workflow) = &loaded.workflow {
        for finding in diagnose(&source, workflow, catalogue) {
            let path = path.display();
            tracing::warn!(%path, %finding, "a workflow file asks for something that has no effect");
        }
    }
    Ok(bundle.root)
}
