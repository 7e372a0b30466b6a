//! The phases of an open run, as the log stores them.

use contracts::tavern::common::v1::RunState;

/// The phase of a run that continues.
pub(crate) const RUNNING: i32 = 0;

/// The phase of a run that is paused.
pub(crate) const PAUSED: i32 = 1;

/// The phase of a run of which nothing is under way but waits.
pub(crate) const WAITING: i32 = 2;

/// The phase of a run that waits for its turn.
pub(crate) const QUEUED: i32 = 3;

/// The phase of a run that rests and waits for a person.
pub(crate) const ASKING: i32 = 4;

/// Returns the state of an open run in a phase.
pub(crate) fn state_in(phase: i32) -> RunState {
    match phase {
        PAUSED => RunState::Paused,
        WAITING | ASKING => RunState::Waiting,
        QUEUED => RunState::Queued,
        _ => RunState::Running,
    }
}
