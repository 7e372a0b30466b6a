//! The way to a service, in process or over a socket.
//!
//! Every client is `XServiceClient<Outbound>`: a transport [with](Transport::with) the [`CallContext`] of
//! its calls. Whether the service is in the same process shows nowhere else. Each call carries the
//! trace context of the current span, and the deadline and the path of its context.
//!
//! - `pool`: the connections to a service at an address.
//! - `bounded`: an answer that is read no faster than it can be passed on.
//! - `sent`: whether a request that was not answered has left.

mod bounded;
mod pool;
mod sent;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Duration,
};

use contracts::tavern::access::v1::Peer;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::BodyExt;
use tonic::{Status, TimeoutExpired, body::Body, transport::Endpoint};
use tower::{Service, ServiceExt, util::BoxCloneSyncService};

use crate::{
    CallContext, Door, Failure, ServiceName, Services, call, failure,
    rpc::{LocalStack, Stack},
    services::service_of,
    settings::{
        ClientSettings, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, ServerSettings, TransportError,
    },
    tls::{client::Connector, refused_certificate},
};
use bounded::BoundedBody;
use pool::{LanePermit, Pool};

pub use sent::SentRequest;

/// The longest time that connecting to a service takes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

type Inner = BoxCloneSyncService<Request<Body>, Response<Body>, Status>;
type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

/// The way to a service. A client needs the context of its calls too (see [`Transport::with`]).
#[derive(Clone)]
pub struct Transport {
    inner: Inner,
    /// The service whose calls it carries; none for calls of a program.
    peer: Option<Peer>,
}

/// The way to a service for the calls of one context: the service that generated clients take.
#[derive(Clone, Debug)]
pub struct Outbound {
    transport: Transport,
    context: CallContext,
}

impl Transport {
    const fn new(inner: Inner) -> Self {
        Self { inner, peer: None }
    }

    /// Returns the way for the calls of a service, which the other end admits by its name.
    #[must_use]
    pub fn of_peer(mut self, peer: Peer) -> Self {
        self.peer = Some(peer);
        self
    }

    /// Returns the way for calls on behalf of `context`, which carry its path and deadline.
    pub fn with(&self, context: &CallContext) -> Outbound {
        Outbound {
            transport: self.clone(),
            context: context.clone(),
        }
    }

    /// Returns the way for calls of the program itself, which no other call waits for.
    pub fn outermost(&self) -> Outbound {
        self.with(&CallContext::outermost())
    }
}

impl Transport {
    /// Returns the way for a client outside, which sends `authorization` with each call that has none.
    #[must_use]
    pub fn authorized(&self, authorization: HeaderValue) -> Self {
        let inner = self.inner.clone();
        let service = tower::service_fn(move |mut request: Request<Body>| {
            let headers = request.headers_mut();
            let own = headers.entry(header::AUTHORIZATION);
            own.or_insert_with(|| authorization.clone());
            inner.clone().oneshot(request)
        });
        Self::new(Inner::new(service))
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transport")
    }
}

/// Returns the way to services in the same process, with the limits of default settings.
pub fn local(services: &Services) -> Transport {
    local_with(services, &ServerSettings::default())
}

/// Returns the way to services in the same process. A call is treated as over a socket: its
/// deadline is kept, its panic becomes `INTERNAL`, its messages are bounded, and the caller's
/// extensions do not reach the handler. It is served in its caller's task, or in a task of its own
/// where calls are nested.
pub fn local_with(services: &Services, settings: &ServerSettings) -> Transport {
    Transport::new(Inner::new(LocalStack {
        stack: Stack::new(services, settings),
    }))
}

/// Returns the way to services in the same process behind a door, as clients have it over a socket.
pub fn local_behind(services: &Services, door: Arc<dyn Door>) -> Transport {
    let stack = Stack::new(services, &ServerSettings::default()).behind(Some(door));
    Transport::new(Inner::new(LocalStack { stack }))
}

/// Returns the way to a service at an address. Connects with the first call and again whenever
/// a connection is lost. Streams and calls with one answer have connections apart, and further ones
/// as they become many. Must be called inside a tokio runtime.
///
/// # Errors
/// [`TransportError`] when the address is not valid, or its certificates are not.
pub fn remote(settings: &ClientSettings) -> Result<Transport, TransportError> {
    let address = settings.address()?;
    let tls = match address.scheme_str() {
        Some("https") => Some(Connector::new(&settings.tls)?),
        _ => None,
    };
    let pool = Pool::new(endpoint(address), tls);
    Ok(Transport::new(Inner::new(Remote(Arc::new(pool)))))
}

