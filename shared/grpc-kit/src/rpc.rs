//! The frame of every RPC, over a socket and in process alike.
//!
//! [`Stack::serve`] is the whole of it, in order. It never fails and never panics: every error
//! becomes a response with a status.

mod body;
mod frames;
mod span;

use std::{
    any::Any,
    future::Future,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, atomic::AtomicU64},
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::{HeaderMap, Request, Response, header};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tonic::{Status, body::Body, transport::server::TcpConnectInfo};
use tower::Service;
use tracing::Instrument;

use crate::{
    CallContext, CallGuard, Drain, Failure, Services, call, deadline,
    door::{self, Admission, Door, Knock},
    failure,
    methods::{self, Method, Methods},
    services::Routes,
    settings::{ServerSettings, TraceTrust},
    share::{LargeMessage, PeerShare, SHED_RETRY, StreamRoom},
    tls::{PeerProof, failures::Failures},
};
use body::{RequestBody, ResponseBody};
pub(crate) use frames::Lengths;
use span::ObservedRpc;

/// The time for which health and reflection streams continue when the server drains: they have no
/// work to finish.
const INFRASTRUCTURE_DRAIN: Duration = Duration::from_millis(200);

/// The largest message that is sent, in bytes.
const MAX_RESPONSE_MESSAGE: usize = 4 << 20;

/// The origin of a request.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The peer; missing in process.
    pub(crate) peer: Option<SocketAddr>,
    /// Our end of the connection; missing in process.
    pub(crate) local: Option<SocketAddr>,
    /// The proof of the service that calls.
    pub(crate) proof: PeerProof,
    /// Whether the connection is one with TLS.
    pub(crate) is_encrypted: bool,
    /// Whether a proxy that ends TLS has sent the request.
    pub(crate) is_proxied: bool,
    /// The drain of the connection.
    pub(crate) drain: Drain,
    /// Counts the messages that were sent on the connection.
    pub(crate) sent: Arc<AtomicU64>,
    /// Whether the server was draining when the connection was made.
    pub(crate) ending: bool,
    /// Closes the connection; missing in process.
    pub(crate) close: Option<CancellationToken>,
    /// The rooms for streams of the peer and of the connection; empty in process.
    pub(crate) streams: Vec<StreamRoom>,
    /// The bound of the large messages of a stream: in process, that of the caller's own answer.
    pub(crate) large_message: Option<LargeMessage>,
    /// The share of the peer, which is the same for as long as it has a call open; missing in process.
    pub(crate) share: Option<Arc<PeerShare>>,
}

impl Origin {
    /// Returns the origin of the calls of a client that came by a proxy.
    pub(crate) fn of_client(mut self, address: SocketAddr, share: Arc<PeerShare>) -> Self {
        if let Some(room) = self.streams.first_mut() {
            *room = share.streams();
        }
        self.peer = Some(address);
        self.large_message = Some(share.large_message());
        self.share = Some(share);
        self
    }

    /// Whether the caller is on this machine.
    fn is_near(&self) -> bool {
        let peer = self.peer.map(|peer| peer.ip().to_canonical());
        peer.is_none_or(|peer| peer.is_loopback())
    }

    /// Returns the origin of another call on the same connection.
    pub(crate) fn of_a_call(self) -> Self {
        let large_message = self.large_message.as_ref();
        Self {
            large_message: large_message.map(LargeMessage::of_another_stream),
            ..self
        }
    }

    /// The origin of a call in process.
    fn local(request: &Request<Body>) -> Self {
        let caller = request.extensions().get::<CallContext>();
        Self {
            peer: None,
            local: None,
            proof: PeerProof::NotAsked,
            is_encrypted: false,
            is_proxied: false,
            drain: Drain::never(),
            sent: Arc::default(),
            ending: false,
            close: None,
            streams: Vec::new(),
            large_message: caller.and_then(CallContext::large_message),
            share: None,
        }
    }
}

/// The services of a server with their frame. Clones share their limits.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    routes: Arc<Routes>,
    methods: Arc<Methods>,
    limits: Arc<Limits>,
    /// Missing where only peers call.
    door: Option<Arc<dyn Door>>,
    /// Whether clients of other hosts call, none of whom is `local`.
    exposed: bool,
    /// The log of peers that were refused.
    refused: Arc<Failures>,
}

#[derive(Debug)]
struct Limits {
    calls: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    call_timeout: Duration,
    stream_timeout: Duration,
    stream_idle_timeout: Duration,
    max_request_message: usize,
    trace_trust: TraceTrust,
}

