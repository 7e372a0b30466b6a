//! Statuses as this edge reports them: in the JSON of the other edges, under the statuses that HTTP has for files.

use axum::response::{IntoResponse, Response};
use contracts::tavern::common::v1::ErrorReason;
use http::{HeaderValue, StatusCode, header};
use tonic::Status;

use crate::edge::connect::http_error;

/// Answers a request that the door or a limit of calls has refused.
pub(super) fn at_door(status: &Status) -> Response {
    http_error(status)
}

/// Answers a request that failed.
pub(super) fn of_file(status: &Status) -> Response {
    let mut response = http_error(status);
    match grpc_kit::reason(status) {
        Some(ErrorReason::EtagMismatch) => *response.status_mut() = StatusCode::PRECONDITION_FAILED,
        Some(ErrorReason::LimitExceeded) => *response.status_mut() = beyond(status),
        _ => {}
    }
    response
}

/// Returns the status for a limit: of a file, or of all files of a conversation.
fn beyond(status: &Status) -> StatusCode {
    let limit = grpc_kit::metadata(status).remove("limit");
    match limit.as_deref() {
        Some("workspace_bytes") => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::PAYLOAD_TOO_LARGE,
    }
}

/// Answers a request for a part that a file of `size` bytes does not have.
pub(super) fn no_such_part(size: u64) -> Response {
    let line = "the file has no byte of this range\n";
    let mut response = (StatusCode::RANGE_NOT_SATISFIABLE, line).into_response();
    if let Ok(size) = HeaderValue::try_from(format!("bytes */{size}")) {
        response.headers_mut().insert(header::CONTENT_RANGE, size);
    }
    response
}
