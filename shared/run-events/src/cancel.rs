//! Cancelling a run.

use std::time::Duration;

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use grpc_kit::{CallContext, Failure};
use run_log::{AppendError, RunState, RunSummary};
use tonic::Status;

use crate::active::Active;
use crate::control::CancelReason;
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
        let summary = self.store().find(context, run_id).await?;
        let mut still_running = Vec::new();
        if summary.state == RunState::Open {
            match self.reach(context, run_id).await? {
                RunPresence::Present(active, _stays) => {
                    still_running = stop(active, reason).await?
                }
                RunPresence::NotResumed(summary) => self.end_inactive(*summary, reason).await?,
                RunPresence::Ended => {}
            }
        }
        Ok(Cancelled {
            run: self.get(context, run_id).await?,
            still_running,
        })
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

/// Stops a run that a task executes, and returns the work that has not ended in time.
async fn stop(active: Active, reason: &str) -> Result<Vec<common::PendingWork>, Failure> {
    let requested = CancelReason::Requested(reason.to_owned());
    let recorded = request_cancel(&active.recorder, reason);
    active.control.cancel_once(requested, recorded).await?;
    let mut ended = active.ended;
    match tokio::time::timeout(CANCEL_WAIT, ended.wait_for(|ended| *ended)).await {
        Ok(_) => Ok(Vec::new()),
        Err(_) => Ok(active.control.in_flight()),
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
