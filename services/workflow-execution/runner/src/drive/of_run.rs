//! The part that the loops of a run share: the loop of the run itself and the loops of its iterations.

use std::sync::Arc;

use core_types::Tenant;
use run_events::{Recorder, Waits};

use super::super::activity::Activity;
use super::super::allowance::Allowance;
use super::super::checkpoints::Checkpoints;
use super::super::{RunPlace, Runner};

/// The run of a loop.
#[derive(Clone)]
pub(super) struct OfRun {
    pub(super) runner: Arc<Runner>,
    pub(super) recorder: Recorder,
    pub(super) waits: Waits,
    /// The loops with work in progress apart from waits.
    pub(super) activity: Activity,
    /// The questions that no backend has taken yet, with which the run stays in memory.
    pub(super) asking: Activity,
    pub(super) place: Arc<RunPlace>,
    pub(super) checkpoints: Checkpoints,
    pub(super) allowance: Arc<Allowance>,
    /// The conversation whose workspace tools use.
    pub(super) conversation_id: String,
    /// The id of the workflow; empty for a definition that is not stored.
    pub(super) workflow_id: String,
}

impl OfRun {
    /// Returns the tenant of the run.
    pub(super) fn tenant(&self) -> Tenant {
        self.recorder.owner().tenant()
    }

    /// Returns the checkpoints of the run, if one is due.
    pub(super) fn checkpoint_due(&self) -> Option<Checkpoints> {
        let is_due = !self.allowance.is_bounded() && self.checkpoints.is_due();
        is_due.then(|| self.checkpoints.clone())
    }
}
