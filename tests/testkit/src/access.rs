//! The decision of a server about a call, before it reads the message.

use anyhow::Context;
use bytes::Bytes;
use contracts::access::Role;
use contracts::tavern::access::v1::{Permission, Scope};
use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::{CallContext, Transport};
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt, Full};
use tonic::{Code, Status, body::Body};
use tower::ServiceExt;

/// A gRPC message of three bytes that no message type reads.
const UNREADABLE: &[u8] = &[0, 0, 0, 0, 3, 0xff, 0xff, 0xff];

/// The methods of the server itself.
const INFRASTRUCTURE: [(&str, Permission); 2] = [
    ("grpc.health.v1.Health/Check", Permission::Public),
    ("grpc.health.v1.Health/Watch", Permission::Public),
];

/// The decision of a server about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The message was read.
    Reached,
    /// The caller is unknown.
    Unauthenticated,
    /// The caller lacks the permission.
    Denied,
}

/// Calls a method (`package.Service/Method`) with a message that cannot be read, so that a method that is
/// reached does nothing.
///
/// # Errors
/// The server has no such method, or does not answer.
pub async fn decision(transport: &Transport, method: &str) -> anyhow::Result<Decision> {
    decision_with(transport, method, &HeaderMap::new()).await
}

/// Calls a method as [`decision`] does, with further headers.
///
/// # Errors
/// As [`decision`].
pub async fn decision_with(
    transport: &Transport,
    method: &str,
    headers: &HeaderMap,
) -> anyhow::Result<Decision> {
    let mut request = Request::post(format!("/{method}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .body(Body::new(Full::new(Bytes::from_static(UNREADABLE))))?;
    request.headers_mut().extend(headers.clone());
    let answer = transport.with(&CallContext::outermost()).oneshot(request);
    let status = match answer.await {
        Err(status) => status,
        Ok(answer) => match Status::from_header_map(answer.headers()) {
            Some(status) => status,
            None => match answer.into_body().collect().await {
                Err(status) => status,
                Ok(body) => {
                    let trailers = body.trailers().context("an answer has a status")?;
                    Status::from_header_map(trailers).context("an answer has a status")?
                }
            },
        },
    };
    match (status.code(), grpc_kit::reason(&status)) {
        (Code::Unauthenticated, Some(ErrorReason::Unauthenticated)) => {
            Ok(Decision::Unauthenticated)
        }
        (Code::PermissionDenied, Some(ErrorReason::PermissionDenied)) => Ok(Decision::Denied),
        (Code::Unimplemented | Code::Unavailable, _) => {
            anyhow::bail!("{method} is not served: {status}")
        }
        _ => Ok(Decision::Reached),
    }
}

/// Calls every method of the contract, of A2A and of health as one caller: with one of the roles, in the tenant
/// `system` too or in its own only, or unknown.
/// Returns each decision that differs from the contract.
///
/// # Errors
/// The server lacks a method or does not answer, or a method states no permission.
pub async fn differences(
    transport: &Transport,
    role: Option<Role>,
    for_installation: bool,
) -> anyhow::Result<Vec<String>> {
    let of_contract = contracts::access::methods()
        .map(|(name, access)| (name, (access.permission(), access.scope())));
    let infrastructure = INFRASTRUCTURE.map(|(name, permission)| (name, (permission, Scope::Own)));
    let mut differences = Vec::new();
    for (method, (permission, scope)) in of_contract.chain(infrastructure) {
        let expected = match (permission, role) {
            (Permission::Unspecified, _) => anyhow::bail!("{method} states no permission"),
            (Permission::Public, _) => Decision::Reached,
            (Permission::Peer, _) => Decision::Denied,
            (_, None) => Decision::Unauthenticated,
            (needed, Some(role)) => {
                let is_in_reach = scope != Scope::Cluster || for_installation;
                match is_in_reach && role.permissions().contains(&needed) {
                    true => Decision::Reached,
                    false => Decision::Denied,
                }
            }
        };
        let decided = decision(transport, method).await?;
        if decided != expected {
            differences.push(format!("{method}: {decided:?}, not {expected:?}"));
        }
    }
    Ok(differences)
}
