//! The phases of an open run, as the log stores them.

use contracts::tavern::common::v1::{RunState, WaitReason};

/// The phase of a run that continues.
pub(crate) const RUNNING: i32 = 0;

/// The phase of a run that is paused.
pub(crate) const PAUSED: i32 = 1;

/// The phase of a run of which only waits are in progress.
pub(crate) const WAITING: i32 = 2;

/// The phase of a run that waits for its turn.
pub(crate) const QUEUED: i32 = 3;

/// The phase of a run that rests and waits for a person.
pub(crate) const ASKING: i32 = 4;

/// The phase of a run of which only calls that wait for people are in flight, one of them in doubt.
pub(crate) const IN_DOUBT: i32 = 5;

/// The phase of a run of which only calls that wait for their approvals are in flight.
pub(crate) const APPROVAL: i32 = 6;

/// The phases in which a run is WAITING.
pub(crate) const ALL_WAITING: &[i32] = &[WAITING, ASKING, IN_DOUBT, APPROVAL];

/// Returns the state of an open run in a phase.
pub(crate) fn state_in(phase: i32) -> RunState {
    match phase {
        PAUSED => RunState::Paused,
        QUEUED => RunState::Queued,
        phase if ALL_WAITING.contains(&phase) => RunState::Waiting,
        _ => RunState::Running,
    }
}

/// Returns the reason for which an open run in a phase is WAITING.
pub(crate) fn wait_reason_in(phase: i32) -> WaitReason {
    match phase {
        WAITING | ASKING => WaitReason::Nodes,
        IN_DOUBT => WaitReason::InDoubt,
        APPROVAL => WaitReason::Approval,
        _ => WaitReason::Unspecified,
    }
}
