//! Starting, following, reading, cancelling and deciding calls.

use std::time::Duration;

use contracts::tavern::{
    common::v1::{ErrorReason, WatchDrain, WatchHeartbeat},
    registry::v1::{
        Call as RegistryCall, CallDecision, CallResolution, CallToolRequest, CallToolResponse,
        CancelCallRequest, CancelCallResponse, GetCallResponse, GetRawResultResponse,
        ReadOutputRequest, ReadOutputResponse, ResolveCallRequest, ResolveCallResponse,
        StartCallRequest, StartCallResponse, WatchCallRequest, WatchCallResponse,
        call_tool_response::Record, watch_call_response::Record as Watch,
    },
};
use core_types::{ConversationId, EffectId};
use futures::{Stream, StreamExt};
use grpc_kit::{CallContext, Drain, Failure};
use run_client::CallProgress;
use run_events::{request_hash, timestamp_to_proto, to_its_end};
use tonic::{Code, Status};

use super::{
    call_resource::{View, entry_to_proto, result_to_proto, started_to_proto, waiting_to_proto},
    refusal::check_request_id,
    tools::arguments,
};
use crate::{
    ledger::LedgerEntry,
    runner::calls::{Call, Calls, Decision, Position, Watched, refusal_of_missing},
};

/// The part of an output that is read if the caller names no limit, in bytes.
const DEFAULT_READ_BYTES: u32 = 64 << 10;
/// The largest part of an output, in bytes.
const MAX_READ_BYTES: u32 = 256 << 10;
/// The longest reason of a decision or a cancel, in characters.
const MAX_REASON_CHARS: usize = 500;
/// The wait of a follower before it retries after a drain, in seconds.
const RETRY_AFTER_SECONDS: i64 = 1;

/// Begins or joins a call and follows it.
pub(super) fn call(
    calls: &Calls,
    context: CallContext,
    request: CallToolRequest,
) -> Result<impl Stream<Item = Result<CallToolResponse, Status>> + Send + use<>, Status> {
    let handle = calls.join(read_call(request, &context)?, context)?;
    Ok(calls.follow(handle).map(|below| {
        let record = match below? {
            CallProgress::Event(event) => Record::Event(*event),
            CallProgress::Result(result) => Record::Result(*result),
        };
        Ok(CallToolResponse {
            record: Some(record),
        })
    }))
}

/// Starts a call without waiting for its end.
pub(super) async fn start(
    calls: &Calls,
    context: CallContext,
    request: StartCallRequest,
) -> Result<StartCallResponse, Status> {
    let asked = CallToolRequest {
        tool_id: request.tool_id,
        arguments_json: request.arguments_json,
        effect_id: request.effect_id,
        conversation_id: request.conversation_id,
        durability: request.durability,
        timeout: request.timeout,
        index: 0,
        needs_confirmation: request.needs_confirmation,
        attempt: request.attempt,
        grant: request.grant,
        package_digest: String::new(),
    };
    let mut call = read_call(asked, &context)?;
    let effect = call.effect_id.take().unwrap_or_else(|| calls.new_effect());
    call.effect_id = Some(effect.clone());
    call.detached = true;
    let started = calls.start(context.clone(), call, &effect).await?;
    let call = match started_to_proto(&started) {
        Some(call) => Some(call),
        None => waiting(calls, &context, &effect).await?,
    };
    Ok(StartCallResponse {
        call,
        replayed: started.replayed,
    })
}

/// Returns a call.
pub(super) async fn get(
    calls: &Calls,
    context: &CallContext,
    effect_id: &str,
) -> Result<GetCallResponse, Status> {
    let effect = effect_of(effect_id)?;
    let call = match entry_to_proto(&calls.find(context, &effect).await?, View::Full) {
        Some(call) => Some(call),
        None => waiting(calls, context, &effect).await?,
    };
    match call {
        Some(call) => Ok(GetCallResponse { call: Some(call) }),
        None => Err(refusal_of_missing(effect_id)),
    }
}

