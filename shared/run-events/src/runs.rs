//! The entrance: all runs of one service.

use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::{Clock, IdSource, RunId, RunOwner};
use grpc_kit::Failure;
use run_log::{Order, ReopenError, RunFilter, RunLog, RunLogs, RunState, RunSummary};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;

use crate::active::{Active, ActiveRuns};
use crate::codec::decode;
use crate::control::CancelReason;
use crate::failure::{append_failure, no_such_run, read_failure, storage_failure};
use crate::outcome;
use crate::recorder::{Recorder, Stamp};
use crate::resource::{damaged, meta_of};
use crate::start::RunMeta;

/// How long a cancel waits for the run to end before it says what has not.
const CANCEL_WAIT: Duration = Duration::from_secs(2);

/// How many events are read from the log at a time.
const PAGE: usize = 256;

/// All runs of one service.
#[derive(Clone)]
pub struct Runs {
    inner: Arc<Inner>,
}

struct Inner {
    logs: RunLogs,
    owner: RunOwner,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    active: ActiveRuns,
    tasks: TaskTracker,
    drain: CancellationToken,
}

/// A run that was cancelled, or was over already.
#[derive(Clone, Debug)]
pub struct Cancelled {
    /// The run as it is now.
    pub run: common::Run,
    /// What has not ended yet.
    pub still_running: Vec<common::PendingWork>,
}

/// A run that was going on when the process before this one ended.
#[derive(Debug)]
pub struct OpenRun {
    /// Writes its further events.
    pub recorder: Recorder,
    /// What was stored beside it.
    pub meta: RunMeta,
    /// The kind that the owner gave it.
    pub kind: String,
    /// Everything that happened so far.
    pub events: Vec<common::RunEvent>,
}

