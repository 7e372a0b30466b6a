//! Pausing and resuming a run.

use contracts::tavern::common::v1::{self as common, ErrorReason, run_event::Kind};
use core_types::RunOwner;
use grpc_kit::{CallContext, Failure};
use run_log::{AppendError, RunState};

use crate::failure::{append_failure, wrong_state};
use crate::meta::RunMeta;
use crate::phase;
use crate::runs::Runs;
use crate::wake::RunPresence;

impl Runs {
    /// Pauses a run with those below it: no further step starts until it is resumed. A paused run is left
    /// as it is. Returns when those below have followed, or after 2 s.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, RUN_FINISHED, RUN_NOT_PAUSABLE, or a storage that does not work.
    pub async fn pause(
        &self,
        context: &CallContext,
        run_id: &str,
        reason: &str,
    ) -> Result<common::Run, Failure> {
        let reason = reason.chars().take(500).collect();
        let event = Kind::RunPaused(common::RunPaused { reason });
        self.enter(context, run_id, phase::PAUSED, event).await
    }

    /// Resumes a paused run with the runs that were paused because of it. A run that is not paused
    /// is left as it is.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, RUN_FINISHED, RUN_NOT_PAUSABLE, or a storage that does not work.
    pub async fn resume(
        &self,
        context: &CallContext,
        run_id: &str,
    ) -> Result<common::Run, Failure> {
        let event = Kind::RunResumed(common::RunResumed {});
        self.enter(context, run_id, phase::RUNNING, event).await
    }

    async fn enter(
        &self,
        context: &CallContext,
        run_id: &str,
        phase: i32,
        event: Kind,
    ) -> Result<common::Run, Failure> {
        let summary = self.store().find(context, run_id).await?;
        let refused = |reason| self.refuse(context, run_id, reason);
        if summary.state != RunState::Open {
            return refused(ErrorReason::RunFinished).await;
        }
        if !can_pause(summary.id.owner()) {
            return refused(ErrorReason::RunNotPausable).await;
        }
        let entered = match self.reach(context, run_id).await? {
            RunPresence::Present(active, _stays) => {
                let paused = phase == phase::PAUSED;
                let recorded = async {
                    let resumed = active.recorder.unpaused_phase();
                    let phase = if paused { phase } else { resumed };
                    active.recorder.enter(phase, event).await
                };
                let entered = active.control.set_paused(paused, recorded).await;
                if entered.is_ok() && self.other_owner().is_some() {
                    active.recorder.children().have_followed(paused).await;
                }
                entered
            }
            RunPresence::Ended => Err(AppendError::Finished),
            RunPresence::NotResumed(summary) if summary.phase == phase => Ok(()),
            // This process is about to execute it, and must not lose it.
            RunPresence::NotResumed(summary) if self.executor().active().owns(summary.id) => {
                Err(AppendError::Fenced)
            }
            // No task executes it: its service has not resumed it.
            RunPresence::NotResumed(summary) => {
                let meta = RunMeta::of(&summary)?;
                match self.reopen(*summary, meta.starter(), 1).await? {
                    Some((recorder, _)) => recorder.enter(phase, event).await.map(drop),
                    None => Err(AppendError::Finished),
                }
            }
        };
        match entered {
            Ok(()) => self.store().get(context, run_id).await,
            Err(AppendError::Finished) => refused(ErrorReason::RunFinished).await,
            Err(error) => Err(append_failure(&error)),
        }
    }

    async fn refuse(
        &self,
        context: &CallContext,
        run_id: &str,
        reason: ErrorReason,
    ) -> Result<common::Run, Failure> {
        let run = self.store().get(context, run_id).await?;
        let message = match reason {
            ErrorReason::RunFinished => "the run has ended",
            _ => "calls of a text cannot be paused; cancel the run instead",
        };
        Err(wrong_state(&run, reason, message))
    }
}

/// Returns whether runs of an owner have steps between which they can pause.
fn can_pause(owner: RunOwner) -> bool {
    match owner {
        RunOwner::Workflow | RunOwner::Agent | RunOwner::Scene => true,
        RunOwner::Registry => false,
    }
}
