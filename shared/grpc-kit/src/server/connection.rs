//! One connection from its first bytes to its end.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures::FutureExt;
use http::{HeaderMap, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_util::{sync::CancellationToken, task::task_tracker::TaskTrackerToken};
use tonic::body::Body;
use tower::ServiceExt;

use super::{
    calls::{Calls, HeldConnection},
    flood::{Flood, FloodGuard},
    gate::ConnectionPermit,
    proxied::Proxied,
};
use crate::{
    Drain, call,
    rpc::{Origin, Stack},
    settings::ServerSettings,
    share::{PeerShare, StreamRoom},
    tls::{
        failures::Failures,
        server::{Accepted, Acceptor},
        stream::ServerStream,
    },
    windows,
};

/// The number of calls and streams at once on one connection; one more waits at the client.
const MAX_CONCURRENT_STREAMS: u32 = 256;
/// The number of server streams at once on one connection; one more is refused with
/// `RESOURCE_EXHAUSTED`. It is below [`MAX_CONCURRENT_STREAMS`], so that calls always have room.
const MAX_STREAMS: usize = 192;
/// The number of PING, SETTINGS and other control frames that a connection may send beyond one per second and a
/// few per message; then it is closed.
const MAX_CONTROL_FRAMES: u32 = 256;
/// The largest list of headers of a request, in bytes: an issuer token of 8 KiB and all others.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Bytes that a connection must send in time: as many as the preface of HTTP/2 has, and fewer
/// than any HTTP/1.1 request.
const FIRST_BYTES: u64 = 24;

/// The most unsent bytes that the kernel accepts for a peer. Bytes that a peer does not read are
/// bounded where they are made, and only as long as they stay there.
const UNSENT: u32 = 32 << 10;

/// Bytes that wait for the handler of one request, or for the reader of one answer.
const STREAM_WINDOW: u32 = 64 << 10;

/// The state that all connections of a server share.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) stack: Stack,
    pub(super) http: Option<axum::Router>,
    pub(super) settings: ServerSettings,
    /// Missing on a server that clients reach directly.
    pub(super) proxied: Option<Arc<Proxied>>,
    /// Missing on a server without TLS.
    pub(super) tls: Option<Arc<Acceptor>>,
    /// The log of handshakes that failed.
    pub(super) failures: Failures,
    pub(super) ends: Ends,
}

/// The steps by which a server ends.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    /// Streams are notified.
    pub(super) drain: CancellationToken,
    /// Connections accept no new calls; connections from here on accept calls about runs.
    pub(super) go_away: CancellationToken,
    /// Later connections accept no new calls either.
    pub(super) last: CancellationToken,
    /// Connections are cut.
    pub(super) abort: CancellationToken,
}

impl Ends {
    /// Returns the shutdown step that ends a connection; `ending` is whether the first step had
    /// begun when the connection was opened.
    fn next(&self, ending: bool) -> &CancellationToken {
        match ending {
            true => &self.last,
            false => &self.go_away,
        }
    }
}

/// Sets the kernel's options for a connection.
fn tune(stream: &TcpStream, peer: SocketAddr) {
    // Without it, small answers wait for the peer's delayed acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "no-delay refused");
    }
    // Without it, the kernel takes megabytes for a peer that does not read.
    if let Err(error) = SockRef::from(stream).set_tcp_notsent_lowat(UNSENT) {
        tracing::debug!(%peer, %error, "a bound on unsent bytes refused");
    }
}

/// Serves one connection; `held` is held until it ends, also as another protocol. `ending` is whether the server had
/// begun to end when the connection was accepted.
pub(super) async fn run(
    endpoint: Arc<Endpoint>,
    stream: TcpStream,
    peer: SocketAddr,
    held: (ConnectionPermit, TaskTrackerToken),
    ending: bool,
) {
    let (permit, task) = held;
    tune(&stream, peer);
    let settings = &endpoint.settings;
    let local = stream.local_addr().ok();
    let Some(Accepted { stream, proof }) = shake_hands(&endpoint, stream, peer).await else {
        return;
    };
    let drain = endpoint.ends.drain.child_token();
    let close = CancellationToken::new();
    let counts = Arc::new(Counts::default());
    let origin = Origin {
        peer: Some(peer),
        local,
        proof,
        drain: Drain::new(drain.clone()),
        sent: counts.sent.clone(),
        ending,
        close: Some(close.clone()),
        is_encrypted: endpoint.tls.is_some(),
        is_proxied: endpoint.proxied.is_some(),
        streams: rooms(&permit.share),
        large_message: Some(permit.share.large_message()),
        share: Some(Arc::clone(&permit.share)),
    };
    let io = TokioIo::new(watched(stream, &counts));
    let service = {
        let http = endpoint.http.clone();
        let proxied = endpoint.proxied.clone();
        let held = HeldConnection {
            abort: endpoint.ends.abort.clone(),
            _permit: permit,
            _task: task,
        };
        let calls = Calls::new(endpoint.stack.clone(), origin, held);
        hyper::service::service_fn(move |request: Request<Incoming>| {
            let calls = calls.clone().behind(proxied.as_deref(), request.headers());
            let answered = answer(calls, http.clone(), request);
            answered.map(Ok::<_, Infallible>)
        })
    };
    let builder = builder(settings, endpoint.http.is_none());
    let connection = builder.serve_connection_with_upgrades(io, service);
    let mut connection = pin!(connection.into_owned());

    // Ends that the HTTP library does not know: silence, age, a stalled reader, a shutdown.
    let mut first_bytes = pin!(tokio::time::sleep(settings.connection.first_bytes).fuse());
    let mut age = pin!(tokio::time::sleep(jittered(settings.max_connection_age, peer)).fuse());
    let mut go_away = pin!(endpoint.ends.next(ending).cancelled().fuse());
    let mut cut = pin!(futures::future::Fuse::terminated());
    loop {
        tokio::select! {
            result = &mut connection => {
                if let Err(error) = result {
                    tracing::debug!(%peer, error = %error, "connection ended");
                }
                return;
            }
            () = &mut first_bytes => {
                if counts.received.load(Ordering::Relaxed) < FIRST_BYTES {
                    tracing::debug!(%peer, "connection closed: silent since it opened");
                    return;
                }
            }
            () = &mut age => {
                drain.cancel();
                connection.as_mut().graceful_shutdown();
                cut.set(tokio::time::sleep(settings.connection.age_grace).fuse());
            }
            () = &mut go_away => connection.as_mut().graceful_shutdown(),
            () = &mut cut => {
                tracing::debug!(%peer, "connection closed: too old");
                return;
            }
            () = close.cancelled() => return,
            () = endpoint.ends.abort.cancelled() => return,
        }
    }
}

