//! Calling the tools of a list (rule W34): in order, parallel-safe neighbours together; after a
//! failure the rest is not started, unless the failed call allows it.
//!
//! Each call is recorded before it is sent and when it has ended, so after a crash the list
//! continues from there.

use std::sync::Arc;

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{self as common, CallStatus};
use core_types::Durability;
use futures::StreamExt;
use futures::stream;
use run_client::CallEnd;
use run_log::AppendError;

use super::Runner;
use super::tool_call::ToolCall;

/// The most calls of a list in flight.
const MAX_TOGETHER: usize = 8;

/// One call of a list.
#[derive(Debug)]
pub(super) struct BatchCall {
    pub(super) call: ToolCall,
    /// Whether its dispatch was recorded.
    pub(super) dispatched: bool,
    pub(super) parallel_safe: bool,
    pub(super) continue_on_error: bool,
}

/// The end of a list.
#[derive(Debug, Default)]
pub struct BatchEnd {
    /// The calls that ended, from the first. Later calls were not started.
    pub(super) results: Vec<common::CallResult>,
    /// The ids of calls that had not ended when the run was cancelled.
    pub(super) unended: Vec<String>,
}

/// A list of calls of one node.
#[derive(Debug)]
pub(super) struct ToolBatch {
    pub(super) node_id: String,
    pub(super) calls: Vec<BatchCall>,
    pub(super) runner: Arc<Runner>,
}

impl ToolBatch {
    /// Carries the calls out. A cancel of the run ends the calls in flight.
    ///
    /// # Errors
    /// The run's log rejects events, so the run cannot continue now.
    pub(super) async fn execute(self) -> Result<BatchEnd, AppendError> {
        let mut end = BatchEnd::default();
        let mut calls = self.calls.into_iter().enumerate().peekable();
        while let Some(first) = calls.next() {
            let mut group = vec![first];
            while group[0].1.parallel_safe {
                match calls.next_if(|(_, next)| next.parallel_safe) {
                    Some(next) => group.push(next),
                    None => break,
                }
            }
            if !dispatch(&self.runner, &self.node_id, &group).await? {
                return Ok(end);
            }
            let work = group.into_iter().map(|(_, call)| settle(call));
            let mut ends = stream::iter(work).buffered(MAX_TOGETHER);
            let mut stopped = false;
            while let Some((effect_id, continues, ended)) = ends.next().await {
                match ended? {
                    CallEnd::NotEnded => end.unended.push(effect_id),
                    CallEnd::Settled(result) => {
                        stopped |= match result.status() {
                            CallStatus::Succeeded => false,
                            CallStatus::InDoubt => true,
                            _ => !continues,
                        };
                        end.results.push(*result);
                    }
                }
            }
            if stopped || !end.unended.is_empty() {
                break;
            }
        }
        Ok(end)
    }
}

/// Records the dispatch of calls, unless it was recorded before. Waits while the run is paused;
/// returns whether the calls may be sent.
async fn dispatch(
    runner: &Runner,
    node_id: &str,
    group: &[(usize, BatchCall)],
) -> Result<bool, AppendError> {
    let Some((_, BatchCall { call, .. })) = group.first() else {
        return Ok(true);
    };
    let new = group.iter().filter(|(_, call)| !call.dispatched);
    let kinds: Vec<Kind> = new
        .map(|(index, call)| dispatched(node_id, *index, &call.call))
        .collect();
    if kinds.is_empty() {
        return Ok(true);
    }
    let may_lose = may_lose(runner, group).await;
    loop {
        if call.control.is_cancelled() {
            return Ok(false);
        }
        if let Some(_not_paused) = call.control.admit_start().await {
            match may_lose {
                true => call.recorder.record_in_batch(kinds).await?,
                false => call.recorder.record(kinds).await?,
            };
            return Ok(true);
        }
        tokio::select! {
            () = call.control.until_resumed() => {}
            () = call.control.cancelled() => {}
        }
    }
}

/// Whether a run that loses the intents of these calls may repeat them (rule W44).
async fn may_lose(runner: &Runner, group: &[(usize, BatchCall)]) -> bool {
    let batched = |call: &ToolCall| call.recorder.durability() == Durability::Batched;
    let tools = group.iter().map(|(_, call)| call.call.call.tool_id.clone());
    let tools: Vec<String> = tools.collect();
    let Some((_, first)) = group.first() else {
        return true;
    };
    let peers = runner.peers(&first.call.control.call_context());
    group.iter().all(|(_, call)| batched(&call.call)) && runner.may_repeat(&peers, &tools).await
}

fn dispatched(node_id: &str, index: usize, call: &ToolCall) -> Kind {
    Kind::CallDispatched(common::CallDispatched {
        effect_id: call.call.effect_id.clone(),
        tool_id: call.call.tool_id.clone(),
        arguments_json: call.call.arguments_json.clone(),
        index: u32::try_from(index).unwrap_or(u32::MAX),
        node_id: node_id.to_owned(),
    })
}

/// Carries out a call and records its end, unless that was recorded before. Returns its effect id
/// and whether the next call runs even if it failed.
async fn settle(listed: BatchCall) -> (String, bool, Result<CallEnd, AppendError>) {
    let (call, continues) = (listed.call, listed.continue_on_error);
    let effect_id = call.call.effect_id.clone();
    if let Some(result) = call.call.settled.clone() {
        return (effect_id, continues, Ok(CallEnd::Settled(Box::new(result))));
    }
    let recorder = call.recorder.clone();
    let mut ended = call.execute().await;
    if let Ok(CallEnd::Settled(result)) = &ended {
        let kind = super::settle::call_settled(result);
        if let Err(error) = recorder.submit(kind).await {
            ended = Err(error);
        }
    }
    (effect_id, continues, ended)
}
