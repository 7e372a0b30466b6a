//! gRPC-Web: gRPC for browsers, with the trailers in the body.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use grpc_kit::Calls;
use http::StatusCode;
use tonic_web::GrpcWebLayer;
use tower::{Layer, ServiceExt};

/// Answers a request whose content type is that of gRPC-Web.
pub(super) async fn answer(calls: Calls, request: Request) -> Response {
    let answered = GrpcWebLayer::new().layer(calls).oneshot(request).await;
    match answered {
        Ok(response) => response.map(axum::body::Body::new),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
