//! An answer that is read no faster than it can be passed on.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use tonic::Status;

use crate::{rpc::Lengths, share::LargeMessage};

/// Passes a body on, and waits at the head of each large message until the peer who is to get it has
/// room for it: until then the message stays with the service that sends it.
pub(super) struct BoundedBody<B> {
    inner: Pin<Box<B>>,
    lengths: Lengths,
    bound: LargeMessage,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<B> BoundedBody<B> {
    pub(super) fn new(inner: B, bound: LargeMessage) -> Self {
        Self {
            inner: Box::pin(inner),
            lengths: Lengths::new(usize::MAX),
            bound,
            waiting: None,
        }
    }
}

impl<B: HttpBody<Data = Bytes, Error = Status>> HttpBody for BoundedBody<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Some(waiting) = &mut this.waiting {
            ready!(waiting.as_mut().poll(cx));
            this.waiting = None;
        }
        let polled = ready!(this.inner.as_mut().poll_frame(cx));
        if let Some(Ok(frame)) = &polled
            && let Some(data) = frame.data_ref()
        {
            // No length is too long here: the caller has its own limit.
            let begun = this.lengths.observe(data).unwrap_or_default();
            let bytes = this.lengths.remaining();
            if begun > 0 && !this.bound.try_admit(bytes) {
                let bound = this.bound.clone();
                this.waiting = Some(Box::pin(async move { bound.admit(bytes).await }));
            }
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}
