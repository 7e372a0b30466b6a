//! One request, one answer: both are the bare bodies.

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::{Calls, Failure};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use prost_reflect::MethodDescriptor;
use tonic::{Code, Status};

use super::{Encoding, compression, http_error, query, timeout};
use crate::edge::body;
use crate::edge::call::{self, Answer};
use crate::edge::contract::path_of;
use crate::edge::frames;

/// Answers a Connect request to a method with one request and one answer.
pub(in crate::edge) async fn answer(
    method: &MethodDescriptor,
    encoding: Encoding,
    calls: Calls,
    request: Request,
) -> Response {
    let answered = run(method, encoding, calls, request).await;
    answered.unwrap_or_else(|status| http_error(&status))
}

/// Answers a Connect request by GET, whose message is in the address. Only methods without side
/// effects are called this way, since browsers and proxies repeat and prefetch such requests.
pub(in crate::edge) async fn visit(
    method: &MethodDescriptor,
    calls: Calls,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let maximum = calls.max_request_message(&path_of(method));
    let answered = match query::read(&parts.uri, maximum) {
        Ok((encoding, bytes)) => perform(method, encoding, calls, &parts.headers, bytes).await,
        Err(status) => Err(status),
    };
    let mut response = answered.unwrap_or_else(|status| http_error(&status));
    // The answer may differ the next moment.
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    response
}

async fn run(
    method: &MethodDescriptor,
    encoding: Encoding,
    calls: Calls,
    request: Request,
) -> Result<Response, Status> {
    let maximum = calls.max_request_message(&path_of(method));
    let (parts, body) = request.into_parts();
    let compressed = compression::is_used(&parts.headers, &header::CONTENT_ENCODING)?;
    let mut bytes = body::read(body, maximum).await?;
    if compressed {
        bytes = compression::decompress(bytes, maximum)?;
    }
    perform(method, encoding, calls, &parts.headers, bytes).await
}

/// Calls the method with a message as it arrived.
async fn perform(
    method: &MethodDescriptor,
    encoding: Encoding,
    calls: Calls,
    headers: &HeaderMap,
    bytes: Bytes,
) -> Result<Response, Status> {
    let path = path_of(method);
    let mut metadata = call::metadata(headers);
    timeout::translate(headers, &mut metadata)?;
    let message = encoding.read(&method.input(), bytes)?;
    let message = tonic::body::Body::new(http_body_util::Full::new(frames::frame(0, &message)?));

    let mut answer = Answer::of(calls, &path, metadata, message).await;
    let message = answer.next().await?;
    let message = message.ok_or_else(without_message)?;
    // The status comes after the message.
    while answer.next().await?.is_some() {}
    let bytes = encoding.write(&method.output(), message)?;
    let gzip = compression::is_accepted(headers, &header::ACCEPT_ENCODING);
    Ok(respond(encoding, bytes, gzip, &answer))
}

/// Reports an answer of a method that ended well and had no message.
pub(in crate::edge) fn without_message() -> Status {
    let what = "the answer has no message";
    Failure::new(Code::Internal, ErrorReason::Internal, what).into()
}

fn respond(encoding: Encoding, bytes: Bytes, gzip: bool, answer: &Answer) -> Response {
    let compressed = gzip.then(|| compression::compress(&bytes)).flatten();
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.extend(answer.headers.clone());
    for (name, value) in &answer.trailers() {
        if let Ok(name) = HeaderName::try_from(format!("trailer-{name}")) {
            headers.append(name, value.clone());
        }
    }
    let kind = match encoding {
        Encoding::Json => "application/json",
        Encoding::Proto => "application/proto",
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let bytes = match compressed {
        Some(compressed) => {
            headers.insert(header::CONTENT_ENCODING, compression::GZIP);
            compressed
        }
        None => bytes,
    };
    *response.body_mut() = Body::from(bytes);
    response
}
