//! The answer of a chat completion, at once or in chunks.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::pin;

use async_stream::stream;
use axum::Json;
use axum::response::{IntoResponse, Response};
use contracts::tavern::common::v1::watch_record::Record;
use contracts::tavern::common::v1::{RunOutcome, RunState, StopReason};
use contracts::tavern::gateway::v1::InvokeTextResponse;
use contracts::tavern::run::v1::CancelRunRequest;
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use grpc_kit::Calls;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tonic::{Status, Streaming};

use super::activity::{Activity, AnswerPiece};
use super::error;
use super::pictures::Pictures;
use super::request::Chunks;
use crate::edge::call::with_metadata;
use crate::edge::sse::{self, SILENCE};

/// A run that was started for a client.
pub(super) struct Run {
    pub(super) records: Streaming<InvokeTextResponse>,
    pub(super) model: String,
    /// Cancels the run if its client goes away; `None` if the client can return for it.
    pub(super) cancel: Option<Cancel>,
    /// The pictures of the run, none so far.
    pub(super) pictures: Pictures,
}

/// The means to cancel a run in the name of its client.
pub(super) struct Cancel {
    runs: RunServiceClient<Calls>,
    /// The headers of the client's request, with its credential.
    headers: HeaderMap,
}

impl Cancel {
    pub(super) fn by(calls: Calls, headers: &HeaderMap) -> Self {
        Self {
            runs: RunServiceClient::new(calls),
            headers: headers.clone(),
        }
    }
}

/// A run as it is reported to a client.
struct Completion {
    records: Streaming<InvokeTextResponse>,
    activity: Activity,
    /// Pieces that were read and not yet returned.
    pieces: VecDeque<AnswerPiece>,
    model: String,
    run_id: String,
    /// The time at which the run began, in seconds since 1970.
    created: i64,
    /// Cancels the run if its client goes away.
    cancel: Option<Cancel>,
}

impl Drop for Completion {
    fn drop(&mut self) {
        let run_id = std::mem::take(&mut self.run_id);
        let Some(Cancel { mut runs, headers }) = self.cancel.take().filter(|_| !run_id.is_empty())
        else {
            return;
        };
        let request = CancelRunRequest {
            reason: "the client closed its request".to_owned(),
            run_id,
        };
        tokio::spawn(async move {
            if let Err(status) = runs.cancel_run(with_metadata(request, &headers)).await {
                tracing::warn!(%status, "the run of a client that went away was not cancelled");
            }
        });
    }
}

/// The next step of an answer.
enum Next {
    Piece(AnswerPiece),
    /// The run ended with this answer, for a reason.
    Finished(String, &'static str),
    /// The run failed: the status of the answer and its body.
    Failed(StatusCode, Value),
}

impl Completion {
    fn new(run: Run) -> Self {
        let Run {
            records,
            model,
            cancel,
            pictures,
        } = run;
        Self {
            cancel,
            records,
            activity: Activity::with(pictures),
            pieces: VecDeque::new(),
            model,
            run_id: String::new(),
            created: 0,
        }
    }

    /// Returns the next step. A run that has ended, or that outlives this server, is not cancelled
    /// any more.
    async fn next(&mut self) -> Next {
        let next = self.read().await;
        if !matches!(next, Next::Piece(_)) {
            self.cancel = None;
        }
        next
    }

