//! The entrance: all runs of one service.

use std::sync::{Arc, OnceLock};

use contracts::tavern::common::v1 as common;
use contracts::tavern::run::v1::ListRunsRequest;
use core_types::{Clock, IdSource, PerTenant, RunId, RunOwner, Timestamp};
use futures::future::BoxFuture;
use grpc_kit::{CallContext, Drain, Failure, Transport};
use run_log::{
    DeleteError, Event, ReopenError, Reopened, RunFilter, RunLogs, RunState, RunSummary,
    StateFilter, StorageError,
};
use tenancy::Tenants;
use tokio::sync::Mutex;
use tonic::Status;

use crate::control::RunControl;
use crate::damage::{DamagedLog, Unreadable};
use crate::executor::{End, Executor};
use crate::failure::{append_failure, no_such_run, storage_failure};
use crate::meta::{RunMeta, Starter};
use crate::recorder::{Recorder, Stamp};
use crate::rest::Wakers;
use crate::store::RunStore;
use crate::waiting::follow_call_waits;
use crate::waits::{DeclaredSignals, RecordedWaits, Waits};
use crate::watch::Records;

/// The most tenants whose lock is kept although it is free.
const MAX_FREE_LOCKS: usize = 1_024;

/// The number of runs that are read at a time.
const PAGE: usize = 256;

/// All runs of one service.
#[derive(Clone)]
pub struct Runs {
    store: RunStore,
    pub(crate) tenants: Tenants,
    /// Held while a run is started whose tenant has a limit of open runs.
    pub(crate) starting: Arc<PerTenant<Mutex<()>>>,
    executor: Executor,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    wakers: Wakers,
    resumption: Arc<OnceLock<Resume>>,
    before_deletion: Arc<OnceLock<BeforeDeletion>>,
    other_owner: Arc<OnceLock<Transport>>,
}

/// Deletes the data of a run that is about to be deleted.
type BeforeDeletion =
    Box<dyn Fn(&RunSummary) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync>;

/// Executes a run that rested.
pub(crate) type Resume = Box<dyn Fn(OpenRun) -> BoxFuture<'static, ()> + Send + Sync>;

/// A run that was open when the previous process ended.
#[derive(Debug)]
pub struct OpenRun {
    /// Writes its further events.
    pub recorder: Recorder,
    /// The data that was stored alongside it.
    pub meta: RunMeta,
    /// The kind that the owner gave it.
    pub kind: String,
    /// The time of its creation.
    pub created: Timestamp,
    /// Its start: the first of its events.
    pub started: common::RunStarted,
    /// The events so far that are needed to continue the run (rule W5).
    pub events: Vec<common::RunEvent>,
}

impl Runs {
    /// Makes the runs of one service from its logs; it owns all runs in them.
    pub fn new(
        logs: RunLogs,
        owner: RunOwner,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Self {
        Self {
            store: RunStore { logs, owner },
            tenants: Tenants::default(),
            starting: Arc::new(PerTenant::new(MAX_FREE_LOCKS)),
            executor: Executor::new(),
            clock,
            ids,
            wakers: Wakers::default(),
            resumption: Arc::default(),
            before_deletion: Arc::default(),
            other_owner: Arc::default(),
        }
    }

    /// Returns a run. One that the call cannot see is not there, here and for every other request.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, or a storage that does not work.
    pub async fn get(&self, context: &CallContext, run_id: &str) -> Result<common::Run, Status> {
        Ok(self.store.get(context, run_id).await?)
    }

    /// Returns the page of a list of runs that the call can see, the newest run first, and the token of the next
    /// page.
    ///
    /// # Errors
    /// INVALID_FIELDS, or a storage that does not work.
    pub async fn list(
        &self,
        context: &CallContext,
        request: &ListRunsRequest,
    ) -> Result<(Vec<common::Run>, String), Failure> {
        self.store.list_page(context, request).await
    }

    /// Returns the data that is stored alongside a run.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, or a storage that does not work.
    pub async fn meta(&self, context: &CallContext, run_id: &str) -> Result<RunMeta, Failure> {
        RunMeta::of(&self.store.find(context, run_id).await?)
    }

    /// Returns every run of all tenants that has not ended and does not rest, the oldest first, ready to be executed
    /// again. Runs whose log is damaged are not among them: they end as failed.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn open_runs(&self) -> Result<Vec<OpenRun>, Failure> {
        let filter = RunFilter {
            state: StateFilter::Awake,
            ..RunFilter::default()
        };
        let mut open = Vec::new();
        for summary in self.store.all(&filter).await? {
            let _alone = self.wakers.lock(summary.id).await;
            if self.executor.active().owns(summary.id) {
                continue;
            }
            // It may have been cancelled since it was listed.
            open.extend(self.take_over(summary).await?);
        }
        Ok(open)
    }

