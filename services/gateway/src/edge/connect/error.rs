//! Statuses as Connect JSON.

use axum::response::{IntoResponse, Response};
use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use http::{StatusCode, header};
use prost::Message;
use prost_reflect::DynamicMessage;
use serde_json::{Map, Value, json};
use tonic::{Code, Status};

use crate::edge::contract;

/// Makes the response of a call that failed before an answer began.
pub(in crate::edge) fn http_error(status: &Status) -> Response {
    let body = to_json(status).to_string();
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (http_status(status.code()), kind, body).into_response()
}

/// Makes the JSON of a status.
pub(in crate::edge) fn to_json(status: &Status) -> Value {
    let mut error = Map::new();
    error.insert("code".to_owned(), code_name(status.code()).into());
    if !status.message().is_empty() {
        error.insert("message".to_owned(), status.message().into());
    }
    let details = details(status);
    if !details.is_empty() {
        let details = details.into_iter().map(|detail| {
            let value = STANDARD_NO_PAD.encode(&detail.value);
            let mut written = json!({"type": detail.name, "value": value});
            if let Some(debug) = detail.read {
                written["debug"] = debug;
            }
            written
        });
        error.insert("details".to_owned(), details.collect());
    }
    Value::Object(error)
}

/// A detail of a status.
pub(in crate::edge) struct Detail {
    /// The full name of its type.
    pub(in crate::edge) name: String,
    value: Vec<u8>,
    /// The message as JSON where its type is known.
    pub(in crate::edge) read: Option<Value>,
}

/// Returns the details of a status.
pub(in crate::edge) fn details(status: &Status) -> Vec<Detail> {
    let details = tonic_types::pb::Status::decode(status.details());
    let details = details.map(|status| status.details).unwrap_or_default();
    let detail = details.into_iter().map(|any| {
        let name = any.type_url.rsplit('/').next().unwrap_or_default();
        let message = contract::message(name)
            .and_then(|descriptor| DynamicMessage::decode(descriptor, &*any.value).ok());
        Detail {
            read: message.and_then(|message| serde_json::to_value(&message).ok()),
            name: name.to_owned(),
            value: any.value,
        }
    });
    detail.collect()
}

/// Returns the name of a code as Connect writes it.
pub(in crate::edge) fn code_name(code: Code) -> &'static str {
    match code {
        // An error never has the code OK.
        Code::Ok | Code::Unknown => "unknown",
        Code::Cancelled => "canceled",
        Code::InvalidArgument => "invalid_argument",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::NotFound => "not_found",
        Code::AlreadyExists => "already_exists",
        Code::PermissionDenied => "permission_denied",
        Code::ResourceExhausted => "resource_exhausted",
        Code::FailedPrecondition => "failed_precondition",
        Code::Aborted => "aborted",
        Code::OutOfRange => "out_of_range",
        Code::Unimplemented => "unimplemented",
        Code::Internal => "internal",
        Code::Unavailable => "unavailable",
        Code::DataLoss => "data_loss",
        Code::Unauthenticated => "unauthenticated",
    }
}

/// Returns the HTTP status of a code in the Connect protocol.
pub(in crate::edge) fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Cancelled => StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
            StatusCode::BAD_REQUEST
        }
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}