/// Returns a call that the caller can see and that is not in the ledger, because it waits for people.
async fn waiting(
    calls: &Calls,
    context: &CallContext,
    effect: &EffectId,
) -> Result<Option<RegistryCall>, Status> {
    let approval = calls
        .approvals()
        .pending_of(context.tenant(), effect.as_str());
    let approval = approval.await.map_err(|error| grpc_kit::internal(&error))?;
    let approval = approval.filter(|approval| context.sees(&approval.principal));
    Ok(approval.as_ref().map(waiting_to_proto))
}

/// Follows a call by the watch convention.
pub(super) async fn watch(
    calls: &Calls,
    context: CallContext,
    request: WatchCallRequest,
    drain: Drain,
) -> Result<impl Stream<Item = Result<WatchCallResponse, Status>> + Send + use<>, Status> {
    let effect = effect_of(&request.effect_id)?;
    let after = Position {
        sequence: request.after_sequence,
        generation: request.generation,
    };
    let watched = calls.watch(context, effect, after, drain).await?;
    let calls = calls.clone();
    Ok(watched.map(move |watched| {
        let record = match watched? {
            Watched::Event(event) => Some(Watch::Event(*event)),
            Watched::Heartbeat(high_water_sequence) => Some(Watch::Heartbeat(WatchHeartbeat {
                high_water_sequence,
                time: Some(timestamp_to_proto(calls.now())),
            })),
            Watched::Drain(last_sequence) => Some(Watch::Drain(WatchDrain {
                retry_after: Some(prost_types::Duration {
                    seconds: RETRY_AFTER_SECONDS,
                    nanos: 0,
                }),
                last_sequence,
            })),
            Watched::Settled(entry) => {
                entry_to_proto(&entry, View::WithoutOutput).map(Watch::Terminal)
            }
            Watched::Unrecorded(result) => Some(Watch::Terminal(result_to_proto(&result))),
        };
        Ok(WatchCallResponse { record })
    }))
}

/// Returns the result of a call as its tool returned it.
pub(super) async fn raw_result(
    calls: &Calls,
    context: &CallContext,
    effect_id: &str,
) -> Result<GetRawResultResponse, Status> {
    let entry = match find(calls, context, effect_id).await? {
        LedgerEntry::InFlight(entry) => *entry,
        LedgerEntry::Settled(settled) => settled.entry,
        LedgerEntry::Absent => return Err(refusal_of_missing(effect_id)),
    };
    let result = calls.ledger().raw_result(&entry).await?;
    Ok(GetRawResultResponse { result })
}

/// Reads a part of the output of a settled call.
pub(super) async fn read_output(
    calls: &Calls,
    context: &CallContext,
    request: ReadOutputRequest,
) -> Result<ReadOutputResponse, Status> {
    let settled = match find(calls, context, &request.effect_id).await? {
        LedgerEntry::Settled(settled) => settled,
        LedgerEntry::InFlight(_) | LedgerEntry::Absent => {
            let message = "the call has not settled yet; follow it by WatchCall";
            return Err(
                Failure::new(Code::FailedPrecondition, ErrorReason::CallInFlight, message)
                    .metadata("effect_id", request.effect_id)
                    .into_status(),
            );
        }
    };
    let limit = match request.limit {
        0 => DEFAULT_READ_BYTES,
        // A character has up to 4 bytes; less than one would not get ahead.
        limit => limit.clamp(4, MAX_READ_BYTES),
    };
    let offset = request.offset;
    let part = calls
        .ledger()
        .read_output(&settled, offset, limit as usize)
        .await?;
    let Some(part) = part else {
        let problem = format!("{offset} is beyond the end of the output, or inside a character");
        return Err(Failure::invalid_fields()
            .violation("offset", problem)
            .into_status());
    };
    Ok(ReadOutputResponse {
        next_offset: offset + part.text.len() as u64,
        text: part.text,
        total_bytes: part.total_bytes,
    })
}

