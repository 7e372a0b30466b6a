//! The facts of the end of a call.

use contracts::tavern::common::v1::CallApproval;
use core_types::Timestamp;

use crate::hooks::PointChain;

/// The facts of a call that has ended, beside its outcome.
#[derive(Default)]
pub(super) struct Ending {
    /// Its place among the calls of its text.
    pub(super) index: u32,
    /// The time of its dispatch; none for a call that was not dispatched.
    pub(super) dispatched: Option<Timestamp>,
    /// The parameters that defaults filled in.
    pub(super) defaulted: Vec<String>,
    /// The decision of people.
    pub(super) approval: Option<CallApproval>,
    /// The hook that answered in the tool's place; empty for none.
    pub(super) answered_by: String,
    /// The hooks that may apply to its result; none without any.
    pub(super) after: Option<PointChain>,
    /// Whether its entry may wait for the next batch.
    pub(super) in_batch: bool,
    /// Whether its outcome is in the ledger already, before its hooks.
    pub(super) is_recorded: bool,
}
