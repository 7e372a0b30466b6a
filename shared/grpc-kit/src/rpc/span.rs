//! The span of an RPC, and its measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use http::HeaderMap;
use telemetry::{
    attributes::{PEER_ADDRESS, RPC_METHOD, RPC_SERVICE, RPC_STATUS_CODE, RPC_SYSTEM},
    context, spans,
};
use tonic::Code;
use tracing::Span;

use super::Origin;
use crate::{methods::Method, settings::TraceTrust};

/// The service that orchestrators poll: it has neither spans nor measurements.
const HEALTH: &str = "grpc.health.v1.Health";

/// An RPC from its arrival to the end of its answer, observed once.
#[derive(Debug)]
pub(super) struct ObservedRpc {
    span: Span,
    measured: Option<Measured>,
}

#[derive(Debug)]
struct Measured {
    service: Arc<str>,
    /// `package.Service/Method`.
    full_name: Arc<str>,
    begun: Instant,
    has_ended: AtomicBool,
}

impl ObservedRpc {
    /// Begins to observe an RPC.
    pub(super) fn begin(
        headers: &HeaderMap,
        method: Option<&Method>,
        origin: &Origin,
        trust: TraceTrust,
    ) -> Self {
        if method.is_some_and(|method| &*method.service == HEALTH) {
            return Self {
                span: Span::none(),
                measured: None,
            };
        }
        let unknown = || Arc::from("unknown");
        Self {
            span: begin(headers, method, origin, trust),
            measured: Some(Measured {
                service: method.map_or_else(unknown, |method| Arc::clone(&method.service)),
                full_name: method.map_or_else(unknown, |method| Arc::clone(&method.full_name)),
                begun: Instant::now(),
                has_ended: AtomicBool::new(false),
            }),
        }
    }

    /// Returns the span.
    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// Records the end of the RPC; the first report counts.
    pub(super) fn end(&self, code: Code, message: &str) {
        if self.measure(code) {
            end(&self.span, code, message);
        }
    }

    fn measure(&self, code: Code) -> bool {
        let Some(measured) = &self.measured else {
            return false;
        };
        if measured.has_ended.swap(true, Ordering::Relaxed) {
            return false;
        }
        let method = measured.full_name.rsplit('/').next().unwrap_or_default();
        let took = measured.begun.elapsed();
        telemetry::metrics::rpc_ended(&measured.service, method, code.into(), took);
        true
    }
}

impl Drop for ObservedRpc {
    /// Records an RPC that is dropped before its end: its caller gave it up.
    fn drop(&mut self) {
        self.measure(Code::Cancelled);
    }
}

/// Begins the span, below the caller's if the caller is trusted with that, else linked to it.
fn begin(headers: &HeaderMap, method: Option<&Method>, origin: &Origin, trust: TraceTrust) -> Span {
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
    if let Some(caller) = context::extract(headers) {
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

/// Records the end of the RPC in its span.
fn end(span: &Span, code: Code, message: &str) {
    spans::set(span, RPC_STATUS_CODE, i64::from(i32::from(code)));
    // Only a fault of the server marks its span as failed.
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
