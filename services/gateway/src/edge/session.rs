//! `/v1/session`: everything that a chat page does, over one WebSocket.
//!
//! A request is `{"id": "1", "invokeText": {…}}`, with `watchRun` or `cancelRun` in place of
//! `invokeText`. Each message of the answer is `{"id": "1", "message": {…}}`, and the last one
//! `{"id": "1", "end": {}}`, with an `error` in the end if the request failed.

use std::collections::HashSet;
use std::sync::Arc;

use async_stream::stream;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, close_code};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use grpc_kit::{Calls, Failure};
use http::HeaderMap;
use prost_reflect::MethodDescriptor;
use serde_json::{Map, Value, json};
use tonic::Status;
use tonic::body::Body;

use super::call::{self, Answer};
use super::connect::{self, Encoding, error_to_json};
use super::websocket::{self, CloseCode, bounded, send};
use super::{contract, frames};

/// What a request may ask for, and the method that answers it.
const REQUESTS: [(&str, &str, &str); 3] = [
    (
        "invokeText",
        "tavern.gateway.v1.GatewayService",
        "InvokeText",
    ),
    ("watchRun", "tavern.run.v1.RunService", "WatchRun"),
    ("cancelRun", "tavern.run.v1.RunService", "CancelRun"),
];

/// Requests of one socket that may be open at once.
const MAX_OPEN: usize = 16;

/// The longest id of a request, in bytes.
const MAX_ID: usize = 64;

/// What goes to the client.
struct Piece {
    /// The id of the request.
    id: Arc<str>,
    frame: String,
    is_last: bool,
    /// The message in the frame, whose bytes count against the share of the peer until it is sent.
    bounded: Bytes,
}

/// The open requests of one socket.
struct Session {
    calls: Calls,
    metadata: HeaderMap,
    ids: HashSet<Arc<str>>,
    /// Asked for the next frame only when the one before it is sent.
    open: SelectAll<BoxStream<'static, Piece>>,
}

/// Upgrades to a session.
pub(super) async fn answer(
    Extension(calls): Extension<Calls>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => return rejection.into_response(),
    };
    let path = "/tavern.gateway.v1.GatewayService/InvokeText";
    let max_message = calls.max_request_message(path);
    bounded(upgrade, max_message).on_upgrade(move |mut socket| async move {
        let session = Session {
            calls: calls.clone(),
            metadata: call::metadata(&headers),
            ids: HashSet::new(),
            open: SelectAll::new(),
        };
        tokio::select! {
            () = async {
                if let Some(code) = session.serve(&mut socket).await {
                    websocket::close(socket, code).await;
                }
            } => {}
            () = calls.cut() => {}
        }
    })
}

impl Session {
    /// Serves until the client closes, or the server drains and everything begun is finished.
    async fn serve(mut self, socket: &mut WebSocket) -> Option<CloseCode> {
        let drain = self.calls.drain().clone();
        let mut draining = false;
        loop {
            if draining && self.ids.is_empty() {
                return Some(close_code::AWAY);
            }
            tokio::select! {
                Some(piece) = self.open.next() => {
                    if piece.is_last {
                        self.ids.remove(&piece.id);
                    }
                    send(socket, piece.frame).await?;
                    drop(piece.bounded);
                }
                message = socket.recv() => match message {
                    Some(Ok(Message::Text(text))) => {
                        if let Err(status) = self.begin(&text) {
                            let end = json!({"end": {"error": error_to_json(&status)}});
                            send(socket, end.to_string()).await?;
                            return Some(close_code::POLICY);
                        }
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(Message::Binary(_))) => return Some(close_code::UNSUPPORTED),
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                },
                () = drain.started(), if !draining => draining = true,
            }
        }
    }

    /// Begins to answer a request.
    ///
    /// # Errors
    /// A frame that is not a request; what is wrong inside a request goes to its own end.
    fn begin(&mut self, text: &str) -> Result<(), Status> {
        let wrong = |field: &str, what: &str| {
            Status::from(Failure::invalid_fields().violation(field, what))
        };
        let frame = connect::parse_json(text.as_bytes())?;
        let Value::Object(mut frame) = frame else {
            return Err(wrong("", "is not an object"));
        };
        let id: Arc<str> = match frame.remove("id") {
            Some(Value::String(id)) if (1..=MAX_ID).contains(&id.len()) => id.into(),
            _ => return Err(wrong("id", "must be a string of 1 to 64 bytes")),
        };
        let (method, request) = method_of(frame).ok_or_else(|| {
            wrong(
                "",
                "must have one of invokeText, watchRun, cancelRun beside the id",
            )
        })?;
        if self.ids.contains(&id) {
            return Err(wrong("id", "belongs to a request that is still open"));
        }
        if self.ids.len() >= MAX_OPEN {
            return Err(Failure::limit_exceeded("open requests", MAX_OPEN, MAX_OPEN + 1).into());
        }
        self.ids.insert(Arc::clone(&id));
        let (calls, metadata) = (self.calls.clone(), self.metadata.clone());
        self.open
            .push(answers(calls, metadata, id, method, request).boxed());
        Ok(())
    }
}

fn method_of(frame: Map<String, Value>) -> Option<(MethodDescriptor, Value)> {
    let mut fields = frame.into_iter();
    let (Some((name, request)), None) = (fields.next(), fields.next()) else {
        return None;
    };
    let (_, service, method) = REQUESTS.into_iter().find(|(known, ..)| *known == name)?;
    let mut methods = contract::methods(&[service]).into_iter();
    let method = methods.find(|descriptor| descriptor.name() == method)?;
    Some((method, request))
}

/// Returns the frames that answer a request.
fn answers(
    calls: Calls,
    metadata: HeaderMap,
    id: Arc<str>,
    method: MethodDescriptor,
    request: Value,
) -> impl futures::Stream<Item = Piece> + Send {
    stream! {
        let mut end = json!({"id": &*id, "end": {}});
        match start(calls, metadata, &method, &request).await {
            Err(status) => end["end"]["error"] = error_to_json(&status),
            Ok(mut answer) => loop {
                match next(&mut answer, &method).await {
                    Ok(Some((message, bounded))) => {
                        let frame = format!("{{\"id\":{},\"message\":{message}}}", json!(&*id));
                        drop(message);
                        yield Piece { id: Arc::clone(&id), frame, is_last: false, bounded };
                    }
                    Ok(None) => break,
                    Err(status) => {
                        end["end"]["error"] = error_to_json(&status);
                        break;
                    }
                }
            },
        }
        yield Piece { id, frame: end.to_string(), is_last: true, bounded: Bytes::new() };
    }
}

async fn start(
    calls: Calls,
    metadata: HeaderMap,
    method: &MethodDescriptor,
    request: &Value,
) -> Result<Answer, Status> {
    let message = connect::read_value(&method.input(), request)?;
    let body = Body::new(http_body_util::Full::new(frames::frame(0, &message)?));
    Ok(Answer::of(calls, &contract::path_of(method), metadata, body).await)
}

/// Returns the next message as JSON, with its bytes.
async fn next(
    answer: &mut Answer,
    method: &MethodDescriptor,
) -> Result<Option<(String, Bytes)>, Status> {
    let Some(message) = answer.next().await? else {
        return Ok(None);
    };
    let written = Encoding::Json.write(&method.output(), message.clone())?;
    Ok(Some((
        String::from_utf8_lossy(&written).into_owned(),
        message,
    )))
}
