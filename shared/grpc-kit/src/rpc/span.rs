//! The span of an RPC.

use http::Request;
use telemetry::{
    attributes::{PEER_ADDRESS, RPC_METHOD, RPC_SERVICE, RPC_STATUS_CODE, RPC_SYSTEM},
    context, spans,
};
use tonic::{Code, body::Body};
use tracing::Span;

use super::Origin;
use crate::{methods::Method, settings::TraceTrust};

/// Begins the span, below the caller's if the caller is trusted with that, else linked to it.
pub(super) fn begin(
    request: &Request<Body>,
    method: Option<&Method>,
    origin: &Origin,
    trust: TraceTrust,
) -> Span {
    // A path that is no method of ours must not become a name: names are few.
    let (name, service) = method.map_or(("unknown", "unknown"), |method| {
        (&*method.full_name, &*method.service)
    });
    let peer = origin
        .peer
        .map_or_else(|| "local".to_owned(), |peer| peer.ip().to_string());
    let span = tracing::info_span!(
        parent: None,
        "rpc",
        otel.name = name,
        otel.kind = "server",
        { RPC_SYSTEM } = "grpc",
        { RPC_SERVICE } = service,
        { RPC_METHOD } = name.rsplit('/').next(),
        { PEER_ADDRESS } = peer,
        trace_id = tracing::field::Empty,
    );
    if let Some(caller) = context::extract(request.headers()) {
        let trusted = match (origin.peer, trust) {
            (None, _) | (_, TraceTrust::Anyone) => true,
            (Some(peer), TraceTrust::Loopback) => peer.ip().to_canonical().is_loopback(),
            (Some(_), TraceTrust::None) => false,
        };
        if trusted {
            context::set_parent(&span, &caller);
        } else {
            context::link(&span, &caller);
        }
    }
    // For the log lines below the span.
    span.record("trace_id", context::trace_id(&span));
    span
}

/// Records how the RPC ended.
pub(super) fn end(span: &Span, code: Code, message: &str) {
    spans::set(span, RPC_STATUS_CODE, i64::from(i32::from(code)));
    // Only what is the server's fault marks a server's span as failed.
    if matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    ) {
        spans::fail(span, &format!("{code:?}"), message);
    }
}
