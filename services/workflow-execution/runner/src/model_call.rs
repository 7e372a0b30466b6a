//! Requests to a language model. A model has no effect outside, so a lost answer is requested
//! again; a recorded answer is never requested again (rule W32).
//!
//! The model's text is recorded in the run while the model writes it.

use std::collections::HashSet;
use std::sync::Arc;

use call_outcome::{Category, Failure};
use contracts::tavern::agent::v1::{
    GenerateEnd, GenerateRequest, GenerateResponse, generate_response::Piece,
};
use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{
    CallGrant, ErrorReason, OutputStream, UsageReported, WorkKind,
};
use grpc_kit::FailureClass;
use run_client::Tries;
use run_events::{Coalescer, Recorder, RunControl};
use run_log::AppendError;
use serde_json::Value;
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};

use workflow_domain::limits::MAX_VALUE_BYTES;
use workflow_domain::model::{ModelAnswer, ModelRequest};
use workflow_domain::node_type::Settled;

use super::allowance::{self, Allowance};
use super::node_output::NodeOutput;
use super::{Clients, code_of, history_call};

/// The failure of one attempt.
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

/// The node of the request, and the grant of its run.
pub(super) struct Asker {
    pub(super) recorder: Recorder,
    pub(super) allowance: Arc<Allowance>,
    pub(super) node_id: String,
}

impl Asker {
    /// Counts and records the usage of an answer.
    async fn report(&self, end: &GenerateEnd) -> Result<(), AppendError> {
        let Some(usage) = end.usage.clone() else {
            return Ok(());
        };
        let model_totals = vec![call_wire::total_of_answer(&end.model, usage)];
        self.allowance.add(&model_totals);
        let reported = UsageReported {
            node_id: self.node_id.clone(),
            model_totals,
            calls: 0,
        };
        self.recorder.submit(Kind::UsageReported(reported)).await
    }
}

/// Requests a whole answer of a model. A cancel of the run drops the request, which ends it at the
/// endpoint too.
///
/// # Errors
/// The run's log rejects events, so the run cannot continue now.
pub(super) async fn execute(
    peers: Clients,
    output: NodeOutput,
    control: RunControl,
    request: ModelRequest,
    asker: Asker,
) -> Result<Result<Settled, Failure>, AppendError> {
    let _tracked = control.track(WorkKind::ModelRequest, request.model.clone());
    tokio::select! {
        settled = ask_until_answered(peers, output, request, &asker) => settled,
        () = control.cancelled() => {
            let message = "the run was ended while the model answered";
            Ok(Err(Failure::new(Category::Cancelled, "cancelled", message)))
        }
    }
}

async fn ask_until_answered(
    peers: Clients,
    mut output: NodeOutput,
    request: ModelRequest,
    asker: &Asker,
) -> Result<Result<Settled, Failure>, AppendError> {
    let _remainder = asker.allowance.remainder().await;
    let request = match asker.allowance.left() {
        Ok(grant) => to_proto(request, grant),
        Err(failure) => return Ok(Err(failure)),
    };
    let mut tries = Tries::default();
    loop {
        let status = match ask(&peers, &request, &mut output, asker).await {
            Ok(answer) => return Ok(Ok(Settled::Model(answer))),
            Err(GenerateError::Log(error)) => return Err(error),
            Err(GenerateError::Refused(failure)) => return Ok(Err(failure)),
            Err(GenerateError::Service(status)) => status,
        };
        let is_final = match grpc_kit::reason(&status) {
            // The service has retried it itself.
            Some(ErrorReason::ModelFailed) => FailureClass::of(&status) == FailureClass::Transient,
            // The limit may be one of the day.
            Some(ErrorReason::TenantLimit) => true,
            _ => false,
        };
        if is_final || !tries.wait_after(&status).await {
            return Ok(Err(refused(&status)));
        }
    }
}

/// Sends one request to the model.
async fn ask(
    peers: &Clients,
    request: &GenerateRequest,
    output: &mut NodeOutput,
    asker: &Asker,
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
    asker.report(&end).await?;
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
    let mut tool_calls = match end.tool_calls_json.as_str() {
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
    name_calls(&mut tool_calls);
    Ok(ModelAnswer {
        text,
        finish_reason: end.finish_reason,
        input_tokens: end.input_tokens,
        output_tokens: end.output_tokens,
        tool_calls,
        reasoning: call_wire::reasoning_from_proto(&end.reasoning_json),
    })
}

/// Gives ids to calls that the endpoint left without one or with the id of an earlier call, so that
/// each result names its call.
fn name_calls(calls: &mut [Value]) {
    let mut ids = HashSet::new();
    for (place, call) in calls.iter_mut().enumerate() {
        let Some(fields) = call.as_object_mut() else {
            continue;
        };
        let id = fields.get("id").and_then(Value::as_str).unwrap_or_default();
        if id.is_empty() || !ids.insert(id.to_owned()) {
            let id = format!("call_{place}");
            ids.insert(id.clone());
            fields.insert("id".to_owned(), id.into());
        }
    }
}

fn to_proto(request: ModelRequest, grant: Option<CallGrant>) -> GenerateRequest {
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
        grant: grant.map(|grant| CallGrant {
            tools: None,
            ..grant
        }),
        ..GenerateRequest::default()
    }
}

/// Returns the reason for which there is no answer.
fn refused(status: &Status) -> Failure {
    if grpc_kit::reason(status) == Some(ErrorReason::BudgetExhausted) {
        let metadata = grpc_kit::failure::metadata(status);
        let unit = metadata.get("unit").map_or("tokens", String::as_str);
        return allowance::exhausted(unit, &unit.replace('_', " "));
    }
    let category = match status.code() {
        _ if grpc_kit::reason(status) == Some(ErrorReason::TenantLimit) => Category::Limit,
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
