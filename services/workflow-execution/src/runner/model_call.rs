//! Asking a language model. A model has no effect outside, so it is asked again when its answer was
//! lost; an answer that is recorded is never asked for again (rule W32).
//!
//! What the model writes is recorded in the run while it writes it.

use call_outcome::{Category, Failure};
use contracts::tavern::agent::v1::{
    GenerateEnd, GenerateRequest, GenerateResponse, generate_response::Piece,
};
use contracts::tavern::common::v1::{ErrorReason, OutputStream, WorkKind};
use grpc_kit::{Backoff, FailureClass};
use run_events::{Coalescer, RunControl};
use run_log::AppendError;
use serde_json::Value;
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};

use crate::domain::limits::MAX_VALUE_BYTES;
use crate::domain::model::{ModelAnswer, ModelRequest};
use crate::domain::node_type::Settled;

use super::node_output::NodeOutput;
use super::{Peers, code_of, history_call};

/// How often an agent runtime that fails inside is asked again.
const TRIES_AFTER_FAILURES: u32 = 3;

/// What went wrong with one attempt.
enum GenerateError {
    Service(Status),
    Refused(Failure),
    Log(AppendError),
}

impl From<AppendError> for GenerateError {
    fn from(error: AppendError) -> Self {
        Self::Log(error)
    }
}

/// Asks a model for a whole answer. A cancel of the run drops the request, which ends it at the
/// endpoint too.
///
/// # Errors
/// The run's log does not take events, so the run cannot continue now.
pub(super) async fn execute(
    peers: Peers,
    output: NodeOutput,
    control: RunControl,
    request: ModelRequest,
) -> Result<Result<Settled, Failure>, AppendError> {
    let _tracked = control.track(WorkKind::ModelRequest, request.model.clone());
    tokio::select! {
        settled = ask_until_answered(peers, output, request) => settled,
        () = control.cancelled() => {
            let message = "the run was ended while the model answered";
            Ok(Err(Failure::new(Category::Cancelled, "cancelled", message)))
        }
    }
}

async fn ask_until_answered(
    peers: Peers,
    mut output: NodeOutput,
    request: ModelRequest,
) -> Result<Result<Settled, Failure>, AppendError> {
    let request = to_proto(request);
    let mut backoff = Backoff::default();
    let mut failures = 0;
    loop {
        let status = match ask(&peers, &request, &mut output).await {
            Ok(answer) => return Ok(Ok(Settled::Model(answer))),
            Err(GenerateError::Log(error)) => return Err(error),
            Err(GenerateError::Refused(failure)) => return Ok(Err(failure)),
            Err(GenerateError::Service(status)) => status,
        };
        let by_model = grpc_kit::reason(&status) == Some(ErrorReason::ModelFailed);
        match FailureClass::of(&status) {
            FailureClass::Transient if !by_model => {}
            FailureClass::Broken if failures < TRIES_AFTER_FAILURES => failures += 1,
            _ => return Ok(Err(refused(&status))),
        }
        tokio::time::sleep(backoff.after(&status)).await;
    }
}

/// Asks the model once.
async fn ask(
    peers: &Peers,
    request: &GenerateRequest,
    output: &mut NodeOutput,
) -> Result<ModelAnswer, GenerateError> {
    output.begin().await?;
    let pieces = peers.models.clone().generate(request.clone()).await;
    let mut pieces = pieces.map_err(GenerateError::Service)?.into_inner();
    let (mut coalescer, mut text) = (Coalescer::default(), String::new());
    let end = loop {
        let piece = tokio::select! {
            piece = next(&mut pieces) => piece,
            () = coalescer.due() => {
                write(output, coalescer.release(Instant::now())).await?;
                continue;
            }
        };
        match piece {
            Ok(Piece::Text(piece)) => {
                text.push_str(&piece);
                if text.len() > MAX_VALUE_BYTES {
                    let message = format!(
                        "the model wrote more than {MAX_VALUE_BYTES} bytes, the most that are kept"
                    );
                    return Err(GenerateError::Refused(Failure::limit(
                        "value_too_large",
                        message,
                    )));
                }
                let due = coalescer.push(OutputStream::Out, &piece, Instant::now());
                write(output, due).await?;
            }
            Ok(Piece::Thinking(_)) => {}
            Ok(Piece::End(end)) => break end,
            Err(status) => {
                write(output, coalescer.release(Instant::now())).await?;
                return Err(GenerateError::Service(status));
            }
        }
    };
    write(output, coalescer.release(Instant::now())).await?;
    answer(text, end).map_err(GenerateError::Refused)
}

async fn next(pieces: &mut Streaming<GenerateResponse>) -> Result<Piece, Status> {
    loop {
        let Some(response) = pieces.message().await? else {
            return Err(Status::unavailable("the answer ended without an end"));
        };
        if let Some(piece) = response.piece {
            return Ok(piece);
        }
    }
}

async fn write(
    output: &mut NodeOutput,
    pieces: Vec<(OutputStream, String)>,
) -> Result<(), AppendError> {
    for (stream, text) in pieces {
        output.write(stream, text).await?;
    }
    Ok(())
}

fn answer(text: String, end: GenerateEnd) -> Result<ModelAnswer, Failure> {
    let tool_calls = match end.tool_calls_json.as_str() {
        "" => Vec::new(),
        calls => match json_schema::parse_json_strict(calls) {
            Ok(Value::Array(calls)) => calls,
            _ => {
                let message = "the native calls of the model's answer are not a JSON array";
                return Err(Failure::new(
                    Category::Dependency,
                    "tool_calls_malformed",
                    message,
                ));
            }
        },
    };
    Ok(ModelAnswer {
        text,
        finish_reason: end.finish_reason,
        input_tokens: end.input_tokens,
        output_tokens: end.output_tokens,
        tool_calls,
    })
}

fn to_proto(request: ModelRequest) -> GenerateRequest {
    let messages = request.messages.iter().map(history_call::to_proto);
    let tools_json = match request.tools.is_empty() {
        true => String::new(),
        false => Value::Array(request.tools).to_string(),
    };
    GenerateRequest {
        model: request.model,
        messages: messages.collect(),
        max_output_tokens: request.parameters.max_tokens.unwrap_or_default(),
        temperature: request.parameters.temperature,
        top_p: request.parameters.top_p,
        seed: request.parameters.seed,
        tools_json,
        ..GenerateRequest::default()
    }
}

/// Returns why there is no answer.
fn refused(status: &Status) -> Failure {
    let category = match status.code() {
        Code::InvalidArgument | Code::NotFound => Category::Validation,
        Code::DeadlineExceeded => Category::Timeout,
        _ => Category::Dependency,
    };
    let failure = Failure::new(
        category,
        code_of(status, "model_failed"),
        status.message().to_owned(),
    );
    match grpc_kit::retry_after(status) {
        Some(_) => failure.retryable(),
        None => failure,
    }
}
