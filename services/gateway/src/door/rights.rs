//! The permissions of a caller, and the access to a method.

use std::net::IpAddr;

use contracts::access;
use contracts::tavern::access::v1::{Permission, Scope};
use core_types::Reach;

/// The service of gRPC that describes the others, in each of its versions.
const REFLECTION: &str = "grpc.reflection.";

/// The permissions of a caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Permissions {
    /// The permissions for the objects of its tenant.
    pub(crate) in_tenant: PermissionSet,
    /// The permissions for the installation.
    pub(crate) in_system: PermissionSet,
}

/// A set of permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PermissionSet(u16);

impl PermissionSet {
    /// Reads names. The name of a permission that this version does not know counts for nothing.
    pub(crate) fn named(names: &[String]) -> Self {
        let known = names.iter().filter_map(|name| Permission::of_name(name));
        Self(known.fold(0, |all, permission| all | bit(permission)))
    }

    fn include(self, permission: Permission) -> bool {
        self.0 & bit(permission) != 0
    }
}

fn bit(permission: Permission) -> u16 {
    1 << (permission as i32)
}

/// The clients that may call a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MethodAccess {
    /// Every client, without a credential.
    Public,
    /// Each caller whom a credential proves: for a name that is no method of the contract.
    Caller,
    /// A caller with the permission.
    With(Permission),
    /// A caller with the permission in the tenant `system`.
    InSystem(Permission),
    /// No client.
    Peers,
}

impl MethodAccess {
    /// Returns the access to a method for a client at `peer`; `None` for a client in process. Methods are
    /// described to every client of this machine.
    pub(crate) fn of(method: &str, peer: Option<IpAddr>) -> Self {
        let is_near = peer.is_none_or(|peer| peer.to_canonical().is_loopback());
        if is_near && method.starts_with(REFLECTION) {
            return Self::Public;
        }
        let access = access::of(method);
        match access.map(|access| (access.permission(), access.scope())) {
            None => Self::Caller,
            Some((Permission::Public, _)) => Self::Public,
            Some((Permission::Peer | Permission::Unspecified, _)) => Self::Peers,
            Some((permission, Scope::Cluster)) => Self::InSystem(permission),
            Some((permission, _)) => Self::With(permission),
        }
    }

    /// Whether a caller with `permissions` may call the method.
    pub(crate) fn is_open_to(self, permissions: Permissions) -> bool {
        match self {
            Self::Public | Self::Caller => true,
            Self::With(permission) => permissions.in_tenant.include(permission),
            Self::InSystem(permission) => permissions.in_system.include(permission),
            Self::Peers => false,
        }
    }

    /// Returns the objects that a call of the method sees for a caller with `permissions`.
    pub(crate) fn reach(self, permissions: Permissions) -> Reach {
        match self {
            Self::InSystem(_) => Reach::Installation,
            _ if permissions.in_tenant.include(Permission::Operate) => Reach::Tenant,
            _ => Reach::Own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_permission_opens_its_own_methods() {
        for given in Permission::OF_CLIENTS {
            let set = PermissionSet::named(&[given.name().to_owned(), "later".to_owned()]);
            let permissions = Permissions {
                in_tenant: set,
                ..Permissions::default()
            };
            let of_installation = Permissions {
                in_system: set,
                ..Permissions::default()
            };
            for needed in Permission::OF_CLIENTS {
                let open = MethodAccess::With(needed).is_open_to(permissions);
                assert_eq!(open, given == needed, "{given:?} {needed:?}");
                assert!(!MethodAccess::InSystem(needed).is_open_to(permissions));
                let open = MethodAccess::InSystem(needed).is_open_to(of_installation);
                assert_eq!(open, given == needed, "{given:?} {needed:?}");
            }
            let reach = MethodAccess::With(Permission::Read).reach(permissions);
            let wide = given == Permission::Operate;
            assert_eq!(reach == Reach::Tenant, wide, "{given:?}");
            assert!(MethodAccess::Caller.is_open_to(permissions));
            assert!(!MethodAccess::Peers.is_open_to(permissions));
        }
        assert!(!MethodAccess::With(Permission::Read).is_open_to(Permissions::default()));
    }

    #[test]
    fn methods_are_described_to_clients_of_this_machine() {
        let method = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        let at = |address: &str| MethodAccess::of(method, Some(address.parse().unwrap()));
        assert_eq!(at("127.0.0.1"), MethodAccess::Public);
        assert_eq!(at("::ffff:127.0.0.1"), MethodAccess::Public);
        assert_eq!(at("10.0.0.1"), MethodAccess::With(Permission::Read));
    }

    #[test]
    fn a_method_of_services_is_open_to_no_client() {
        let method = "tavern.registry.v1.IdentityService/ResolveCredential";
        assert_eq!(MethodAccess::of(method, None), MethodAccess::Peers);
        assert_eq!(
            MethodAccess::of("other.v1.Service/Do", None),
            MethodAccess::Caller
        );
        assert_eq!(
            MethodAccess::of("grpc.health.v1.Health/Check", None),
            MethodAccess::Public
        );
    }
}
