//! A service that answers every call with an empty message, and keeps the context of each.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use grpc_kit::CallContext;
use http::{HeaderMap, Request, Response, header};
use http_body_util::StreamBody;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

/// A call that reached the handler.
#[derive(Clone, Debug)]
pub(crate) struct Witnessed {
    pub(crate) path: String,
    pub(crate) context: CallContext,
    pub(crate) headers: HeaderMap,
}

/// The calls that reached a handler.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<Witnessed>>>);

impl Seen {
    /// Takes the calls since the last time.
    pub(crate) fn take(&self) -> Vec<Witnessed> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Takes the only call since the last time.
    pub(crate) fn only(&self) -> Witnessed {
        let [witnessed] = self.take().try_into().unwrap();
        witnessed
    }
}

/// Answers for the service that `N` names. The methods whose names begin with `Watch` stay open.
#[derive(Debug)]
pub(crate) struct Witness<N> {
    seen: Seen,
    named: PhantomData<fn() -> N>,
}

impl<N> Witness<N> {
    pub(crate) fn new(seen: &Seen) -> Self {
        Self {
            seen: seen.clone(),
            named: PhantomData,
        }
    }
}

impl<N> Clone for Witness<N> {
    fn clone(&self) -> Self {
        Self::new(&self.seen)
    }
}

impl<N: NamedService> NamedService for Witness<N> {
    const NAME: &'static str = N::NAME;
}

impl<N> Service<Request<Body>> for Witness<N> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let witnessed = Witnessed {
            path: request.uri().path().to_owned(),
            context: CallContext::among(request.extensions()),
            headers: request.headers().clone(),
        };
        let stays_open = witnessed.path.contains("/Watch");
        self.seen.0.lock().unwrap().push(witnessed);
        let body = match stays_open {
            true => Body::new(StreamBody::new(futures::stream::pending::<
                Result<http_body::Frame<bytes::Bytes>, tonic::Status>,
            >())),
            false => {
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", 0.into());
                let frames = [
                    http_body::Frame::data(bytes::Bytes::from_static(&[0; 5])),
                    http_body::Frame::trailers(trailers),
                ];
                let frames = frames.map(Ok::<_, tonic::Status>);
                Body::new(StreamBody::new(futures::stream::iter(frames)))
            }
        };
        let mut response = Response::new(body);
        let kind = http::HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        Box::pin(std::future::ready(Ok(response)))
    }
}
