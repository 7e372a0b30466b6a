//! The present rights of a principal.

use std::{iter, sync::Arc};

use contracts::{access::Role, tavern::access::v1::Permission};
use core_types::Principal;
use tool_domain::{
    identity::{Account, ToolVerdict},
    tool::Tool,
};

/// The present rights of a principal. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Rights {
    holder: Holder,
    /// The names of the permissions to which a key narrows the roles; empty for all of them.
    scopes: Vec<String>,
}

#[derive(Clone, Debug)]
enum Holder {
    /// Everyone, while no key exists.
    Everyone,
    /// A principal that exists.
    Known(Arc<Account>),
    /// A name that no principal has.
    Unknown,
}

impl Rights {
    /// Returns the rights of everyone while no key exists.
    pub(super) fn of_everyone() -> Self {
        Self {
            holder: Holder::Everyone,
            scopes: Vec::new(),
        }
    }

    /// Returns the rights of a principal, of none without one, narrowed by the scopes of a key.
    pub(super) fn of(account: Option<&Arc<Account>>, scopes: &[String]) -> Self {
        Self {
            holder: account.cloned().map_or(Holder::Unknown, Holder::Known),
            scopes: scopes.to_vec(),
        }
    }

    /// Whether no key exists, so that everyone has every right.
    pub fn is_open(&self) -> bool {
        matches!(self.holder, Holder::Everyone)
    }

    /// Returns the name of the principal, which is that of the first key for [`Principal::LOCAL`];
    /// `None` if no principal has the name that was asked for.
    pub fn principal(&self) -> Option<&Principal> {
        match &self.holder {
            Holder::Everyone => Some(&Principal::LOCAL),
            Holder::Known(account) => Some(&account.name),
            Holder::Unknown => None,
        }
    }

    /// Whether a role has the permission, within the scopes.
    pub fn permits(&self, permission: Permission) -> bool {
        self.has(permission, self.roles().iter())
    }

    /// Whether a role in the tenant `system` has the permission, within the scopes.
    pub fn permits_in_system(&self, permission: Permission) -> bool {
        match &self.holder {
            Holder::Everyone => self.has(permission, iter::empty()),
            Holder::Known(account) => self.has(permission, account.roles_in_system()),
            Holder::Unknown => false,
        }
    }

    /// Returns the permissions in the tenant.
    pub fn permissions(&self) -> impl Iterator<Item = Permission> {
        let all = Permission::OF_CLIENTS.into_iter();
        all.filter(|permission| self.permits(*permission))
    }

    /// Returns the permissions in the tenant `system`.
    pub fn system_permissions(&self) -> impl Iterator<Item = Permission> {
        let all = Permission::OF_CLIENTS.into_iter();
        all.filter(|permission| self.permits_in_system(*permission))
    }

    /// Whether one of the roles has the permission, within the scopes.
    fn has<'a>(&self, permission: Permission, roles: impl Iterator<Item = &'a String>) -> bool {
        let name = permission.name();
        let is_in_scope = self.scopes.is_empty() || self.scopes.iter().any(|scope| scope == name);
        let is_of_clients = Permission::OF_CLIENTS.contains(&permission);
        let mut roles = roles.filter_map(|role| Role::of_name(role));
        let has = self.is_open() || roles.any(|role| role.permissions().contains(&permission));
        is_of_clients && is_in_scope && has
    }

    /// Judges a tool by the patterns of the principal. The permission to call any is
    /// [`Rights::permits`].
    pub fn judge(&self, tool: &Tool) -> ToolVerdict {
        match &self.holder {
            Holder::Everyone => ToolVerdict::Allowed(None),
            Holder::Known(account) => account.tools.judge(tool.id(), &tool.names_in_rules()),
            Holder::Unknown => ToolVerdict::NotListed,
        }
    }

    /// Returns the names of the roles.
    pub fn roles(&self) -> &[String] {
        self.account().map_or(&[], |account| &account.roles)
    }

    /// Returns the groups, as rules for approvals name them.
    pub fn groups(&self) -> &[String] {
        self.account().map_or(&[], |account| &account.groups)
    }

    fn account(&self) -> Option<&Account> {
        match &self.holder {
            Holder::Known(account) => Some(account),
            Holder::Everyone | Holder::Unknown => None,
        }
    }
}
