//! The calls of an answer: dispatched, awaited, several in flight if their tools allow it.

mod asker;
mod caller;
mod in_flight;
mod reduce;

use std::time::Duration;

use agent_domain::{
    observation,
    turn::{CallState, Progress, ReadCall},
};
use contracts::tavern::common::v1::{self as common, WorkKind, run_event::Kind};
use core_types::{EffectId, RunId};
use grpc_kit::{Backoff, FailureClass};
use run_events::{CancelReason, outcome};
use tracing::Instrument;
use turn_log::{journal, state::TurnState};

use super::{Driver, stop::TurnStop};
use crate::runner::inventory::{self, Inventory, InventoryError};

pub(super) use asker::Asker;
pub(super) use caller::TurnCaller;
pub(super) use in_flight::{CallsInFlight, EndedCall};
pub(super) use reduce::HelperParts;

impl Driver {
    /// Requests the agent's tools of the registry until it answers or the turn shall end.
    pub(super) async fn fetch_inventory(&mut self) -> Result<Inventory, TurnStop> {
        if self.plan.inventory.is_empty() {
            return Ok(Inventory::default());
        }
        let tools = self.shared.peers.tools(&self.control.call_context());
        let mut backoff = Backoff::default();
        loop {
            let fetched = tokio::select! {
                biased;
                () = self.control.cancelled() => return Err(self.stopped()),
                fetched = inventory::fetch(tools.clone(), &self.plan) => fetched,
            };
            let status = match fetched {
                Ok(inventory) => return Ok(inventory),
                Err(InventoryError::Unusable(error)) => {
                    return Err(TurnStop::Failed(Box::new(error)));
                }
                Err(InventoryError::Registry(status)) => status,
            };
            if FailureClass::of(&status) != FailureClass::Transient {
                let message = format!(
                    "tool-registry does not list the agent's tools: {}",
                    status.message()
                );
                let error = outcome::error(
                    common::ErrorCategory::Dependency,
                    "registry_failed",
                    message,
                );
                return Err(TurnStop::Failed(Box::new(error)));
            }
            self.wait(backoff.after(&status)).await?;
        }
    }

    /// Dispatches a call once the log has its dispatch; returns false if the turn is paused (rule
    /// G811).
    pub(super) async fn dispatch(&mut self, call: ReadCall) -> Result<bool, TurnStop> {
        let control = self.control.clone();
        let Some(_not_paused) = control.admit_start().await else {
            return Ok(false);
        };
        let run = self.log.recorder().run_id();
        let effect_id = effect_of(self.log.state(), &run, call.index);
        self.log.note(Kind::CallDispatched(common::CallDispatched {
            effect_id: effect_id.clone(),
            tool_id: call.tool_id.clone(),
            arguments_json: call.arguments_json.clone(),
            index: call.index,
            node_id: String::new(),
        }))?;
        // From this point a crash leaves a call that is known to be unsettled.
        self.log.commit().await?;
        self.begin_call(call, effect_id, false);
        Ok(true)
    }

