//! Calling a tool through the registry, at most once per effect id.
//!
//! The registry's ledger decides what a repeated call means, so a call whose answer was lost is
//! simply asked for again under the same effect id.

use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{self as common, ErrorReason, RunEvent, WorkKind};
use contracts::tavern::registry::v1::call_tool_response::Record;
use contracts::tavern::registry::v1::{CallToolRequest, CancelCallRequest};
use grpc_kit::{Backoff, CallContext, Failure};
use run_events::{CancelReason, Recorder, RunControl, Unanswered, durability_to_proto, outcome};
use run_log::AppendError;
use tonic::Status;

use super::Peers;
use super::allowance::{Allowance, with_part};
use super::history::RecordedCall;
use super::slot_stream::SlotStream;
use super::tool_text::Written;

/// How long a call may take to end once the run was cancelled.
const CANCEL_GRACE: Duration = Duration::from_millis(1_200);

/// How the ids of tools begin whose runs use tokens and money.
const AGENT: &str = "agent:";
const WORKFLOW: &str = "workflow:";

/// How a call ended, as far as this run can tell.
#[derive(Debug)]
pub(super) enum ToolEnd {
    /// It ended.
    Settled(Box<common::CallResult>),
    /// The run was cancelled, and the call has not been heard of since.
    NotEnded,
    /// The run's log does not take events, so the run cannot continue now.
    LogFailed(AppendError),
}

/// What went wrong with one attempt.
enum AskError {
    Status(Status),
    Log(AppendError),
}

/// Everything that a call needs.
#[derive(Debug)]
pub(super) struct ToolCall {
    pub(super) peers: Peers,
    pub(super) recorder: Recorder,
    pub(super) control: RunControl,
    pub(super) conversation_id: String,
    pub(super) call: RecordedCall,
    /// Which attempt at the effect it is, from 1.
    pub(super) attempt: u32,
    /// How long it may take; nothing for as long as the tool.
    pub(super) timeout: Option<Duration>,
    /// The streaming outputs of the node.
    pub(super) streams: Vec<SlotStream>,
    /// Whether these are the outputs of the workflow that the call runs, and not what its tool writes.
    pub(super) of_child: bool,
    /// What the run may use.
    pub(super) allowance: Arc<Allowance>,
}

impl ToolCall {
    /// Carries the call out. A cancel of the run ends it in the registry too.
    pub(super) async fn execute(self) -> ToolEnd {
        let _tracked = self
            .control
            .track(WorkKind::Call, self.call.effect_id.clone());
        if self.control.is_cancelled() {
            // Nothing leaves after a cancel; but what left before a restart may still continue.
            self.cancel().await;
            return ToolEnd::NotEnded;
        }
        let asking = async {
            let end = self.ask_within_budget().await;
            if let ToolEnd::Settled(result) = &end {
                self.allowance.settled(&self.call.arguments_json, result);
            }
            end
        };
        tokio::pin!(asking);
        tokio::select! {
            // First, so that what was asked for is also cancelled where both happen at once.
            biased;
            () = self.control.cancelled() => {}
            end = &mut asking => return end,
            () = self.overdue() => {
                // The registry ends the call when its time is over. One that has not ended a while
                // after that is cancelled, and in doubt unless it then ends (rule W21).
                let both = async { tokio::join!(self.cancel(), &mut asking).1 };
                let ended = tokio::time::timeout(CANCEL_GRACE, both).await;
                return ended.unwrap_or_else(|_| self.in_doubt());
            }
        }
        let both = async { tokio::join!(self.cancel(), &mut asking).1 };
        tokio::time::timeout(CANCEL_GRACE, both)
            .await
            .unwrap_or(ToolEnd::NotEnded)
    }

    async fn overdue(&self) {
        match self.timeout {
            Some(timeout) => tokio::time::sleep(timeout + CANCEL_GRACE).await,
            None => std::future::pending().await,
        }
    }

    fn in_doubt(&self) -> ToolEnd {
        let message = "the call did not end when its time was over";
        let category = common::ErrorCategory::Dependency;
        let error = outcome::error(category, "registry_failed", message);
        self.without_tool(common::CallStatus::InDoubt, error)
    }

    /// Asks for the call with what the run may still use.
    async fn ask_within_budget(&self) -> ToolEnd {
        let shares = [AGENT, WORKFLOW];
        let shares = shares
            .iter()
            .any(|kind| self.call.tool_id.starts_with(kind));
        let _remainder = match shares {
            true => self.allowance.remainder().await,
            false => None,
        };
        match self.allowance.left() {
            Ok(grant) => {
                let of_child = self.of_child;
                let grant = grant.map(|grant| match of_child {
                    true => with_part(grant, &self.call.tool_id),
                    false => grant,
                });
                self.ask_until_answered(grant).await
            }
            Err(failure) => {
                let error = call_wire::failure_to_proto(&failure);
                self.without_tool(common::CallStatus::Skipped, error)
            }
        }
    }

    async fn ask_until_answered(&self, grant: Option<common::CallGrant>) -> ToolEnd {
        let mut backoff = Backoff::default();
        let mut unanswered = Unanswered::new(self.call.left_before);
        loop {
            let status = match self.ask(grant.clone()).await {
                Ok(result) => return ToolEnd::Settled(Box::new(result)),
                Err(AskError::Log(error)) => return ToolEnd::LogFailed(error),
                Err(AskError::Status(status)) => status,
            };
            if let Some((ended, error)) = unanswered.end(&status) {
                return self.without_tool(ended, error);
            }
            tracing::debug!(status = %status, "a tool call is asked for again");
            tokio::time::sleep(backoff.after(&status)).await;
            // The registry may not have taken the call, and nothing leaves after a cancel.
            if self.control.is_cancelled() {
                return ToolEnd::NotEnded;
            }
        }
    }