    /// Returns the values that `of` finds in the stored data of the runs of all tenants that have not ended, a
    /// page of which is in memory at a time. Runs with unreadable data are left out: they do not
    /// continue.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn metas_of_open_runs<T, C: Extend<T> + Default>(
        &self,
        of: impl Fn(&RunMeta) -> Option<T>,
    ) -> Result<C, Failure> {
        let (mut found, mut cursor) = (C::default(), None);
        loop {
            let page = self.store.logs.open_runs(cursor.as_ref(), PAGE).await;
            let page = page.map_err(|error| storage_failure(&error))?;
            let metas = page.runs.iter().map(RunMeta::read);
            found.extend(metas.flatten().filter_map(|meta| of(&meta)));
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(found),
            }
        }
    }

    /// Returns everything that happened in a run.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, or stored data that cannot be read.
    pub async fn events(
        &self,
        context: &CallContext,
        run_id: &str,
    ) -> Result<Vec<common::RunEvent>, Failure> {
        let run = self.store.find(context, run_id).await?.id;
        self.store.events(run).await
    }

    /// Returns everything that happened in a run of any owner: for the own work of a service.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, or stored data that cannot be read.
    pub async fn events_of(&self, run: RunId) -> Result<Vec<common::RunEvent>, Failure> {
        self.store.events(run).await
    }

    /// Returns the runs of a conversation that the call can see, the oldest first.
    ///
    /// # Errors
    /// A storage that does not work, or stored data that cannot be read.
    pub async fn by_conversation(
        &self,
        context: &CallContext,
        conversation_id: &str,
    ) -> Result<Vec<(common::Run, RunMeta)>, Failure> {
        let runs = self
            .store
            .by_conversation(context, conversation_id, StateFilter::Any);
        runs.await
    }

    /// Returns the runs of a conversation that the call can see and that have not ended, the oldest first.
    ///
    /// # Errors
    /// A storage that does not work, or stored data that cannot be read.
    pub async fn open_by_conversation(
        &self,
        context: &CallContext,
        conversation_id: &str,
    ) -> Result<Vec<(common::Run, RunMeta)>, Failure> {
        let runs = self
            .store
            .by_conversation(context, conversation_id, StateFilter::Open);
        runs.await
    }

    /// Returns the run that a request of the caller's tenant started, if there was one and the call can see it.
    ///
    /// # Errors
    /// A storage that does not work, or stored data that cannot be read.
    pub async fn by_request(
        &self,
        context: &CallContext,
        scope: &str,
        request_id: &core_types::RequestId,
    ) -> Result<Option<common::Run>, Failure> {
        self.store.by_request(context, scope, request_id).await
    }

    /// Follows the run named `run_id` after the sequence `after`, until the run ends or the
    /// server drains, for the call of `context`, which bounds large records. The records are encoded; [`contracts::watch::decode`] reads them.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, or SEQUENCE_OUT_OF_RANGE when `after` lies beyond the end of the log.
    pub async fn watch(
        &self,
        context: CallContext,
        run_id: &str,
        after: u64,
        drain: Drain,
    ) -> Result<Records, Status> {
        let clock = Arc::clone(&self.clock);
        let watched = self.store.watch(context, clock, run_id, after, drain);
        watched.await
    }

    /// Deletes a finished run with its log.
    ///
    /// # Errors
    /// RUN_NOT_FOUND, RUN_NOT_FINISHED, or a storage that does not work.
    pub async fn delete(&self, context: &CallContext, run_id: &str) -> Result<(), Failure> {
        let summary = self.store.find(context, run_id).await?;
        if summary.state != RunState::Open {
            self.delete_what_belongs_to(&summary).await?;
        }
        self.store.delete(context, run_id).await
    }

    /// Deletes a finished run of any owner, its data and the id of its request, unless it is gone already: for the
    /// own work of a service.
    ///
    /// # Errors
    /// RUN_NOT_FINISHED, or a storage that does not work.
    pub async fn forget(&self, run: RunId) -> Result<(), Failure> {
        let summary = self.store.logs.summary(run).await;
        match summary.map_err(|error| storage_failure(&error))? {
            None => return Ok(()),
            // This refuses it.
            Some(open) if open.state == RunState::Open => {
                let own = CallContext::outermost();
                return self.store.delete(&own, &run.to_string()).await;
            }
            Some(ended) => self.delete_what_belongs_to(&ended).await?,
        }
        match self.store.logs.forget(run).await {
            Ok(()) | Err(DeleteError::NoSuchRun | DeleteError::Open) => Ok(()),
            Err(DeleteError::Storage(error)) => Err(storage_failure(&error)),
        }
    }

    /// Deletes the data of a finished run that is stored elsewhere.
    pub(crate) async fn delete_what_belongs_to(&self, run: &RunSummary) -> Result<(), Failure> {
        match self.before_deletion.get() {
            Some(before) => before(run).await,
            None => Ok(()),
        }
    }

    /// Lets `before` delete the data of a finished run before the run itself is deleted, so that a
    /// deletion that was interrupted can be repeated. To be called once.
    pub fn before_deletion(
        &self,
        before: impl Fn(&RunSummary) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync + 'static,
    ) {
        // It fails if it was called before; the first way is as good.
        let _ = self.before_deletion.set(Box::new(before));
    }

    /// Executes `work` as a task that outlives the caller, and records its outcome.
    ///
    /// The task runs in the present span and in the run's own call context. At the run's deadline
    /// the control is cancelled; work that does not end within 1.5 s of a cancel is dropped. A
    /// panic ends the run as failed. A run that is executed already is left alone.
    pub fn execute<F, Fut>(&self, recorder: Recorder, work: F)
    where
        F: FnOnce(RunControl) -> Fut + Send + 'static,
        Fut: Future<Output = End> + Send + 'static,
    {
        let (recorded, declared) = (RecordedWaits::default(), DeclaredSignals::new());
        let waits = Waits::new(recorder.clone(), recorded, declared);
        self.execute_followed(recorder, waits, work);
    }

    /// Executes `work`, whose nodes can wait, as [`Runs::execute`] does.
    pub fn execute_with_waits<F, Fut>(&self, recorder: Recorder, waits: Waits, work: F)
    where
        F: FnOnce(RunControl) -> Fut + Send + 'static,
        Fut: Future<Output = End> + Send + 'static,
    {
        self.execute_followed(recorder, waits, work);
    }

    /// Sets the other service with runs below the runs of this one, so that pauses reach them.
    pub fn pause_below(&self, other: Transport) {
        // A second transport would be to the same service.
        let _ = self.other_owner.set(other);
    }

    pub(crate) fn other_owner(&self) -> Option<&Transport> {
        self.other_owner.get()
    }

    /// Returns the number of runs that are in memory: a task executes them.
    pub fn in_memory(&self) -> usize {
        self.executor.active().len()
    }

    /// Ends all tasks without ending their runs, which resume at the next start.
    pub async fn shutdown(&self) {
        self.executor.shutdown().await;
        self.store.logs.close().await;
    }

    pub(crate) fn store(&self) -> &RunStore {
        &self.store
    }

    /// Executes a run, which those below it follow when it is paused.
    fn execute_followed<F, Fut>(&self, recorder: Recorder, waits: Waits, work: F)
    where
        F: FnOnce(RunControl) -> Fut + Send + 'static,
        Fut: Future<Output = End> + Send + 'static,
    {
        let (runs, noted) = (self.clone(), recorder.clone());
        let follow = move |control: RunControl| async move {
            let pauses = runs.follow_pauses(noted.children().clone(), control.clone());
            tokio::join!(pauses, follow_call_waits(noted, control));
        };
        self.executor.execute(recorder, waits, work, follow);
    }

    pub(crate) fn executor(&self) -> &Executor {
        &self.executor
    }

    pub(crate) fn wakers(&self) -> &Wakers {
        &self.wakers
    }

    pub(crate) fn resumption(&self) -> &OnceLock<Resume> {
        &self.resumption
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns the source of ids.
    pub fn ids(&self) -> &Arc<dyn IdSource> {
        &self.ids
    }

    /// Takes over a run that `starter` started, with at most `newest` of its events; none if it
    /// has ended.
    pub(crate) async fn reopen(
        &self,
        summary: RunSummary,
        starter: Starter,
        newest: usize,
    ) -> Result<Option<(Recorder, Vec<Event>)>, Unreadable> {
        let reopened = self.store.logs.reopen_listed(&summary, newest).await;
        let Reopened { writer, events } = match reopened {
            Ok(reopened) => reopened,
            Err(ReopenError::Finished) => return Ok(None),
            Err(ReopenError::NoSuchRun) => {
                return Err(no_such_run(&summary.id.to_string()).into());
            }
            Err(ReopenError::Storage(error @ StorageError::Corrupt { .. })) => {
                return Err(DamagedLog::Stored(error).into());
            }
            Err(ReopenError::Storage(error)) => return Err(storage_failure(&error).into()),
            Err(ReopenError::Fenced) => {
                return Err(append_failure(&run_log::AppendError::Fenced).into());
            }
        };
        let stamp = Stamp::new(summary.id, starter, Arc::clone(&self.clock));
        let deadline = summary.deadline.unwrap_or(summary.created);
        let recorder = Recorder::new(writer, stamp, summary.durability, deadline, summary.phase);
        Ok(Some((recorder, events)))
    }
}

impl std::fmt::Debug for Runs {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Runs")
            .field("owner", &self.store.owner)
            .finish_non_exhaustive()
    }
}
