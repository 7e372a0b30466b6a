//! Runs that carry the calls of a parsed text out, one after the other.

mod begin;
mod resume;

use contracts::tavern::common::v1::{
    CallDispatched, CallError, CallResult, CallSettled, CallStatus, ErrorCategory, Observation,
    RunOutcome, ToolCall, event::Kind,
};
use core_types::{ConversationId, EffectId};
use futures::StreamExt;
use run_events::{End, Recorder, RunControl, outcome};
use run_log::AppendError;
use serde_json::Value;
use std::{collections::BTreeMap, pin::pin, time::Duration};
use tonic::{Code, Status};

use crate::calls::{Below, Call, Calls};

pub use begin::{Invocations, KIND};

/// The step under which effect ids of calls are derived. Frozen: a run that is resumed must derive
/// the same ids.
const STEP: &str = "invocation";
/// The most of all outputs together that fits into the event that ends a run, in bytes.
const MAX_RESULT_BYTES: usize = 900 << 10;
const RETRY_WAIT: Duration = Duration::from_millis(500);
/// How long a cancelled call may take before the run ends without it.
const CANCEL_GRACE: Duration = Duration::from_millis(1_300);

/// What a run has to do, and what is done of it.
struct Invocation {
    calls: Calls,
    recorder: Recorder,
    selected: Vec<ToolCall>,
    /// What to tell the model of a block that no call could be made from.
    malformed: String,
    conversation: Option<ConversationId>,
    /// How calls ended, by index.
    settled: BTreeMap<u32, CallResult>,
    /// The call that was dispatched and not settled before a restart.
    dispatched: Option<u32>,
}

/// Why the calls stopped before the last one.
enum Stop {
    End(Box<End>),
    Unknown(Box<CallResult>),
}

impl From<AppendError> for Stop {
    fn from(error: AppendError) -> Self {
        tracing::error!(error = %error, "a run stops until the next start, its events cannot be stored");
        Self::End(Box::new(End::LeaveOpen))
    }
}

impl Invocation {
    async fn work(mut self, control: RunControl) -> End {
        match self.all(&control).await {
            Ok(()) => End::Finished(self.outcome()),
            Err(Stop::End(end)) => *end,
            Err(Stop::Unknown(result)) => {
                let error = result.error.unwrap_or_default();
                End::Finished(outcome::unknown(vec![result.effect_id], error))
            }
        }
    }

    async fn all(&mut self, control: &RunControl) -> Result<(), Stop> {
        let mut failed: Option<String> = None;
        for call in self.selected.clone() {
            let result = match self.settled.get(&call.index) {
                Some(result) => result.clone(),
                None => {
                    let result = self.one(&call, failed.as_deref(), control).await?;
                    self.settle(result.clone()).await?;
                    result
                }
            };
            match result.status() {
                CallStatus::Succeeded | CallStatus::Skipped => {}
                CallStatus::Unknown => return Err(Stop::Unknown(Box::new(result))),
                _ if call.continue_on_error => {}
                _ => failed = failed.or(Some(call.tool_id.clone())),
            }
            stop_if_cancelled(control, Vec::new())?;
        }
        Ok(())
    }

    async fn one(
        &mut self,
        call: &ToolCall,
        failed: Option<&str>,
        control: &RunControl,
    ) -> Result<CallResult, Stop> {
        if let Some(failed) = failed {
            return Ok(skipped(call, failed));
        }
        if !call.problems.is_empty() {
            return Ok(refused(call));
        }
        stop_if_cancelled(control, Vec::new())?;
        let effect = EffectId::derive(&self.recorder.run_id(), STEP, call.index as usize);
        let arguments = match json_schema::parse_json_strict(&call.arguments_json) {
            Ok(arguments) => arguments,
            Err(error) => {
                return Ok(rejected(
                    call,
                    "malformed_json",
                    format!("the arguments are no JSON: {error}"),
                ));
            }
        };
        if self.dispatched.take() != Some(call.index) {
            let dispatched = CallDispatched {
                effect_id: effect.to_string(),
                tool_id: call.tool_id.clone(),
                arguments_json: call.arguments_json.clone(),
                index: call.index,
                node_id: String::new(),
            };
            self.recorder
                .record(vec![Kind::CallDispatched(dispatched)])
                .await?;
        }
        let asked = Call {
            tool: call.tool_id.clone(),
            arguments,
            effect_id: Some(effect.clone()),
            conversation: self.conversation.clone(),
            durability: self.recorder.durability(),
            timeout: None,
            index: call.index,
            needs_confirmation: call.needs_confirmation,
        };
        let _tracked = control.track(effect.as_str());
        loop {
            match self.follow(asked.clone(), &effect, control).await? {
                Ok(result) => return Ok(result),
                Err(status) if is_transient(&status) => {
                    tracing::warn!(status = %status, "a call is asked for again");
                    tokio::select! {
                        () = tokio::time::sleep(RETRY_WAIT) => {}
                        () = control.cancelled() => {}
                    }
                    stop_if_cancelled(control, vec![effect.to_string()])?;
                }
                Err(status) => {
                    tracing::error!(status = %status, "a call could not be carried out");
                    return Ok(rejected(call, "internal", status.message().to_owned()));
                }
            }
        }
    }

