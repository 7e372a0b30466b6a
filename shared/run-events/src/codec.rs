//! Events of the contract as payloads of the log, and small conversions alongside them.

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::{Durability, Timestamp};
use prost::Message;

/// A stored event that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("event {sequence} of the log is not an event of the contract")]
pub struct CodecError {
    /// Its place in the log.
    pub sequence: u64,
    /// The error of the decoder.
    #[source]
    pub source: prost::DecodeError,
}

/// Writes an event as a payload; the log assigns its place.
pub(crate) fn encode(event: &common::RunEvent, time: Timestamp) -> run_log::NewEvent {
    let number = event.kind.as_ref().map_or(0, kind_number);
    run_log::NewEvent::new(time, number, event.encode_to_vec())
}

/// Reads a payload and adds its place in the log.
pub(crate) fn decode(stored: &run_log::Event) -> Result<common::RunEvent, CodecError> {
    let mut event =
        common::RunEvent::decode(stored.payload.clone()).map_err(|source| CodecError {
            sequence: stored.sequence,
            source,
        })?;
    event.sequence = stored.sequence;
    Ok(event)
}

/// Returns the field number of a kind, by which logs can be searched without decoding.
pub fn kind_number(kind: &Kind) -> i32 {
    match kind {
        Kind::RunStarted(_) => 10,
        Kind::IterationStarted(_) => 11,
        Kind::ModelRequested(_) => 12,
        Kind::Thinking(_) => 13,
        Kind::Text(_) => 14,
        Kind::ModelAnswered(_) => 15,
        Kind::Diagnosed(_) => 16,
        Kind::ToolSelected(_) => 17,
        Kind::CallDispatched(_) => 18,
        Kind::OutputChunk(_) => 19,
        Kind::CallSettled(_) => 20,
        Kind::NodeStarted(_) => 21,
        Kind::NodeFinished(_) => 22,
        Kind::Observation(_) => 23,
        Kind::RunFinished(_) => 24,
        Kind::CancelRequested(_) => 25,
        Kind::MessageGiven(_) => 26,
        Kind::RunPaused(_) => 27,
        Kind::RunResumed(_) => 28,
        Kind::RunQueued(_) => 38,
        Kind::RunDequeued(_) => 39,
        Kind::Checkpoint(_) => 40,
        Kind::OutputReset(_) => 29,
        Kind::ProgressReported(_) => 30,
        Kind::NodeRetrying(_) => 32,
        Kind::IterationFinished(_) => 34,
        Kind::NodeWaiting(_) => 35,
        Kind::NodeWoken(_) => 36,
        Kind::SignalReceived(_) => 37,
        Kind::ApprovalRequested(_) => 50,
        Kind::ApprovalEnded(_) => 51,
        Kind::BudgetReached(_) => 52,
        Kind::SteeringAccepted(_) => 53,
        Kind::Steered(_) => 54,
        Kind::BudgetsEdited(_) => 55,
        Kind::EventPublished(_) => 56,
        Kind::EventDropped(_) => 57,
        Kind::EventsTaken(_) => 58,
        Kind::EventsHandled(_) => 59,
        Kind::SceneWorkflowEnded(_) => 60,
        Kind::SceneEnding(_) => 61,
        Kind::SceneWorkflowStarted(_) => 62,
        Kind::ConversationCompacted(_) => 63,
        Kind::CallInDoubt(_) => 64,
        Kind::CallDecided(_) => 65,
        Kind::InstanceSlept(_) => 70,
        Kind::InstanceWoke(_) => 71,
        Kind::UsageReported(_) => 72,
        Kind::TurnForked(_) => 73,
        Kind::ResultTaken(_) => 74,
        Kind::HookApplied(_) => 75,
    }
}

/// Converts a point in time to its wire form.
pub fn timestamp_to_proto(time: Timestamp) -> prost_types::Timestamp {
    let (seconds, nanos) = time.seconds_and_nanos();
    prost_types::Timestamp { seconds, nanos }
}

/// Converts a durability to its wire form.
pub fn durability_to_proto(durability: Durability) -> common::Durability {
    match durability {
        Durability::Memory => common::Durability::Memory,
        Durability::Batched => common::Durability::Batched,
        Durability::Sync => common::Durability::Sync,
    }
}

/// Converts a durability from its wire form; unspecified and unknown values take the default.
pub fn durability_from_proto(durability: i32) -> Durability {
    match common::Durability::try_from(durability) {
        Ok(common::Durability::Memory) => Durability::Memory,
        Ok(common::Durability::Batched) => Durability::Batched,
        _ => Durability::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_number_of_its_field() {
        let cases = [
            Kind::RunStarted(common::RunStarted::default()),
            Kind::IterationStarted(common::IterationStarted::default()),
            Kind::ModelRequested(common::ModelRequested::default()),
            Kind::Thinking(common::ThinkingDelta::default()),
            Kind::Text(common::TextDelta::default()),
            Kind::ModelAnswered(common::ModelAnswered::default()),
            Kind::Diagnosed(common::Diagnosed::default()),
            Kind::ToolSelected(common::ToolSelected::default()),
            Kind::CallDispatched(common::CallDispatched::default()),
            Kind::OutputChunk(common::OutputChunk::default()),
            Kind::CallSettled(common::CallSettled::default()),
            Kind::NodeStarted(common::NodeStarted::default()),
            Kind::NodeFinished(common::NodeFinished::default()),
            Kind::Observation(common::Observation::default()),
            Kind::RunFinished(common::RunFinished::default()),
            Kind::CancelRequested(common::CancelRequested::default()),
            Kind::MessageGiven(common::MessageGiven::default()),
            Kind::RunPaused(common::RunPaused::default()),
            Kind::RunResumed(common::RunResumed::default()),
            Kind::RunQueued(common::RunQueued::default()),
            Kind::RunDequeued(common::RunDequeued::default()),
            Kind::OutputReset(common::OutputReset::default()),
            Kind::ProgressReported(common::ProgressReported::default()),
            Kind::NodeRetrying(common::NodeRetrying::default()),
            Kind::IterationFinished(common::IterationFinished::default()),
            Kind::NodeWaiting(common::NodeWaiting::default()),
            Kind::NodeWoken(common::NodeWoken::default()),
            Kind::SignalReceived(common::SignalReceived::default()),
            Kind::Checkpoint(common::Checkpoint::default()),
            Kind::ApprovalRequested(common::ApprovalRequested::default()),
            Kind::ApprovalEnded(common::ApprovalEnded::default()),
            Kind::CallInDoubt(common::CallInDoubt::default()),
            Kind::CallDecided(common::CallDecided::default()),
            Kind::BudgetReached(common::BudgetReached::default()),
            Kind::SteeringAccepted(common::SteeringAccepted::default()),
            Kind::Steered(common::Steered::default()),
            Kind::BudgetsEdited(common::BudgetsEdited::default()),
        ];
        for kind in cases {
            let number = kind_number(&kind);
            let event = common::RunEvent {
                kind: Some(kind),
                ..common::RunEvent::default()
            };
            let bytes = event.encode_to_vec();
            let (tag, _) = prost::encoding::decode_key(&mut bytes.as_slice()).unwrap();
            assert_eq!(u32::try_from(number), Ok(tag), "{:?}", event.kind);
        }
    }
}
