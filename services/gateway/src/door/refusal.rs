//! The statuses that refuse a call.

use contracts::access::Role;
use contracts::tavern::access::v1::Permission;
use contracts::tavern::common::v1::ErrorReason;
use core_types::Principal;
use grpc_kit::Failure;
use tonic::{Code, Status};

use super::rights::MethodAccess;

/// The service that resolves credentials.
const REGISTRY: &str = "tool-registry";

/// Refuses a call without a valid credential: the same for each kind of bad one.
pub(super) fn unauthenticated() -> Status {
    let message = "the call has no valid key or token; send one as `authorization: Bearer KEY`, with the command line \
        by --key-file or TAVERN_KEY_FILE, or by --token-file; an administrator makes a key with `tavern keys create`";
    Failure::new(Code::Unauthenticated, ErrorReason::Unauthenticated, message).into_status()
}

/// Refuses a call while credentials cannot be resolved.
pub(super) fn registry_away() -> Status {
    Failure::dependency_unavailable(REGISTRY).into_status()
}

/// Refuses a client that calls a method of services.
pub(super) fn of_peers(method: &str) -> Status {
    let message =
        format!("services call {method} among themselves; no client has the permission for it");
    permission_denied(message, Permission::Peer, method).into_status()
}

/// Refuses a caller who lacks the permission for a method.
pub(super) fn denied(
    principal: &Principal,
    roles: &[String],
    access: MethodAccess,
    method: &str,
) -> Status {
    let (permission, place) = match access {
        MethodAccess::With(permission) => (permission, ""),
        MethodAccess::InSystem(permission) => (permission, " in the tenant `system`"),
        MethodAccess::Public | MethodAccess::Caller | MethodAccess::Peers => {
            (Permission::Unspecified, "")
        }
    };
    let needed = permission.name();
    let has = match roles {
        [] => "no role".to_owned(),
        roles => format!("the roles {}", roles.join(", ")),
    };
    let with = Role::ALL
        .into_iter()
        .filter(|role| role.permissions().contains(&permission));
    let with: Vec<&str> = with.map(Role::name).collect();
    let message = format!(
        "`{principal}` may not call {method}: it has {has}, and its key does not give it the permission \
         `{needed}`{place}; an administrator can give it a role{place} that has it ({}), or a key without such scopes",
        with.join(", ")
    );
    permission_denied(message, permission, method)
        .metadata("principal", principal.as_str())
        .into_status()
}

fn permission_denied(message: String, permission: Permission, method: &str) -> Failure {
    Failure::new(
        Code::PermissionDenied,
        ErrorReason::PermissionDenied,
        message,
    )
    .metadata("permission", permission.name())
    .metadata("method", method)
}
