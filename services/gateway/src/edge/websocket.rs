//! WebSocket: the records of a run as text frames.

use std::time::Duration;

use axum::extract::WebSocketUpgrade;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use axum::response::Response;
use serde_json::json;
use tonic::{Code, Status};

use super::connect::error_to_json;
use super::watch::{Follow, Form, Watch};

/// Bytes that a socket reads at once; it holds as many while it is idle.
const READ_BUFFER: usize = 4 << 10;

/// The longest time that a client may take to answer a close.
const CLOSING: Duration = Duration::from_secs(5);

/// The code with which a socket is closed, as its client sees it.
pub(super) type CloseCode = u16;

/// Bounds the buffers of a socket, before it is upgraded.
pub(super) fn bounded(upgrade: WebSocketUpgrade, max_message: usize) -> WebSocketUpgrade {
    upgrade
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_message_size(max_message)
        .max_frame_size(max_message)
}

/// Upgrades, and sends each record as a frame. A script cannot read a refused upgrade, so any fault
/// is sent before the close.
pub(super) fn answer(upgrade: WebSocketUpgrade, follow: Follow) -> Response {
    bounded(upgrade, READ_BUFFER).on_upgrade(|mut socket| async move {
        let calls = follow.calls.clone();
        tokio::select! {
            () = async {
                if let Some(code) = send_records(&mut socket, follow).await {
                    close(socket, code).await;
                }
            } => {}
            () = calls.cut() => {}
        }
    })
}

/// Sends records until the watch ends, and returns the close code; `None` if the client has gone.
async fn send_records(socket: &mut WebSocket, follow: Follow) -> Option<CloseCode> {
    let watch = Watch::start(
        follow.calls,
        follow.metadata,
        follow.run_id,
        follow.after,
        Form::Whole,
    );
    let mut watch = match watch.await {
        Ok(watch) => watch,
        Err(status) => return fail(socket, &status).await,
    };
    let mut last = String::new();
    loop {
        tokio::select! {
            next = watch.next() => match next {
                Ok(Some(record)) => {
                    send(socket, record.text).await?;
                    drop(record.bounded);
                    last = record.kind;
                }
                Ok(None) => return Some(match last.as_str() {
                    "terminal" => close_code::NORMAL,
                    _ => close_code::AWAY,
                }),
                Err(status) => return fail(socket, &status).await,
            },
            message = socket.recv() => match message {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Text(_) | Message::Binary(_))) => return Some(close_code::POLICY),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
            },
        }
    }
}

/// Sends a frame; `None` if the client has gone.
pub(super) async fn send(socket: &mut WebSocket, text: String) -> Option<()> {
    socket.send(Message::Text(text.into())).await.ok()
}

/// Sends the failure, and returns the close code.
async fn fail(socket: &mut WebSocket, status: &Status) -> Option<CloseCode> {
    let end = json!({"end": {"error": error_to_json(status)}});
    send(socket, end.to_string()).await?;
    Some(code_of(status.code()))
}

fn code_of(code: Code) -> CloseCode {
    match code {
        Code::Unavailable | Code::ResourceExhausted => close_code::AGAIN,
        Code::Unknown | Code::Internal | Code::DataLoss | Code::DeadlineExceeded => {
            close_code::ERROR
        }
        _ => close_code::POLICY,
    }
}

/// Closes, and waits until the client has: otherwise frames in transit to it would be lost.
pub(super) async fn close(mut socket: WebSocket, code: CloseCode) {
    let frame = CloseFrame {
        code,
        reason: "".into(),
    };
    let closing = async {
        if socket.send(Message::Close(Some(frame))).await.is_ok() {
            while let Some(Ok(_)) = socket.recv().await {}
        }
    };
    // A client that does not answer is dropped.
    let _ = tokio::time::timeout(CLOSING, closing).await;
}
