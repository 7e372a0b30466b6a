//! One log out of two: durable runs to one, fleeting ones to the other.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use core_types::{Durability, RequestId, RunId, Timestamp};
use sql_store::{OpenError, SqliteOptions};
use tokio::sync::Mutex;

use crate::{
    CreateError, Created, DeleteError, Event, Follower, MemoryLimits, MemoryRunLog, NewEvent,
    NewRun, Order, ReadError, ReopenError, Reopened, RunCursor, RunFilter, RunLog, RunPage,
    RunSummary, RunWriter, SqliteRunLog, StorageError, Verification, engine::replayed,
    sqlite::BATCH_WINDOW,
};

/// Requests that hash to one of these are created one after the other.
const STRIPES: usize = 1024;

/// The logs of one service, together a log: a new run goes to the log of its durability, and a run
/// is found in either.
///
/// Clones are handles of the same logs.
#[derive(Clone)]
pub struct RunLogs {
    sync: Arc<dyn RunLog>,
    memory: Arc<dyn RunLog>,
    /// Each log keeps request ids unique; these keep them unique over both. A lock is held while
    /// one run is created, and few requests share one.
    creating: Arc<[Mutex<()>]>,
}

impl std::fmt::Debug for RunLogs {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("RunLogs")
    }
}

impl RunLogs {
    /// Opens the log of a service: durable runs in the file that `options` name, fleeting ones in
    /// memory, within the default limits.
    ///
    /// # Errors
    /// [`OpenError`] when the file cannot be used.
    pub async fn open(options: SqliteOptions) -> Result<Self, OpenError> {
        Self::open_batching(options, BATCH_WINDOW).await
    }

    /// Opens the log; submitted events at [`Durability::Batched`] wait `window` for their commit.
    ///
    /// # Errors
    /// As [`RunLogs::open`].
    pub async fn open_batching(
        options: SqliteOptions,
        window: Duration,
    ) -> Result<Self, OpenError> {
        let sync = SqliteRunLog::open_batching(options, window).await?;
        let memory = MemoryRunLog::new(MemoryLimits::default());
        Ok(Self::new(Arc::new(sync), Arc::new(memory)))
    }

    /// Puts the log of durable runs and the log of fleeting runs together.
    pub fn new(sync: Arc<dyn RunLog>, memory: Arc<dyn RunLog>) -> Self {
        Self {
            sync,
            memory,
            creating: (0..STRIPES).map(|_| Mutex::default()).collect(),
        }
    }

    /// Creates a run whose request id the caller knows to be unused: the log of the other
    /// durability is not searched. That spares a fleeting run every visit to the disk.
    ///
    /// # Errors
    /// As [`RunLog::create`].
    pub async fn create_first(
        &self,
        run: NewRun,
        first: Vec<NewEvent>,
    ) -> Result<Created, CreateError> {
        match run.durability {
            Durability::Sync | Durability::Batched => self.sync.create(run, first).await,
            Durability::Memory => self.memory.create(run, first).await,
        }
    }

    fn stripe(&self, scope: &str, request_id: &RequestId) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        (scope, request_id).hash(&mut hasher);
        let index = hasher.finish() % self.creating.len() as u64;
        &self.creating[usize::try_from(index).expect("a remainder of a length is an index")]
    }

    /// Returns the log that holds the run. Memory first: its look-up costs next to nothing.
    async fn holder(&self, run: RunId) -> Result<&dyn RunLog, StorageError> {
        let in_memory = self.memory.summary(run).await?.is_some();
        Ok(if in_memory {
            &*self.memory
        } else {
            &*self.sync
        })
    }
}

#[async_trait]
impl RunLog for RunLogs {
    async fn create(&self, run: NewRun, first: Vec<NewEvent>) -> Result<Created, CreateError> {
        let (log, other) = match run.durability {
            Durability::Sync | Durability::Batched => (&self.sync, &self.memory),
            Durability::Memory => (&self.memory, &self.sync),
        };
        let Some(request) = run.request.clone() else {
            return log.create(run, first).await;
        };
        let _creating = self
            .stripe(&request.scope, &request.request_id)
            .lock()
            .await;
        if let Some(summary) = other
            .by_request(&request.scope, &request.request_id)
            .await?
        {
            return replayed(summary, &request);
        }
        log.create(run, first).await
    }

