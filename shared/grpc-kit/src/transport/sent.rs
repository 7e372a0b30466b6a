//! The departure of a request, as far as this end of its connection knows.
//!
//! A server that closes a connection in good order, because of its age or its own end, finishes the
//! requests that it has accepted. A request to such a connection is dropped before any of it is
//! written, or refused by the number of its stream; tonic reports both like a broken connection.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::Request;
use http_body_util::BodyExt;
use tonic::body::Body;

use crate::failure;

/// Follows a request to the connection that takes it. Clones follow the same one.
#[derive(Clone, Debug, Default)]
pub struct SentRequest {
    /// Whether a connection has taken some of the message.
    taken: Arc<AtomicBool>,
}

impl SentRequest {
    /// Returns the request, followed.
    pub fn follow(&self, request: Request<Body>) -> Request<Body> {
        let taken = Arc::clone(&self.taken);
        request.map(|body| {
            Body::new(body.map_frame(move |frame| {
                taken.store(true, Ordering::Release);
                frame
            }))
        })
    }

    /// Whether a connection has taken some of the message.
    pub fn has_left(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    /// Whether the server may have carried out the request, which ended with this error and without an
    /// answer.
    pub fn may_have_arrived(&self, error: &(dyn Error + 'static)) -> bool {
        self.has_left() && !failure::causes(error).any(says_not_taken)
    }
}

/// Whether the error is the peer's report that it never read the request.
fn says_not_taken(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<h2::Error>().is_some_and(|error| {
        let refused = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        // A stream ends by the peer's GOAWAY only if it lies beyond the last one that the peer
        // took; those that it took continue, or end with the connection.
        error.is_remote() && (refused || error.is_go_away())
    })
}
