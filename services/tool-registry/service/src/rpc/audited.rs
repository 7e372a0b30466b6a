//! Services whose administrative changes are recorded.
//!
//! The contract decides which methods that are: no method is named here, so that one that is added is recorded too.
//! - `request`: the subject and the names of a request, and the keys of an answer, by their descriptors.

mod request;

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::LazyLock,
    task::{Context, Poll},
};

use bytes::Bytes;
use contracts::tavern::{
    access::v1::Permission,
    common::v1::ErrorReason,
    registry::v1::{AuditActor, BootstrapRequest, BootstrapResponse},
};
use core_types::Tenant;
use futures::{FutureExt, future::BoxFuture};
use grpc_kit::{CallContext, Failure};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use prost::Message;
use prost_reflect::{
    DescriptorPool, MethodDescriptor,
    prost_types::{MethodOptions, method_options::IdempotencyLevel},
};
use run_events::to_its_end;
use tonic::{Code, Status, body::Body, server::NamedService};
use tool_domain::identity::accounts::Regain;
use tower::{Service, ServiceExt};

use super::identities::{FIRST, bootstrap};
use crate::{
    audit::{Audit, AuditFailure, AuditedChange, Ended, Subject},
    identities::Identities,
};
use request::Read;

/// The method of the first key.
const BOOTSTRAP: &str = "tavern.registry.v1.IdentityService/Bootstrap";

/// The bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The text of a refused change.
const NOT_CHANGED: &str = "nothing was changed";

/// The administrative methods of the contract by the path of their requests.
static METHODS: LazyLock<HashMap<String, MethodDescriptor>> = LazyLock::new(|| {
    let pool = DescriptorPool::decode(contracts::FILE_DESCRIPTOR_SET);
    let pool = pool.expect("the contract was compiled with this program");
    let methods = pool
        .services()
        .flat_map(|service| service.methods().collect::<Vec<_>>());
    let methods = methods.filter(is_administrative);
    methods
        .map(|method| (format!("/{}", path_of(&method)), method))
        .collect()
});

/// Whether a method of principals, tenants, tools or backends changes something: its permission is `administer` or
/// `define`, or it is public.
fn is_administrative(method: &MethodDescriptor) -> bool {
    let Some(access) = contracts::access::of(&path_of(method)) else {
        return false;
    };
    let changes = matches!(
        access.permission(),
        Permission::Administer | Permission::Define | Permission::Public
    );
    let options = method.method_descriptor_proto().options.as_ref();
    let level = options.map(MethodOptions::idempotency_level);
    let has_effects = level != Some(IdempotencyLevel::NoSideEffects);
    changes && has_effects && method.parent_service().package_name() == "tavern.registry.v1"
}

fn path_of(method: &MethodDescriptor) -> String {
    format!("{}/{}", method.parent_service().full_name(), method.name())
}

/// A service whose administrative changes are recorded.
#[derive(Clone)]
pub(crate) struct Audited<S> {
    inner: S,
    audit: Audit,
}

impl<S> Audited<S> {
    /// Takes a service, and the audit.
    pub(crate) fn new(inner: S, audit: &Audit) -> Self {
        Self {
            inner,
            audit: audit.clone(),
        }
    }
}

impl<S: NamedService> NamedService for Audited<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Audited<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let inner = self.inner.clone();
        let Some(method) = METHODS.get(request.uri().path()) else {
            return inner.oneshot(request).boxed();
        };
        let audit = self.audit.clone();
        let answered = async move {
            // A client that is slow holds up no change, so the body is read first, while the client waits.
            let (parts, body) = request.into_parts();
            let body = body
                .collect()
                .await
                .map(http_body_util::Collected::to_bytes);
            let body = match body {
                Ok(body) => body,
                Err(status) => return Ok(status.into_http()),
            };
            let request = Request::from_parts(parts, body);
            let changed = to_its_end(change(audit, inner, method, request)).await;
            Ok(changed.unwrap_or_else(|status: Status| status.into_http()))
        };
        answered.boxed()
    }
}

/// Returns the message of a request, which is one and not compressed: whatever else a service would accept, it would
/// not be the message that is recorded.
fn only_message(body: &[u8]) -> Result<&[u8], Status> {
    let only = body.split_at_checked(PREFIX).filter(|(prefix, message)| {
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        prefix[0] == 0 && prefix[1..] == length.to_be_bytes()
    });
    let problem = "the request must be one message that is not compressed";
    let only = only.ok_or_else(|| {
        Failure::invalid_fields()
            .violation("", problem)
            .into_status()
    });
    only.map(|(_, message)| message)
}

