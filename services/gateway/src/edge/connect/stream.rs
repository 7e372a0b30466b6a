//! Messages with heads, in both directions; the last message of an answer is its status.

use async_stream::stream;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use futures::{Stream, StreamExt};
use grpc_kit::{Calls, Failure};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body::Frame;
use http_body_util::StreamBody;
use prost_reflect::{MessageDescriptor, MethodDescriptor};
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::time::Duration;
use tonic::Status;

use super::{Encoding, compression, error_to_json, timeout};
use crate::edge::call::{self, Answer};
use crate::edge::contract::path_of;
use crate::edge::frames::{self, COMPRESSED, Frames};

const COMPRESSION: HeaderName = HeaderName::from_static("connect-content-encoding");
const ACCEPTED: HeaderName = HeaderName::from_static("connect-accept-encoding");

/// The flag of the message that ends an answer.
const END: u8 = 2;

/// The size in bytes from which a message is sent after its head instead of being copied behind it.
const COPIED: usize = 4 << 10;

/// The longest time that a client may take to send the one message of its request.
const LONGEST: Duration = Duration::from_secs(30);

/// The messages of a request.
struct Requests {
    frames: Frames,
    encoding: Encoding,
    input: MessageDescriptor,
    compressed: bool,
    maximum: usize,
}

impl Requests {
    /// Returns the next message in protobuf.
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let Some((flags, mut bytes)) = self.frames.next().await? else {
            return Ok(None);
        };
        let wrong = |what: &str| Status::from(Failure::invalid_fields().violation("", what));
        match (flags, self.compressed) {
            (0, _) => {}
            (COMPRESSED, true) => bytes = compression::decompress(bytes, self.maximum)?,
            (COMPRESSED, false) => {
                return Err(wrong(
                    "is compressed, but connect-content-encoding names no compression",
                ));
            }
            _ => return Err(wrong("has flags that a request cannot have")),
        }
        let message = self.encoding.read(&self.input, bytes)?;
        frames::frame(0, &message).map(Some)
    }

    /// Returns the one message of a request.
    async fn only(mut self) -> Result<Bytes, Status> {
        let wrong = |what: &str| Status::from(Failure::invalid_fields().violation("", what));
        let read = async {
            let first = self.next().await?;
            let first = first.ok_or_else(|| wrong("the request has no message"))?;
            match self.next().await? {
                None => Ok(first),
                Some(_) => Err(wrong("the request has more than one message")),
            }
        };
        let read = tokio::time::timeout(LONGEST, read).await;
        read.unwrap_or_else(|_elapsed| Err(Failure::deadline_exceeded().into()))
    }

    /// Returns the messages as the body of a gRPC request, as they arrive.
    fn into_body(mut self) -> tonic::body::Body {
        let messages = stream! {
            loop {
                match self.next().await {
                    Ok(Some(message)) => yield Ok(Frame::data(message)),
                    Ok(None) => return,
                    Err(status) => {
                        yield Err(status);
                        return;
                    }
                }
            }
        };
        tonic::body::Body::new(StreamBody::new(messages))
    }
}

/// Answers a Connect request to a method that streams.
pub(in crate::edge) async fn answer(
    method: &MethodDescriptor,
    encoding: Encoding,
    calls: Calls,
    request: Request,
) -> Response {
    let gzip = compression::is_accepted(request.headers(), &ACCEPTED);
    let writer = Writer {
        encoding,
        output: method.output(),
        gzip,
    };
    // Any failure is the last message: a stream always answers 200.
    let (headers, body) = match start(method, encoding, calls, request).await {
        Ok(answer) => (answer.headers.clone(), writer.pass_on(answer)),
        Err(status) => {
            let end = end(Err(&status), &HeaderMap::new());
            (HeaderMap::new(), Body::from(end))
        }
    };
    let mut response = Response::new(body);
    response.headers_mut().extend(headers);
    let kind = match encoding {
        Encoding::Json => "application/connect+json",
        Encoding::Proto => "application/connect+proto",
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if gzip {
        headers.insert(COMPRESSION, compression::GZIP);
    }
    response
}

async fn start(
    method: &MethodDescriptor,
    encoding: Encoding,
    calls: Calls,
    request: Request,
) -> Result<Answer, Status> {
    let path = path_of(method);
    let maximum = calls.max_request_message(&path);
    let (parts, body) = request.into_parts();
    let mut call = calls.enter(&path, &parts.headers).await?;
    let read = async {
        let mut metadata = call::metadata(&parts.headers);
        timeout::translate(&parts.headers, &mut metadata)?;
        let requests = Requests {
            frames: Frames::new(tonic::body::Body::new(body), maximum),
            encoding,
            input: method.input(),
            compressed: compression::is_used(&parts.headers, &COMPRESSION)?,
            maximum,
        };
        let body = match method.is_client_streaming() {
            true => requests.into_body(),
            false => tonic::body::Body::new(http_body_util::Full::new(requests.only().await?)),
        };
        Ok((metadata, body))
    };
    let (metadata, body) = call.read(read).await?;
    Ok(Answer::of(call, &path, metadata, body).await)
}

/// Writes an answer.
struct Writer {
    encoding: Encoding,
    output: MessageDescriptor,
    gzip: bool,
}

impl Writer {
    /// Writes the messages as they arrive, each after the client has read the ones before it.
    fn pass_on(self, mut answer: Answer) -> Body {
        let pieces = stream! {
            let ended = loop {
                let next = answer.next().await;
                let written = next.and_then(|next| {
                    next.map(|message| self.write(message)).transpose()
                });
                match written {
                    Ok(Some((head, rest))) => {
                        yield head;
                        if !rest.is_empty() {
                            yield rest;
                        }
                    }
                    Ok(None) => break Ok(()),
                    Err(status) => break Err(status),
                }
            };
            yield end(ended.as_ref().copied(), &answer.trailers());
        };
        Body::from_stream(infallible(pieces))
    }

    /// Writes a message in one piece, or its head and the message.
    fn write(&self, message: Bytes) -> Result<(Bytes, Bytes), Status> {
        let bytes = self.encoding.write(&self.output, message)?;
        let compressed = self.gzip.then(|| compression::compress(&bytes)).flatten();
        let (flags, bytes) = match compressed {
            Some(compressed) => (COMPRESSED, compressed),
            None => (0, bytes),
        };
        match bytes.len() {
            0..COPIED => Ok((frames::frame(flags, &bytes)?, Bytes::new())),
            length => Ok((frames::head(flags, length)?, bytes)),
        }
    }
}

fn infallible(
    pieces: impl Stream<Item = Bytes> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    pieces.map(Ok)
}

/// Returns the message that ends an answer.
fn end(ended: Result<(), &Status>, trailers: &HeaderMap) -> Bytes {
    let mut end = Map::new();
    if let Err(status) = ended {
        end.insert("error".to_owned(), error_to_json(status));
    }
    let mut metadata = Map::new();
    for (name, value) in trailers {
        if let (Ok(value), Value::Array(values)) = (
            value.to_str(),
            metadata.entry(name.as_str()).or_insert_with(|| json!([])),
        ) {
            values.push(value.into());
        }
    }
    if !metadata.is_empty() {
        end.insert("metadata".to_owned(), Value::Object(metadata));
    }
    // The end of a stream is small.
    frames::frame(END, Value::Object(end).to_string().as_bytes()).unwrap_or_default()
}