/// Returns the way of a service with `server` to `service` at an address, as [`remote`] does. Where the first proves
/// itself by a certificate, the other one has to be `service` by its own.
///
/// # Errors
/// As [`remote`].
pub fn neighbour(
    settings: &ClientSettings,
    server: &ServerSettings,
    service: ServiceName,
) -> Result<Transport, TransportError> {
    remote(&settings.beside(server, service))
}

/// Returns a way whose end is not known yet, for services that call each other in a circle.
/// Until the slot is filled, every call is answered with `UNAVAILABLE`.
pub fn late() -> (Transport, LateTransport) {
    let slot = LateTransport(Arc::default());
    let waiting = slot.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let target = waiting.0.get().cloned();
        async move {
            match target {
                Some(target) => target.oneshot(request).await,
                None => Err(Failure::dependency_unavailable(service_of(&request)).into_status()),
            }
        }
    });
    (Transport::new(Inner::new(service)), slot)
}

/// The end of a [`late`] way.
#[derive(Clone)]
pub struct LateTransport(Arc<OnceLock<Inner>>);

impl fmt::Debug for LateTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LateTransport")
            .field(&self.0.get().is_some())
            .finish()
    }
}

impl LateTransport {
    /// Sets the end of the way. Only the first call counts.
    pub fn fill(&self, transport: Transport) {
        let _ = self.0.set(transport.inner);
    }
}

impl Service<Request<Body>> for Outbound {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Answer;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.transport.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Answer {
        telemetry::context::inject(request.headers_mut());
        if let Err(status) = self.context.write(request.headers_mut()) {
            return Box::pin(std::future::ready(Err(status)));
        }
        if let Some(peer) = self.transport.peer {
            call::write_peer(request.headers_mut(), peer);
        }
        request.extensions_mut().insert(self.context.clone());
        self.transport.inner.call(request)
    }
}

/// Connections whose errors are ours.
#[derive(Clone)]
struct Remote(Arc<Pool>);

impl Service<Request<Body>> for Remote {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answer {
        let service = service_of(&request).to_owned();
        let (channel, place) = self.0.enter(request.uri().path());
        let context = request.extensions().get::<CallContext>();
        let bound = context.and_then(CallContext::large_message);
        let sent = SentRequest::default();
        let request = sent.follow(request);
        Box::pin(async move {
            match channel.oneshot(request).await {
                Ok(response) => Ok(response.map(|body| {
                    let body = body.map_err(move |status| {
                        // The place is taken for as long as the answer is not over.
                        let _: &LanePermit = &place;
                        translate_broken(&status, &service)
                    });
                    match bound {
                        Some(bound) => Body::new(BoundedBody::new(body, bound)),
                        None => Body::new(body),
                    }
                })),
                Err(error) => Err(translate(error, &sent, &service)),
            }
        })
    }
}

/// Translates a transport's error to its code and reason. A timeout is a passed deadline, which
/// tonic calls a cancellation.
fn translate(error: tonic::transport::Error, sent: &SentRequest, service: &str) -> Status {
    if failure::causes(&error).any(|cause| cause.is::<TimeoutExpired>()) {
        return Failure::deadline_exceeded().into_status();
    }
    tracing::debug!(
        service,
        error = failure::chain(&error),
        "a service does not answer"
    );
    let failure = match refused_certificate(&error) {
        Some(reason) => Failure::dependency_refused(service, &reason),
        None => Failure::dependency_unavailable(service),
    };
    match sent.may_have_arrived(&error) {
        true => failure.after_sending().into_status(),
        false => failure.into_status(),
    }
}

/// Translates the error of an answer that broke off: the service sends its own status in trailers,
/// so an error of the body is an error of the connection. tonic assigns it the code that resembles
/// the number with which HTTP/2 closed the stream, such as a cancellation that no caller requested.
fn translate_broken(status: &Status, service: &str) -> Status {
    tracing::debug!(service, error = %status, "an answer broke off");
    let failure = Failure::dependency_unavailable(service);
    failure.after_sending().into_status()
}

fn endpoint(address: Uri) -> Endpoint {
    Endpoint::from(address)
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
}
