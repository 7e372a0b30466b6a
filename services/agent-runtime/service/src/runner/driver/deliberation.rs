//! Deliberation by a workflow: a run of it answers instead of a model (rules G201 to G205).
//!
//! The request id of the run is the turn and the number of its answer, so that a turn that resumes
//! finds the run that it started. The answer of the workflow is read while it is written.

use std::{
    pin::pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use agent_domain::deliberation::answer_output;
use contracts::tavern::{
    common::v1::{self as common, ErrorReason, RunOptions, RunState, StopReason, run_event::Kind},
    workflow::v1::{StartRunRequest, start_run_request::Target},
};
use futures::{StreamExt, stream::BoxStream};
use grpc_kit::CallContext;
use model_client::{AnswerEnd, ModelError, Piece};
use run_client::{ChildRequest, ChildRun, Followed, NotStarted, policy::GRACE};
use run_events::{CancelReason, Recorder, RunControl, outcome};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tonic::Status;

use super::stop::{NoAnswer, TENANT_LIMIT, TurnStop, model_failure};
use crate::peers::Peers;

/// The codes by which a workflow fails that has used up the limits of the turn or the tenant.
const STOPS: [&str; 3] = ["budget_exhausted", "repetition", TENANT_LIMIT];

/// The pieces of an answer of a model or a workflow.
pub(super) type Answer = BoxStream<'static, Result<Piece, NoAnswer>>;

/// One run of a deliberation workflow.
#[derive(Clone)]
pub(super) struct Deliberation {
    workflow_id: String,
    peers: Peers,
    recorder: Recorder,
    context: CallContext,
    request: StartRunRequest,
    /// The output with the answer.
    output: String,
    /// The event of the run up to which the answer was read and is void.
    void_until: u64,
    /// The run, once it is known.
    run: Arc<OnceLock<ChildRun>>,
    /// The outcome of the run, until its usage was reported.
    ended: Arc<Mutex<Option<common::RunOutcome>>>,
}

/// Makes the inputs of a workflow from its interface.
pub(super) type Inputs = Box<dyn FnOnce(&Map<String, Value>) -> Map<String, Value> + Send>;

/// A request for one answer of a turn.
pub(super) struct AnswerRequest {
    pub(super) workflow_id: String,
    pub(super) conversation_id: String,
    /// A name that distinguishes the run from others of the turn: the number of the answer, from 1,
    /// with the number of times that people steered it, or another purpose of the workflow.
    pub(super) number: String,
    pub(super) inputs: Inputs,
    /// The event of its run up to which the answer was read and is void; zero for none.
    pub(super) void_until: u64,
    /// The limits of the run.
    pub(super) grant: common::CallGrant,
}

impl Deliberation {
    /// Prepares the run.
    pub(super) async fn prepare(
        peers: Peers,
        recorder: Recorder,
        context: CallContext,
        question: AnswerRequest,
    ) -> Result<Self, NoAnswer> {
        let id = question.workflow_id;
        let definition = peers.workflow_definition(&context, &id, deadline_of(&recorder));
        let definition = definition.await;
        let definition = definition.map_err(|status| refused(&id, &status))?;
        let interface = |side: &str| {
            let slots = definition.get(side).and_then(Value::as_object);
            slots.cloned().unwrap_or_default()
        };
        let outputs = interface("interfaceOutputs");
        let Some(output) = answer_output(&outputs) else {
            let message = format!(
                "the workflow `{id}` has no output for the answer; call one of its outputs full_text"
            );
            return Err(stop("deliberation_invalid", message, false));
        };
        let inputs = (question.inputs)(&interface("interfaceInputs"));
        let durability = run_events::durability_to_proto(recorder.durability());
        Ok(Self {
            request: StartRunRequest {
                request_id: format!("{}/{}", recorder.run_id(), question.number),
                target: Some(Target::WorkflowId(id.clone())),
                inputs_json: Value::Object(inputs).to_string(),
                conversation_id: question.conversation_id,
                // A turn that resumes sends the same body, so the remaining time is not in it: the
                // end of the turn cancels the run.
                options: Some(RunOptions {
                    durability: durability.into(),
                    timeout: None,
                }),
                grant: Some(question.grant),
                ..StartRunRequest::default()
            },
            workflow_id: id,
            output: output.to_owned(),
            peers,
            recorder,
            context,
            void_until: question.void_until,
            run: Arc::default(),
            ended: Arc::default(),
        })
    }

    /// Runs the workflow; the answer is a stream of pieces. Dropping them does not end the run.
    pub(super) fn answer(&self) -> Answer {
        let this = self.clone();
        Box::pin(async_stream::try_stream! {
            let run = this.start().await?;
            let deadline = deadline_of(&this.recorder);
            let mut followed = pin!(run.follow(this.void_until, deadline));
            let mut shown = String::new();
            while let Some(next) = followed.next().await {
                match next.map_err(|status| this.lost(&status))? {
                    Followed::Event(event) => {
                        let is_own = event.run_id == run.run_id();
                        match &event.kind {
                            Some(Kind::OutputChunk(chunk)) => {
                                if is_own && chunk.interface_key == this.output {
                                    shown.push_str(&chunk.text);
                                    yield Piece::Text(chunk.text.clone());
                                }
                            }
                            Some(Kind::OutputReset(reset))
                                if is_own && reset.interface_key == this.output => {
                                if !shown.is_empty() {
                                    Err(NoAnswer::Void(event.sequence))?;
                                }
                            }
                            _ => this.recorder.submit_child(*event).await.map_err(TurnStop::Storage)?,
                        }
                    }
                    Followed::Ended(ended) => {
                        this.note_end(Some(&ended));
                        let outputs = this.outputs(*ended)?;
                        let text = outputs.get(&this.output).and_then(Value::as_str).unwrap_or("");
                        let Some(rest) = text.strip_prefix(shown.as_str()) else {
                            Err(this.changed(shown.len()))?;
                            return;
                        };
                        if !rest.is_empty() {
                            yield Piece::Text(rest.to_owned());
                        }
                        yield Piece::End(this.end(&outputs));
                        return;
                    }
                }
            }
        })
    }

    /// Runs the workflow and returns its whole answer. A cancel ends the run.
    pub(super) async fn whole(&mut self, control: &RunControl) -> Result<String, NoAnswer> {
        loop {
            let mut pieces = self.answer();
            let mut text = String::new();
            let begun_again = loop {
                let piece = tokio::select! {
                    piece = pieces.next() => piece,
                    () = control.cancelled() => {
                        self.cancel("the turn ends").await;
                        let reason = control.why().unwrap_or(CancelReason::Deadline);
                        return Err(NoAnswer::Stopped(TurnStop::Cancelled(reason)));
                    }
                };
                match piece {
                    Some(Ok(Piece::Text(piece))) => text.push_str(&piece),
                    Some(Err(NoAnswer::Void(sequence))) => break sequence,
                    Some(Err(error)) => return Err(error),
                    Some(Ok(Piece::Thinking(_))) => {}
                    Some(Ok(Piece::End(_))) | None => return Ok(text),
                }
            };
            self.void_until = begun_again;
        }
    }

    /// Ends the run. A run whose start may be in flight is started, so that it can be ended.
    pub(super) async fn cancel(&self, reason: &str) {
        let until = Instant::now() + GRACE;
        let context = self.context.clone().without_deadline();
        let cancelled = match self.run_by(&context.with_deadline(until), until).await {
            Ok(run) => {
                let rest = until.saturating_duration_since(Instant::now());
                run.cancel(reason, rest).await
            }
            Err(error) => Err(error.status),
        };
        match cancelled {
            Ok(cancelled) => self.note_end(cancelled.ended.as_ref()),
            Err(status) => tracing::warn!(
                workflow = self.workflow_id,
                error = status.message(),
                "a deliberation could not be cancelled"
            ),
        }
    }

    /// Returns the usage of the run, once it has ended and only once.
    pub(super) fn take_used(&self) -> Option<common::UsageReported> {
        let outcome = self.ended().take()?;
        Some(common::UsageReported {
            node_id: String::new(),
            model_totals: outcome.model_totals,
            calls: outcome.calls,
        })
    }

    fn note_end(&self, run: Option<&common::Run>) {
        let outcome = run.and_then(|run| run.outcome.clone());
        *self.ended() = outcome;
    }

    fn ended(&self) -> std::sync::MutexGuard<'_, Option<common::RunOutcome>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the end of an answer that was not read to its end.
    pub(super) fn stopped(&self, finish_reason: &str) -> AnswerEnd {
        AnswerEnd {
            finish_reason: finish_reason.to_owned(),
            ..self.end(&Map::new())
        }
    }

    async fn start(&self) -> Result<ChildRun, NoAnswer> {
        let run = self.run_by(&self.context, deadline_of(&self.recorder));
        run.await
            .map_err(|error| refused(&self.workflow_id, &error.status))
    }

    /// Starts the run unless it is known.
    async fn run_by(
        &self,
        context: &CallContext,
        deadline: Instant,
    ) -> Result<ChildRun, NotStarted> {
        if let Some(run) = self.run.get() {
            return Ok(run.clone());
        }
        let request = ChildRequest::Workflow(Box::new(self.request.clone()));
        let started = ChildRun::start(&self.peers.workflow, context, request, deadline);
        let (run, _) = started.await?;
        Ok(self.run.get_or_init(|| run).clone())
    }

    /// Reads the outcome of the run.
    fn outputs(&self, run: common::Run) -> Result<Map<String, Value>, NoAnswer> {
        let took = run.finish_time.zip(run.create_time);
        let took = took.map(|(end, begin)| end.seconds.saturating_sub(begin.seconds));
        let outcome = run.outcome.unwrap_or_default();
        if outcome.state() != RunState::Succeeded {
            let stop_reason = outcome.stop_reason();
            let error = outcome.error.unwrap_or_default();
            if STOPS.contains(&error.code.as_str()) {
                return Err(NoAnswer::Stopped(TurnStop::Failed(Box::new(error))));
            }
            let wall = self
                .request
                .grant
                .as_ref()
                .map_or(0, |grant| grant.wall_seconds);
            let is_spent = wall > 0 && took.is_some_and(|took| took.cast_unsigned() >= wall);
            if is_spent && stop_reason == StopReason::Deadline {
                return Err(NoAnswer::Stopped(TurnStop::Failed(Box::new(spent(wall)))));
            }
            let message = format!(
                "the workflow `{}` gave no answer: {}",
                self.workflow_id, error.message
            );
            return Err(stop("deliberation_failed", message, error.retryable));
        }
        serde_json::from_str(&outcome.result_json).map_err(|error| {
            let message = format!(
                "the outputs of `{}` cannot be read: {error}",
                self.workflow_id
            );
            stop("deliberation_failed", message, false)
        })
    }

    fn end(&self, outputs: &Map<String, Value>) -> AnswerEnd {
        let calls = outputs.get("tool_calls").and_then(Value::as_array);
        let calls = calls.filter(|calls| !calls.is_empty()).cloned();
        let default = if calls.is_some() {
            "tool_calls"
        } else {
            "stop"
        };
        let reason = outputs.get("finish_reason").and_then(Value::as_str);
        AnswerEnd {
            finish_reason: reason.unwrap_or(default).to_owned(),
            tool_calls: calls.map(Value::Array),
            model: format!("workflow:{}", self.workflow_id),
            ..AnswerEnd::default()
        }
    }

    fn changed(&self, released: usize) -> NoAnswer {
        NoAnswer::Model(ModelError::Cut {
            released,
            detail: format!(
                "the workflow `{}` ended with another text than it wrote",
                self.workflow_id
            ),
        })
    }

    fn lost(&self, status: &Status) -> NoAnswer {
        let message = format!(
            "the workflow `{}` can no longer be followed: {}",
            self.workflow_id,
            status.message()
        );
        stop("deliberation_lost", message, true)
    }
}

fn refused(id: &str, status: &Status) -> NoAnswer {
    let said = status.message();
    match grpc_kit::reason(status) {
        Some(ErrorReason::WorkflowNotFound) => {
            let message = format!(
                "no workflow is called `{id}`; store it, or change core_deliberation_workflow_id"
            );
            stop("deliberation_missing", message, false)
        }
        Some(ErrorReason::InvalidFields | ErrorReason::WorkflowInvalid) => {
            let message = format!("the workflow `{id}` cannot deliberate: {said}");
            stop("deliberation_invalid", message, false)
        }
        _ => {
            let message = format!("the workflow `{id}` was not started: {said}");
            stop("deliberation_failed", message, true)
        }
    }
}

/// Reports that the workflow has used up the remaining time of the turn.
fn spent(seconds: u64) -> common::CallError {
    let message = format!("the deliberation used the remaining {seconds} s of the turn");
    common::CallError {
        details_json: json!({"unit": "wall_seconds"}).to_string(),
        ..outcome::error(common::ErrorCategory::Limit, "budget_exhausted", message)
    }
}

fn stop(code: &str, message: String, retryable: bool) -> NoAnswer {
    NoAnswer::Stopped(model_failure(code, &message, retryable))
}

fn deadline_of(recorder: &Recorder) -> Instant {
    Instant::now() + recorder.remaining()
}