/// The decisions about an RPC before its handler runs.
struct Admitted {
    context: CallContext,
    deadline: Instant,
    streams: bool,
    infrastructure: bool,
    permits: Vec<OwnedSemaphorePermit>,
    held: CallGuard,
    /// Ends a call or a stream whose caller may no longer have it.
    ended: Option<BoxFuture<'static, Status>>,
}

/// A call that the door has admitted.
#[derive(Debug)]
pub(crate) struct Entry {
    method: Option<Method>,
    admission: Option<Admission>,
    rpc: ObservedRpc,
}

impl Entry {
    /// Waits until the caller may no longer have the call, with the status that ends it.
    async fn ended(&mut self) -> Status {
        let admission = self.admission.as_mut();
        match admission.and_then(|admission| admission.ended.as_mut()) {
            Some(ended) => ended.await,
            None => std::future::pending().await,
        }
    }

    /// Reads the request of the call, which takes as long as its client likes.
    ///
    /// # Errors
    /// The failure of `read`, and the status that ends the call of a caller who may have it no longer. Both
    /// are observed.
    pub(crate) async fn read<T>(
        &mut self,
        read: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let read = tokio::select! {
            biased;
            status = self.ended() => Err(status),
            read = read => read,
        };
        read.inspect_err(|status| self.rpc.end(status.code(), status.message()))
    }
}

impl Stack {
    pub(crate) fn new(services: &Services, settings: &ServerSettings) -> Self {
        let limits = Limits {
            calls: Arc::new(Semaphore::new(settings.max_calls)),
            streams: Arc::new(Semaphore::new(settings.max_streams)),
            call_timeout: settings.call_timeout,
            stream_timeout: settings.stream_timeout,
            stream_idle_timeout: settings.stream_idle_timeout,
            max_request_message: settings.max_request_message,
            trace_trust: settings.trace_trust,
        };
        Self {
            routes: Arc::new(services.routes.clone()),
            methods: services.methods(),
            limits: Arc::new(limits),
            door: None,
            exposed: settings.is_exposed(),
            refused: Arc::default(),
        }
    }

    /// Puts a door in front of the services.
    #[must_use]
    pub(crate) fn behind(mut self, door: Option<Arc<dyn Door>>) -> Self {
        self.door = door;
        self
    }

    /// Returns the size in bytes of the largest message that the method at `path` reads.
    pub(crate) fn max_request_message(&self, path: &str) -> usize {
        let of_method = self.methods.find(path).map(|method| method.max_request);
        let of_server = self.limits.max_request_message;
        of_method.map_or(of_server, |maximum| maximum.min(of_server))
    }

    /// Answers one request.
    pub(crate) async fn serve(self, request: Request<Body>, origin: Origin) -> Response<Body> {
        match self
            .enter(request.uri().path(), request.headers(), &origin)
            .await
        {
            Ok(entry) => self.serve_entered(entry, request, origin).await,
            Err(status) => status.into_http(),
        }
    }

    /// Has the door decide about a call of the method at `path`, of whose request only `headers` are known.
    ///
    /// # Errors
    /// The status that refuses the call, which is observed.
    pub(crate) async fn enter(
        &self,
        path: &str,
        headers: &HeaderMap,
        origin: &Origin,
    ) -> Result<Entry, Status> {
        let method = self.methods.find(path).cloned();
        let rpc = ObservedRpc::begin(headers, method.as_ref(), origin, self.limits.trace_trust);
        let knock = self.knock(headers, method.as_ref(), origin);
        match knock.instrument(rpc.span().clone()).await {
            Ok(admission) => Ok(Entry {
                method,
                admission,
                rpc,
            }),
            Err(status) => {
                rpc.end(status.code(), status.message());
                Err(status)
            }
        }
    }

    /// Answers a request whose call has entered.
    pub(crate) async fn serve_entered(
        self,
        entry: Entry,
        request: Request<Body>,
        origin: Origin,
    ) -> Response<Body> {
        let span = entry.rpc.span().clone();
        let serving = self.serve_in_span(entry, request, origin);
        serving.instrument(span).await
    }

