//! One call at the registry, which alone dispatches it to a tool: asked for, followed, ended.

use std::time::Duration;

use agent_domain::turn::ReadCall;
use contracts::tavern::{
    common::v1 as common,
    registry::v1::{
        self as registry, call_service_client::CallServiceClient, call_tool_response::Record,
    },
};
use grpc_kit::{Backoff, CallContext, Transport, retry};
use run_events::{CancelReason, Recorder, RunControl, Unanswered, durability_to_proto, outcome};
use run_log::AppendError;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{asker::Asker, stop::TurnStop};

/// How long a call may take to end once it was asked to.
const CANCEL_WAIT: Duration = Duration::from_millis(1_200);
/// How long a call that was asked to end is waited for before it is asked again.
const CANCEL_AGAIN: Duration = Duration::from_millis(200);

/// Asks the registry for the calls of one turn. Clone, cheap.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) calls: CallServiceClient<Transport>,
    pub(super) recorder: Recorder,
    pub(super) control: RunControl,
    pub(super) conversation_id: String,
    /// Ends the calls under way while the turn continues to its own end.
    pub(super) give_up: CancellationToken,
    pub(super) asker: Asker,
}

impl Caller {
    /// Finds out how a call goes that is about to leave, or that left before this process began.
    pub(super) async fn execute(
        &self,
        call: &ReadCall,
        tool_id: String,
        effect_id: &str,
        left_before: bool,
        grant: common::CallGrant,
    ) -> Result<common::CallResult, TurnStop> {
        let mut request = registry::CallToolRequest {
            tool_id,
            arguments_json: self.asker.arguments(call),
            effect_id: effect_id.to_owned(),
            conversation_id: self.conversation_id.clone(),
            durability: durability_to_proto(self.recorder.durability()).into(),
            timeout: None,
            index: call.index,
            needs_confirmation: call.needs_confirmation,
            attempt: 1,
            grant: Some(grant),
        };
        if !left_before && (self.control.is_cancelled() || self.give_up.is_cancelled()) {
            return Ok(not_started(call));
        }
        let retries = call_wire::granted_retries(call.retries);
        let mut backoff = Backoff::default();
        let mut unanswered = Unanswered::new(left_before);
        loop {
            let asked = match call.no_reply {
                true => start(self.calls.clone(), request.clone()).await,
                false => self.follow(request.clone()).await?,
            };
            let status = match asked {
                Ok(result) if request.attempt <= retries && result.next_attempt > 0 => {
                    tracing::info!(
                        effect_id,
                        attempt = request.attempt,
                        "a call that failed is tried again"
                    );
                    let wait = retry::wait_after_attempt(request.attempt);
                    tokio::select! {
                        biased;
                        _ = self.stopped() => return Ok(result),
                        () = tokio::time::sleep(wait) => {}
                    }
                    request.attempt = result.next_attempt;
                    unanswered = Unanswered::new(left_before);
                    continue;
                }
                Ok(mut result) => {
                    self.asker.keep(call, &result).await?;
                    // The model knows the tool by the name in its profile.
                    result.tool_id.clone_from(&call.tool_id);
                    return Ok(result);
                }
                Err(status) => status,
            };
            if let Some((status, error)) = unanswered.end(&status) {
                return Ok(ended(call, status, error));
            }
            tracing::warn!(effect_id, code = ?status.code(), error = status.message(), "asking the registry again how a call went");
            tokio::select! {
                biased;
                reason = self.stopped() => {
                    // The call may continue in the registry, which no one else would stop.
                    self.end_call(effect_id, "the turn ends").await;
                    return Err(TurnStop::Cancelled(reason));
                }
                () = tokio::time::sleep(backoff.after(&status)) => {}
            }
        }
    }

    /// Asks the registry to end a call, and logs a registry that could not be reached.
    pub(super) async fn end_call(&self, effect_id: &str, reason: &str) {
        if let Err(status) = self.cancel_call(effect_id, reason).await
            && grpc_kit::reason(&status) != Some(common::ErrorReason::CallNotFound)
        {
            tracing::warn!(
                effect_id,
                error = status.message(),
                "a call could not be cancelled"
            );
        }
    }

    /// Follows a call to its result, or ends it when it is asked to end.
    async fn follow(
        &self,
        request: registry::CallToolRequest,
    ) -> Result<Result<common::CallResult, Status>, TurnStop> {
        let effect_id = request.effect_id.clone();
        let calling = receive(self.calls.clone(), self.recorder.clone(), request);
        tokio::pin!(calling);
        let cause = tokio::select! {
            biased;
            cause = self.stopped() => cause,
            ended = &mut calling => return ended.map_err(TurnStop::Storage),
        };
        let reason = match &cause {
            CancelReason::Requested(reason) => reason.clone(),
            CancelReason::Deadline => "the turn's deadline passed".to_owned(),
        };
        // The result comes from the call itself, so that what had been done is known.
        let ended = tokio::select! {
            biased;
            ended = &mut calling => Some(ended),
            () = self.cancel_until_dropped(&effect_id, &reason) => None,
            () = tokio::time::sleep(CANCEL_WAIT) => None,
        };
        match ended {
            Some(Ok(Ok(result))) => Ok(Ok(result)),
            Some(Err(error)) => Err(TurnStop::Storage(error)),
            Some(Ok(Err(_))) | None => Err(TurnStop::Cancelled(cause)),
        }
    }

