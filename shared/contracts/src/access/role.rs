//! Roles, and the names of permissions and of quantities of tenants.

use crate::tavern::{access::v1::Permission, tenant::v1::TenantQuantity};

/// A role of a principal: a set of permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Reads.
    Viewer,
    /// Reads and invokes.
    Invoker,
    /// Reads, invokes and defines.
    Developer,
    /// Reads and approves; never calls that it started.
    Approver,
    /// Reads, invokes and operates.
    Operator,
    /// Has every permission of a client.
    Admin,
}

impl Role {
    /// Every role, the weakest first.
    pub const ALL: [Self; 6] = [
        Self::Viewer,
        Self::Invoker,
        Self::Developer,
        Self::Approver,
        Self::Operator,
        Self::Admin,
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Invoker => "invoker",
            Self::Developer => "developer",
            Self::Approver => "approver",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Returns the role with a name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// Returns the permissions.
    pub fn permissions(self) -> &'static [Permission] {
        use Permission::{Approve, Define, Invoke, Operate, Read};
        match self {
            Self::Viewer => &[Read],
            Self::Invoker => &[Read, Invoke],
            Self::Developer => &[Read, Invoke, Define],
            Self::Approver => &[Read, Approve],
            Self::Operator => &[Read, Invoke, Operate],
            Self::Admin => &Permission::OF_CLIENTS,
        }
    }
}

impl TenantQuantity {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::OpenRuns => "open_runs",
            Self::QueuedRuns => "queued_runs",
            Self::CallsPerSecond => "calls_per_second",
            Self::Streams => "streams",
            Self::SandboxSlots => "sandbox_slots",
            Self::SandboxSeconds => "sandbox_seconds",
            Self::ModelTokens => "model_tokens",
            Self::ModelMicros => "model_micros",
            Self::StoredBytes => "stored_bytes",
        }
    }
}

impl Permission {
    /// The permissions that a client can have, in the order of the contract.
    pub const OF_CLIENTS: [Self; 6] = [
        Self::Read,
        Self::Invoke,
        Self::Define,
        Self::Approve,
        Self::Operate,
        Self::Administer,
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::Read => "read",
            Self::Invoke => "invoke",
            Self::Define => "define",
            Self::Approve => "approve",
            Self::Operate => "operate",
            Self::Administer => "administer",
            Self::Peer => "peer",
            Self::Public => "public",
        }
    }

    /// Returns the permission of clients with a name.
    pub fn of_name(name: &str) -> Option<Self> {
        let mut known = Self::OF_CLIENTS.into_iter();
        known.find(|permission| permission.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for role in Role::ALL {
            assert_eq!(Role::of_name(role.name()), Some(role));
        }
        for permission in Permission::OF_CLIENTS {
            assert_eq!(Permission::of_name(permission.name()), Some(permission));
        }
        assert_eq!(Permission::of_name("peer"), None);
        assert_eq!(Role::of_name("Admin"), None);
    }

    #[test]
    fn every_role_reads_and_only_an_admin_administers() {
        for role in Role::ALL {
            let permissions = role.permissions();
            assert!(permissions.contains(&Permission::Read), "{role:?}");
            let administers = permissions.contains(&Permission::Administer);
            assert_eq!(administers, role == Role::Admin, "{role:?}");
        }
    }
}