    /// Waits until one of the dispatched calls has ended, and notes its end and the model's
    /// observation of it.
    pub(super) async fn await_one(&mut self, left: &[u32]) -> Result<(), TurnStop> {
        // Followers receive the events so far while the rest continues.
        self.log.commit().await?;
        for (call, effect_id) in self.dispatched(left) {
            if !self.in_flight.contains(&effect_id) {
                self.begin_call(call, effect_id, true);
            }
        }
        let ended = tokio::select! {
            biased;
            ended = self.in_flight.next() => ended,
            directive = self.inbox.next() => {
                // A message of a person waits for the end of the calls.
                self.obey(directive).await?;
                return Ok(());
            }
        };
        match ended {
            Some(ended) => match self.note_end(ended)? {
                (index, Some(text)) => self.log.note(journal::observation(Some(index), text)),
                (_, None) => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Notes the end of a call. Returns its place and the model's observation of it.
    pub(super) fn note_end(&mut self, ended: EndedCall) -> Result<(u32, Option<String>), TurnStop> {
        let mut result = ended.ended?;
        result.index = ended.index;
        result.effect_id = ended.effect_id;
        if result.tool_id.is_empty() {
            result.tool_id = ended.tool_id;
        }
        let mut observed = match ended.observed.is_empty() {
            true => words(&result),
            false => Some(ended.observed),
        };
        if let Some(reduced) = ended.reduced {
            if let Some(used) = reduced.used {
                self.log.note(Kind::UsageReported(used))?;
            }
            let text = reduced.text.map(|text| reduce::words(&result, &text));
            observed = text.or(observed);
        }
        self.log.note(Kind::CallSettled(common::CallSettled {
            result: Some(result),
        }))?;
        Ok((ended.index, observed))
    }

    /// Ends the calls of a lost answer that were dispatched before this process began.
    pub(super) async fn give_up(&mut self, left: &[u32]) -> Result<(), TurnStop> {
        let reason = "the answer that held the call was lost before it was complete";
        for (call, effect_id) in self.dispatched(left) {
            let (calls, context) = (&self.shared.peers.calls, self.control.call_context());
            calls.cancel(&effect_id, reason, &context).await;
            let error = outcome::error(common::ErrorCategory::Cancelled, "answer_lost", reason);
            let result = common::CallResult {
                index: call.index,
                tool_id: call.tool_id,
                effect_id,
                status: common::CallStatus::Cancelled.into(),
                error: Some(error),
                ..common::CallResult::default()
            };
            self.log.note(Kind::CallSettled(common::CallSettled {
                result: Some(result),
            }))?;
        }
        Ok(())
    }

    /// Ends every call in flight when the turn ends, and notes the results.
    pub(super) async fn end_calls_in_flight(&mut self) -> Result<(), TurnStop> {
        self.in_flight.part.end();
        while let Some(ended) = self.in_flight.next().await {
            match self.note_end(ended) {
                // An unknown result is listed as unsettled in the turn's outcome.
                Ok(_) | Err(TurnStop::Cancelled(_)) => {}
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }

    /// Ends the calls of an answer that is dropped while it is written, and notes the results.
    pub(super) async fn drop_calls_in_flight(&mut self) -> Result<(), TurnStop> {
        let ended = self.end_calls_in_flight().await;
        self.in_flight.part = self.control.child();
        ended
    }

    /// Requests the registry to end the calls that a cancelled turn dispatched before a crash.
    pub(super) async fn cancel_calls(&mut self) {
        let (calls, context) = (&self.shared.peers.calls, self.control.call_context());
        let reason = "the turn was cancelled";
        calls
            .cancel_all(self.turn().unsettled(), reason, &context)
            .await;
    }

    fn begin_call(&mut self, call: ReadCall, effect_id: String, left_before: bool) {
        let (caller, control) = (self.caller(), self.control.clone());
        let taken = self.log.state().result_taken(call.index).cloned();
        let (grant, reducer) = match taken {
            None => (self.grant(), self.reducer(&call)),
            Some(_) => (common::CallGrant::default(), None),
        };
        let tool_id = self.plan.tool_id(&call.tool_id).into_owned();
        let in_flight = effect_id.clone();
        let call = async move {
            let _tracked = control.track(WorkKind::Call, &effect_id);
            let (ended, observed) = match taken {
                // No call is repeated (rule G1003).
                Some(taken) => (Ok(taken.result.unwrap_or_default()), taken.observation),
                None => {
                    let ended = caller.execute(&call, tool_id, &effect_id, left_before, grant);
                    (ended.await, String::new())
                }
            };
            let reduced = match (&ended, reducer) {
                (Ok(result), Some(reducer)) => {
                    let mut result = result.clone();
                    result.effect_id.clone_from(&effect_id);
                    reducer.reduce(&call, &result).await
                }
                _ => None,
            };
            EndedCall {
                observed,
                reduced,
                index: call.index,
                tool_id: call.tool_id,
                effect_id,
                ended,
            }
        };
        // A request to a model may be in flight as well, and did not make the call.
        let call = call.instrument(self.span.clone());
        self.in_flight.add(in_flight, Box::pin(call));
    }

    fn dispatched(&self, left: &[u32]) -> Vec<(ReadCall, String)> {
        let known = self.turn().calls().iter();
        let wanted = known.filter(|progress| left.contains(&progress.call.index));
        wanted
            .filter_map(|Progress { call, state }| match state {
                CallState::Dispatched { effect_id } => Some((call.clone(), effect_id.clone())),
                _ => None,
            })
            .collect()
    }

    async fn wait(&mut self, delay: Duration) -> Result<(), TurnStop> {
        tokio::select! {
            biased;
            () = self.control.cancelled() => Err(self.stopped()),
            () = tokio::time::sleep(delay) => Ok(()),
        }
    }

    pub(super) fn stopped(&self) -> TurnStop {
        TurnStop::Cancelled(self.control.why().unwrap_or(CancelReason::Deadline))
    }
}

/// Returns the effect of a call of the present answer: the original turn's effect, if a fork takes
/// over its result.
pub(in crate::runner) fn effect_of(state: &TurnState, run: &RunId, index: u32) -> String {
    let taken = state.result_taken(index);
    if let Some(result) = taken.and_then(|taken| taken.result.as_ref()) {
        return result.effect_id.clone();
    }
    let place = usize::try_from(index).unwrap_or(usize::MAX);
    EffectId::derive(run, &state.turn().step(), place).to_string()
}

/// Words the model's observation of a call that has ended; none if its end is not known.
pub(in crate::runner) fn words(result: &common::CallResult) -> Option<String> {
    match result.status() {
        common::CallStatus::InDoubt | common::CallStatus::Unspecified => None,
        _ => {
            let mut text = call_wire::observation(result);
            if call_wire::gives_handle(result) {
                text.push_str(observation::READ_ON);
            }
            Some(text)
        }
    }
}
