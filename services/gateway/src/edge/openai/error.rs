//! Statuses as the chat API reports them.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::is_unknown_model;
use crate::edge::connect::http_status;

/// Clients repeat some failures by themselves, and a repeated turn would act twice.
const SHOULD_RETRY: &str = "x-should-retry";

/// Answers a request that started no run.
pub(super) fn before_run(status: &Status) -> Response {
    let (code, body) = (status_of(status), to_json(status));
    (code, Json(body)).into_response()
}

/// Answers a request whose run failed.
pub(super) fn of_run(code: StatusCode, body: Value) -> Response {
    (code, [(SHOULD_RETRY, "false")], Json(body)).into_response()
}

/// Refuses a path or a verb that this API does not have.
pub(in crate::edge) fn of_path(code: StatusCode, message: &str) -> Response {
    let body = body(message, "invalid_request_error", None, "unknown_url");
    (code, Json(body)).into_response()
}

pub(super) fn status_of(status: &Status) -> StatusCode {
    http_status(status.code())
}

/// Makes the body of an answer that reports a failure.
pub(super) fn to_json(status: &Status) -> Value {
    if is_unknown_model(status) {
        let kind = "invalid_request_error";
        return body(status.message(), kind, Some("model"), "model_not_found");
    }
    if status.code() == Code::Unauthenticated {
        // The code by which clients know it.
        let kind = "invalid_request_error";
        return body(status.message(), kind, None, "invalid_api_key");
    }
    let kind = match status_of(status) {
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        code if code.is_client_error() => "invalid_request_error",
        _ => "server_error",
    };
    let violations = grpc_kit::violations(status);
    let field = violations.first().map(|(field, _)| field.as_str());
    let reason = grpc_kit::reason(status).map(|reason| reason.as_str_name());
    let reason = reason
        .unwrap_or_default()
        .trim_start_matches("ERROR_REASON_");
    body(status.message(), kind, field, &reason.to_lowercase())
}

/// Makes the body of an answer that reports a failure.
pub(super) fn body(message: &str, kind: &str, param: Option<&str>, code: &str) -> Value {
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}
