//! Signals and answers for a run, and what it waits for.

use contracts::tavern::run::v1::{
    AnswerWaitRequest, ListWaitsRequest, ListWaitsResponse, SignalRunRequest,
};
use grpc_kit::Failure;
use run_log::RunState;
use tracing::Instrument;

use crate::failure::{not_resumed, run_finished};
use crate::runs::Runs;
use crate::waits::Waits;

impl Runs {
    /// Sends a signal to a run. Returns whether its id was seen before.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, RUN_FINISHED, INVALID_FIELDS, REQUEST_ID_REUSED, LIMIT_EXCEEDED, or a storage
    /// that does not work.
    pub async fn signal(&self, request: SignalRunRequest) -> Result<bool, Failure> {
        let waits = self.waits_of(&request.run_id).await?;
        let waits = waits.ok_or_else(|| run_finished(&request.run_id))?;
        to_its_end(async move { waits.signal(request).await }).await
    }

    /// Answers a wait of a run. Returns whether its request was seen before.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, RUN_FINISHED, NOT_WAITING, INVALID_FIELDS, REQUEST_ID_REUSED, or a storage that
    /// does not work.
    pub async fn answer(&self, request: AnswerWaitRequest) -> Result<bool, Failure> {
        let waits = self.waits_of(&request.run_id).await?;
        let waits = waits.ok_or_else(|| run_finished(&request.run_id))?;
        to_its_end(async move { waits.answer(request).await }).await
    }

    /// Returns a page of what a run waits for.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, INVALID_FIELDS, or a storage that does not work.
    pub async fn list_waits(
        &self,
        request: &ListWaitsRequest,
    ) -> Result<ListWaitsResponse, Failure> {
        match self.waits_of(&request.run_id).await? {
            Some(waits) => waits.list(request).await,
            None => Ok(ListWaitsResponse::default()),
        }
    }

    /// Returns the waits of a run; nothing if it has ended.
    async fn waits_of(&self, run_id: &str) -> Result<Option<Waits>, Failure> {
        let summary = self.store().find(run_id).await?;
        if let Some(active) = self.executor().active().get(summary.id) {
            return Ok(Some(active.waits));
        }
        // It may have ended since it was looked up.
        match self.store().find(run_id).await?.state {
            RunState::Open => Err(not_resumed()),
            RunState::Finished(_) => Ok(None),
        }
    }
}

/// Carries work out although its caller may leave: what is recorded is to take effect.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::spawn(work.in_current_span()).await {
        Ok(ended) => ended,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(not_resumed()),
        },
    }
}