/// Begins TLS on a connection of a server that has it; `None` if that fails.
async fn shake_hands(endpoint: &Endpoint, stream: TcpStream, peer: SocketAddr) -> Option<Accepted> {
    let Some(acceptor) = &endpoint.tls else {
        return Some(Accepted::plain(stream));
    };
    let bound = endpoint.settings.connection.handshake;
    let accepted = tokio::select! {
        accepted = acceptor.accept(stream, bound) => accepted,
        () = endpoint.ends.abort.cancelled() => return None,
    };
    match accepted {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            endpoint.failures.record_handshake(&error, peer);
            None
        }
    }
}

fn watched(stream: ServerStream, counts: &Arc<Counts>) -> Watched {
    Watched {
        stream,
        counts: Arc::clone(counts),
        flood: FloodGuard::new(MAX_CONTROL_FRAMES, Instant::now()),
    }
}

/// Returns the limits that a new stream counts against: those of its peer and of its connection.
fn rooms(share: &PeerShare) -> Vec<StreamRoom> {
    vec![share.streams(), StreamRoom::of_connection(MAX_STREAMS)]
}

fn builder(settings: &ServerSettings, http2_only: bool) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        // A request that its handler does not read must not keep the others of the connection from
        // arriving, and an answer that is not read must not pile up.
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(windows::CONNECTION)
        .max_send_buf_size(STREAM_WINDOW as usize)
        .max_header_list_size(MAX_HEADER_BYTES)
        .keep_alive_interval(settings.connection.keepalive_interval)
        .keep_alive_timeout(settings.connection.keepalive_timeout);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.connection.first_bytes)
        // It bounds the head of a request, and as much of an answer that its client does not read.
        .max_buf_size(MAX_HEADER_BYTES as usize);
    if http2_only {
        builder.http2_only()
    } else {
        builder
    }
}

/// Spreads the ends of connections that began together over a tenth of their age.
fn jittered(age: Duration, peer: SocketAddr) -> Duration {
    age.mul_f64(0.95 + f64::from(peer.port() % 100) / 1_000.0)
}

async fn answer(
    calls: Calls,
    http: Option<axum::Router>,
    mut request: Request<Incoming>,
) -> Response<Body> {
    call::hide_credentials(request.headers_mut());
    if http.is_some() {
        // Here, before any reader, so that the protocol of the request makes no difference.
        call::remove_headers_of_services(request.headers_mut());
    }
    if is_grpc(request.headers()) {
        // A browser speaks for whatever page it shows, and a name that a page chose may lead to a
        // loopback address.
        if request.version() != Version::HTTP_2 || is_from_browser(request.headers()) {
            return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        return calls.serve(request.map(Body::new)).await;
    }
    let Some(router) = http else {
        return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    };
    request.extensions_mut().insert(calls);
    let answered = router.oneshot(request.map(axum::body::Body::new));
    match AssertUnwindSafe(answered).catch_unwind().await {
        Ok(Ok(response)) => response.map(Body::new),
        Ok(Err(never)) => match never {},
        Err(_panic) => {
            tracing::error!("an HTTP handler panicked");
            plain(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

/// Whether the content type is that of gRPC itself, not of gRPC-Web.
fn is_grpc(headers: &HeaderMap) -> bool {
    let rest = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.as_bytes().strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// Whether the request has a header that browsers add and gRPC clients do not.
fn is_from_browser(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ORIGIN)
        || headers
            .keys()
            .any(|name| name.as_str().starts_with("sec-fetch-"))
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

#[derive(Debug, Default)]
struct Counts {
    /// Bytes that the peer has sent.
    received: AtomicU64,
    /// Messages that were sent to it.
    sent: Arc<AtomicU64>,
}

/// A stream whose incoming bytes are watched.
struct Watched {
    stream: ServerStream,
    counts: Arc<Counts>,
    flood: FloodGuard,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let this = &mut *self;
        let new = buffer.filled().get(before..).unwrap_or_default();
        this.counts
            .received
            .fetch_add(new.len() as u64, Ordering::Relaxed);
        let sent = this.counts.sent.load(Ordering::Relaxed);
        match this.flood.observe(new, sent, Instant::now()) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(Flood) => Poll::Ready(Err(io::Error::other("too many control frames"))),
        }
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
