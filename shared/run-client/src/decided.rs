//! Calls of an ended run whose ends are in the ledger and not in its log.

use std::collections::BTreeMap;

use contracts::tavern::common::v1::{
    CallResult, CallSettled, CallStatus, RunEvent, run_event::Kind,
};
use grpc_kit::CallContext;
use tonic::Status;

use crate::CallClient;

/// Settles calls without an end in the events of a run, as the ledger knows them by now: each was
/// decided, or ended after the run had. Calls that the ledger does not know either are unchanged.
///
/// # Errors
/// A status when the registry does not answer.
pub async fn settle_decided(
    run_id: &str,
    events: &mut Vec<RunEvent>,
    calls: &CallClient,
    context: &CallContext,
) -> Result<(), Status> {
    for (effect_id, index) in unknown(run_id, events) {
        let Some(call) = calls.find(&effect_id, context).await? else {
            continue;
        };
        let known = call
            .result
            .filter(|result| result.status() != CallStatus::InDoubt);
        if let Some(result) = known {
            settle(run_id, events, CallResult { index, ..result });
        }
    }
    Ok(())
}

/// Returns the effects of dispatched calls without an end in the events, with their indexes.
fn unknown(run_id: &str, events: &[RunEvent]) -> BTreeMap<String, u32> {
    let mut unknown = BTreeMap::new();
    for event in events.iter().filter(|event| event.run_id == run_id) {
        match &event.kind {
            Some(Kind::CallDispatched(call)) => {
                unknown.insert(call.effect_id.clone(), call.index);
            }
            Some(Kind::CallSettled(CallSettled {
                result: Some(result),
            })) if result.status() != CallStatus::InDoubt => {
                unknown.remove(&result.effect_id);
            }
            _ => {}
        }
    }
    unknown
}

/// Puts the result in place of the result in doubt, or right before the end of the run.
fn settle(run_id: &str, events: &mut Vec<RunEvent>, result: CallResult) {
    let of_call = events.iter_mut().find_map(|event| match &mut event.kind {
        Some(Kind::CallSettled(CallSettled {
            result: Some(settled),
        })) if settled.effect_id == result.effect_id => Some(settled),
        _ => None,
    });
    if let Some(settled) = of_call {
        *settled = result;
        return;
    }
    let is_end = |event: &RunEvent| {
        event.run_id == run_id && matches!(event.kind, Some(Kind::RunFinished(_)))
    };
    let end = events.iter().position(is_end).unwrap_or(events.len());
    let settled = RunEvent {
        run_id: run_id.to_owned(),
        kind: Some(Kind::CallSettled(CallSettled {
            result: Some(result),
        })),
        ..RunEvent::default()
    };
    events.insert(end, settled);
}
