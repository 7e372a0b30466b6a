//! Pausing and resuming the runs below a run with it (rule G811).
//!
//! While the run is paused, each is asked to pause; when it is resumed, the runs that were paused
//! because of it continue, and not the runs that a caller paused.

use std::time::Duration;

use contracts::tavern::run::v1::{
    PauseRunRequest, ResumeRunRequest, run_service_client::RunServiceClient,
};
use core_types::{RunId, RunOwner};
use futures::future::join_all;
use grpc_kit::CallContext;
use tonic::{Code, Status};

use crate::children::{Children, PAUSED_ABOVE, Pause};
use crate::control::RunControl;
use crate::runs::Runs;

/// The time after which a run that could not be reached is asked again.
const AGAIN: Duration = Duration::from_millis(500);

impl Runs {
    /// Pauses and resumes the runs below with the run of `control`, for ever.
    pub(crate) async fn follow_pauses(self, children: Children, control: RunControl) {
        let (mut changed, mut paused) = (children.changes(), control.pauses());
        loop {
            let is_paused = *paused.borrow_and_update();
            changed.borrow_and_update();
            let due = children.due(is_paused);
            let is_asked = !due.is_empty();
            let (runs, context) = (&self, &control.call_context());
            let asked = due.into_iter().map(|run_id| async move {
                let asked = ask(runs, context, &run_id, is_paused).await;
                (run_id, asked)
            });
            let mut followed = Vec::new();
            let mut is_left = false;
            for (run_id, asked) in join_all(asked).await {
                let pause = match asked {
                    Ok(()) if is_paused => Pause::Above,
                    Ok(()) => Pause::No,
                    Err(status) if is_final(&status) => Pause::Own,
                    Err(status) => {
                        let error = status.message();
                        tracing::warn!(run_id, error, "a run below cannot follow a pause yet");
                        is_left = true;
                        continue;
                    }
                };
                followed.push((run_id, pause));
            }
            if is_asked {
                children.asked(followed);
            }
            tokio::select! {
                // They fail when the senders are gone, and this task holds them.
                _ = changed.changed() => {}
                _ = paused.changed() => {}
                () = tokio::time::sleep(AGAIN), if is_left => {}
            }
        }
    }
}

/// Pauses or resumes a run at the service that owns it, for the run above.
async fn ask(
    runs: &Runs,
    context: &CallContext,
    run_id: &str,
    is_paused: bool,
) -> Result<(), Status> {
    let run: RunId = run_id
        .parse()
        .map_err(|_| Status::not_found("the run has no id of a run"))?;
    let is_own = run.owner().service() == runs.store().owner.service();
    match (is_own, runs.other_owner()) {
        (true, _) if is_paused => {
            let paused = Box::pin(runs.pause(context, run_id, PAUSED_ABOVE));
            paused.await.map(drop)?;
        }
        (true, _) => Box::pin(runs.resume(context, run_id)).await.map(drop)?,
        (false, Some(_)) if run.owner() == RunOwner::Registry => {
            return Err(Status::failed_precondition("calls of a text cannot pause"));
        }
        (false, Some(other)) if is_paused => {
            let request = PauseRunRequest {
                run_id: run_id.to_owned(),
                reason: PAUSED_ABOVE.to_owned(),
            };
            let mut other = RunServiceClient::new(other.with(context));
            other.pause_run(request).await.map(drop)?;
        }
        (false, Some(other)) => {
            let request = ResumeRunRequest {
                run_id: run_id.to_owned(),
            };
            let mut other = RunServiceClient::new(other.with(context));
            other.resume_run(request).await.map(drop)?;
        }
        (false, None) => return Err(Status::failed_precondition("its owner is not known here")),
    }
    Ok(())
}

/// Whether asking again would change nothing: the run has ended, or cannot be paused.
fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::NotFound | Code::FailedPrecondition | Code::InvalidArgument | Code::Unimplemented
    )
}