/// Makes the change of a request, between its intent and its outcome.
async fn change<S>(
    audit: Audit,
    inner: S,
    method: &'static MethodDescriptor,
    request: Request<Bytes>,
) -> Result<Response<Body>, Status>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let context = CallContext::among(request.extensions());
    let message = only_message(request.body())?;
    let read = Read::of(method, message, context.tenant());
    let answer = async |request: Request<Bytes>| {
        let Ok(response) = inner
            .oneshot(request.map(|body| Body::new(Full::new(body))))
            .await;
        response
    };
    if read.changes_nothing() {
        return Ok(answer(request).await);
    }
    let changes = audit.changes();
    let hmacs = changes.things().hmacs();
    let change = AuditedChange {
        method: path_of(method),
        actor: AuditActor {
            principal: context.principal().as_str().to_owned(),
            key_id: context.key_id().to_owned(),
        },
        values: read.values(hmacs),
        request: hmacs.of(message),
        subject: read.subject,
    };
    let make = async {
        let (response, code, message) = whole(answer(request).await).await;
        let key_ids = request::key_ids(method, &message);
        (response, Ended { code, key_ids })
    };
    changes
        .make(change, make)
        .await
        .map_err(|error| refusal(&error, NOT_CHANGED))
}

/// Makes the first principal or a lost key in the data directory of a registry that does not run, as a recorded
/// change by the person who has the directory.
pub(crate) async fn bootstrap_at_rest(
    audit: &Audit,
    identities: Identities,
    request: BootstrapRequest,
    regain: Regain,
) -> Result<BootstrapResponse, Status> {
    let changes = audit.changes();
    let name = match request.principal.as_str() {
        "" => FIRST,
        name => name,
    };
    let change = AuditedChange {
        method: BOOTSTRAP.to_owned(),
        actor: AuditActor::default(),
        subject: Subject::Principals {
            tenant: Tenant::DEFAULT,
            names: vec![name.to_owned()],
            key_ids: Vec::new(),
        },
        values: Vec::new(),
        request: changes.things().hmacs().of(&request.encode_to_vec()),
    };
    let make = async {
        let made = bootstrap(identities, request, regain).await;
        let key = made.as_ref().ok().and_then(|made| made.key.clone());
        let code = made.as_ref().map_or_else(Status::code, |_| Code::Ok);
        let key_ids = key.into_iter().map(|key| key.key_id).collect();
        (made, Ended { code, key_ids })
    };
    let made = changes.make(change, make).await;
    made.map_err(|error| refusal(&error, NOT_CHANGED))?
}

/// Reads an answer to its end. Returns it with its status and its message.
async fn whole(response: Response<Body>) -> (Response<Body>, Code, Bytes) {
    let (parts, body) = response.into_parts();
    let of_headers = code_in(&parts.headers);
    let collected = match body.collect().await {
        Ok(collected) => collected,
        Err(status) => return (status.clone().into_http(), status.code(), Bytes::new()),
    };
    let trailers = collected.trailers().cloned();
    let of_trailers = trailers.as_ref().and_then(code_in);
    let data = collected.to_bytes();
    let message = data.slice(PREFIX.min(data.len())..);
    let body = Full::new(data).with_trailers(async move { trailers.map(Ok) });
    let code = of_headers.or(of_trailers).unwrap_or(Code::Unknown);
    (Response::from_parts(parts, Body::new(body)), code, message)
}

fn code_in(headers: &HeaderMap) -> Option<Code> {
    let code = headers.get(Status::GRPC_STATUS)?;
    Some(Code::from_bytes(code.as_bytes()))
}

/// Returns the status of a call that the audit cannot serve, with its consequence.
pub(super) fn refusal(error: &AuditFailure, consequence: &str) -> Status {
    tracing::warn!(%error, "the audit does not work: {consequence}");
    let cause = match error {
        AuditFailure::Storage(run_log::StorageError::Full) => "no space left",
        AuditFailure::Storage(_) | AuditFailure::Counters(_) | AuditFailure::Unknown => "storage",
    };
    let message = format!(
        "the audit does not work ({cause}), so {consequence}; free space for the registry's data directory, or \
         raise `audit.max_bytes`, and repeat the request"
    );
    Failure::new(Code::Unavailable, ErrorReason::AuditUnavailable, message)
        .metadata("cause", cause)
        .into_status()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_message_that_is_not_compressed() {
        let message = only_message(b"\0\0\0\0\x02ab").expect("it is one message");
        assert_eq!(message, b"ab");
        assert!(only_message(b"\0\0\0\0\0").is_ok_and(<[u8]>::is_empty));
        for body in [
            &b""[..],
            b"\0\0\0\0",
            b"\x01\0\0\0\x02ab",
            b"\0\0\0\0\x03ab",
            b"\0\0\0\0\x01ab",
            b"\0\0\0\0\x02ab\0\0\0\0\0",
        ] {
            assert!(only_message(body).is_err(), "{body:?}");
        }
    }

    #[test]
    fn the_administrative_methods_are_those_that_change_what_a_registry_keeps() {
        let mut methods: Vec<&str> = METHODS.values().map(MethodDescriptor::name).collect();
        methods.sort_unstable();
        let expected = [
            "BlockPrincipal",
            "Bootstrap",
            "CloseTenant",
            "CreateKey",
            "CreateTenant",
            "DeleteBackend",
            "DeleteTool",
            "ImportApprovers",
            "InstallPlugin",
            "PutBackend",
            "PutPrincipal",
            "PutTool",
            "RevokeKeys",
            "RollbackPlugin",
            "RotateKey",
            "SetPluginState",
            "SetToolState",
            "UnblockPrincipal",
            "UninstallPlugin",
            "UpdatePluginOptions",
            "UpdateTenant",
        ];
        assert_eq!(methods, expected);
    }
}
