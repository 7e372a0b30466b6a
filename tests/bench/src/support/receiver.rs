//! A receiver of OTLP that accepts everything and keeps none of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::{BodyExt, Full};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// The frame of an empty message: not compressed, no bytes.
const EMPTY_MESSAGE: &[u8] = &[0; 5];

/// A receiver on a loopback socket; it ends with the process.
#[derive(Debug)]
pub(crate) struct Receiver {
    address: SocketAddr,
    bytes: Arc<AtomicU64>,
}

impl Receiver {
    /// Starts to receive.
    ///
    /// # Errors
    /// The socket cannot be had.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let bytes = Arc::new(AtomicU64::new(0));
        let incoming =
            TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?.with_nodelay(Some(true));
        let address = incoming.local_addr()?;
        let router = Router::new()
            .fallback(take)
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&bytes));
        tokio::spawn(
            Server::builder()
                .add_routes(Routes::from(router))
                .serve_with_incoming(incoming),
        );
        Ok(Self { address, bytes })
    }

    /// Returns where to send to.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the number of bytes received.
    pub(crate) fn received(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Receives one export and answers with success, whichever signal it is.
async fn take(State(bytes): State<Arc<AtomicU64>>, body: Bytes) -> Response<Body> {
    bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let answer = Full::new(Bytes::from_static(EMPTY_MESSAGE))
        .with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(Body::new(answer));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    response
}
