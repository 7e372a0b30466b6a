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
    let (parts, body) = request.into_parts();
    let maximum = calls.max_request_message(&path_of(method));
    let read = async {
        let compressed = compression::is_used(&parts.headers, &header::CONTENT_ENCODING)?;
        let bytes = body::read(body, maximum).await?;
        let bytes = match compressed {
            true => compression::decompress(bytes, maximum)?,
            false => bytes,
        };
        Ok((encoding, bytes))
    };
    let answered = perform(method, &calls, &parts.headers, read).await;
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
    let read = async { query::read(&parts.uri, maximum) };
    let answered = perform(method, &calls, &parts.headers, read).await;
    let mut response = answered.unwrap_or_else(|status| http_error(&status));
    // The answer may differ the next moment.
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    response
}

/// Calls the method with a message as it arrived, which is read once the call has entered.
async fn perform(
    method: &MethodDescriptor,
    calls: &Calls,
    headers: &HeaderMap,
    read: impl Future<Output = Result<(Encoding, Bytes), Status>>,
) -> Result<Response, Status> {
    let path = path_of(method);
    let mut call = calls.enter(&path, headers).await?;
    let read = async {
        let (encoding, bytes) = read.await?;
        let mut metadata = call::metadata(headers);
        timeout::translate(headers, &mut metadata)?;
        let message = encoding.read(&method.input(), bytes)?;
        Ok((encoding, metadata, frames::frame(0, &message)?))
    };
    let (encoding, metadata, message) = call.read(read).await?;
    let message = tonic::body::Body::new(http_body_util::Full::new(message));

    let mut answer = Answer::of(call, &path, metadata, message).await;
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
