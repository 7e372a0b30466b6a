//! Records from time to time the part of a run's log that is needed to continue it (rule W5).

use std::sync::Arc;

use run_events::{Recorder, Runs};

use workflow_domain::plan::Plan;

use super::needed::needed;

/// The checkpoints of one run. Clones share them.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    runs: Runs,
    recorder: Recorder,
    plan: Arc<Plan>,
    /// Held while a checkpoint is made.
    one: Arc<tokio::sync::Mutex<()>>,
}

impl Checkpoints {
    /// Makes the checkpoints of a run.
    pub fn new(runs: Runs, recorder: Recorder, plan: Arc<Plan>) -> Self {
        Self {
            runs,
            recorder,
            plan,
            one: Arc::default(),
        }
    }

    /// Whether a checkpoint is due.
    pub(super) fn is_due(&self) -> bool {
        self.recorder.is_checkpoint_due()
    }

    /// Makes a checkpoint, unless one is being made. The run continues without it if that fails.
    pub(super) async fn make(&self) {
        let Ok(_one) = self.one.try_lock() else {
            return;
        };
        let run_id = self.recorder.run_id().to_string();
        let pick = |events: &[_]| needed(&self.plan, &run_id, events);
        if let Err(failure) = self.runs.checkpoint(&self.recorder, pick).await {
            tracing::warn!(run = %run_id, ?failure, "a checkpoint was not made");
        }
    }
}