    async fn read(&mut self) -> Next {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Next::Piece(piece);
            }
            let response = match self.records.message().await {
                Ok(Some(response)) => response,
                Ok(None) => return self.broken(),
                Err(status) => return failed(&status),
            };
            self.run_id = response.run_id;
            match contracts::watch::decode(response.record) {
                Ok(Some(Record::Event(event))) => {
                    if let Some(time) = event.time.filter(|_| self.created == 0) {
                        self.created = time.seconds;
                    }
                    self.pieces.extend(self.activity.read(event));
                }
                Ok(Some(Record::Terminal(end))) => {
                    let outcome = end.run.and_then(|run| run.outcome);
                    return finish(&outcome.unwrap_or_default());
                }
                Ok(Some(Record::Drain(_))) => return self.broken(),
                Ok(Some(Record::Heartbeat(_) | Record::Gap(_)) | None) => {}
                Err(status) => return failed(&status),
            }
        }
    }

    /// The failure when the server ends and the run continues without it.
    fn broken(&self) -> Next {
        let message = format!("the server ends; the run {} continues", self.run_id);
        let body = error::body(&message, "server_error", None, "draining");
        Next::Failed(StatusCode::SERVICE_UNAVAILABLE, body)
    }

    fn usage(&self) -> Value {
        let Activity {
            input_tokens,
            output_tokens,
            ..
        } = self.activity;
        json!({
            "prompt_tokens": input_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
        })
    }

    fn object(&self, kind: &str, choices: Value) -> Value {
        json!({
            "id": format!("chatcmpl-{}", self.run_id),
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }
}

fn failed(status: &Status) -> Next {
    Next::Failed(error::status_of(status), error::to_json(status))
}

/// Returns the end of a run. An exhausted budget corresponds to `length` of models.
fn finish(outcome: &RunOutcome) -> Next {
    let budget = matches!(
        outcome.stop_reason(),
        StopReason::Iterations
            | StopReason::Calls
            | StopReason::Tokens
            | StopReason::Money
            | StopReason::Wall
            | StopReason::Bytes
            | StopReason::Deadline
    );
    let answer = || {
        let json = &outcome.result_json;
        serde_json::from_str(json).unwrap_or_else(|_| json.clone())
    };
    match outcome.state() {
        _ if budget => Next::Finished(answer(), "length"),
        RunState::Succeeded => Next::Finished(answer(), "stop"),
        state => {
            let failure = outcome.error.clone().unwrap_or_default();
            let code = match (failure.code.as_str(), state) {
                ("", state) => state
                    .as_str_name()
                    .trim_start_matches("RUN_STATE_")
                    .to_lowercase(),
                (code, _) => code.to_owned(),
            };
            let message = match failure.message.as_str() {
                "" => format!("the run ended as {code}"),
                message => message.to_owned(),
            };
            let body = error::body(&message, "server_error", None, &code);
            Next::Failed(StatusCode::INTERNAL_SERVER_ERROR, body)
        }
    }
}

/// Answers when the run has ended, with its outcome.
pub(super) async fn whole(run: Run) -> Response {
    let mut completion = Completion::new(run);
    let mut reasoning = String::new();
    let (mut text, reason) = loop {
        match completion.next().await {
            Next::Piece(AnswerPiece::Text(_)) => {}
            Next::Piece(AnswerPiece::Reasoning(piece)) => reasoning.push_str(&piece),
            Next::Finished(text, reason) => break (text, reason),
            Next::Failed(code, body) => return error::of_run(code, body),
        }
    };
    text += &completion.activity.pictures();
    let mut message = json!({"role": "assistant", "content": text});
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.clone().into();
        message["reasoning"] = reasoning.into();
    }
    let choice = json!({"index": 0, "message": message, "finish_reason": reason});
    let mut object = completion.object("chat.completion", json!([choice]));
    object["usage"] = completion.usage();
    Json(object).into_response()
}

/// Answers while the run continues.
pub(super) fn in_chunks(run: Run, chunks: Chunks) -> Response {
    let mut completion = Completion::new(run);
    let pieces = stream! {
        let mut begun = false;
        loop {
            let next = {
                let mut next = pin!(completion.next());
                loop {
                    match tokio::time::timeout(SILENCE, next.as_mut()).await {
                        Ok(next) => break next,
                        Err(_) => yield ": the agent works\n\n".to_owned(),
                    }
                }
            };
            if !begun && !matches!(next, Next::Failed(..)) {
                begun = true;
                let delta = json!({"role": "assistant", "content": ""});
                yield chunk(&completion, chunks, delta, None);
            }
            match next {
                Next::Piece(piece) => yield chunk(&completion, chunks, delta_of(piece), None),
                Next::Finished(_, reason) => {
                    let pictures = completion.activity.pictures();
                    if !pictures.is_empty() {
                        let delta = delta_of(AnswerPiece::Text(pictures));
                        yield chunk(&completion, chunks, delta, None);
                    }
                    yield chunk(&completion, chunks, json!({}), Some(reason));
                    if chunks.usage {
                        let mut object = completion.object("chat.completion.chunk", json!([]));
                        object["usage"] = completion.usage();
                        yield data(&object);
                    }
                    yield "data: [DONE]\n\n".to_owned();
                    return;
                }
                Next::Failed(_, body) => {
                    yield data(&body);
                    return;
                }
            }
        }
    };
    let pieces = futures::StreamExt::map(pieces, Ok::<_, Infallible>);
    sse::respond(pieces)
}

/// Thoughts have two names, and clients read one of them.
fn delta_of(piece: AnswerPiece) -> Value {
    match piece {
        AnswerPiece::Text(text) => json!({"content": text}),
        AnswerPiece::Reasoning(text) => json!({"reasoning_content": text, "reasoning": text}),
    }
}

/// Prints a chunk. Clients need a delta in each choice, also in the last.
fn chunk(completion: &Completion, chunks: Chunks, delta: Value, reason: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
    let mut object = completion.object("chat.completion.chunk", json!([choice]));
    if chunks.usage {
        object["usage"] = Value::Null;
    }
    data(&object)
}

fn data(object: &Value) -> String {
    format!("data: {object}\n\n")
}
