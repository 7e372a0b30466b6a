//! The end of a call: its hooks, its result, its entry.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use call_outcome::CallOutcome;
use contracts::tavern::common::v1::CallResult;
use core_types::{Durability, Timestamp};
use grpc_kit::CallContext;
use run_log::RunWriter;
use tonic::Status;

use super::{Call, Inner, ending::Ending, hooked::After};
use crate::{
    dispatch::{ResolvedCall, without_handle},
    in_flight::InFlightCall,
    ledger::{Entry, MAX_INLINE_BYTES},
};

impl Inner {
    /// Ends a call with its outcome: after its hooks, in the ledger where it has an entry.
    pub(super) async fn conclude(
        &self,
        resolved: &ResolvedCall,
        outcome: CallOutcome,
        entry: Option<&RunWriter>,
        ending: Ending,
    ) -> Result<CallResult, Status> {
        let place = (entry, &ending);
        let After { outcome, warnings } = self.after_call(resolved, outcome, place).await?;
        let outcome = kept(resolved, outcome).await;
        let result = CallResult {
            warnings,
            ..self.result(resolved, &outcome, &ending)
        };
        match entry {
            Some(entry) if ending.in_batch => {
                self.record_behind(entry, &result, &resolved.in_flight)
                    .await;
            }
            Some(entry) => self.ledger.settle(entry, &result).await?,
            None => {}
        }
        self.show_end(resolved, &result);
        Ok(result)
    }

    /// Ends a call whose tool returned before a crash: its hooks decide again, and nothing is dispatched.
    pub(super) async fn conclude_returned(
        &self,
        call: &Call,
        (open, returned): (&Entry, &CallResult),
        in_flight: &Arc<InFlightCall>,
        context: CallContext,
    ) -> Result<CallResult, Status> {
        let entry = self.ledger.reopen(open).await?;
        in_flight.has_entry(entry.clone());
        let found = self.find_again(open, context.tenant()).await;
        let Some((tool, terms)) = found else {
            let After { outcome, warnings } =
                self.after_lost_tool(open, returned, &context).await?;
            let settled = CallResult {
                index: call.index,
                warnings,
                ..outcome_of(returned, &outcome)
            };
            self.ledger.settle(&entry, &settled).await?;
            return Ok(settled);
        };
        in_flight.returned_before(returned);
        let arguments = json_schema::parse_json_strict(&open.arguments_json);
        let arguments = arguments.map_err(|error| grpc_kit::internal(&error))?;
        let resolved = self.resolved_again(
            call,
            open,
            (tool, terms, arguments.into()),
            (in_flight, context),
        );
        let ending = Ending {
            index: call.index,
            dispatched: Some(open.dispatched),
            defaulted: returned.defaulted.clone(),
            approval: returned.approval.clone(),
            after: self.hold_back(&resolved).await?,
            is_recorded: true,
            ..Ending::default()
        };
        let outcome = call_wire::outcome_from_proto(returned);
        self.conclude(&resolved, outcome, Some(&entry), ending)
            .await
    }

    /// Ends a call whose callers need not wait until it is recorded. The effect stays in flight until then,
    /// so that a repeat finds this result.
    async fn record_behind(
        &self,
        writer: &RunWriter,
        result: &CallResult,
        in_flight: &InFlightCall,
    ) {
        let recorded = self.ledger.settle_in_batch(writer, result).await;
        in_flight.end(Ok(result.clone()));
        self.recording.fetch_add(1, Ordering::Relaxed);
        let recorded = match recorded {
            Ok(recorded) => recorded.await,
            Err(error) => Err(error),
        };
        self.recording.fetch_sub(1, Ordering::Relaxed);
        if let Err(error) = recorded {
            let effect = result.effect_id.as_str();
            tracing::warn!(%error, effect, "a call that has no effect is not recorded");
        }
    }

    /// Makes the result of a call that ends now.
    pub(super) fn result(
        &self,
        resolved: &ResolvedCall,
        outcome: &CallOutcome,
        ending: &Ending,
    ) -> CallResult {
        let journalled = resolved.effect_id.is_some() && ending.answered_by.is_empty();
        let (child_run_id, used) = {
            let stage = resolved.in_flight.subscribe();
            let stage = stage.borrow();
            (stage.child_run_id.clone(), stage.used_below.clone())
        };
        let (durability, attempt) = match journalled {
            true => (durability_number(resolved.durability), resolved.attempt),
            false => (0, 0),
        };
        let mut result = CallResult {
            index: ending.index,
            effect_id: resolved
                .effect_id
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            tool_id: resolved.tool.id().to_owned(),
            defaulted: ending.defaulted.clone(),
            approval: ending.approval.clone(),
            answered_by: ending.answered_by.clone(),
            durability,
            child_run_id: child_run_id.unwrap_or_default(),
            model_totals: used.model_totals,
            calls_below: used.calls,
            attempt,
            ..timed(outcome, ending.dispatched, self.clock.now())
        };
        result.next_attempt = call_wire::next_attempt(&result);
        result
    }
}

/// Returns a result with another outcome.
fn outcome_of(result: &CallResult, outcome: &CallOutcome) -> CallResult {
    let CallResult {
        status,
        output_json,
        error,
        long_output,
        ..
    } = call_wire::outcome_to_proto(outcome);
    CallResult {
        status,
        output_json,
        error,
        long_output,
        ..result.clone()
    }
}

/// Makes the result of a call that ended now.
pub(super) fn timed(
    outcome: &CallOutcome,
    dispatched: Option<Timestamp>,
    ended: Timestamp,
) -> CallResult {
    let duration = dispatched.map_or(Duration::ZERO, |start| ended.since(start));
    CallResult {
        start_time: dispatched.map(run_events::timestamp_to_proto),
        duration: prost_types::Duration::try_from(duration).ok(),
        ..call_wire::outcome_to_proto(outcome)
    }
}

/// Keeps an output that no event could hold beside the call's entry.
async fn kept(resolved: &ResolvedCall, outcome: CallOutcome) -> CallOutcome {
    let CallOutcome::Succeeded(output) = &outcome else {
        return outcome;
    };
    let text = output.to_string();
    if text.len() <= MAX_INLINE_BYTES {
        return outcome;
    }
    let keeper = resolved.in_flight.output_keeper(resolved.durability);
    let Some(mut keeper) = keeper else {
        return CallOutcome::Failed(without_handle(resolved.tool.id(), text.len()));
    };
    let kept = match keeper.push(&text).await {
        Ok(()) => keeper.finish().await,
        Err(failure) => Err(failure),
    };
    kept.map_or_else(CallOutcome::Failed, CallOutcome::SucceededLong)
}

pub(super) fn durability_number(durability: Durability) -> i32 {
    run_events::durability_to_proto(durability).into()
}
