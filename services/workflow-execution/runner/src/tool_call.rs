//! Calling a tool through the registry, at most once per effect id.
//!
//! The registry's ledger decides the result of a repeated call, so a call whose answer was lost is
//! simply requested again under the same effect id.

use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{self as common, RunEvent, WorkKind};
use contracts::tavern::registry::v1::CallToolRequest;
use run_client::{Below, CallClient, CallEnd, RemoteCall, carry_out};
use run_events::{Recorder, RunControl, durability_to_proto};
use run_log::AppendError;

use super::allowance::{Allowance, with_part};
use super::run_state::RecordedCall;
use super::slot_stream::SlotStream;
use super::tool_text::Written;

/// The prefixes of the ids of tools whose runs use tokens and money.
const AGENT: &str = "agent:";
const WORKFLOW: &str = "workflow:";

/// The parameters of a call.
#[derive(Debug)]
pub(super) struct ToolCall {
    pub(super) calls: CallClient,
    pub(super) recorder: Recorder,
    pub(super) control: RunControl,
    pub(super) conversation_id: String,
    pub(super) call: RecordedCall,
    /// The attempt of the effect, from 1.
    pub(super) attempt: u32,
    /// The time limit; none for the tool's own.
    pub(super) timeout: Option<Duration>,
    /// The streaming outputs of the node.
    pub(super) streams: Vec<SlotStream>,
    /// The package of the plugin that brings the node's type; empty for a type of the engine.
    pub(super) package_digest: String,
    /// Whether the outputs are the outputs of the workflow that the call runs, instead of its
    /// tool's text.
    pub(super) of_child: bool,
    /// The grant and the usage of the run.
    pub(super) allowance: Arc<Allowance>,
}

impl ToolCall {
    /// Carries out the call with the remaining grant of the run. A cancel of the run ends it in the
    /// registry too.
    pub(super) async fn execute(self) -> Result<CallEnd, AppendError> {
        let effect_id = self.call.effect_id.clone();
        let _tracked = self.control.track(WorkKind::Call, effect_id);
        let uses = |kind: &&str| self.call.tool_id.starts_with(*kind);
        let shares = [AGENT, WORKFLOW].iter().any(uses);
        // A run that is cancelled meanwhile needs no share any more.
        let _remainder = match shares {
            true => tokio::select! {
                remainder = self.allowance.remainder() => remainder,
                () = self.control.cancelled() => None,
            },
            false => None,
        };
        let grant = match self.allowance.left() {
            Ok(grant) => grant.map(|grant| match self.is_part() {
                true => with_part(grant, &self.call.tool_id),
                false => grant,
            }),
            Err(failure) => return Ok(self.skipped(call_wire::failure_to_proto(&failure))),
        };
        let call = RemoteCall {
            calls: self.calls.clone(),
            request: self.request(grant),
            // Attempts of a node are counted and delayed by its engine.
            retries: 0,
            left_before: self.call.left_before,
            starts_only: false,
        };
        let end = carry_out(&call, &self, &self.control).await?;
        if let CallEnd::Settled(result) = &end {
            self.allowance.settled(&self.call.arguments_json, result);
        }
        Ok(end)
    }

    /// Whether the call is a part of the workflow, which its author chose, as a workflow below or a node of a plugin.
    fn is_part(&self) -> bool {
        self.of_child || !self.package_digest.is_empty()
    }

    fn request(&self, grant: Option<common::CallGrant>) -> CallToolRequest {
        CallToolRequest {
            tool_id: self.call.tool_id.clone(),
            arguments_json: self.call.arguments_json.clone(),
            effect_id: self.call.effect_id.clone(),
            conversation_id: self.conversation_id.clone(),
            durability: durability_to_proto(self.recorder.durability()).into(),
            attempt: self.attempt,
            grant,
            timeout: self.timeout.and_then(|timeout| timeout.try_into().ok()),
            package_digest: self.package_digest.clone(),
            ..CallToolRequest::default()
        }
    }

    /// Ends a call for which the run's grant is used up.
    fn skipped(&self, error: common::CallError) -> CallEnd {
        CallEnd::Settled(Box::new(common::CallResult {
            status: common::CallStatus::Skipped.into(),
            error: Some(error),
            effect_id: self.call.effect_id.clone(),
            tool_id: self.call.tool_id.clone(),
            durability: durability_to_proto(self.recorder.durability()).into(),
            ..common::CallResult::default()
        }))
    }

    /// Returns the events of the workflow's outputs for an event of the tool's text.
    fn shown(&self, kind: Option<&Kind>) -> Vec<Kind> {
        let now = self.recorder.now();
        // The handler of a plugin's node writes the values of its stream as lines of text.
        let are_lines = !self.package_digest.is_empty()
            || matches!(kind, Some(Kind::OutputChunk(chunk)) if chunk.json_lines);
        let streams = self.streams.iter();
        match kind.and_then(|kind| self.call.written.take(&self.call.effect_id, kind)) {
            // The output of a tool is text, even if it is values.
            Some(Written::Piece(piece)) => streams
                .filter(|stream| are_lines || !stream.takes_lines())
                .flat_map(|stream| stream.write(&piece, now))
                .collect(),
            Some(Written::Nothing) => streams.flat_map(|stream| stream.begin(now)).collect(),
            None => Vec::new(),
        }
    }

    /// Returns the events of the workflow's outputs for an event of the run that carries out the
    /// call.
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
}

impl Below for ToolCall {
    /// Records an event and its events in the outputs of the workflow.
    async fn record(&self, event: RunEvent) -> Result<(), AppendError> {
        let shown = match self.of_child {
            true => self.shown_below(&event),
            false => self.shown(event.kind.as_ref()),
        };
        self.recorder.submit_child(event).await?;
        for kind in shown {
            self.recorder.submit(kind).await?;
        }
        Ok(())
    }
}
