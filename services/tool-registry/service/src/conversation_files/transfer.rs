//! The files of conversations that move between a directory and a server.

use std::sync::Arc;

use call_outcome::{Category, Failure};
use core_types::SystemIds;
use data_home::DataHome;
use workspace_store::{CopiedFiles, WorkspaceLimits, Workspaces};

use super::{WORKSPACES, blocking};

/// Copies the files of conversations and plugins of a registry that does not run from a directory to a database, or
/// back. Files that are there already stay as they are.
///
/// # Errors
/// A failure that names the file.
pub async fn copy_files(from: &DataHome, to: &DataHome) -> Result<CopiedFiles, Failure> {
    let (files, server) = match (from.files(), to.files()) {
        (None, Some(server)) => (from, server),
        (Some(server), None) => (to, server),
        _ => return Ok(CopiedFiles::default()),
    };
    let to_server = to.is_shared();
    let directory = files.directory().directory(WORKSPACES);
    blocking(move || {
        let unusable = |error: &dyn std::fmt::Display| {
            let message = format!("the directory of workspaces cannot be used: {error}");
            Failure::new(Category::Dependency, "storage_failed", message)
        };
        let directory = directory.map_err(|error| unusable(&error))?;
        let limits = WorkspaceLimits::default();
        let workspaces = Workspaces::open(&directory, limits, Arc::new(SystemIds), None);
        let workspaces = workspaces.map_err(|error| unusable(&error))?;
        match to_server {
            true => workspaces.copy_to(&server),
            false => workspaces.copy_from(&server),
        }
    })
    .await
}
