//! One call of a run, from the check to its end.

use std::{
    future::ready,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use contracts::tavern::common::v1::{
    CallDispatched, CallError, CallResult, CallStatus, ErrorCategory, PendingWork, ToolCall,
    WorkKind, run_event::Kind,
};
use core_types::EffectId;
use futures::{StreamExt, stream, stream::BoxStream};
use grpc_kit::CallContext;
use run_client::{CallProgress, CallTerms};
use run_events::{RunControl, outcome};
use run_log::AppendError;
use tonic::Status;

use super::Invocation;
use crate::{
    arguments::Arguments,
    runner::calls::{Call, Calls},
};

/// The step under which effect ids of calls are derived. Frozen: a run that is resumed must derive
/// the same ids.
const STEP: &str = "invocation";

/// The end of a call in a run.
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
            Ok(arguments) => Arguments::with_text(arguments, &call.arguments_json),
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
        let _tracked = control.track(WorkKind::Call, effect.as_str());
        let own = self.own_call(call, arguments, effect, !has_left);
        Ok(
            match run_client::carry_out(&own, &self.recorder, control).await? {
                run_client::CallEnd::Settled(result) => CallEnd::Ended(*result),
                run_client::CallEnd::NotEnded => CallEnd::Unsettled(own.effect.to_string()),
            },
        )
    }

    /// Returns the call as this process asks for it.
    fn own_call(
        &self,
        call: &ToolCall,
        arguments: Arguments,
        effect: EffectId,
        is_first: bool,
    ) -> OwnCall {
        OwnCall {
            calls: self.calls.clone(),
            effect: effect.clone(),
            retries: call.control.as_ref().map_or(0, |control| control.retries),
            is_first: AtomicBool::new(is_first),
            call: Call {
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
                package_digest: String::new(),
                is_hooked: false,
                detached: false,
                body: None,
                is_first,
            },
        }
    }
}

/// A call of a run of this service, which its own ledger journals.
struct OwnCall {
    calls: Calls,
    call: Call,
    effect: EffectId,
    /// The retries that its text asks for.
    retries: u32,
    /// Whether nothing asked for the call yet.
    is_first: AtomicBool,
}

impl run_client::Call for OwnCall {
    fn named(&self) -> CallResult {
        CallResult {
            index: self.call.index,
            tool_id: self.call.tool.clone(),
            effect_id: self.effect.to_string(),
            ..CallResult::default()
        }
    }

    fn terms(&self) -> CallTerms {
        CallTerms {
            attempt: self.call.attempt,
            retries: call_wire::granted_retries(self.retries),
            left_before: !self.call.is_first,
            timeout: None,
        }
    }

    fn ask(
        &self,
        attempt: u32,
        context: &CallContext,
    ) -> BoxStream<'static, Result<CallProgress, Status>> {
        let call = Call {
            attempt,
            is_first: self.is_first.swap(false, Ordering::Relaxed),
            ..self.call.clone()
        };
        match self.calls.join(call, context.clone()) {
            Ok(handle) => self.calls.follow(handle).boxed(),
            Err(status) => stream::once(ready(Err(status))).boxed(),
        }
    }

    async fn cancel(&self, reason: &str, control: &RunControl) -> Result<Vec<PendingWork>, Status> {
        let context = control.call_context();
        let cancelled = self.calls.cancel(&context, &self.effect, reason);
        let still_running = cancelled.await?;
        Ok(still_running.unwrap_or_default())
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

/// Returns the end of a call that does not leave; none if it may.
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
