//! A record of the parts of one call that crossed its connection: the request, and the peer's own status.
//!
//! tonic makes a status of its own where a connection drops a request, and where an answer cannot be read,
//! such as one that is too large, with the codes that a server uses to refuse a request. Only the
//! bytes that the peer wrote show its own answer.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use grpc_kit::SentRequest;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use tonic::{Status, body::Body, transport::Channel};
use tower::{Service, ServiceExt};

/// Records which parts of one call crossed its connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange {
    request: SentRequest,
    status: Arc<AtomicBool>,
}

impl Exchange {
    /// Returns the channel with every request and answer looked at.
    pub(super) fn over(
        &self,
        channel: Channel,
    ) -> impl Service<
        Request<Body>,
        Response = Response<Body>,
        Error = tonic::transport::Error,
        Future: Send,
    > + use<> {
        let (sent, heard) = (self.request.clone(), self.clone());
        let channel = channel.map_request(move |request| sent.follow(request));
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

    /// Whether some of the request has left.
    pub(super) fn has_left(&self) -> bool {
        self.request.has_left()
    }

    /// Whether the peer may have carried out the call, which ended with this status.
    pub(super) fn may_have_arrived(&self, status: &Status) -> bool {
        self.request.may_have_arrived(status)
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