    /// Asks the registry to end a call, and again, as the first request may arrive before the call
    /// does.
    async fn cancel_until_dropped(&self, effect_id: &str, reason: &str) {
        loop {
            self.end_call(effect_id, reason).await;
            tokio::time::sleep(CANCEL_AGAIN).await;
        }
    }

    /// Waits until the call shall end.
    async fn stopped(&self) -> CancelReason {
        tokio::select! {
            biased;
            () = self.control.cancelled() => self.control.why().unwrap_or(CancelReason::Deadline),
            () = self.give_up.cancelled() => {
                CancelReason::Requested("the answer that held the call was lost".to_owned())
            }
        }
    }

    /// Asks the registry to end a call. The run's own deadline may have passed, so that the
    /// request has a time of its own.
    async fn cancel_call(&self, effect_id: &str, reason: &str) -> Result<(), Status> {
        let mut calls = self.calls.clone();
        let request = registry::CancelCallRequest {
            effect_id: effect_id.to_owned(),
            reason: reason.to_owned(),
        };
        let path = self.control.call_context().path().clone();
        let context = CallContext::new(path).with_timeout(CANCEL_WAIT);
        let answer = context
            .scope(calls.cancel_call(request))
            .await?
            .into_inner();
        if !answer.still_running.is_empty() {
            tracing::warn!(effect_id, still_running = ?answer.still_running, "a cancelled call has not ended");
        }
        Ok(())
    }
}

/// Starts a call that is not waited for. Its result is its handle, unless it has settled already.
async fn start(
    mut calls: CallServiceClient<Transport>,
    request: registry::CallToolRequest,
) -> Result<common::CallResult, Status> {
    let started = calls.start_call(registry::StartCallRequest {
        tool_id: request.tool_id,
        arguments_json: request.arguments_json,
        effect_id: request.effect_id,
        conversation_id: request.conversation_id,
        durability: request.durability,
        timeout: request.timeout,
        needs_confirmation: request.needs_confirmation,
        attempt: request.attempt,
        grant: request.grant,
    });
    let started = started.await?.into_inner().call.unwrap_or_default();
    if let Some(result) = started.result {
        return Ok(result);
    }
    let output = serde_json::json!({
        "state": "running",
        "handle": started.effect_id,
        "note": "the call was started and is not waited for; system:read_stream reads what it gives",
    });
    Ok(common::CallResult {
        effect_id: started.effect_id,
        tool_id: started.tool_id,
        status: common::CallStatus::Succeeded.into(),
        output_json: output.to_string(),
        start_time: started.dispatch_time,
        durability: started.durability,
        child_run_id: started.child_run_id,
        attempt: started.attempt,
        ..common::CallResult::default()
    })
}

/// Asks for a call and records what happens below it, until its result comes.
async fn receive(
    mut calls: CallServiceClient<Transport>,
    recorder: Recorder,
    request: registry::CallToolRequest,
) -> Result<Result<common::CallResult, Status>, AppendError> {
    let mut records = match calls.call_tool(request).await {
        Ok(response) => response.into_inner(),
        Err(status) => return Ok(Err(status)),
    };
    loop {
        match records.message().await {
            Ok(Some(response)) => match response.record {
                Some(Record::Event(event)) => recorder.submit_child(event).await?,
                Some(Record::Result(result)) => return Ok(Ok(result)),
                None => {}
            },
            Ok(None) => {
                return Ok(Err(Status::unavailable(
                    "the stream ended before the result",
                )));
            }
            Err(status) => return Ok(Err(status)),
        }
    }
}

/// What became of a call that was on its way out when the turn was asked to end.
fn not_started(call: &ReadCall) -> common::CallResult {
    let message = format!("{} was cancelled before it was started", call.tool_id);
    let error = outcome::error(common::ErrorCategory::Cancelled, "cancelled", message);
    ended(call, common::CallStatus::Cancelled, error)
}

/// Makes the result of a call that the registry gave none of.
pub(super) fn ended(
    call: &ReadCall,
    status: common::CallStatus,
    error: common::CallError,
) -> common::CallResult {
    common::CallResult {
        index: call.index,
        tool_id: call.tool_id.clone(),
        status: status.into(),
        error: Some(error),
        ..common::CallResult::default()
    }
}
