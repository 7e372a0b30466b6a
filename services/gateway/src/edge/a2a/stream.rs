//! Answers of several messages, as server-sent events.

use std::convert::Infallible;

use async_stream::stream;
use axum::body::Bytes;
use axum::response::Response;
use serde_json::Value;
use tonic::Status;

use super::{envelope, error};
use crate::edge::connect::Written;
use crate::edge::json_call::JsonCall;
use crate::edge::sse::{self, SILENCE};

/// The binding whose form each message has.
#[derive(Clone, Debug)]
pub(super) enum Binding {
    /// HTTP with JSON: the message itself.
    Rest,
    /// JSON-RPC: the result of the request with this id.
    JsonRpc(Value),
}

impl Binding {
    fn message(&self, text: String) -> String {
        match self {
            Self::Rest => format!("data: {text}\n\n"),
            Self::JsonRpc(id) => format!("data: {}\n\n", envelope::result(id, &text)),
        }
    }

    fn failure(&self, status: &Status) -> String {
        match self {
            Self::Rest => format!("event: error\ndata: {}\n\n", error::to_json(status)),
            Self::JsonRpc(id) => {
                let failure = envelope::failure(id, &error::of_json_rpc(status));
                format!("data: {failure}\n\n")
            }
        }
    }
}

/// Answers with the messages of a call.
///
/// # Errors
/// The failure of the call before its first message.
pub(super) async fn answer(mut call: JsonCall, binding: Binding) -> Result<Response, Status> {
    let mut next = call.next().await?;
    let pieces = stream! {
        while let Some((text, bounded)) = next {
            yield Ok::<_, Infallible>(Written::until_sent(binding.message(text), bounded));
            next = loop {
                match tokio::time::timeout(SILENCE, call.next()).await {
                    Ok(Ok(message)) => break message,
                    Ok(Err(status)) => {
                        yield Ok(binding.failure(&status).into());
                        break None;
                    }
                    // A comment, which no client reads.
                    Err(_silent) => yield Ok(Bytes::from_static(b":\n\n")),
                }
            };
        }
    };
    Ok(sse::respond(pieces))
}
