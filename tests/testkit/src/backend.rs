//! gRPC backends in the process of a test.

use std::convert::Infallible;

use http::{Request, Response};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{body::Body, server::NamedService, transport::Server};
use tower::Service;

/// Serves a service of the contract with its reflection until the process ends, and returns its address.
///
/// # Errors
/// No port can be had.
pub async fn serve_backend<S>(service: S) -> anyhow::Result<String>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(contracts::FILE_DESCRIPTOR_SET)
        .with_service_name(S::NAME)
        .build_v1()?;
    let served = Server::builder()
        .add_service(service)
        .add_service(reflection)
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(served);
    Ok(address)
}
