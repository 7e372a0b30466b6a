//! The rules for approvals of a stack, and the person who decides.

use std::path::Path;

use serde_json::{Value, json};

/// The key of an approver of every stack.
pub const APPROVER_KEY: &str = "the key of the tests";

/// The SHA-256 of [`APPROVER_KEY`].
const APPROVER_KEY_SHA256: &str =
    "e058567aec88596c0e58341bf112fe55029b19828eb2d2241b846b1af69fe6f2";

/// Writes the rules of a deploy directory with an approver who has [`APPROVER_KEY`] into `directory`, and
/// returns the path of the file.
///
/// # Errors
/// The rules are no JSON, or a file cannot be read or written.
pub fn approvals_file(deploy: &Path, directory: &Path) -> anyhow::Result<String> {
    let path = directory.join("approvals.json");
    let shipped = deploy.join("approvals.json");
    let rules = match shipped.is_file() {
        true => std::fs::read_to_string(shipped)?,
        false => "{}".to_owned(),
    };
    let mut file: Value = serde_json::from_str(&rules)?;
    file["approvers"] = json!([{
        "name": "tester",
        "roles": ["storykeeper"],
        "key_sha256": APPROVER_KEY_SHA256,
    }]);
    std::fs::write(&path, file.to_string())?;
    Ok(path.display().to_string())
}
