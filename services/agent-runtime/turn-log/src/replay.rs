//! Replays the log of a turn.

use agent_domain::{
    message::TurnMessage,
    plan::{Opening, Plan},
    turn::{Divergence, Turn},
};
use contracts::tavern::common::v1::{self as common, run_event::Kind};
use core_types::Timestamp;
use run_events::{DamagedLog, RunMeta};

use crate::journal;

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

/// Reads the plan of a turn from the data stored with its run.
///
/// # Errors
/// [`DamagedLog::Meta`] if it is not the plan of a turn.
pub fn plan_of(meta: RunMeta) -> Result<Plan, DamagedLog> {
    serde_json::from_value(meta.data).map_err(DamagedLog::Meta)
}

/// The state after a turn's own events.
pub struct Folded {
    /// The turn.
    pub turn: Turn,
    /// The messages from before it.
    pub given: Vec<TurnMessage>,
    /// The opening.
    pub opening: Opening,
}

/// Replays a turn's own events. With `native`, native calls and their results keep that form in its
/// messages; otherwise they are text.
///
/// # Errors
/// [`ReplayError`] for a log that this machine did not write.
pub fn fold<'a>(
    plan: &Plan,
    native: bool,
    mut own: impl Iterator<Item = &'a common::RunEvent>,
) -> Result<Folded, ReplayError> {
    let first = own.next().ok_or(ReplayError::NoBeginning)?;
    let Some(Kind::RunStarted(started)) = &first.kind else {
        return Err(ReplayError::NoBeginning);
    };
    let opening = opening(plan, started).map_err(ReplayError::Plan)?;
    let mut turn = Turn::new(plan.budgets, &opening, time_of(first)).with_native_calls(native);
    let mut given = Vec::new();
    for event in own {
        let kind = event.kind.as_ref();
        if let Some(message) = kind.and_then(journal::given_message) {
            given.push(message.at(time_of(event)));
        }
        let Some(happened) = kind.and_then(journal::read) else {
            continue;
        };
        turn.apply(happened, time_of(event))
            .map_err(|source| ReplayError::Diverged {
                sequence: event.sequence,
                source,
            })?;
    }
    Ok(Folded {
        turn,
        given,
        opening,
    })
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
    let Some(time) = &event.time else {
        return Timestamp::default();
    };
    let nanos = time
        .seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(i64::from(time.nanos));
    Timestamp::from_unix_nanos(nanos)
}
