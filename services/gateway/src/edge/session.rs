//! `/v1/session`: everything that a chat page needs, over one WebSocket.
//!
//! docs/session.md specifies the frames. A frame that is no request is answered with an end of its
//! own, without an id where none could be read; the open requests continue.

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
use http::{HeaderMap, HeaderValue, header};
use prost_reflect::MethodDescriptor;
use serde_json::{Map, Value, json};
use tonic::Status;

use super::connect::{self, error_to_json};
use super::json_call::JsonCall;
use super::websocket::{self, CloseCode, bounded, send};
use super::{call, contract};
use crate::door::{ClientDoor, HeldCaller, credential};

/// The names of requests, with the service and the method that answer each.
const REQUESTS: [(&str, &str, &str); 6] = [
    (
        "invokeText",
        "tavern.gateway.v1.GatewayService",
        "InvokeText",
    ),
    ("watchRun", "tavern.run.v1.RunService", "WatchRun"),
    ("cancelRun", "tavern.run.v1.RunService", "CancelRun"),
    ("answerWait", "tavern.run.v1.RunService", "AnswerWait"),
    ("steerTurn", "tavern.agent.v1.AgentService", "SteerTurn"),
    (
        "decideApproval",
        "tavern.registry.v1.ApprovalService",
        "DecideApproval",
    ),
];

/// The most requests of one socket that may be open at once.
const MAX_OPEN: usize = 16;

/// The longest id of a request, in bytes.
const MAX_ID: usize = 64;

/// A frame for the client.
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
    /// Polled for the next frame only when the one before it is sent.
    open: SelectAll<BoxStream<'static, Piece>>,
    /// The caller whose ticket the upgrade used up.
    _held: Option<HeldCaller>,
}

/// Upgrades to a session.
pub(super) async fn answer(
    Extension(calls): Extension<Calls>,
    Extension(door): Extension<Arc<ClientDoor>>,
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
        tokio::select! {
            () = async {
                let code = match Session::of(calls.clone(), &door, &headers).await {
                    Ok(session) => session.serve(&mut socket).await,
                    Err(status) => {
                        let sent = send(&mut socket, refusal(None, status).to_string()).await;
                        sent.map(|()| close_code::POLICY)
                    }
                };
                if let Some(code) = code {
                    websocket::close(socket, code).await;
                }
            } => {}
            () = calls.cut() => {}
        }
    })
}

impl Session {
    /// Begins a session of the caller whom the upgrade proves. A ticket proves it for as long as the session
    /// lasts.
    ///
    /// # Errors
    /// The refusal of a ticket.
    async fn of(calls: Calls, door: &ClientDoor, headers: &HeaderMap) -> Result<Self, Status> {
        let mut metadata = call::metadata(headers);
        let mut held = None;
        let presented = credential::of(headers)?;
        if presented.starts_with(credential::TICKET) {
            held = door.hold(presented, calls.peer()).await?;
            metadata.remove(header::AUTHORIZATION);
            let held = held.as_ref().map(HeldCaller::credential);
            if let Some(value) = held.and_then(credential::header_of) {
                metadata.insert(header::AUTHORIZATION, value);
            }
        }
        Ok(Self {
            calls,
            metadata,
            ids: HashSet::new(),
            open: SelectAll::new(),
            _held: held,
        })
    }

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
                        if let Err(refusal) = self.begin(&text) {
                            send(socket, refusal.to_string()).await?;
                        }
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(Message::Binary(_))) => {
                        let refusal = refusal(None, wrong("", "is not text; send JSON in text frames"));
                        send(socket, refusal.to_string()).await?;
                    }
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                },
                () = drain.started(), if !draining => draining = true,
            }
        }
    }

    /// Begins to answer a request.
    ///
    /// # Errors
    /// The answer to a frame that is not a request; faults inside a request go to its own end.
    fn begin(&mut self, text: &str) -> Result<(), Value> {
        let frame = connect::parse_json(text.as_bytes()).map_err(|status| refusal(None, status))?;
        let Value::Object(mut frame) = frame else {
            return Err(refusal(None, wrong("", "is not an object")));
        };
        let id: Arc<str> = match frame.remove("id") {
            Some(Value::String(id)) if (1..=MAX_ID).contains(&id.len()) => id.into(),
            _ => {
                let problem = wrong("id", "must be a string of 1 to 64 bytes");
                return Err(refusal(None, problem));
            }
        };
        if self.ids.contains(&id) {
            // The client would read an end with this id as the end of the open request.
            let problem = format!("`{id}` belongs to a request that is still open");
            return Err(refusal(None, wrong("id", &problem)));
        }
        let metadata = match frame.remove("authorization") {
            None => self.metadata.clone(),
            Some(key) => self
                .metadata_with(&key)
                .map_err(|status| refusal(Some(&id), status))?,
        };
        let Some((method, request)) = method_of(frame) else {
            let known = REQUESTS.map(|(name, ..)| name).join(", ");
            let problem = format!("must have one of {known} beside the id");
            return Err(refusal(Some(&id), wrong("", &problem)));
        };
        if self.ids.len() >= MAX_OPEN {
            let full = Failure::limit_exceeded("open requests", MAX_OPEN, MAX_OPEN + 1);
            return Err(refusal(Some(&id), full.into()));
        }
        self.ids.insert(Arc::clone(&id));
        let calls = self.calls.clone();
        self.open
            .push(answers(calls, metadata, id, method, request).boxed());
        Ok(())
    }

    /// Returns the headers of the upgrade with the authorization of one request: a page cannot set headers
    /// of a WebSocket.
    fn metadata_with(&self, authorization: &Value) -> Result<HeaderMap, Status> {
        let value = authorization.as_str().map(HeaderValue::try_from);
        let Some(Ok(mut value)) = value else {
            return Err(wrong("authorization", "must be the value of a header"));
        };
        value.set_sensitive(true);
        let mut metadata = self.metadata.clone();
        metadata.insert(header::AUTHORIZATION, value);
        Ok(metadata)
    }
}

fn wrong(field: &str, problem: &str) -> Status {
    Failure::invalid_fields().violation(field, problem).into()
}

/// Writes the end of a request that is not begun, with its id if that identifies the request.
fn refusal(id: Option<&str>, status: Status) -> Value {
    let mut end = json!({"end": {"error": error_to_json(&status)}});
    if let Some(id) = id {
        end["id"] = json!(id);
    }
    end
}

fn method_of(frame: Map<String, Value>) -> Option<(MethodDescriptor, Value)> {
    let mut fields = frame.into_iter();
    let (Some((name, request)), None) = (fields.next(), fields.next()) else {
        return None;
    };
    let (_, service, method) = REQUESTS.into_iter().find(|(known, ..)| *known == name)?;
    Some((contract::method(service, method)?, request))
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
        match JsonCall::start(calls, metadata, method, &request).await {
            Err(status) => end["end"]["error"] = error_to_json(&status),
            Ok(mut call) => loop {
                match call.next().await {
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
