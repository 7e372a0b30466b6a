//! A call of a method with a request in JSON, whose answers are JSON.

use axum::body::Bytes;
use http::{HeaderMap, Request, Response};
use prost_reflect::MethodDescriptor;
use serde_json::Value;
use tonic::Status;
use tonic::body::Body;
use tower::Service;

use super::call::Answer;
use super::connect::{self, Encoding};
use super::{contract, frames};

/// A call in progress.
#[derive(Debug)]
pub(super) struct JsonCall {
    answer: Answer,
    method: MethodDescriptor,
}

impl JsonCall {
    /// Calls a method.
    ///
    /// # Errors
    /// `INVALID_FIELDS` with every field of the request that is wrong, by its path.
    pub(super) async fn start<S>(
        calls: S,
        metadata: HeaderMap,
        method: MethodDescriptor,
        request: &Value,
    ) -> Result<Self, Status>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Status>,
    {
        let message = connect::read_value(&method.input(), request)?;
        let body = Body::new(http_body_util::Full::new(frames::frame(0, &message)?));
        let answer = Answer::of(calls, &contract::path_of(&method), metadata, body).await;
        Ok(Self { answer, method })
    }

    /// Returns the next message as JSON, with the bytes that count against the share of the peer until the
    /// text is sent; `None` at the end of the answer. Safe to cancel.
    ///
    /// # Errors
    /// The failure that the method reported, or a failure of the connection.
    pub(super) async fn next(&mut self) -> Result<Option<(String, Bytes)>, Status> {
        let Some(message) = self.answer.next().await? else {
            return Ok(None);
        };
        let written = Encoding::Json.write(&self.method.output(), message.clone())?;
        let text = String::from_utf8_lossy(&written).into_owned();
        Ok(Some((text, message)))
    }

    /// Returns the only message of an answer as JSON.
    ///
    /// # Errors
    /// The errors of [`next`](Self::next), and an answer without a message.
    pub(super) async fn only(mut self) -> Result<String, Status> {
        let message = self.next().await?;
        // The status comes after the message.
        while self.next().await?.is_some() {}
        let (text, _bounded) = message.ok_or_else(connect::without_message)?;
        Ok(text)
    }
}