    async fn ask(&self, grant: Option<common::CallGrant>) -> Result<common::CallResult, AskError> {
        let request = CallToolRequest {
            tool_id: self.call.tool_id.clone(),
            arguments_json: self.call.arguments_json.clone(),
            effect_id: self.call.effect_id.clone(),
            conversation_id: self.conversation_id.clone(),
            durability: durability_to_proto(self.recorder.durability()).into(),
            attempt: self.attempt,
            grant,
            timeout: self.timeout.and_then(|timeout| timeout.try_into().ok()),
            ..CallToolRequest::default()
        };
        let answer = self.peers.calls.clone().call_tool(request).await;
        let mut records = answer.map_err(AskError::Status)?.into_inner();
        if self.control.is_cancelled() {
            // The registry may have heard of the cancel before it had the call.
            self.cancel().await;
        }
        while let Some(response) = records.message().await.map_err(AskError::Status)? {
            match response.record {
                Some(Record::Event(event)) => {
                    let shown = match self.of_child {
                        true => self.shown_below(&event),
                        false => self.shown(event.kind.as_ref()),
                    };
                    let recorded = self.recorder.submit_child(event).await;
                    recorded.map_err(AskError::Log)?;
                    for kind in shown {
                        let recorded = self.recorder.submit(kind).await;
                        recorded.map_err(AskError::Log)?;
                    }
                }
                Some(Record::Result(result)) => return Ok(result),
                None => {}
            }
        }
        Err(AskError::Status(
            Failure::dependency_unavailable("tool-registry").into_status(),
        ))
    }

    /// Returns what the outputs of the workflow show of what the tool wrote.
    fn shown(&self, kind: Option<&Kind>) -> Vec<Kind> {
        let now = self.recorder.now();
        let are_lines = matches!(kind, Some(Kind::OutputChunk(chunk)) if chunk.json_lines);
        let streams = self.streams.iter();
        match kind.and_then(|kind| self.call.written.take(&self.call.effect_id, kind)) {
            // All that a tool writes is text, also the values that it gives.
            Some(Written::Piece(piece)) => streams
                .filter(|stream| are_lines || !stream.takes_lines())
                .flat_map(|stream| stream.write(&piece, now))
                .collect(),
            Some(Written::Nothing) => streams.flat_map(|stream| stream.begin(now)).collect(),
            None => Vec::new(),
        }
    }

    /// Returns what the outputs of the workflow show of those of the run that carries the call out.
    fn shown_below(&self, event: &RunEvent) -> Vec<Kind> {
        let own = self.recorder.run_id().to_string();
        if event.parent_path.last() != Some(&own) {
            return Vec::new();
        }
        let now = self.recorder.now();
        let of_key = |key: &str| self.streams.iter().find(|stream| **stream.key() == *key);
        match &event.kind {
            Some(Kind::OutputChunk(chunk)) => {
                of_key(&chunk.interface_key).map_or_else(Vec::new, |stream| stream.take(chunk, now))
            }
            Some(Kind::OutputReset(reset)) => of_key(&reset.interface_key)
                .map_or_else(Vec::new, |stream| stream.again(reset.generation, now)),
            _ => Vec::new(),
        }
    }

    async fn cancel(&self) {
        let reason = cancel_words(&self.control);
        cancel_call(&self.peers, &self.call.effect_id, reason).await;
    }

    /// Ends the call without an answer of its tool.
    fn without_tool(&self, ended: common::CallStatus, error: common::CallError) -> ToolEnd {
        ToolEnd::Settled(Box::new(common::CallResult {
            status: ended.into(),
            error: Some(error),
            effect_id: self.call.effect_id.clone(),
            tool_id: self.call.tool_id.clone(),
            durability: durability_to_proto(self.recorder.durability()).into(),
            ..common::CallResult::default()
        }))
    }
}

/// Returns the reason with which a run ends its calls.
pub(super) fn cancel_words(control: &RunControl) -> String {
    match control.why() {
        Some(CancelReason::Requested(reason)) => reason,
        _ => "the deadline of the run passed".to_owned(),
    }
}

/// Asks the registry to end a call; returns whether the call has ended.
pub(super) async fn cancel_call(peers: &Peers, effect_id: &str, reason: String) -> bool {
    let request = CancelCallRequest {
        effect_id: effect_id.to_owned(),
        reason,
    };
    // The run's own deadline may be over, which must not keep the cancel from leaving.
    let context = CallContext::current()
        .without_deadline()
        .with_timeout(CANCEL_GRACE);
    let mut calls = peers.calls.clone();
    match context
        .scope(async move { calls.cancel_call(request).await })
        .await
    {
        Ok(answer) => answer.into_inner().still_running.is_empty(),
        // The call never arrived, or is not there yet.
        Err(status) if grpc_kit::reason(&status) == Some(ErrorReason::CallNotFound) => true,
        Err(status) => {
            tracing::warn!(effect_id, status = %status, "a call could not be cancelled");
            false
        }
    }
}
