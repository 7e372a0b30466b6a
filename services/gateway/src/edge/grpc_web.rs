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

/// Answers a request with the content type of gRPC-Web.
pub(super) async fn answer(calls: Calls, request: Request) -> Response {
    // A service in another process refuses gRPC requests that look like a browser's.
    let calls = calls.map_request(|mut request: http::Request<Body>| {
        call::remove_headers_of_http(request.headers_mut());
        // Nor may the request keep the length of the text around it, which the layer passes on.
        request.map(|body| Body::new(body.map_frame(|frame| frame)))
    });
    let answered = GrpcWebLayer::new().layer(calls).oneshot(request).await;
    match answered {
        Ok(response) => response.map(axum::body::Body::new),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
