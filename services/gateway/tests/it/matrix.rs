//! Every method of the contract for every role, where no socket is between the caller and the door.

use contracts::access::Role;
use contracts::tavern::access::v1::{Permission, Scope};
use contracts::tavern::common::v1::ErrorReason;
use gateway::{GatewaySettings, Peers};
use grpc_kit::{CallContext, Services, Transport};
use http::Request;
use tonic::{Status, body::Body};
use tower::ServiceExt;

use crate::identities::IdentityDouble;

/// Returns the reason of a refusal at the door; `None` if the call was admitted, for which there is no handler
/// here.
async fn refusal(door: &Transport, method: &str) -> Option<ErrorReason> {
    let request = Request::post(format!("/{method}"));
    let request = request.body(Body::empty()).unwrap();
    let answered = door.with(&CallContext::outermost()).oneshot(request).await;
    let status = Status::from_header_map(answered.unwrap().headers()).unwrap();
    let reason = grpc_kit::reason(&status);
    assert!(reason.is_some() || status.message() == "this server has no such service");
    reason
}

#[tokio::test]
async fn every_method_decides_about_every_role_in_process() {
    let identities = IdentityDouble::default();
    let peers = Peers::over(
        grpc_kit::local(&identities.services()),
        grpc_kit::local(&Services::new()),
        grpc_kit::local(&Services::new()),
    );
    let gateway = gateway::build(GatewaySettings::default(), peers);
    let door = grpc_kit::local_behind(&Services::new(), gateway.door());
    let with = |key: &str| door.authorized(format!("Bearer {key}").parse().unwrap());
    let revoked = identities.key("revoked", Role::Admin);
    let mut callers = Vec::from(Role::ALL.map(|role| {
        let key = identities.key(role.name(), role);
        (with(&key), Some(role))
    }));
    identities.revoke("revoked");
    callers.extend([
        (door.clone(), None),
        (with("tvk_x"), None),
        (with(&revoked), None),
    ]);
    for (method, access) in contracts::access::methods() {
        for (caller, role) in &callers {
            let expected = match (access.permission(), role) {
                (Permission::Unspecified, _) => panic!("{method} states no permission"),
                (Permission::Public, _) => None,
                (Permission::Peer, _) => Some(ErrorReason::PermissionDenied),
                (_, None) => Some(ErrorReason::Unauthenticated),
                (needed, Some(role)) => {
                    let for_all = access.scope() != Scope::Cluster || *role == Role::Admin;
                    let has = for_all && role.permissions().contains(&needed);
                    (!has).then_some(ErrorReason::PermissionDenied)
                }
            };
            assert_eq!(refusal(caller, method).await, expected, "{method} {role:?}");
        }
    }
}
