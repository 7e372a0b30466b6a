//! Reading and deleting the runs of one service.

use contracts::tavern::common::v1::{self as common, ErrorReason};
use core_types::{Reach, RequestId, RunId, RunOwner};
use grpc_kit::{CallContext, Failure};
use run_log::{
    DeleteError, Event, Order, Owners, ReadError, RunFilter, RunLogs, RunState, RunSummary,
    StateFilter, StorageError,
};

use crate::codec::decode;
use crate::damage::{DamagedLog, Unreadable};
use crate::failure::{no_such_run, read_failure, storage_failure, wrong_state};
use crate::meta::RunMeta;

/// The number of runs or events that are read from the log at a time.
pub(crate) const PAGE: usize = 256;

/// The stored runs of one service.
#[derive(Clone)]
pub(crate) struct RunStore {
    pub(crate) logs: RunLogs,
    pub(crate) owner: RunOwner,
}

/// Decodes events of the log.
pub(crate) fn decode_all(stored: &[Event]) -> Result<Vec<common::RunEvent>, DamagedLog> {
    let decoded = stored.iter().map(|event| Ok(decode(event)?));
    decoded.collect()
}

/// Returns the owners whose runs a call can see: [`CallContext::sees`], as a condition of look-ups and lists.
pub fn seen_by(context: &CallContext) -> Owners {
    match context.reach() {
        Reach::Own => Owners::One(context.principal().clone()),
        Reach::Tenant => Owners::Tenant(context.tenant()),
        Reach::Installation => Owners::All,
    }
}

impl RunStore {
    /// Returns the log's summary of the run. A run that the call cannot see is not there.
    pub(crate) async fn find(
        &self,
        context: &CallContext,
        run_id: &str,
    ) -> Result<RunSummary, Failure> {
        let run: RunId = run_id.parse().map_err(|_| no_such_run(run_id))?;
        if run.owner().service() != self.owner {
            return Err(no_such_run(run_id));
        }
        let found = self.logs.find(run, &seen_by(context)).await;
        found
            .map_err(|error| storage_failure(&error))?
            .ok_or_else(|| no_such_run(run_id))
    }

    pub(crate) async fn get(
        &self,
        context: &CallContext,
        run_id: &str,
    ) -> Result<common::Run, Failure> {
        let summary = self.find(context, run_id).await?;
        self.resource(summary).await
    }

    /// Returns all events of a run.
    pub(crate) async fn events(&self, run: RunId) -> Result<Vec<common::RunEvent>, Failure> {
        let mut events = Vec::new();
        let read = self.read_span(run, 0, u64::MAX, &mut events).await;
        read.map(|()| events).map_err(Failure::from)
    }

    /// Reads the events of a run after a sequence, up to another.
    pub(crate) async fn read_span(
        &self,
        run: RunId,
        mut after: u64,
        last: u64,
        events: &mut Vec<common::RunEvent>,
    ) -> Result<(), Unreadable> {
        while after < last {
            let limit = usize::try_from(last - after).map_or(PAGE, |left| left.min(PAGE));
            let page = self.logs.read(run, after, limit).await;
            let page = page.map_err(|error| match error {
                ReadError::Storage(error @ StorageError::Corrupt { .. }) => {
                    DamagedLog::Stored(error).into()
                }
                error => Unreadable::Failed(read_failure(&error, &run.to_string())),
            })?;
            let Some(newest) = page.last() else {
                break;
            };
            after = newest.sequence;
            events.append(&mut decode_all(&page)?);
        }
        Ok(())
    }

    /// Returns the runs of a conversation in a state, the oldest first.
    pub(crate) async fn by_conversation(
        &self,
        context: &CallContext,
        conversation_id: &str,
        state: StateFilter,
    ) -> Result<Vec<(common::Run, RunMeta)>, Failure> {
        let filter = RunFilter {
            owners: seen_by(context),
            conversation: Some(conversation_id.to_owned()),
            state,
            ..RunFilter::default()
        };
        let mut runs = Vec::new();
        for summary in self.all(&filter).await? {
            let meta = RunMeta::of(&summary)?;
            let run = self.listed(summary).await?;
            runs.extend(run.map(|run| (run, meta)));
        }
        Ok(runs)
    }

    /// Returns the run that a request of the caller's tenant started, if there was one and the call can see it.
    pub(crate) async fn by_request(
        &self,
        context: &CallContext,
        scope: &str,
        request_id: &RequestId,
    ) -> Result<Option<common::Run>, Failure> {
        let found = self.logs.by_request(context.tenant(), scope, request_id);
        let found = found.await.map_err(|error| storage_failure(&error))?;
        match found.filter(|summary| context.sees(&summary.owner)) {
            Some(summary) => self.resource(summary).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns every run that the filter admits, the oldest first.
    pub(crate) async fn all(&self, filter: &RunFilter) -> Result<Vec<RunSummary>, Failure> {
        let mut all = Vec::new();
        let mut cursor = None;
        loop {
            let page = self
                .logs
                .list(filter, Order::OldestFirst, cursor.as_ref(), PAGE)
                .await;
            let page = page.map_err(|error| storage_failure(&error))?;
            all.extend(page.runs);
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Deletes a finished run with its log.
    pub(crate) async fn delete(&self, context: &CallContext, run_id: &str) -> Result<(), Failure> {
        let summary = self.find(context, run_id).await?;
        let run = summary.id;
        if summary.state == RunState::Open {
            let run = self.resource(summary).await?;
            let message = "the run has not ended; cancel it or wait for its end";
            return Err(wrong_state(&run, ErrorReason::RunNotFinished, message));
        }
        match self.logs.delete(run).await {
            Ok(()) => {
                tracing::info!(run = %run, "a run was deleted");
                Ok(())
            }
            // A run that has ended does not open again, so another deletion was faster.
            Err(DeleteError::NoSuchRun | DeleteError::Open) => Err(no_such_run(run_id)),
            Err(DeleteError::Storage(error)) => Err(storage_failure(&error)),
        }
    }
}
