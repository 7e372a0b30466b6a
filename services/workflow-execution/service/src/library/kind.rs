//! Definitions as documents.

use std::{fmt, sync::Arc};

use call_outcome::Violation;
use core_types::WorkflowId;
use documents::{FilePlace, Kind};
use workflow_domain::{
    bundle::Bundle, compile::compile_bundle, diagnose::diagnose, limits::MAX_DEFINITION_BYTES,
    load::load_with_source, node_type::Catalogue, plugin_node::lack_plugins_only,
};

use crate::store::etag_of;

/// A definition.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The id.
    pub id: String,
    /// The text.
    pub text: Arc<str>,
}

/// Definitions as documents: `<id>.json` of a directory, and put definitions, which are checked
/// first.
#[derive(Debug)]
pub struct WorkflowKind {
    pub(super) catalogue: Arc<Catalogue>,
}

/// The mistakes of a file.
#[derive(Clone, Debug)]
pub struct InvalidFile(pub(crate) Vec<Violation>);

impl fmt::Display for InvalidFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&call_outcome::sentences(&self.0))
    }
}

impl Kind for WorkflowKind {
    type Document = Definition;
    type Invalid = InvalidFile;

    const NAME: &'static str = "workflow";
    const MAX_BYTES: usize = MAX_DEFINITION_BYTES;

    fn id(definition: &Definition) -> &str {
        &definition.id
    }

    fn text(definition: &Definition) -> &str {
        &definition.text
    }

    fn etag(definition: &Definition) -> String {
        etag_of(&definition.text)
    }

    fn read(&self, id: &str, text: &str) -> Result<Definition, InvalidFile> {
        Ok(Definition {
            id: id.to_owned(),
            text: text.into(),
        })
    }

    /// Checks a file, which refers to other files only, so that the directory is whole by itself.
    fn read_file(&self, file: &FilePlace<'_>, text: &Arc<str>) -> Result<Definition, InvalidFile> {
        if let Err(error) = WorkflowId::new(file.stem) {
            let message = format!("the name of the file is no workflow id: {error}");
            return Err(InvalidFile(vec![Violation::new("", "file_name", message)]));
        }
        let bundle = Bundle {
            root: Arc::clone(text),
            children: Arc::clone(file.texts),
            node_types: Arc::default(),
        };
        // Node types of plugins are looked up when the workflow is used.
        match compile_bundle(&bundle, &self.catalogue) {
            Err(violations) if !lack_plugins_only(&violations) => {
                return Err(InvalidFile(violations));
            }
            _ => {}
        }
        Ok(Definition {
            id: file.stem.to_owned(),
            text: Arc::clone(text),
        })
    }

    fn unreadable(&self, problem: String) -> InvalidFile {
        let message = format!("the file cannot be read: {problem}");
        InvalidFile(vec![Violation::new("", "unreadable", message)])
    }

    fn remark(&self, path: &str, definition: &Definition) {
        let (loaded, source) = load_with_source(&definition.text);
        if let Some(workflow) = &loaded.workflow {
            for finding in diagnose(&source, workflow, &self.catalogue) {
                tracing::warn!(path, %finding, "a workflow file asks for something that has no effect");
            }
        }
    }
}
