//! Patches of the part of a payload that hooks may change.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;
use tool_domain::hook_point::HookPoint;

use crate::HookFailure;

/// The deepest value in a payload, in levels below its root.
const MAX_DEPTH: usize = 128;

/// The longest path of an operation, in bytes.
const MAX_PATH_BYTES: usize = 1_024;

/// The most places of a change that are noted.
const MAX_POINTERS: usize = 32;

/// The most bytes that the `copy` operations of a patch may add together.
const MAX_COPIED: usize = 4 << 20;

/// Returns the payload with a patch applied, and the places that changed.
///
/// # Errors
/// An operation reaches beyond the part that hooks of this point may change, or cannot be carried out.
pub(crate) fn apply(
    point: HookPoint,
    payload: &Value,
    patch: &Patch,
) -> Result<(Value, Vec<String>), HookFailure> {
    let mut changed = payload.clone();
    let mut pointers = Vec::new();
    let mut copied = 0;
    for (index, operation) in patch.0.iter().enumerate() {
        let wrong = |message: String| {
            HookFailure::wrong(format!(
                "answered with a patch whose operation {index} {message}"
            ))
        };
        let path = operation.path().as_str();
        if path.len() > MAX_PATH_BYTES {
            return Err(wrong(format!(
                "has a path of more than {MAX_PATH_BYTES} bytes"
            )));
        }
        if let PatchOperation::Test(_) = operation {
            one(&mut changed, operation).map_err(wrong)?;
            continue;
        }
        let taken = match operation {
            PatchOperation::Move(change) => Some(change.from.as_str()),
            _ => None,
        };
        for place in [Some(path), taken].into_iter().flatten() {
            if !may_change(point, operation, place) {
                let parts = point.mutable().join(" and ");
                return Err(wrong(format!(
                    "changes '{place}'; hooks may change {parts}"
                )));
            }
        }
        let added = match operation {
            PatchOperation::Add(change) => Some(&change.value),
            PatchOperation::Replace(change) => Some(&change.value),
            PatchOperation::Copy(change) => changed.pointer(change.from.as_str()),
            PatchOperation::Move(change) => changed.pointer(change.from.as_str()),
            PatchOperation::Remove(_) | PatchOperation::Test(_) => None,
        };
        if let (PatchOperation::Copy(_), Some(value)) = (operation, added) {
            copied += json_schema::text_bytes(value);
        }
        if copied > MAX_COPIED {
            return Err(wrong(format!("copies more than {MAX_COPIED} bytes")));
        }
        let depth = added.map_or(0, depth_of) + path.matches('/').count();
        if depth > MAX_DEPTH {
            return Err(wrong(format!(
                "nests values more than {MAX_DEPTH} levels deep"
            )));
        }
        one(&mut changed, operation).map_err(wrong)?;
        if pointers.len() < MAX_POINTERS {
            pointers.push(path.to_owned());
        }
    }
    Ok((changed, pointers))
}

/// Whether an operation may change a place: it lies in a part that hooks may change, or is the next item of a list to
/// which they may add.
fn may_change(point: HookPoint, operation: &PatchOperation, place: &str) -> bool {
    point
        .mutable()
        .iter()
        .any(|part| match part.strip_suffix("/-") {
            Some(_) => *part == place && matches!(operation, PatchOperation::Add(_)),
            None => place
                .strip_prefix(part)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        })
}

fn one(payload: &mut Value, operation: &PatchOperation) -> Result<(), String> {
    let applied = json_patch::patch(payload, std::slice::from_ref(operation));
    applied.map_err(|error| format!("cannot be carried out: {}", error.kind))
}

fn depth_of(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth_of).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth_of).max().unwrap_or(0),
        _ => 0,
    }
}
