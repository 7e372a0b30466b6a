//! gRPC-Web: gRPC for browsers, with the trailers in the body.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use grpc_kit::Calls;
use http::StatusCode;
use http_body_util::BodyExt;
use tonic::body::Body;
use tonic_web::GrpcWebLayer;
use tower::{Layer, ServiceExt};

use super::call;

/// Answers a request whose content type is that of gRPC-Web.
pub(super) async fn answer(calls: Calls, request: Request) -> Response {
    // A service in another process takes no gRPC that looks like a browser's.
    let calls = calls.map_request(|mut request: http::Request<Body>| {
        call::remove_headers_of_http(request.headers_mut());
        // Nor may it be announced with the length of the text around it, which the layer hands on.
        request.map(|body| Body::new(body.map_frame(|frame| frame)))
    });
    let answered = GrpcWebLayer::new().layer(calls).oneshot(request).await;
    match answered {
        Ok(response) => response.map(axum::body::Body::new),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