/// Decides about a call in doubt.
pub(super) async fn resolve(
    calls: &Calls,
    context: &CallContext,
    request: ResolveCallRequest,
) -> Result<ResolveCallResponse, Status> {
    check_request_id(&request.request_id)?;
    let mut failure = Failure::invalid_fields();
    let decision = request.decision();
    if decision != CallDecision::TookEffect && !request.output_json.is_empty() {
        failure.add_violation("output_json", "is given only with TOOK_EFFECT");
    }
    let output = match request.output_json.as_str() {
        "" => "null",
        output => output,
    };
    if let Err(error) = json_schema::parse_json_strict(output) {
        failure.add_violation("output_json", error.to_string());
    }
    failure.refuse_if_any()?;
    let effect = effect_of(&request.effect_id)?;
    let principal = context.principal();
    let decision = Decision {
        body: request_hash(context, &request),
        output_json: output.to_owned(),
        resolution: CallResolution {
            decision: request.decision,
            reason: request.reason.chars().take(MAX_REASON_CHARS).collect(),
            request_id: request.request_id,
            time: Some(timestamp_to_proto(calls.now())),
            principal: match principal.is_local() {
                true => String::new(),
                false => principal.to_string(),
            },
        },
    };
    let (calls, context) = (calls.clone(), context.clone());
    let decided = to_its_end(async move { calls.resolve(&context, &effect, &decision).await });
    let decided = decided.await?;
    Ok(ResolveCallResponse {
        call: entry_to_proto(&decided.entry, View::Full),
        replayed: decided.replayed,
    })
}

/// Cancels a call.
pub(super) async fn cancel(
    calls: &Calls,
    context: &CallContext,
    request: CancelCallRequest,
) -> Result<CancelCallResponse, Status> {
    let effect = effect_of(&request.effect_id)?;
    let reason: String = request.reason.chars().take(MAX_REASON_CHARS).collect();
    let still_running = calls.cancel(context, &effect, &reason).await?;
    let still_running = still_running.ok_or_else(|| refusal_of_missing(&request.effect_id))?;
    Ok(CancelCallResponse { still_running })
}

async fn find(
    calls: &Calls,
    context: &CallContext,
    effect_id: &str,
) -> Result<LedgerEntry, Status> {
    match calls.find(context, &effect_of(effect_id)?).await? {
        LedgerEntry::Absent => Err(refusal_of_missing(effect_id)),
        entry => Ok(entry),
    }
}

fn effect_of(effect_id: &str) -> Result<EffectId, Status> {
    EffectId::new(effect_id).map_err(|error| {
        Failure::invalid_fields()
            .violation("effect_id", error.to_string())
            .into_status()
    })
}

fn read_call(request: CallToolRequest, context: &CallContext) -> Result<Call, Status> {
    let mut failure = Failure::invalid_fields();
    let arguments = arguments(&request.arguments_json, &mut failure);
    let effect_id = optional(&request.effect_id, "effect_id", EffectId::new, &mut failure);
    let conversation = optional(
        &request.conversation_id,
        "conversation_id",
        ConversationId::new,
        &mut failure,
    );
    if let Some(Err(problem)) = conversation
        .as_ref()
        .map(workspace_store::check_conversation)
    {
        failure.add_violation("conversation_id", problem.message.clone());
    }
    let timeout = request
        .timeout
        .and_then(|timeout| Duration::try_from(timeout).ok())
        .filter(|timeout| !timeout.is_zero());
    if request.attempt > 1 && request.effect_id.is_empty() {
        failure.add_violation(
            "attempt",
            "needs an effect_id; a call without one is never repeated",
        );
    }
    if !request.package_digest.is_empty() && context.path().depth() == 0 {
        let problem = "is named by runs only, which began with the package; leave it out";
        failure.add_violation("package_digest", problem);
    }
    failure.refuse_if_any()?;
    Ok(Call {
        tool: request.tool_id,
        arguments: arguments.into(),
        effect_id,
        conversation,
        durability: run_events::durability_from_proto(request.durability),
        timeout,
        index: request.index,
        needs_confirmation: request.needs_confirmation,
        attempt: request.attempt.max(1),
        grant: request.grant,
        profile_id: String::new(),
        package_digest: request.package_digest,
        is_hooked: false,
        detached: false,
        body: None,
        is_first: false,
    })
}

fn optional<T>(
    text: &str,
    field: &str,
    read: impl FnOnce(String) -> Result<T, core_types::IdError>,
    failure: &mut Failure,
) -> Option<T> {
    if text.is_empty() {
        return None;
    }
    read(text.to_owned())
        .map_err(|error| failure.add_violation(field, error.to_string()))
        .ok()
}
