//! Signals and answers for a run, and the list of its waits.

use contracts::tavern::run::v1::{
    AnswerWaitRequest, ListWaitsRequest, ListWaitsResponse, SignalRunRequest,
};
use grpc_kit::{CallContext, Failure};
use run_log::RunState;

use crate::control::Presence;
use crate::failure::{not_resumed, run_finished};
use crate::runs::Runs;
use crate::waits::{RecordedWaits, Waits};
use crate::wake::{RunPresence, to_its_end};

impl Runs {
    /// Sends a signal of a caller to a run. Returns whether its id was seen before.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, RUN_FINISHED, INVALID_FIELDS, REQUEST_ID_REUSED, LIMIT_EXCEEDED, or a storage
    /// that does not work.
    pub async fn signal(
        &self,
        context: CallContext,
        request: SignalRunRequest,
    ) -> Result<bool, Failure> {
        let (waits, stays) = self.waits_of(&context, &request.run_id).await?;
        to_its_end(async move {
            let _stays = stays;
            waits.signal(&context, request).await
        })
        .await
    }

    /// Answers a wait of a run for a caller. Returns whether its request was seen before.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, RUN_FINISHED, NOT_WAITING, INVALID_FIELDS, REQUEST_ID_REUSED, or a storage that
    /// does not work.
    pub async fn answer(
        &self,
        context: CallContext,
        request: AnswerWaitRequest,
    ) -> Result<bool, Failure> {
        let (waits, stays) = self.waits_of(&context, &request.run_id).await?;
        to_its_end(async move {
            let _stays = stays;
            waits.answer(&context, request).await
        })
        .await
    }

    /// Returns a page of the waits of a run.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, INVALID_FIELDS, or a storage that does not work.
    pub async fn list_waits(
        &self,
        context: &CallContext,
        request: &ListWaitsRequest,
    ) -> Result<ListWaitsResponse, Failure> {
        let summary = self.store().find(context, &request.run_id).await?;
        if let Some(RunPresence::Present(active, _stays)) = self.present(summary.id).await {
            return active.waits.list(context, request).await;
        }
        // It may have ended, or been woken, since it was looked up.
        let summary = self.store().find(context, &request.run_id).await?;
        match (summary.state, summary.due) {
            (RunState::Open, None) => Err(not_resumed()),
            // Looking does not wake a run.
            (RunState::Open, Some(_)) => {
                let events = self.store().events(summary.id).await?;
                RecordedWaits::of(&request.run_id, &events).page(context, request)
            }
            (RunState::Finished(_), _) => Ok(ListWaitsResponse::default()),
        }
    }

    /// Returns the waits of a run, which stays in memory while the second value lives.
    async fn waits_of(
        &self,
        context: &CallContext,
        run_id: &str,
    ) -> Result<(Waits, Presence), Failure> {
        match self.reach(context, run_id).await? {
            RunPresence::Present(active, presence) => Ok((active.waits, presence)),
            RunPresence::NotResumed(_) => Err(not_resumed()),
            RunPresence::Ended => Err(run_finished(run_id)),
        }
    }
}
