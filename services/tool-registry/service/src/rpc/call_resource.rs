//! Calls as resources of the contract.

use contracts::tavern::{
    common::v1::{CallResult, CallStatus},
    registry::v1::{Call, CallState},
};
use run_events::{durability_to_proto, timestamp_to_proto};
use tool_domain::approval::Approval;

use crate::{
    ledger::{Entry, LedgerEntry},
    runner::calls::StartedCall,
};

/// The extent to which a call is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Everything.
    Full,
    /// Everything but the output.
    WithoutOutput,
    /// Neither arguments nor output.
    Brief,
}

/// Converts the ledger's entry of a call; returns `None` if it is absent.
pub(super) fn entry_to_proto(entry: &LedgerEntry, view: View) -> Option<Call> {
    match entry {
        LedgerEntry::Absent => None,
        LedgerEntry::InFlight(entry) => Some(dispatched_to_proto(entry, view)),
        LedgerEntry::Settled(settled) => Some(Call {
            resolution: settled.resolution.clone(),
            ..with_result(
                dispatched_to_proto(&settled.entry, view),
                &settled.result,
                view,
            )
        }),
    }
}

/// Converts a call that waits for people.
pub(super) fn waiting_to_proto(approval: &Approval) -> Call {
    Call {
        effect_id: approval.effect_id.clone(),
        tool_id: approval.tool_id.clone(),
        state: CallState::Waiting.into(),
        arguments_json: approval.arguments.clone(),
        conversation_id: approval.conversation_id.clone(),
        run_id: approval.run_id.clone(),
        principal: approval.principal.to_string(),
        ..Call::default()
    }
}

/// Converts a call that was started, whether it is in the ledger or not.
pub(super) fn started_to_proto(started: &StartedCall) -> Option<Call> {
    let unrecorded = || started.result.as_ref().map(result_to_proto);
    entry_to_proto(&started.entry, View::Full).or_else(unrecorded)
}

/// Converts a call of which nothing but its result is known.
pub(super) fn result_to_proto(result: &CallResult) -> Call {
    let call = Call {
        effect_id: result.effect_id.clone(),
        tool_id: result.tool_id.clone(),
        attempt: result.attempt,
        dispatch_time: result.start_time,
        durability: result.durability,
        child_run_id: result.child_run_id.clone(),
        ..Call::default()
    };
    with_result(call, result, View::Full)
}

fn dispatched_to_proto(entry: &Entry, view: View) -> Call {
    let record = &entry.record;
    Call {
        effect_id: entry.effect_id().to_owned(),
        tool_id: record.tool_id.clone(),
        state: CallState::Running.into(),
        arguments_json: match view {
            View::Brief => String::new(),
            View::Full | View::WithoutOutput => entry.arguments_json.clone(),
        },
        conversation_id: record.conversation_id.clone(),
        run_id: record.run_id.clone(),
        principal: record.principal.to_string(),
        attempt: record.attempt,
        dispatch_time: Some(timestamp_to_proto(entry.dispatched)),
        durability: durability_to_proto(entry.durability()).into(),
        child_run_id: entry.child_run_id.clone().unwrap_or_default(),
        ..Call::default()
    }
}

fn with_result(call: Call, result: &CallResult, view: View) -> Call {
    let mut result = result.clone();
    let output_bytes = call_wire::output_bytes(&result);
    if view != View::Full {
        result.output_json = String::new();
        if let Some(long) = &mut result.long_output {
            long.head = String::new();
        }
    }
    Call {
        state: state_of(result.status()).into(),
        output_bytes,
        result: Some(result),
        ..call
    }
}

fn state_of(status: CallStatus) -> CallState {
    match status {
        CallStatus::Succeeded => CallState::Succeeded,
        CallStatus::Failed => CallState::Failed,
        CallStatus::Rejected | CallStatus::Skipped => CallState::Rejected,
        CallStatus::Cancelled => CallState::Cancelled,
        CallStatus::InDoubt => CallState::InDoubt,
        CallStatus::Unspecified => CallState::Unspecified,
    }
}
