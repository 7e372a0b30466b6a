//! The opening and the times of a log, and the errors of a replay.

use agent_domain::{
    plan::{Opening, Plan},
    turn::Divergence,
};
use contracts::tavern::common::v1 as common;
use core_types::Timestamp;

/// A log that cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The log is empty or begins with another event.
    #[error("the run has no beginning")]
    NoBeginning,
    /// The plan or the opening cannot be read.
    #[error("what was stored beside the run is not the plan of a turn")]
    Plan(#[source] serde_json::Error),
    /// An event does not follow from the events before it.
    #[error("event {sequence} does not fit")]
    Diverged {
        /// Its place in the log.
        sequence: u64,
        /// The cause.
        source: Divergence,
    },
}

/// Reads the opening of a turn.
pub fn opening(plan: &Plan, started: &common::RunStarted) -> Result<Opening, serde_json::Error> {
    let input = &started.input_json;
    Ok(match started.input_is_model_text {
        true => Opening::ModelText {
            text: serde_json::from_str(input)?,
            go_on: plan.go_on,
        },
        false if input.starts_with('[') => Opening::Events(serde_json::from_str(input)?),
        false => Opening::UserMessage(serde_json::from_str(input)?),
    })
}

/// Returns the time of an event.
pub fn time_of(event: &common::RunEvent) -> Timestamp {
    let time = event.time.as_ref().and_then(timestamp);
    time.unwrap_or_default()
}

/// Reads a point in time; none if it is outside of the range.
pub(crate) fn timestamp(time: &prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::from_seconds_and_nanos(time.seconds, time.nanos)
}