    async fn serve_in_span(
        self,
        entry: Entry,
        mut request: Request<Body>,
        origin: Origin,
    ) -> Response<Body> {
        let Entry {
            method,
            admission,
            rpc,
        } = entry;
        if self.door.is_some() {
            call::remove_headers_of_services(request.headers_mut());
        }
        let mut admitted = match self.admit(&request, method.as_ref(), &origin, admission) {
            Ok(admitted) => admitted,
            Err(status) => return answer(&rpc, status),
        };
        let Admitted {
            context,
            deadline,
            ended,
            ..
        } = &mut admitted;
        let max_request = method.map_or(usize::MAX, |method| method.max_request);
        let request = self.prepare(request, &origin, context, max_request);
        let handler = self.routes.call(request);
        // The order matters: a panic is caught inside the time limit, so that both become
        // answers; dropping the handler at its deadline ends everything that it awaits.
        let contained = AssertUnwindSafe(handler).catch_unwind();
        let bounded = tokio::time::timeout_at(*deadline, contained);
        let ended = async {
            match ended {
                Some(ended) => ended.await,
                None => std::future::pending().await,
            }
        };
        let handled = tokio::select! {
            biased;
            handled = bounded => handled,
            status = ended => return answer(&rpc, status),
        };
        let response = match handled {
            Err(_elapsed) => return answer(&rpc, Failure::deadline_exceeded().into_status()),
            Ok(Err(panic)) => return answer(&rpc, contain(&*panic)),
            Ok(Ok(response)) => response,
        };
        self.guard(response, admitted, &origin, rpc)
    }

    /// Has the door decide about a request, before anything of it is decoded and before it takes a place.
    /// Without a door peers call, which the method must name. A method that no service has is not there for
    /// anyone.
    async fn knock(
        &self,
        headers: &HeaderMap,
        method: Option<&Method>,
        origin: &Origin,
    ) -> Result<Option<Admission>, Status> {
        let unknown = || Status::unimplemented("this server has no such method");
        match (method, &self.door) {
            (Some(method), Some(_)) => {
                let name = (&*method.full_name, method.streams);
                self.knock_as(name, headers, origin).await
            }
            (Some(method), None) => {
                let stated = call::read_peer(headers);
                let record = |reason| self.refused.record_call(reason, origin.peer);
                door::admit_peer(method, stated, &origin.proof, record).map(|()| None)
            }
            // Its access is unknown, whether or not a service has it.
            (None, Some(_)) => Err(unknown()),
            (None, None) if origin.proof.is_asked() => Err(unknown()),
            (None, None) => Ok(None),
        }
    }

    /// Has the door decide about a call by a name, which may have a stream as its answer; `None` without a door.
    pub(crate) async fn knock_as(
        &self,
        (name, streams): (&str, bool),
        headers: &HeaderMap,
        origin: &Origin,
    ) -> Result<Option<Admission>, Status> {
        let Some(door) = &self.door else {
            return Ok(None);
        };
        let knock = Knock {
            method: name,
            headers,
            peer: origin.peer.map(|peer| peer.ip()),
            streams,
        };
        let admission = door.admit(knock).await?;
        let is_local = admission.principal.is_local() && !methods::is_health(name);
        match self.exposed && is_local && !origin.is_near() {
            true => Err(door::keyless()),
            false => Ok(Some(admission)),
        }
    }

    /// Takes a place among the calls or streams, and reads deadline and path.
    fn admit(
        &self,
        request: &Request<Body>,
        method: Option<&Method>,
        origin: &Origin,
        admission: Option<Admission>,
    ) -> Result<Admitted, Status> {
        let goes_on = method.is_some_and(|method| method.while_draining || method.infrastructure);
        if origin.ending && !goes_on {
            return Err(body::draining());
        }
        let limits = &self.limits;
        let streams = method.is_some_and(|method| method.streams);
        let infrastructure = method.is_some_and(|method| method.infrastructure);
        let mut permits = Vec::new();
        let places = if streams {
            for room in &origin.streams {
                permits.push(room.enter()?);
            }
            &limits.streams
        } else {
            &limits.calls
        };
        // Health must answer above all when the server is busy.
        match places.clone().try_acquire_owned() {
            Ok(permit) => permits.push(permit),
            Err(_) if infrastructure && !streams => {}
            Err(_) => return Err(Failure::overloaded(SHED_RETRY).into_status()),
        }
        let ours = if streams {
            limits.stream_timeout
        } else {
            limits.call_timeout
        };
        let ours = method.and_then(|method| method.timeout).unwrap_or(ours);
        let timeout = deadline::read(request.headers()).map_err(|deadline::Malformed| {
            let what = "is not a timeout; give up to 8 digits and a unit, one of H, M, S, m, u, n";
            Failure::invalid_fields().violation("metadata.grpc-timeout", what)
        })?;
        let timeout = timeout.map_or(ours, |caller| caller.min(ours));
        let deadline = Instant::now() + timeout;
        let (proven, standing, held) = admission.map_or((None, None, None), |admission| {
            let proven = call::Proven {
                principal: admission.principal,
                key_id: admission.key_id,
                reach: admission.reach,
            };
            (Some(proven), admission.ended, admission.held)
        });
        let context = CallContext::read(request.headers(), proven, deadline)?;
        let large_message = origin.large_message.clone().filter(|_| streams);
        let context = context.with_large_message(large_message);
        Ok(Admitted {
            context,
            deadline,
            streams,
            infrastructure,
            permits,
            held,
            ended: standing,
        })
    }

