//! The files that code left, in the output of its call.

use call_outcome::Failure;
use serde_json::{Map, Value, json};
use workspace_store::{Made, MadeKind};

use crate::dispatch::sandbox::LeftFiles;

/// The most changes, and the most entries that were not kept, that are named.
const MAX_NAMED: usize = 64;

/// Names the changes to the files, and the entries that were not kept. Nothing is said where there are none.
pub(super) fn name(output: &mut Map<String, Value>, left: &Result<LeftFiles, Failure>) {
    let left = match left {
        Ok(left) => left,
        Err(failure) => {
            output.insert("files_not_kept".to_owned(), json!(failure.message));
            return;
        }
    };
    let files: Vec<Value> = left.made.iter().map(change).collect();
    if files.len() > MAX_NAMED {
        output.insert("files_count".to_owned(), json!(files.len()));
    }
    if !files.is_empty() {
        let files = files.into_iter().take(MAX_NAMED).collect();
        output.insert("files".to_owned(), Value::Array(files));
    }
    if !left.refused.is_empty() {
        let named = left.refused.iter().take(MAX_NAMED);
        let named = named.map(|(path, reason)| json!({"path": path, "reason": reason}));
        output.insert("files_not_kept".to_owned(), named.collect());
        output.insert("files_not_kept_count".to_owned(), json!(left.refused_count));
    }
}

fn change(made: &Made) -> Value {
    let change = match made.kind {
        MadeKind::Created => "created",
        MadeKind::Changed => "changed",
        MadeKind::Removed => "removed",
        MadeKind::Conflict => "conflict",
        MadeKind::Refused(_) => "refused",
    };
    let mut file = json!({"path": made.path, "change": change});
    if let Some(left) = &made.file {
        file["bytes"] = json!(left.bytes);
        file["digest"] = json!(format!("sha256:{}", left.digest));
        file["media_type"] = json!(left.media_type);
        if left.path != made.path {
            file["kept_as"] = json!(left.path);
        }
    }
    file
}
