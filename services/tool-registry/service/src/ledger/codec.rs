//! The stored form of the events of an entry: messages of the contract, as bytes. No other file of
//! the service encodes or decodes stored events.
//!
//! The messages are stored as they are sent: followers of a call read them from its entry, and a result
//! that was recorded is the answer again, field by field.

use contracts::tavern::{
    common::v1::{CallGrant, CallResult, RunEvent, run_event::Kind},
    registry::v1::CallResolution,
};
use core_types::Timestamp;
use prost::Message;
use run_log::{Event, NewEvent};
use tonic::Status;

/// The number of events that hold a decision. It is beyond the kinds of run events.
const RESOLUTION_EVENT: i32 = 100;
/// The number of events that hold a piece of a result as its tool returned it, before its hooks.
const RETURNED_EVENT: i32 = 102;
/// The most bytes of such a piece.
const PIECE_BYTES: usize = 512 << 10;

/// The content of an event about a call.
pub(super) enum Recorded {
    /// It left, at this time, with these arguments.
    Dispatched(Timestamp, String),
    /// A run executes it.
    RunStarted(String),
    /// It ended.
    Settled(Box<CallResult>),
    /// It was in doubt, and this was decided.
    Resolved(CallResolution),
    /// Nothing that an entry needs.
    Other,
}

/// Writes an event of the contract as a payload of the log.
pub fn encode(event: &RunEvent, time: Timestamp) -> NewEvent {
    let number = event.kind.as_ref().map_or(0, run_events::kind_number);
    NewEvent::new(time, number, event.encode_to_vec())
}

/// Writes a decision as a payload of the log.
pub(super) fn encode_resolution(resolution: &CallResolution, time: Timestamp) -> NewEvent {
    NewEvent::new(time, RESOLUTION_EVENT, resolution.encode_to_vec())
}

/// Writes a result before its hooks as payloads of the log.
pub(super) fn encode_returned(result: &CallResult, time: Timestamp) -> Vec<NewEvent> {
    let bytes = result.encode_to_vec();
    let pieces = bytes.chunks(PIECE_BYTES);
    pieces
        .map(|piece| NewEvent::new(time, RETURNED_EVENT, piece.to_vec()))
        .collect()
}

/// Reads a result before its hooks from the events of an entry; none if it is not among them.
pub(super) fn returned_in(events: &[Event]) -> Result<Option<CallResult>, Status> {
    let pieces = events.iter().filter(|event| event.kind == RETURNED_EVENT);
    let bytes: Vec<u8> = pieces.flat_map(|piece| piece.payload.to_vec()).collect();
    match bytes.is_empty() {
        true => Ok(None),
        false => {
            let result = CallResult::decode(&*bytes);
            result.map(Some).map_err(|error| grpc_kit::internal(&error))
        }
    }
}

/// Decodes an event of an entry.
pub(super) fn decode(stored: Event) -> Result<Recorded, Status> {
    let damaged = |error: prost::DecodeError| grpc_kit::internal(&error);
    if stored.kind == RESOLUTION_EVENT {
        let resolution = CallResolution::decode(stored.payload).map_err(damaged)?;
        return Ok(Recorded::Resolved(resolution));
    }
    if stored.kind == RETURNED_EVENT {
        return Ok(Recorded::Other);
    }
    let event = RunEvent::decode(stored.payload).map_err(damaged)?;
    Ok(match event.kind {
        Some(Kind::CallDispatched(call)) => Recorded::Dispatched(stored.time, call.arguments_json),
        Some(Kind::RunStarted(_)) => Recorded::RunStarted(event.run_id),
        Some(Kind::CallSettled(settled)) => match settled.result {
            Some(result) => Recorded::Settled(Box::new(result)),
            None => Recorded::Other,
        },
        _ => Recorded::Other,
    })
}

/// Writes a grant as it is kept: its message in hexadecimal digits.
pub fn grant_to_text(grant: &CallGrant) -> String {
    hex::encode(grant.encode_to_vec())
}

/// Reads a grant that was kept.
pub fn grant_from_text(text: &str) -> Option<CallGrant> {
    CallGrant::decode(&*hex::decode(text).ok()?).ok()
}