    /// Replaces the caller's extensions by the facts of this call, and bounds messages.
    fn prepare(
        &self,
        request: Request<Body>,
        origin: &Origin,
        context: &CallContext,
        max_request: usize,
    ) -> Request<Body> {
        let (mut parts, body) = request.into_parts();
        parts.extensions.clear();
        if self.door.is_some() && !context.principal().is_local() {
            // It has done its work at the door, and goes no further.
            parts.headers.remove(header::AUTHORIZATION);
        }
        parts.extensions.insert(origin.drain.clone());
        parts.extensions.insert(context.clone());
        if origin.peer.is_some() {
            parts.extensions.insert(TcpConnectInfo {
                local_addr: origin.local,
                remote_addr: origin.peer,
            });
        }
        let body = Body::new(RequestBody::new(
            body,
            self.limits.max_request_message.min(max_request),
        ));
        Request::from_parts(parts, body)
    }

    /// Bounds the rest of the answer: its time, its messages, its panics.
    fn guard(
        &self,
        response: Response<Body>,
        admitted: Admitted,
        origin: &Origin,
        rpc: ObservedRpc,
    ) -> Response<Body> {
        let (parts, body) = response.into_parts();
        if let Some(status) = Status::from_header_map(&parts.headers) {
            rpc.end(status.code(), status.message());
        }
        let drain = admitted.infrastructure.then(|| origin.drain.clone());
        let body = ResponseBody::new(
            body,
            body::Bounds {
                deadline: admitted.deadline,
                idle: admitted.streams.then_some(self.limits.stream_idle_timeout),
                drain: drain.map(|drain| (drain, INFRASTRUCTURE_DRAIN)),
                ended: admitted.ended.filter(|_| admitted.streams),
                close: origin.close.clone(),
                large_message: origin
                    .large_message
                    .clone()
                    .filter(|_| origin.peer.is_some()),
                max_message: MAX_RESPONSE_MESSAGE,
            },
            body::ResponseGuards {
                rpc,
                sent: origin.sent.clone(),
                _share: origin.share.clone(),
                _permits: admitted.permits,
                _held: admitted.held,
            },
        );
        Response::from_parts(parts, Body::new(body))
    }
}

fn answer(rpc: &ObservedRpc, status: Status) -> Response<Body> {
    rpc.end(status.code(), status.message());
    status.into_http()
}

/// Logs a panic and makes the status, which has only the trace id for the caller.
fn contain(panic: &(dyn Any + Send)) -> Status {
    let trace_id = telemetry::context::current_trace_id();
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message");
    tracing::error!(trace_id, panic = message, "a handler panicked");
    failure::internal_status(&trace_id)
}

/// The most calls in process that are served in one task, one inside the other: a hop to another task costs
/// more than most handlers, but each call that is served in its caller's task grows that task's stack.
const MAX_DEPTH: u8 = 2;

tokio::task_local! {
    /// The number of calls in process that the present task is serving, one inside the other.
    static DEPTH: u8;
}

/// A [`Stack`] behind one origin, as a tower service.
#[derive(Clone, Debug)]
pub(crate) struct LocalStack {
    pub(crate) stack: Stack,
}

impl Service<Request<Body>> for LocalStack {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // Boxed, because the handler is moved several times until it runs, and is large.
        let origin = Origin::local(&request);
        let serving = self.stack.clone().serve(request, origin).boxed();
        let depth = DEPTH.try_with(|depth| *depth).unwrap_or_default();
        if depth < MAX_DEPTH {
            return Box::pin(DEPTH.scope(depth + 1, serving.map(Ok)));
        }
        Box::pin(async move {
            // A task of its own, so that circular calls do not grow one stack.
            let task = tokio::spawn(serving);
            tokio_util::task::AbortOnDropHandle::new(task)
                .await
                .map_err(|_| Status::cancelled("the process ends"))
        })
    }
}
