//! Services that pass their calls on.

use std::{
    convert::Infallible,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use bytes::Bytes;
use grpc_kit::{CallContext, Transport};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tonic::{body::Body, server::NamedService};
use tower::{Service, ServiceExt};

/// A way whose end can be replaced, as a neighbour is when it restarts. Clones share it.
#[derive(Clone, Debug)]
pub struct Way(Arc<Mutex<Transport>>);

impl Way {
    /// Leads to `transport`.
    pub fn to(transport: Transport) -> Self {
        Self(Arc::new(Mutex::new(transport)))
    }

    /// Leads to `transport` from here on.
    pub fn lead_to(&self, transport: Transport) {
        *self.0.lock().unwrap() = transport;
    }
}

/// An observer of the context and the path of a call with one request, and of the message of the request.
type Seen = Arc<dyn Fn(&CallContext, &str, Bytes) + Send + Sync>;

/// Passes the calls of the service that `N` names on to the end of a way.
pub struct Passing<N> {
    way: Way,
    seen: Option<Seen>,
    named: PhantomData<fn() -> N>,
}

impl<N> Passing<N> {
    /// Passes calls on.
    pub fn over(way: &Way) -> Self {
        Self {
            way: way.clone(),
            seen: None,
            named: PhantomData,
        }
    }

    /// Shows each request to `seen` before it is passed on. No request may be a stream.
    #[must_use]
    pub fn seen_by(
        mut self,
        seen: impl Fn(&CallContext, &str, Bytes) + Send + Sync + 'static,
    ) -> Self {
        self.seen = Some(Arc::new(seen));
        self
    }
}

impl<N> Clone for Passing<N> {
    fn clone(&self) -> Self {
        Self {
            seen: self.seen.clone(),
            ..Self::over(&self.way)
        }
    }
}

impl<N> std::fmt::Debug for Passing<N> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Passing").field(&self.way).finish()
    }
}

impl<N: NamedService> NamedService for Passing<N> {
    const NAME: &'static str = N::NAME;
}

impl<N> Service<Request<Body>> for Passing<N> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (to, seen) = (self.way.0.lock().unwrap().clone(), self.seen.clone());
        Box::pin(async move {
            let context = CallContext::among(request.extensions());
            let request = match seen {
                Some(seen) => shown(&context, request, &seen).await,
                None => request,
            };
            let answered = to.with(&context).oneshot(request).await;
            Ok(answered.unwrap_or_else(|status| status.into_http()))
        })
    }
}

async fn shown(context: &CallContext, request: Request<Body>, seen: &Seen) -> Request<Body> {
    /// A flag and a length precede the message.
    const HEAD: usize = 5;
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    seen(
        context,
        parts.uri.path(),
        body.slice(HEAD.min(body.len())..),
    );
    Request::from_parts(parts, Body::new(Full::new(body)))
}
