//! File tools, beneath the conversation's workspace.

use call_outcome::{Category, Failure};
use serde_json::{Value, json};

use super::text;
use tool_domain::path::WorkspacePath;
use workspace_store::{EntryKind, Workspace};

/// `FileOperator.WriteFile(filePath, content)`.
pub(super) fn write(workspace: &Workspace, arguments: &Value) -> Result<Value, Failure> {
    let path = WorkspacePath::file(text(arguments, "filePath")?)?;
    let bytes = workspace.write(&path, text(arguments, "content")?)?;
    Ok(json!({"path": path.to_string(), "bytes": bytes}))
}

/// `FileOperator.AppendFile(filePath, content)`.
pub(super) fn append(workspace: &Workspace, arguments: &Value) -> Result<Value, Failure> {
    let path = WorkspacePath::file(text(arguments, "filePath")?)?;
    let content = text(arguments, "content")?;
    let bytes = workspace.modify(&path, |before| Ok(before.unwrap_or_default() + content))?;
    Ok(json!({"path": path.to_string(), "bytes": bytes}))
}

/// `FileOperator.ReadFile(filePath)`.
pub(super) fn read(workspace: &Workspace, arguments: &Value) -> Result<Value, Failure> {
    let path = WorkspacePath::file(text(arguments, "filePath")?)?;
    workspace.read(&path).map(Value::String)
}

/// `FileOperator.DeleteFile(filePath)`.
pub(super) fn delete(workspace: &Workspace, arguments: &Value) -> Result<Value, Failure> {
    let path = WorkspacePath::file(text(arguments, "filePath")?)?;
    let bytes = workspace.delete(&path)?;
    Ok(json!({"path": path.to_string(), "deleted_bytes": bytes}))
}

/// `FileOperator.ListFiles(filePath?)`.
pub(super) fn list(workspace: &Workspace, arguments: &Value) -> Result<Value, Failure> {
    let written = arguments
        .get("filePath")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let listing = workspace.list(&WorkspacePath::directory(written)?)?;
    let entries: Vec<Value> = listing
        .entries
        .into_iter()
        .map(|entry| match entry.kind {
            EntryKind::File => json!({"path": entry.path, "kind": "file", "bytes": entry.bytes}),
            EntryKind::Directory => json!({"path": entry.path, "kind": "directory"}),
            EntryKind::Other => json!({"path": entry.path, "kind": "other"}),
        })
        .collect();
    Ok(json!({"entries": entries, "truncated": listing.truncated}))
}

/// `read_file(args.file[].path)`: several files at once. A file that cannot be read says why in its
/// place; the call fails only if none can.
pub(super) fn read_several(workspace: &Workspace, arguments: &Value) -> Result<Value, Failure> {
    let files = arguments.pointer("/args/file").and_then(Value::as_array);
    let files = files.filter(|files| !files.is_empty()).ok_or_else(|| {
        let message = "the parameter 'args.file' must list at least one file with its 'path'";
        Failure::new(Category::Validation, "missing_parameter", message)
    })?;
    let mut failures = Vec::new();
    let read: Vec<Value> = files
        .iter()
        .map(|file| {
            let written = file.get("path").and_then(Value::as_str).unwrap_or_default();
            match WorkspacePath::file(written).and_then(|path| workspace.read(&path)) {
                Ok(content) => json!({"path": written, "content": content}),
                Err(failure) => {
                    let error = json!({"code": failure.code, "message": failure.message});
                    failures.push(failure);
                    json!({"path": written, "error": error})
                }
            }
        })
        .collect();
    match failures.pop() {
        Some(failure) if failures.len() + 1 == files.len() => Err(failure),
        _ => Ok(Value::Array(read)),
    }
}
