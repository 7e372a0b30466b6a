//! The approvers of an approvals file, as the request that imports them.

use std::path::Path;

use anyhow::{Context, ensure};
use contracts::tavern::registry::v1::{ImportApproversRequest, ImportedApprover};
use serde::Deserialize;

use super::super::documents;

/// The part of an approvals file that is read here.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    approvers: Vec<Approver>,
}

#[derive(Deserialize)]
struct Approver {
    name: String,
    #[serde(default)]
    roles: Vec<String>,
    key_sha256: String,
}

/// Reads the approvers.
///
/// # Errors
/// A file that cannot be read, is no approvals file, or has no approvers.
pub(super) fn read(path: &Path) -> anyhow::Result<ImportApproversRequest> {
    let shown = path.display();
    let text = documents::read(path)?;
    let file: File =
        serde_json::from_str(&text).with_context(|| format!("{shown} is not an approvals file"))?;
    ensure!(!file.approvers.is_empty(), "{shown} has no approvers");
    let approvers = file.approvers.into_iter().map(|approver| ImportedApprover {
        name: approver.name,
        roles: approver.roles,
        key_sha256: approver.key_sha256,
    });
    Ok(ImportApproversRequest {
        tenant: String::new(),
        approvers: approvers.collect(),
    })
}
