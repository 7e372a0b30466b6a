//! The methods of the services, each at its gRPC path.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Extension, Router};
use grpc_kit::Calls;
use http::{HeaderMap, StatusCode, header};
use prost_reflect::MethodDescriptor;

use super::connect::{self, Encoding};
use super::{contract, grpc_web};

/// Returns a route for each method of `services`.
pub(super) fn routes(services: &[&str]) -> Router {
    let methods = contract::methods(services).into_iter();
    methods.fold(Router::new(), |router, method| {
        let path = contract::path_of(&method);
        let method = Arc::new(method);
        let routes = visits(&method);
        let answer = move |Extension(calls): Extension<Calls>, request: Request| {
            let method = Arc::clone(&method);
            async move { answer(&method, calls, request).await }
        };
        router.route(&path, routes.post(answer))
    })
}

/// Returns the GET route of a method that has one answer and no side effects.
fn visits(method: &Arc<MethodDescriptor>) -> MethodRouter {
    let streams = method.is_client_streaming() || method.is_server_streaming();
    if streams || !contract::has_no_side_effects(method) {
        return MethodRouter::new();
    }
    let method = Arc::clone(method);
    get(
        move |Extension(calls): Extension<Calls>, request: Request| async move {
            connect::visit(&method, calls, request).await
        },
    )
}

/// Answers in the protocol that the content type names.
async fn answer(method: &MethodDescriptor, calls: Calls, request: Request) -> Response {
    let kind = content_type(request.headers()).to_owned();
    let streams = method.is_client_streaming() || method.is_server_streaming();
    match (kind.as_str(), streams) {
        ("application/json", false) => connect::unary(method, Encoding::Json, calls, request).await,
        ("application/proto", false) => {
            connect::unary(method, Encoding::Proto, calls, request).await
        }
        ("application/connect+json", true) => {
            connect::stream(method, Encoding::Json, calls, request).await
        }
        ("application/connect+proto", true) => {
            connect::stream(method, Encoding::Proto, calls, request).await
        }
        (kind, _) if kind.starts_with("application/grpc-web") => {
            grpc_web::answer(calls, request).await
        }
        (kind, streams) => unsupported(kind, streams),
    }
}

/// Returns the content type without its parameters.
pub(super) fn content_type(headers: &HeaderMap) -> &str {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim()
}

fn unsupported(kind: &str, streams: bool) -> Response {
    let (accepted, line) = match (streams, kind) {
        (true, _) => (
            "application/connect+json, application/connect+proto, application/grpc-web+proto",
            "this method streams: call it by gRPC, gRPC-Web or the streaming protocol of Connect\n",
        ),
        (false, "application/x-www-form-urlencoded") => (
            "application/json, application/proto, application/grpc-web+proto",
            "a form may come from any web page; send JSON: curl --json '{...}'\n",
        ),
        (false, _) => (
            "application/json, application/proto, application/grpc-web+proto",
            "send JSON with content-type: application/json, as curl --json '{...}' does\n",
        ),
    };
    let headers = [("accept-post", accepted)];
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, headers, line).into_response()
}