impl Runs {
    /// Takes the logs of one service, which owns all runs in them.
    pub fn new(
        logs: RunLogs,
        owner: RunOwner,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Self {
        let inner = Inner {
            logs,
            owner,
            clock,
            ids,
            active: ActiveRuns::default(),
            tasks: TaskTracker::new(),
            drain: CancellationToken::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Gives a run.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, or a storage that does not work.
    pub async fn get(&self, run_id: &str) -> Result<common::Run, Status> {
        let summary = self.find(run_id).await?;
        Ok(self.resource(summary).await?)
    }

    /// Cancels a run and waits up to 2 s for its end. A run that is over is left as it is.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, or a storage that does not work.
    pub async fn cancel(&self, run_id: &str, reason: &str) -> Result<Cancelled, Status> {
        let summary = self.find(run_id).await?;
        let mut still_running = Vec::new();
        if summary.state == RunState::Open {
            match self.inner.active.get(summary.id) {
                Some(active) => still_running = stop(active, reason).await?,
                None => self.end_unattended(summary, reason).await?,
            }
        }
        Ok(Cancelled {
            run: self.get(run_id).await?,
            still_running,
        })
    }

    /// Returns every run that is not over, the oldest first, ready to be executed again.
    ///
    /// # Errors
    /// A storage that does not work, or stored data that cannot be read.
    pub async fn open_runs(&self) -> Result<Vec<OpenRun>, Failure> {
        let filter = RunFilter {
            state: run_log::StateFilter::Open,
            ..RunFilter::default()
        };
        let mut open = Vec::new();
        for summary in self.list(&filter).await? {
            if self.inner.active.owns(summary.id) {
                continue;
            }
            let meta = meta_of(&summary)?;
            let kind = summary.kind.clone();
            let events = self.events(summary.id).await?;
            // It may have been cancelled since it was listed.
            let Some(recorder) = self.reopen(summary, &meta).await? else {
                continue;
            };
            recorder.learn(&events);
            open.push(OpenRun {
                recorder,
                meta,
                kind,
                events,
            });
        }
        Ok(open)
    }

    /// Returns everything that happened in a run.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, or stored data that cannot be read.
    pub async fn events(&self, run: RunId) -> Result<Vec<common::RunEvent>, Failure> {
        let mut events = Vec::new();
        let mut after = 0;
        loop {
            let page = self.inner.logs.read(run, after, PAGE).await;
            let page = page.map_err(|error| read_failure(&error, &run.to_string()))?;
            let Some(last) = page.last() else {
                return Ok(events);
            };
            after = last.sequence;
            for stored in &page {
                events.push(decode(stored).map_err(|error| damaged(&error))?);
            }
        }
    }

    /// Returns the runs of a conversation, the oldest first.
    ///
    /// # Errors
    /// A storage that does not work, or stored data that cannot be read.
    pub async fn by_conversation(
        &self,
        conversation_id: &str,
    ) -> Result<Vec<(common::Run, RunMeta)>, Failure> {
        let filter = RunFilter {
            conversation: Some(conversation_id.to_owned()),
            ..RunFilter::default()
        };
        let mut runs = Vec::new();
        for summary in self.list(&filter).await? {
            let meta = meta_of(&summary)?;
            runs.push((self.resource(summary).await?, meta));
        }
        Ok(runs)
    }

    /// Returns the run that a request started, if there was one.
    ///
    /// # Errors
    /// A storage that does not work, or stored data that cannot be read.
    pub async fn by_request(
        &self,
        scope: &str,
        request_id: &core_types::RequestId,
    ) -> Result<Option<common::Run>, Failure> {
        let found = self.inner.logs.by_request(scope, request_id).await;
        match found.map_err(|error| storage_failure(&error))? {
            Some(summary) => self.resource(summary).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns true if this process is executing the run.
    pub fn is_active(&self, run: RunId) -> bool {
        self.inner.active.get(run).is_some()
    }

    /// Ends all tasks without ending their runs, which resume at the next start.
    pub async fn shutdown(&self) {
        self.inner.drain.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        self.inner.logs.close().await;
    }

    pub(crate) async fn find(&self, run_id: &str) -> Result<RunSummary, Failure> {
        let run: RunId = run_id.parse().map_err(|_| no_such_run(run_id))?;
        if run.owner() != self.inner.owner {
            return Err(no_such_run(run_id));
        }
        let found = self.inner.logs.summary(run).await;
        found
            .map_err(|error| storage_failure(&error))?
            .ok_or_else(|| no_such_run(run_id))
    }

    pub(crate) fn logs(&self) -> &RunLogs {
        &self.inner.logs
    }

    pub(crate) fn owner(&self) -> RunOwner {
        self.inner.owner
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    pub(crate) fn ids(&self) -> &Arc<dyn IdSource> {
        &self.inner.ids
    }

    pub(crate) fn active(&self) -> &ActiveRuns {
        &self.inner.active
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.inner.tasks
    }

    pub(crate) async fn draining(&self) {
        self.inner.drain.cancelled().await;
    }

    async fn list(&self, filter: &RunFilter) -> Result<Vec<RunSummary>, Failure> {
        let mut all = Vec::new();
        let mut cursor = None;
        loop {
            let page = self
                .inner
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

    /// Takes a run over; nothing comes back if it has ended.
    async fn reopen(
        &self,
        summary: RunSummary,
        meta: &RunMeta,
    ) -> Result<Option<Recorder>, Failure> {
        let writer = match self.inner.logs.reopen(summary.id).await {
            Ok(writer) => writer,
            Err(ReopenError::Finished) => return Ok(None),
            Err(ReopenError::NoSuchRun) => return Err(no_such_run(&summary.id.to_string())),
            Err(ReopenError::Storage(error)) => return Err(storage_failure(&error)),
            Err(ReopenError::Fenced) => {
                return Err(append_failure(&run_log::AppendError::Fenced));
            }
        };
        let stamp = Stamp {
            run: summary.id,
            path: meta.path.clone(),
            clock: self.inner.clock.clone(),
        };
        let deadline = summary.deadline.unwrap_or(summary.created);
        let recorder = Recorder::new(writer, stamp, summary.durability, deadline);
        Ok(Some(recorder))
    }

    /// Ends a run that no task attends to: its service has not resumed it.
    async fn end_unattended(&self, summary: RunSummary, reason: &str) -> Result<(), Failure> {
        let meta = meta_of(&summary)?;
        let Some(recorder) = self.reopen(summary, &meta).await? else {
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

impl std::fmt::Debug for Runs {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Runs")
            .field("owner", &self.inner.owner)
            .finish_non_exhaustive()
    }
}

/// Stops a run that a task attends to, and returns what has not ended in time.
async fn stop(active: Active, reason: &str) -> Result<Vec<common::PendingWork>, Failure> {
    if !active.control.is_cancelled() {
        request_cancel(&active.recorder, reason).await?;
    }
    active
        .control
        .cancel(CancelReason::Requested(reason.to_owned()));
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
        // The run ended in the meantime, which is what was asked for.
        Ok(_) | Err(run_log::AppendError::Finished) => Ok(()),
        Err(error) => Err(append_failure(&error)),
    }
}
