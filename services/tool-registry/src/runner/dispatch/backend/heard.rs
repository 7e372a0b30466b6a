//! Whether a status is the peer's own.
//!
//! tonic makes a status of its own where an answer cannot be read, such as one that is too large,
//! with the codes that a server uses to refuse a request. Only what the peer wrote says what it did.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use tonic::{body::Body, transport::Channel};
use tower::{Service, ServiceExt};

/// Notes whether the status of one call came.
#[derive(Clone, Debug, Default)]
pub(super) struct StatusSeen {
    status: Arc<AtomicBool>,
}

impl StatusSeen {
    /// Returns the channel with every answer looked at.
    pub(super) fn listen(
        &self,
        channel: Channel,
    ) -> impl Service<
        Request<Body>,
        Response = Response<Body>,
        Error = tonic::transport::Error,
        Future: Send,
    > + use<> {
        let heard = self.clone();
        channel.map_response(move |response: Response<Body>| {
            heard.note(response.headers());
            response.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    if let Some(trailers) = frame.trailers_ref() {
                        heard.note(trailers);
                    }
                    frame
                }))
            })
        })
    }

    /// Whether the peer gave a status.
    pub(super) fn answered(&self) -> bool {
        self.status.load(Ordering::Acquire)
    }

    fn note(&self, headers: &HeaderMap) {
        if headers.contains_key("grpc-status") {
            self.status.store(true, Ordering::Release);
        }
    }
}
