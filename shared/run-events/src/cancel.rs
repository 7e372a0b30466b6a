//! Cancelling a run.

use std::time::Duration;

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use grpc_kit::{CallContext, Failure};
use run_log::{AppendError, RunState, RunSummary};
use tonic::Status;

use crate::active::Active;
use crate::control::{CancelReason, Presence};
use crate::failure::append_failure;
use crate::meta::RunMeta;
use crate::outcome;
use crate::recorder::Recorder;
use crate::runs::Runs;
use crate::wake::RunPresence;

/// The time that a cancel waits for the run to end before it reports the pending work.
const CANCEL_WAIT: Duration = Duration::from_secs(2);

/// A run that was cancelled, or had ended already.
#[derive(Clone, Debug)]
pub struct Cancelled {
    /// The run as it is now.
    pub run: common::Run,
    /// The work that has not ended yet.
    pub still_running: Vec<common::PendingWork>,
}

impl Runs {
    /// Cancels a run and waits up to 2 s for its end. A run that has ended is left as it is.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, or a storage that does not work.
    pub async fn cancel(
        &self,
        context: &CallContext,
        run_id: &str,
        reason: &str,
    ) -> Result<Cancelled, Status> {
        let mut still_running = Vec::new();
        if let Some((active, _stays)) = self.order_cancel(context, run_id, reason).await? {
            still_running = wait_for_end(active).await;
        }
        Ok(Cancelled {
            run: self.get(context, run_id).await?,
            still_running,
        })
    }

    /// Orders the cancellation of a run without waiting for its end. Returns the run if a task executes it; it stays in
    /// memory while the second value lives.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, or a storage that does not work.
    pub(crate) async fn order_cancel(
        &self,
        context: &CallContext,
        run_id: &str,
        reason: &str,
    ) -> Result<Option<(Active, Presence)>, Failure> {
        let summary = self.store().find(context, run_id).await?;
        if summary.state != RunState::Open {
            return Ok(None);
        }
        match self.reach(context, run_id).await? {
            RunPresence::Present(active, stays) => {
                let requested = CancelReason::Requested(reason.to_owned());
                let recorded = request_cancel(&active.recorder, reason);
                active.control.cancel_once(requested, recorded).await?;
                Ok(Some((active, stays)))
            }
            RunPresence::NotResumed(summary) => {
                self.end_inactive(*summary, reason).await?;
                Ok(None)
            }
            RunPresence::Ended => Ok(None),
        }
    }

    /// Ends a run that no task executes: its service has not resumed it.
    async fn end_inactive(&self, summary: RunSummary, reason: &str) -> Result<(), Failure> {
        let meta = RunMeta::of(&summary)?;
        let Some((recorder, _)) = self.reopen(summary, meta.starter(), 1).await? else {
            return Ok(());
        };
        request_cancel(&recorder, reason).await?;
        let outcome = outcome::stopped(&CancelReason::Requested(reason.to_owned()), Vec::new());
        recorder
            .finish(outcome)
            .await
            .map(drop)
            .map_err(|error| append_failure(&error))
    }
}

/// Waits for the end of a cancelled run, and returns the work that has not ended in time.
async fn wait_for_end(mut active: Active) -> Vec<common::PendingWork> {
    let ended = active.ended.wait_for(|ended| *ended);
    match tokio::time::timeout(CANCEL_WAIT, ended).await {
        Ok(_) => Vec::new(),
        Err(_) => active.control.in_flight(),
    }
}

async fn request_cancel(recorder: &Recorder, reason: &str) -> Result<(), Failure> {
    let reason = reason.chars().take(500).collect();
    let event = Kind::CancelRequested(common::CancelRequested { reason });
    match recorder.record(vec![event]).await {
        // The run ended in the meantime, as requested.
        Ok(_) | Err(AppendError::Finished) => Ok(()),
        Err(error) => Err(append_failure(&error)),
    }
}
