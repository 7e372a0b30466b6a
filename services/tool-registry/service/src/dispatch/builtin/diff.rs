//! Tools that change a file by a diff.

use call_outcome::{Category, Failure};
use serde_json::{Value, json};

use super::text;
use tool_domain::{
    diff::{self, DiffError, Edit},
    path::WorkspacePath,
};
use workspace_store::Workspace;

/// `ApplyDiffTool(file_path, diff_content)`: search-and-replace blocks.
pub(super) fn apply_blocks(workspace: &Workspace, arguments: &Value) -> Result<Value, Failure> {
    let path = WorkspacePath::file(text(arguments, "file_path")?)?;
    let edits = diff::read_blocks(text(arguments, "diff_content")?)
        .map_err(|error| failure(&path, &error))?;
    change(workspace, &path, &edits)
}

/// `ApplyProjectDiff(target_file, diff_patch)`: a unified diff of one file.
pub(super) fn apply_unified(workspace: &Workspace, arguments: &Value) -> Result<Value, Failure> {
    let path = WorkspacePath::file(text(arguments, "target_file")?)?;
    let edits = diff::read_unified(text(arguments, "diff_patch")?)
        .map_err(|error| failure(&path, &error))?;
    change(workspace, &path, &edits)
}

fn change(workspace: &Workspace, path: &WorkspacePath, edits: &[Edit]) -> Result<Value, Failure> {
    let bytes = workspace.modify(path, |before| {
        let makes_file = edits.iter().all(|edit| edit.old.is_empty());
        let before = match before {
            Some(before) => before,
            None if makes_file => String::new(),
            None => {
                let message = format!("there is no file '{path}' to change; write it first");
                return Err(Failure::new(Category::Domain, "file_not_found", message));
            }
        };
        diff::apply(&before, edits).map_err(|error| failure(path, &error))
    })?;
    Ok(json!({"path": path.to_string(), "edits": edits.len(), "bytes": bytes}))
}

fn failure(path: &WorkspacePath, error: &DiffError) -> Failure {
    let category = match error {
        DiffError::Malformed { .. } => Category::Validation,
        DiffError::NotFound { .. } | DiffError::Ambiguous { .. } => Category::Domain,
    };
    Failure::new(
        category,
        error.code(),
        format!("'{path}' is unchanged: {error}"),
    )
}
