//! One call of a run, from the check to its end.

use std::{
    pin::pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use contracts::tavern::common::v1::{
    CallDispatched, CallError, CallResult, CallStatus, ErrorCategory, ToolCall, WorkKind,
    run_event::Kind,
};
use core_types::EffectId;
use futures::StreamExt;
use grpc_kit::{Backoff, retry};
use run_events::{RunControl, Unanswered, outcome};
use run_log::AppendError;
use serde_json::Value;
use tonic::Status;

use super::Invocation;
use crate::runner::calls::{Call, CallProgress, Calls};

/// The step under which effect ids of calls are derived. Frozen: a run that is resumed must derive
/// the same ids.
const STEP: &str = "invocation";
/// How long a cancelled call may take before the run ends without it.
const CANCEL_GRACE: Duration = Duration::from_millis(1_300);

/// What became of a call.
pub(super) enum CallEnd {
    /// It ended before a restart, which is on the record.
    Settled(CallResult),
    /// It ended, or was never started.
    Ended(CallResult),
    /// The run was cancelled before the call was started.
    NotStarted,
    /// The run was cancelled, and the call with this effect id has not ended in time.
    Unsettled(String),
}

impl Invocation {
    /// Executes a call unless something has failed before. Notes its own failure there.
    pub(super) async fn one(
        &self,
        call: &ToolCall,
        failed: &Mutex<Option<String>>,
        control: &RunControl,
    ) -> Result<CallEnd, AppendError> {
        let end = match self.settled.get(&call.index) {
            Some(result) => CallEnd::Settled(result.clone()),
            None => {
                let before = failed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone();
                self.start(call, before.as_deref(), control).await?
            }
        };
        if let CallEnd::Settled(result) | CallEnd::Ended(result) = &end
            && !matches!(
                result.status(),
                CallStatus::Succeeded | CallStatus::Skipped | CallStatus::InDoubt
            )
            && !call.continue_on_error
        {
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert_with(|| call.tool_id.clone());
        }
        Ok(end)
    }

    async fn start(
        &self,
        call: &ToolCall,
        failed: Option<&str>,
        control: &RunControl,
    ) -> Result<CallEnd, AppendError> {
        let has_left = self.dispatched.contains(&call.index);
        if let Some(end) = withheld(call, failed, control).filter(|_| !has_left) {
            return Ok(end);
        }
        let arguments = match json_schema::parse_json_strict(&call.arguments_json) {
            Ok(arguments) => arguments,
            Err(error) => {
                let message = format!("the arguments are not JSON: {error}");
                return Ok(CallEnd::Ended(rejected(call, "malformed_json", message)));
            }
        };
        let effect = EffectId::derive(&self.recorder.run_id(), STEP, call.index as usize);
        if !has_left {
            let dispatched = CallDispatched {
                effect_id: effect.to_string(),
                tool_id: call.tool_id.clone(),
                arguments_json: call.arguments_json.clone(),
                index: call.index,
                node_id: String::new(),
            };
            let recorded = self.recorder.record(vec![Kind::CallDispatched(dispatched)]);
            recorded.await?;
        }
        let mut asked = self.first_attempt(call, arguments, effect.clone(), !has_left);
        let retries = call.control.as_ref().map_or(0, |control| control.retries);
        let retries = call_wire::granted_retries(retries);
        let (mut backoff, mut unanswered) = (Backoff::default(), Unanswered::new(has_left));
        let _tracked = control.track(WorkKind::Call, effect.as_str());
        loop {
            let ended = self.follow(asked.clone(), &effect, control).await?;
            asked.is_first = false;
            match ended {
                Ok(result) if asked.attempt <= retries && result.next_attempt > 0 => {
                    tracing::info!(
                        effect = effect.as_str(),
                        attempt = asked.attempt,
                        "a call that failed is tried again"
                    );
                    if !wait(retry::wait_after_attempt(asked.attempt), control).await {
                        return Ok(CallEnd::Ended(result));
                    }
                    asked.attempt = result.next_attempt;
                    unanswered = Unanswered::new(has_left);
                }
                Ok(result) => return Ok(CallEnd::Ended(result)),
                Err(_) if control.is_cancelled() => {
                    return Ok(CallEnd::Unsettled(effect.to_string()));
                }
                Err(status) => {
                    tracing::warn!(status = %status, "a call failed inside the registry");
                    if let Some((ended, error)) = unanswered.end(&status) {
                        let result = without_dispatch(call, ended, error);
                        return Ok(CallEnd::Ended(CallResult {
                            effect_id: effect.to_string(),
                            ..result
                        }));
                    }
                    if !wait(backoff.after(&status), control).await {
                        return Ok(CallEnd::Unsettled(effect.to_string()));
                    }
                }
            }
        }
    }

    /// Returns what the registry is asked for first.
    fn first_attempt(
        &self,
        call: &ToolCall,
        arguments: Value,
        effect: EffectId,
        is_first: bool,
    ) -> Call {
        Call {
            tool: call.tool_id.clone(),
            arguments,
            effect_id: Some(effect),
            conversation: self.conversation.clone(),
            durability: self.recorder.durability(),
            timeout: None,
            index: call.index,
            needs_confirmation: call.needs_confirmation,
            attempt: 1,
            grant: None,
            profile_id: self.profile_id.clone(),
            detached: false,
            body: None,
            is_first,
        }
    }

    /// Executes one call and records what happens below it. A cancel of the run cancels the call.
    async fn follow(
        &self,
        call: Call,
        effect: &EffectId,
        control: &RunControl,
    ) -> Result<Result<CallResult, Status>, AppendError> {
        let handle = match self.calls.join(call) {
            Ok(handle) => handle,
            Err(status) => return Ok(Err(status)),
        };
        let mut below = pin!(self.calls.follow(handle));
        let mut cancel = pin!(cancel_when_asked(&self.calls, effect, control));
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
                Some(Ok(CallProgress::Event(event))) => self.recorder.submit_child(*event).await?,
                Some(Ok(CallProgress::Result(result))) => return Ok(Ok(*result)),
                Some(Err(status)) => return Ok(Err(status)),
                None => return Ok(Err(Status::internal("the call was lost"))),
            }
        }
    }
}

/// Waits for the run to be cancelled, then cancels the call.
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

/// Waits; false if the run is cancelled meanwhile.
async fn wait(delay: Duration, control: &RunControl) -> bool {
    tokio::select! {
        () = tokio::time::sleep(delay) => true,
        () = control.cancelled() => false,
    }
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

/// Returns what becomes of a call that does not leave; nothing if it may.
fn withheld(call: &ToolCall, failed: Option<&str>, control: &RunControl) -> Option<CallEnd> {
    if control.is_cancelled() {
        return Some(CallEnd::NotStarted);
    }
    if let Some(failed) = failed {
        return Some(CallEnd::Ended(skipped(call, failed)));
    }
    (!call.problems.is_empty()).then(|| CallEnd::Ended(refused(call)))
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
