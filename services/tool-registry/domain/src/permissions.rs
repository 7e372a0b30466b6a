//! The permissions that a plugin asks for (rules R113 and R114).
//!
//! A [`Permission`] has one canonical spelling, such as `network:api.example.com:443`, by which
//! plans list it and two sets are compared; nothing is matched by a wildcard. A
//! [`PermissionRequest`] adds the reason that the manifest gives.
//!
//! - [`Permission`]: one permission, its risk and its sentence.
//! - [`kind`]: the kinds in their order, and whether each works already.
//! - [`change`]: the difference of two sets.
//! - `read`: the section `permissions` of a manifest.

pub mod change;
pub mod kind;
mod permission;
mod read;
mod resources;
mod spelling;
#[cfg(test)]
mod tests;

pub use change::PermissionChange;
pub use kind::{PermissionKind, PermissionState};
pub use permission::{Permission, Risk, WorkspaceAccess};
pub use resources::ResourceRequest;
pub use spelling::UnknownSpelling;

pub(crate) use read::read;

use call_outcome::Violation;

/// The most hosts that a plugin may ask for.
pub const MAX_HOSTS: usize = 32;
/// The most bytes of its own data that a plugin may ask for: 1 GiB.
pub const MAX_STORAGE_BYTES: u64 = 1 << 30;
/// The port of a host for which none is written.
pub const DEFAULT_PORT: u16 = 443;
/// The services whose read-only tools a plugin may ask for.
pub const READABLE_SERVICES: [&str; 3] = ["registry", "workflow", "agent"];
/// The services for which a backend may stand in (rule R207).
pub const OVERRIDABLE_SERVICES: [&str; 3] = ["knowledge-base", "tool-search", "interaction"];

/// A permission that a manifest asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionRequest {
    /// The permission.
    pub permission: Permission,
    /// The reason that the author gives; empty if none is given.
    pub reason: String,
    /// The place of the request in the manifest, a JSON pointer.
    pub pointer: String,
}

impl PermissionRequest {
    /// Returns the reason for which an install with this permission is refused: it does not work yet.
    pub fn refusal(&self) -> Option<Violation> {
        let not_yet = self.permission.kind().state() == PermissionState::NotYet;
        not_yet.then(|| {
            let message = format!(
                "the permission {} cannot be granted yet; remove it from the manifest, with the parts \
                 that need it",
                self.permission
            );
            Violation::new(self.pointer.clone(), "permission_not_yet", message)
        })
    }
}
