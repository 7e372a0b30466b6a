//! The binding of A2A to JSON-RPC 2.0.

use axum::Extension;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use grpc_kit::Calls;
use http::{StatusCode, header};
use prost_reflect::MethodDescriptor;
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::stream::{self, Binding};
use super::{A2aCaller, SERVICE, envelope, error, is_json, method};
use crate::edge::body;
use crate::edge::connect::{http_status, parse_json};
use crate::edge::public::PublicAddress;

/// Bytes of a request around the parameters of its method.
const ENVELOPE: usize = 4 << 10;

/// The longest id of a request as JSON, in bytes: every message of a stream has it.
const MAX_ID: usize = 256;

/// A request that can be answered.
#[derive(Debug)]
struct Asked {
    id: Value,
    method: MethodDescriptor,
    parameters: Value,
}

/// `POST /a2a`
pub(super) async fn answer(
    Extension(calls): Extension<Calls>,
    Extension(address): Extension<PublicAddress>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    if !is_json(&parts.headers) {
        let line = "send JSON with content-type: application/json, as curl --json '{...}' does\n";
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, line).into_response();
    }
    // The method is in the body, which only a caller may have read.
    if let Err(status) = calls.knock("/a2a", &parts.headers).await {
        return refused(&Value::Null, &status);
    }
    let maximum = calls.max_request_message(&format!("/{SERVICE}/SendMessage"));
    let bytes = match body::read(body, maximum.saturating_add(ENVELOPE)).await {
        Ok(bytes) => bytes,
        Err(status) => return refused(&Value::Null, &status),
    };
    let asked = match read(&bytes) {
        Ok(asked) => asked,
        Err(refusal) => return respond(refusal),
    };
    let caller = A2aCaller::of(calls, &parts.headers, address);
    let id = asked.id.clone();
    let answered = perform(caller, asked).await;
    answered.unwrap_or_else(|status| refused(&id, &status))
}

async fn perform(caller: A2aCaller<Calls>, asked: Asked) -> Result<Response, Status> {
    let Asked {
        id,
        method,
        parameters,
    } = asked;
    if method.is_server_streaming() {
        let call = caller.call(method, &parameters).await?;
        return stream::answer(call, Binding::JsonRpc(id)).await;
    }
    let text = caller.ask(method, &parameters).await?;
    Ok(respond(envelope::result(&id, &text)))
}

/// Reports a failure. Clients learn from the status of HTTP that they need a credential, or another one.
fn refused(id: &Value, status: &Status) -> Response {
    let of_http = match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => http_status(status.code()),
        _ => StatusCode::OK,
    };
    let failure = envelope::failure(id, &error::of_json_rpc(status));
    (of_http, respond(failure)).into_response()
}

fn respond(text: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Reads a request.
///
/// # Errors
/// The answer that reports the fault, with the id of the request where it has one.
fn read(bytes: &[u8]) -> Result<Asked, String> {
    let wrong = |id: &Value, code: i32, message: &str| {
        envelope::failure(id, &json!({"code": code, "message": message}))
    };
    let parsed =
        parse_json(bytes).map_err(|status| wrong(&Value::Null, -32700, status.message()))?;
    let Value::Object(mut asked) = parsed else {
        let message = "the request must be one object; there are no batches";
        return Err(wrong(&Value::Null, -32600, message));
    };
    let id = match asked.remove("id") {
        Some(id @ (Value::String(_) | Value::Number(_)))
            if json_schema::text_bytes(&id) <= MAX_ID =>
        {
            id
        }
        _ => {
            let message = "`id` must be a text or a number of up to 256 bytes";
            return Err(wrong(&Value::Null, -32600, message));
        }
    };
    if asked.get("jsonrpc") != Some(&json!("2.0")) {
        return Err(wrong(&id, -32600, "`jsonrpc` must be \"2.0\""));
    }
    let Some(Value::String(name)) = asked.remove("method") else {
        return Err(wrong(&id, -32600, "`method` must be a text"));
    };
    let Some(method) = method(&name) else {
        let shown: String = name.chars().take(80).collect();
        let message = format!("A2A has no method `{shown}`; {SERVICE} has those of version 1.0");
        return Err(wrong(&id, -32601, &message));
    };
    let parameters = asked.remove("params").unwrap_or_else(|| json!({}));
    match parameters.is_object() {
        true => Ok(Asked {
            id,
            method,
            parameters,
        }),
        false => Err(wrong(&id, -32602, "`params` must be an object")),
    }
}
