//! The difference of two sets of permissions.

use super::{Permission, PermissionRequest};

/// The difference between the permissions in force and the permissions of a new version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermissionChange {
    /// Requests that nothing in force covers. Permissions that are only listed count too, so that a person has approved
    /// each that works from a later version on (rule R109).
    pub added: Vec<PermissionRequest>,
    /// Requests that are in force already, or ask for less than is.
    pub kept: Vec<PermissionRequest>,
    /// Requests in force that the new version does not make.
    pub removed: Vec<PermissionRequest>,
}

impl PermissionChange {
    /// Compares two sets. The amounts of storage, of resources and of access to the workspace are
    /// compared by size: a smaller one is kept.
    pub fn between(before: &[PermissionRequest], after: &[PermissionRequest]) -> Self {
        let (kept, added) = after
            .iter()
            .cloned()
            .partition(|request| is_covered(&request.permission, before));
        let missing = |old: &&PermissionRequest| {
            let mut wanted = after.iter().map(|request| &request.permission);
            !wanted.any(|new| new.is_about_the_same(&old.permission))
        };
        Self {
            added,
            kept,
            removed: before.iter().filter(missing).cloned().collect(),
        }
    }
}

/// Whether one of the permissions in force gives all that is wanted.
pub fn is_covered(wanted: &Permission, in_force: &[PermissionRequest]) -> bool {
    let mut held = in_force.iter().map(|request| &request.permission);
    held.any(|held| held.covers(wanted))
}
