//! Statuses in the words of the bindings of A2A.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::edge::connect::{code_name, details, http_status};

/// The domain of the reasons of the protocol.
const DOMAIN: &str = "a2a-protocol.org";

/// The codes of JSON-RPC for reasons of the protocol.
const CODES: [(&str, i32); 6] = [
    ("TASK_NOT_FOUND", -32001),
    ("TASK_NOT_CANCELABLE", -32002),
    ("PUSH_NOTIFICATION_NOT_SUPPORTED", -32003),
    ("UNSUPPORTED_OPERATION", -32004),
    ("CONTENT_TYPE_NOT_SUPPORTED", -32005),
    ("VERSION_NOT_SUPPORTED", -32009),
];

/// Answers a request of the binding to HTTP that failed.
pub(super) fn of_rest(status: &Status) -> Response {
    (http_status_of(status), Json(to_json(status))).into_response()
}

/// Answers at an address that A2A does not have.
pub(super) fn no_such_path() -> Response {
    let message = "A2A has no such address; AGENT/message:send and AGENT/tasks are two of them";
    of_rest(&Status::not_found(message))
}

/// Answers a verb that an address does not accept.
pub(super) fn other_verb() -> Response {
    let body = to_json(&Status::unimplemented("this address takes another verb"));
    (StatusCode::METHOD_NOT_ALLOWED, Json(body)).into_response()
}

/// Writes a status as the body of an answer.
pub(super) fn to_json(status: &Status) -> Value {
    let name = match status.code() {
        Code::Cancelled => "CANCELLED".to_owned(),
        code => code_name(code).to_uppercase(),
    };
    json!({"error": {
        "code": http_status_of(status).as_u16(),
        "status": name,
        "message": status.message(),
        "details": written(status),
    }})
}

/// Writes a status as an error of JSON-RPC.
pub(super) fn of_json_rpc(status: &Status) -> Value {
    let reason = reason(status);
    let known = CODES.iter().find(|(name, _)| *name == reason);
    let code = match (known, status.code()) {
        (Some((_, code)), _) => *code,
        (None, Code::InvalidArgument | Code::NotFound | Code::OutOfRange) => -32602,
        (None, Code::Internal | Code::Unknown | Code::DataLoss) => -32603,
        // The first code whose meaning servers choose.
        (None, _) => -32000,
    };
    json!({"code": code, "message": status.message(), "data": written(status)})
}

/// Returns the reason of a status in the words of the protocol; empty if there is none.
fn reason(status: &Status) -> String {
    let details = status.get_error_details();
    let info = details.error_info().filter(|info| info.domain == DOMAIN);
    info.map_or_else(String::new, |info| info.reason.clone())
}

fn http_status_of(status: &Status) -> StatusCode {
    match status.code() {
        // The protocol lets a server refuse such an operation; it is not missing.
        Code::Unimplemented if !reason(status).is_empty() => StatusCode::BAD_REQUEST,
        code => http_status(code),
    }
}

/// Writes the details whose types are known.
fn written(status: &Status) -> Vec<Value> {
    let details = details(status).into_iter().filter_map(|detail| {
        let mut written = detail.read?;
        let name = format!("type.googleapis.com/{}", detail.name);
        written
            .as_object_mut()?
            .insert("@type".to_owned(), name.into());
        Some(written)
    });
    details.collect()
}