    async fn create_in_batch(
        &self,
        run: NewRun,
        first: Vec<NewEvent>,
    ) -> Result<RunWriter, CreateError> {
        match run.durability {
            Durability::Sync | Durability::Batched => self.sync.create_in_batch(run, first).await,
            Durability::Memory => self.memory.create_in_batch(run, first).await,
        }
    }

    async fn reopen(&self, run: RunId) -> Result<RunWriter, ReopenError> {
        self.holder(run).await?.reopen(run).await
    }

    async fn reopen_listed(
        &self,
        run: &RunSummary,
        newest: usize,
    ) -> Result<Reopened, ReopenError> {
        self.holder(run.id).await?.reopen_listed(run, newest).await
    }

    async fn summary(&self, run: RunId) -> Result<Option<RunSummary>, StorageError> {
        match self.memory.summary(run).await? {
            Some(summary) => Ok(Some(summary)),
            None => self.sync.summary(run).await,
        }
    }

    async fn by_request(
        &self,
        scope: &str,
        request_id: &RequestId,
    ) -> Result<Option<RunSummary>, StorageError> {
        match self.memory.by_request(scope, request_id).await? {
            Some(summary) => Ok(Some(summary)),
            None => self.sync.by_request(scope, request_id).await,
        }
    }

    async fn list(
        &self,
        filter: &RunFilter,
        order: Order,
        after: Option<&RunCursor>,
        limit: usize,
    ) -> Result<RunPage, StorageError> {
        let sync = self.sync.list(filter, order, after, limit).await?;
        let memory = self.memory.list(filter, order, after, limit).await?;
        let more = sync.next.is_some() || memory.next.is_some();
        let mut runs = sync.runs;
        runs.extend(memory.runs);
        match order {
            Order::NewestFirst => {
                runs.sort_by_cached_key(|run| std::cmp::Reverse(run.cursor().sort_key()));
            }
            Order::OldestFirst => runs.sort_by_cached_key(|run| run.cursor().sort_key()),
        }
        let limit = limit.clamp(1, crate::limits::MAX_PAGE_RUNS);
        let mut page = RunPage::cut(runs, limit);
        if more {
            page.next = page.runs.last().map(RunSummary::cursor);
        }
        Ok(page)
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunSummary>, StorageError> {
        let mut due = self.sync.due(now, limit).await?;
        due.extend(self.memory.due(now, limit).await?);
        due.sort_by_key(|run| run.due);
        due.truncate(limit.clamp(1, crate::limits::MAX_PAGE_RUNS));
        Ok(due)
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StorageError> {
        let sync = self.sync.next_due().await?;
        let memory = self.memory.next_due().await?;
        Ok(sync.into_iter().chain(memory).min())
    }

    async fn read(&self, run: RunId, after: u64, limit: usize) -> Result<Vec<Event>, ReadError> {
        self.holder(run).await?.read(run, after, limit).await
    }

    async fn follow(&self, run: RunId, after: u64) -> Result<Follower, ReadError> {
        self.holder(run).await?.follow(run, after).await
    }

    async fn verify(&self, run: RunId) -> Result<Verification, ReadError> {
        self.holder(run).await?.verify(run).await
    }

    async fn delete(&self, run: RunId) -> Result<(), DeleteError> {
        self.holder(run).await?.delete(run).await
    }

    async fn forget(&self, run: RunId) -> Result<(), DeleteError> {
        self.holder(run).await?.forget(run).await
    }

    async fn has_dependents(&self, run: RunId) -> Result<bool, StorageError> {
        Ok(self.memory.has_dependents(run).await? || self.sync.has_dependents(run).await?)
    }

    async fn forget_requests(&self, before: Timestamp) -> Result<u64, StorageError> {
        let in_memory = self.memory.forget_requests(before).await?;
        Ok(in_memory + self.sync.forget_requests(before).await?)
    }

    async fn reclaim(&self) -> Result<u64, StorageError> {
        self.sync.reclaim().await
    }

    async fn close(&self) {
        self.memory.close().await;
        self.sync.close().await;
    }
}
