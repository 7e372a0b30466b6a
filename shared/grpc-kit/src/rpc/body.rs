//! The bodies of requests and responses, bounded as they pass.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, Sleep},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tonic::{Code, Status, body::Body};
use tracing::Span;

use super::{
    contain,
    frames::{Lengths, TooLong},
    span::ObservedRpc,
};
use crate::{CallGuard, Drain, Failure, share::LargeMessage};

/// The body of a request: refuses a message at its head if it is too long.
pub(super) struct RequestBody {
    inner: Body,
    lengths: Lengths,
    maximum: usize,
}

impl RequestBody {
    pub(super) fn new(inner: Body, maximum: usize) -> Self {
        Self {
            inner,
            lengths: Lengths::new(maximum),
            maximum,
        }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
            && let Err(TooLong { declared, .. }) = self.lengths.observe(data)
        {
            let refusal = Failure::limit_exceeded("message bytes", self.maximum, declared);
            return Poll::Ready(Some(Err(refusal.into_status())));
        }
        match polled {
            // A reader of messages would take it for their end, and half of a file for the whole.
            Poll::Ready(Some(Err(broken))) if broken.code() == Code::Cancelled => {
                let left = Status::aborted("the caller left before the end of its messages");
                Poll::Ready(Some(Err(left)))
            }
            polled => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The bounds of a response.
pub(super) struct Bounds {
    /// The time at which it must be over.
    pub(super) deadline: Instant,
    /// The longest pause between two messages.
    pub(super) idle: Option<Duration>,
    /// The drain that ends it early, and the time until then.
    pub(super) drain: Option<(Drain, Duration)>,
    /// Ends a stream whose caller may no longer have it.
    pub(super) ended: Option<BoxFuture<'static, Status>>,
    /// Closes the connection, for a peer that does not read.
    pub(super) close: Option<CancellationToken>,
    /// The bound of large messages to the peer.
    pub(super) large_message: Option<LargeMessage>,
    /// The largest message.
    pub(super) max_message: usize,
}

/// The guards that a response holds until it is over.
pub(super) struct ResponseGuards {
    /// The span and the measurement of the call.
    pub(super) rpc: ObservedRpc,
    /// Counts the messages of the connection.
    pub(super) sent: Arc<AtomicU64>,
    /// Keeps the share of the peer alive while a call of it is open.
    pub(super) _share: Option<Arc<crate::share::PeerShare>>,
    /// The places among the calls or streams.
    pub(super) _permits: Vec<OwnedSemaphorePermit>,
    pub(super) _held: CallGuard,
}

/// The body of a response. An early end comes with trailers that state the reason.
pub(super) struct ResponseBody {
    inner: Option<Body>,
    held: Option<ResponseGuards>,
    lengths: Lengths,
    max_message: usize,
    deadline: Pin<Box<Sleep>>,
    idle: Option<(Duration, Pin<Box<Sleep>>)>,
    drain: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    ended: Option<BoxFuture<'static, Status>>,
    /// The status that ends the body once its last good messages are out.
    ending: Option<Status>,
    watchdog: Option<Watchdog>,
    large_message: Option<LargeMessage>,
}

/// Closes the connection of a peer that stops reading: no reader asks this body for more then, so
/// that none of its own bounds can act.
struct Watchdog {
    /// Counts the frames that were taken.
    taken: Arc<AtomicU64>,
    _task: AbortOnDropHandle<()>,
}

impl Watchdog {
    /// Begins to watch. A body that is polled ends itself after `idle`; a body that is not polled
    /// is cut after twice that.
    fn start(idle: Duration, close: CancellationToken) -> Self {
        let taken = Arc::new(AtomicU64::new(0));
        let watched = taken.clone();
        let task = tokio::spawn(async move {
            let mut seen = 0;
            loop {
                tokio::time::sleep(idle.saturating_mul(2)).await;
                let taken = watched.load(Ordering::Relaxed);
                if taken == seen {
                    tracing::debug!("a stream's reader has stopped reading");
                    close.cancel();
                    return;
                }
                seen = taken;
            }
        });
        Self {
            taken,
            _task: AbortOnDropHandle::new(task),
        }
    }
}

impl ResponseBody {
    pub(super) fn new(inner: Body, bounds: Bounds, held: ResponseGuards) -> Self {
        let over = inner.is_end_stream();
        let watchdog = match (bounds.idle, bounds.close) {
            (Some(idle), Some(close)) if !over => Some(Watchdog::start(idle, close)),
            _ => None,
        };
        Self {
            inner: (!over).then_some(inner),
            held: (!over).then_some(held),
            lengths: Lengths::new(bounds.max_message),
            max_message: bounds.max_message,
            deadline: Box::pin(tokio::time::sleep_until(bounds.deadline)),
            idle: bounds
                .idle
                .map(|idle| (idle, Box::pin(tokio::time::sleep(idle)))),
            drain: bounds.drain.map(|(drain, delay)| {
                let ended = async move {
                    drain.started().await;
                    tokio::time::sleep(delay).await;
                };
                Box::pin(ended) as Pin<Box<dyn Future<Output = ()> + Send>>
            }),
            ended: bounds.ended,
            ending: None,
            watchdog,
            large_message: bounds.large_message,
        }
    }

    /// Returns whether a bound has been reached.
    fn poll_bounds(&mut self, cx: &mut Context<'_>) -> Option<Status> {
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Some(Failure::deadline_exceeded().into_status());
        }
        if let Some((idle, sleep)) = &mut self.idle
            && sleep.as_mut().poll(cx).is_ready()
        {
            let idle = settings::duration::print(*idle);
            return Some(
                Failure::new(
                    Code::DeadlineExceeded,
                    contracts::tavern::common::v1::ErrorReason::DeadlineExceeded,
                    format!("the stream was silent for {idle}"),
                )
                .into_status(),
            );
        }
        if let Some(drain) = &mut self.drain
            && drain.as_mut().poll(cx).is_ready()
        {
            return Some(draining());
        }
        match self.ended.as_mut().map(|ended| ended.poll_unpin(cx)) {
            Some(Poll::Ready(status)) => Some(status),
            Some(Poll::Pending) | None => None,
        }
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Polled> {
        let (Some(inner), Some(held)) = (&mut self.inner, &self.held) else {
            return Poll::Ready(Polled::Frame(None));
        };
        let span = held.rpc.span().clone();
        let poll = AssertUnwindSafe(|| span.in_scope(|| Pin::new(inner).poll_frame(cx)));
        match catch_unwind(poll) {
            Ok(polled) => polled.map(Polled::Frame),
            Err(panic) => Poll::Ready(Polled::Panic(panic)),
        }
    }

    /// Ends the body with trailers.
    fn end_with(&mut self, status: Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.inner = None;
        if let Some(held) = self.held.take() {
            held.rpc.end(status.code(), status.message());
        }
        let mut trailers = HeaderMap::new();
        match status.add_header(&mut trailers) {
            Ok(()) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Err(status) => Poll::Ready(Some(Err(status))),
        }
    }

    fn observe(&mut self, frame: &Frame<Bytes>) -> Result<(), TooLong> {
        if let Some(watchdog) = &self.watchdog {
            watchdog.taken.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(data) = frame.data_ref() {
            let begun = self.lengths.observe(data)?;
            if let Some(held) = &self.held {
                held.sent.fetch_add(begun, Ordering::Relaxed);
            }
            if let Some((idle, sleep)) = &mut self.idle {
                sleep.as_mut().reset(Instant::now() + *idle);
            }
        }
        if let Some(trailers) = frame.trailers_ref() {
            self.inner = None;
            if let Some(held) = self.held.take() {
                let status = Status::from_header_map(trailers);
                let status = status.unwrap_or_else(|| Status::unknown("no status"));
                held.rpc.end(status.code(), status.message());
            }
        }
        Ok(())
    }
}

enum Polled {
    Frame(Option<Result<Frame<Bytes>, Status>>),
    Panic(Box<dyn Any + Send>),
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.inner.is_none() {
            return Poll::Ready(None);
        }
        if let Some(status) = this.ending.take() {
            return this.end_with(status);
        }
        if let Some(status) = this.poll_bounds(cx) {
            return this.end_with(status);
        }
        let frame = match this.poll_inner(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Polled::Panic(panic)) => {
                let span = this
                    .held
                    .as_ref()
                    .map_or_else(Span::none, |held| held.rpc.span().clone());
                let status = span.in_scope(|| contain(&*panic));
                return this.end_with(status);
            }
            Poll::Ready(Polled::Frame(Some(Err(status)))) => return this.end_with(status),
            Poll::Ready(Polled::Frame(None)) => {
                this.inner = None;
                this.held = None;
                return Poll::Ready(None);
            }
            Poll::Ready(Polled::Frame(Some(Ok(frame)))) => frame,
        };
        match this.observe(&frame) {
            Ok(()) => {
                let frame = match &this.large_message {
                    Some(bound) => frame.map_data(|data| bound.tie_to(data)),
                    None => frame,
                };
                Poll::Ready(Some(Ok(frame)))
            }
            Err(TooLong { declared, good }) => {
                let maximum = this.max_message;
                let failure = Failure::limit_exceeded("message bytes", maximum, declared);
                match frame.into_data() {
                    Ok(mut data) if good > 0 => {
                        data.truncate(good);
                        this.ending = Some(failure.into_status());
                        Poll::Ready(Some(Ok(Frame::data(data))))
                    }
                    _ => this.end_with(failure.into_status()),
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_none()
    }
}

/// The status of a stream that a drain ended, and of a call that came during one.
pub(super) fn draining() -> Status {
    Failure::new(
        Code::Unavailable,
        contracts::tavern::common::v1::ErrorReason::Draining,
        "the server is about to end",
    )
    .retry_after(Duration::from_secs(1))
    .into_status()
}