    /// Carries one call out and records what happens below it.
    async fn follow(
        &mut self,
        call: Call,
        effect: &EffectId,
        control: &RunControl,
    ) -> Result<Result<CallResult, Status>, Stop> {
        let joined = match self.calls.join(call) {
            Ok(joined) => joined,
            Err(status) => return Ok(Err(status)),
        };
        let calls = self.calls.clone();
        let mut below = pin!(calls.follow(joined));
        let mut cancel = pin!(cancel_when_asked(&calls, effect, control));
        let mut cancelled = false;
        loop {
            let next = tokio::select! {
                next = below.next() => next,
                () = &mut cancel, if !cancelled => {
                    cancelled = true;
                    continue;
                }
                () = tokio::time::sleep(CANCEL_GRACE), if cancelled => None,
            };
            match next {
                Some(Ok(Below::Event(event))) => self.recorder.submit_child(*event).await?,
                Some(Ok(Below::Result(result))) => {
                    if cancelled && result.status() == CallStatus::Cancelled {
                        self.settle(*result).await?;
                        stop_if_cancelled(control, Vec::new())?;
                        return Ok(Err(Status::cancelled("the run was cancelled")));
                    }
                    return Ok(Ok(*result));
                }
                Some(Err(status)) => return Ok(Err(status)),
                None => {
                    stop_if_cancelled(control, vec![effect.to_string()])?;
                    return Ok(Err(Status::internal("the call was lost")));
                }
            }
        }
    }

    async fn settle(&mut self, result: CallResult) -> Result<(), Stop> {
        let text = self.told_of(&result);
        let observation = Observation {
            text,
            index: Some(result.index),
        };
        self.settled.insert(result.index, result.clone());
        let events = vec![
            Kind::CallSettled(CallSettled {
                result: Some(result),
            }),
            Kind::Observation(observation),
        ];
        self.recorder.record(events).await?;
        Ok(())
    }

    /// Words the end of a call. Of a call that is not well written, whoever read the text knows
    /// best what to say.
    fn told_of(&self, result: &CallResult) -> String {
        let call = self.selected.iter().find(|call| call.index == result.index);
        match call.filter(|call| !call.problems.is_empty() && !call.feedback.is_empty()) {
            Some(call) if result.status() == CallStatus::Rejected => call.feedback.clone(),
            _ => call_wire::observation(result),
        }
    }

    /// Says how a run ended all of whose calls are settled.
    fn outcome(&self) -> RunOutcome {
        if self.selected.is_empty() && !self.malformed.is_empty() {
            let error = outcome::error(
                ErrorCategory::Validation,
                "malformed_block",
                self.malformed.clone(),
            );
            return outcome::failed(error);
        }
        let fatal = self
            .selected
            .iter()
            .filter(|call| !call.continue_on_error)
            .find_map(|call| {
                self.settled
                    .get(&call.index)
                    .and_then(|result| result.error.clone())
            });
        if let Some(error) = fatal {
            return outcome::failed(error);
        }
        let outputs = self.selected.iter().map(|call| {
            let output = self
                .settled
                .get(&call.index)
                .map_or("", |result| &result.output_json);
            serde_json::from_str(output).unwrap_or(Value::Null)
        });
        let result = Value::Array(outputs.collect()).to_string();
        if result.len() > MAX_RESULT_BYTES {
            let message = format!(
                "the outputs together have {} bytes, more than {MAX_RESULT_BYTES}; each stands in the event \
                 that settles its call",
                result.len()
            );
            return outcome::failed(outcome::error(
                ErrorCategory::Limit,
                "result_too_large",
                message,
            ));
        }
        outcome::succeeded(result)
    }
}

/// Waits for the run to be cancelled, then tells the call.
async fn cancel_when_asked(calls: &Calls, effect: &EffectId, control: &RunControl) {
    control.cancelled().await;
    let reason = match control.why() {
        Some(run_events::CancelReason::Requested(words)) => words,
        _ => "the run's deadline passed".to_owned(),
    };
    if let Err(status) = calls.cancel(effect, &reason).await {
        tracing::warn!(status = %status, "a call could not be cancelled");
    }
}

fn stop_if_cancelled(control: &RunControl, unsettled: Vec<String>) -> Result<(), Stop> {
    match control.why() {
        Some(reason) => {
            let outcome = outcome::stopped(&reason, unsettled);
            Err(Stop::End(Box::new(End::Finished(outcome))))
        }
        None => Ok(()),
    }
}

fn is_transient(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::ResourceExhausted)
}

fn refused(call: &ToolCall) -> CallResult {
    let sentences: Vec<&str> = call
        .problems
        .iter()
        .map(|problem| problem.message.as_str())
        .collect();
    let code = call
        .problems
        .first()
        .map_or("invalid_call", |problem| problem.code.as_str());
    let mut result = rejected(call, code, sentences.join("; "));
    if let Some(error) = &mut result.error {
        error.violations.clone_from(&call.problems);
    }
    result
}

fn rejected(call: &ToolCall, code: &str, message: String) -> CallResult {
    let error = outcome::error(ErrorCategory::Validation, code, message);
    without_dispatch(call, CallStatus::Rejected, error)
}

fn skipped(call: &ToolCall, failed: &str) -> CallResult {
    let message = format!(
        "{} was not called, because {failed} failed before it",
        call.tool_id
    );
    let error = outcome::error(ErrorCategory::Domain, "skipped", message);
    without_dispatch(call, CallStatus::Skipped, error)
}

fn without_dispatch(call: &ToolCall, status: CallStatus, error: CallError) -> CallResult {
    CallResult {
        index: call.index,
        tool_id: call.tool_id.clone(),
        status: status.into(),
        error: Some(error),
        ..CallResult::default()
    }
}
