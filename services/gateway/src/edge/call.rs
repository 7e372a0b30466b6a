//! Requests to the services, and their answers.

use axum::body::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Status, body::Body};
use tower::{Service, ServiceExt};

use super::frames::Frames;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Headers that describe the HTTP request itself and do not belong to the call.
const OF_HTTP: [HeaderName; 14] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::EXPECT,
    header::HOST,
    header::ORIGIN,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Families of such headers.
const OF_HTTP_PREFIXES: [&str; 4] = ["sec-", "connect-", "grpc-", "access-control-"];

/// Returns the headers that a call takes over from its HTTP request.
pub(super) fn metadata(headers: &HeaderMap) -> HeaderMap {
    let own = |name: &HeaderName| {
        let mut prefixes = OF_HTTP_PREFIXES.iter();
        !OF_HTTP.contains(name) && !prefixes.any(|prefix| name.as_str().starts_with(prefix))
    };
    let kept = headers.iter().filter(|(name, _)| own(name));
    kept.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Makes the request of a call with a message.
pub(super) fn with_metadata<T>(message: T, headers: &HeaderMap) -> tonic::Request<T> {
    let metadata = MetadataMap::from_headers(metadata(headers));
    tonic::Request::from_parts(metadata, Extensions::default(), message)
}

/// Removes headers that describe a browser's HTTP request and not the gRPC request in it, whose
/// body has another length.
pub(super) fn remove_headers_of_http(headers: &mut HeaderMap) {
    for name in OF_HTTP.iter().filter(|name| **name != header::CONTENT_TYPE) {
        headers.remove(name);
    }
    let names: Vec<HeaderName> = headers.keys().cloned().collect();
    for name in names
        .iter()
        .filter(|name| name.as_str().starts_with("sec-"))
    {
        headers.remove(name);
    }
}

/// The answer of a method.
#[derive(Debug)]
pub(super) struct Answer {
    /// The headers, without those of the protocol.
    pub(super) headers: HeaderMap,
    /// The status, where it came with the headers.
    early: Option<Status>,
    frames: Frames,
}

impl Answer {
    /// Calls the method at `path`: as the client, by its [`Calls`](grpc_kit::Calls), or as the gateway itself.
    pub(super) async fn of<S>(calls: S, path: &str, metadata: HeaderMap, body: Body) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Status>,
    {
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        // A path comes from a descriptor, and all its characters are valid in a URI.
        *request.uri_mut() = path.parse().unwrap_or_default();
        *request.version_mut() = http::Version::HTTP_2;
        *request.headers_mut() = metadata;
        request.headers_mut().insert(header::CONTENT_TYPE, GRPC);
        let answered = calls.oneshot(request).await;
        let answered = answered.unwrap_or_else(|status| status.into_http());
        let (parts, body) = answered.into_parts();
        Self {
            early: Status::from_header_map(&parts.headers),
            headers: without_protocol(&parts.headers),
            frames: Frames::new(body, usize::MAX),
        }
    }

    /// Returns the status of a refusal, if it is known before the first message.
    pub(super) fn refusal(&mut self) -> Option<Status> {
        self.early
            .take_if(|status| status.code() != tonic::Code::Ok)
    }

    /// Returns the next message; `None` at the end of the answer. Safe to cancel.
    ///
    /// # Errors
    /// The failure that the method reported, or a failure of the connection.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if let Some((_, message)) = self.frames.next().await? {
            return Ok(Some(message));
        }
        let status = match self.early.take() {
            Some(status) => status,
            None => Status::from_header_map(self.frames.trailers())
                .unwrap_or_else(|| Status::unknown("the answer has no status")),
        };
        match status.code() {
            tonic::Code::Ok => Ok(None),
            _ => Err(status),
        }
    }

    /// Returns the trailers, without those of the protocol; there are none before the end.
    pub(super) fn trailers(&self) -> HeaderMap {
        without_protocol(self.frames.trailers())
    }
}

fn without_protocol(headers: &HeaderMap) -> HeaderMap {
    let own = |name: &HeaderName| {
        !name.as_str().starts_with("grpc-")
            && *name != header::CONTENT_TYPE
            && *name != header::CONTENT_LENGTH
            && *name != header::DATE
    };
    let kept = headers.iter().filter(|(name, _)| own(name));
    kept.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
