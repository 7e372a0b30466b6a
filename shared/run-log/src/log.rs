//! The log of a service: durable runs in a file or at a server, fleeting ones in memory.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher},
    sync::Arc,
    time::Duration,
};

use core_types::{Durability, RequestId, RunId, Tenant, Timestamp};
use membership::{FenceError, Membership};
use sql_store::{OpenError, SqliteOptions};
use tokio::sync::Mutex;

use crate::{
    CreateError, Created, DeleteError, Event, Follower, NewEvent, NewRun, Order, Owners, ReadError,
    ReopenError, Reopened, RunCursor, RunFilter, RunPage, RunState, RunSummary, RunWriter,
    StateFilter, StorageError, Verification,
    engine::{Engine, replayed},
    keys::Keys,
    memory_store::{MemoryLimits, MemoryStore},
    postgres,
    sink::Sink,
    sqlite,
    storage::BATCH_WINDOW,
};

/// A time after every other.
const END_OF_TIME: Timestamp = Timestamp::from_unix_nanos(i64::MAX);

/// Requests that hash to one of these are created one after the other.
const STRIPES: usize = 1024;

/// The logs of one service, together a log: a new run goes where its durability says, and a run is
/// found wherever it is.
///
/// Clones are handles of the same logs.
#[derive(Clone, Debug)]
pub struct RunLogs {
    sync: Arc<Engine>,
    memory: Arc<Engine>,
    /// Whether a fleeting run is kept in memory. Where other processes share the storage it is a batched one, since a run
    /// that only this process knows could not be continued elsewhere.
    has_fleeting: bool,
    /// Each log keeps request ids unique; these keep them unique over both. A lock is held while
    /// one run is created, and few requests share one.
    creating: Arc<[Mutex<()>]>,
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

    /// Opens the log; what may wait at [`Durability::Batched`] waits `window` for its commit.
    ///
    /// # Errors
    /// As [`RunLogs::open`].
    pub async fn open_batching(
        options: SqliteOptions,
        window: Duration,
    ) -> Result<Self, OpenError> {
        Ok(Self::over(sqlite::open(options, window).await?, true))
    }

    /// Opens a log in the database of a member, which other processes share: no run is fleeting. `log` is its name,
    /// which no other log of the database has.
    ///
    /// # Errors
    /// The loss of the membership, or the database's error.
    pub async fn open_shared(
        membership: Membership,
        log: &'static str,
    ) -> Result<Self, FenceError> {
        Self::open_shared_batching(membership, log, BATCH_WINDOW).await
    }

    /// Opens the log; what may wait at [`Durability::Batched`] waits `window` for its commit.
    ///
    /// # Errors
    /// As [`RunLogs::open_shared`].
    pub async fn open_shared_batching(
        membership: Membership,
        log: &'static str,
        window: Duration,
    ) -> Result<Self, FenceError> {
        let shared = postgres::open(membership, log, window).await?;
        Ok(Self::over(shared, false))
    }

    fn over(stored: Engine, has_fleeting: bool) -> Self {
        Self {
            sync: Arc::new(stored),
            memory: Arc::new(in_memory(MemoryLimits::default())),
            has_fleeting,
            creating: (0..STRIPES).map(|_| Mutex::default()).collect(),
        }
    }

    /// Returns a run with the durability at which it is carried out.
    fn carried_out(&self, mut run: NewRun) -> NewRun {
        if run.durability == Durability::Memory && !self.has_fleeting {
            run.durability = Durability::Batched;
        }
        run
    }

    /// Creates a run whose request id the caller knows to be unused: the log of the other durability
    /// is not asked. That spares a fleeting run every visit to the disk.
    ///
    /// # Errors
    /// As [`RunLogs::create`].
    pub async fn create_first(
        &self,
        run: NewRun,
        first: Vec<NewEvent>,
    ) -> Result<Created, CreateError> {
        let run = self.carried_out(run);
        match run.durability {
            Durability::Sync | Durability::Batched => self.sync.create(run, first).await,
            Durability::Memory => self.memory.create(run, first).await,
        }
    }

    /// Creates a run with its first events (there may be none) in one commit.
    ///
    /// Of several calls of a tenant with one request id and scope exactly one creates; the others receive the
    /// run that it created.
    ///
    /// # Errors
    /// [`CreateError`]; only after [`CreateError::Unknown`] may anything have been stored.
    pub async fn create(&self, run: NewRun, first: Vec<NewEvent>) -> Result<Created, CreateError> {
        let run = self.carried_out(run);
        let (log, other) = match run.durability {
            Durability::Sync | Durability::Batched => (&self.sync, &self.memory),
            Durability::Memory => (&self.memory, &self.sync),
        };
        let Some(request) = run.request.clone() else {
            return log.create(run, first).await;
        };
        let tenant = run.owner.tenant();
        let (scope, request_id) = (&request.scope, &request.request_id);
        let _creating = self.stripe(tenant, scope, request_id).lock().await;
        if let Some(summary) = other.by_request(tenant, scope, request_id).await? {
            return replayed(summary, &request);
        }
        log.create(run, first).await
    }

    /// Creates a run with its first events, whose request the caller knows to be unused. They are
    /// queued, and their commit may wait for others within the log's window; if they are lost, the
    /// writer's next call reports it.
    ///
    /// # Errors
    /// [`CreateError`]; the run was then not accepted.
    pub async fn create_in_batch(
        &self,
        run: NewRun,
        first: Vec<NewEvent>,
    ) -> Result<RunWriter, CreateError> {
        let run = self.carried_out(run);
        match run.durability {
            Durability::Sync | Durability::Batched => self.sync.create_in_batch(run, first).await,
            Durability::Memory => self.memory.create_in_batch(run, first).await,
        }
    }

    /// Takes over an open run, mostly after a restart. Every earlier writer of it is fenced.
    ///
    /// # Errors
    /// [`ReopenError`] when the run is not there or has ended, or cannot be read.
    pub async fn reopen(&self, run: RunId) -> Result<RunWriter, ReopenError> {
        self.holder(run).await?.reopen(run).await
    }

    /// Takes over an open run that was listed before, as [`RunLogs::reopen`] does with one look-up less, and
    /// returns its newest events with it: at most `newest`, held between 1 and
    /// [`MAX_READ_EVENTS`](crate::limits::MAX_READ_EVENTS), and no more than about
    /// [`MAX_READ_BYTES`](crate::limits::MAX_READ_BYTES).
    ///
    /// # Errors
    /// As [`RunLogs::reopen`].
    pub async fn reopen_listed(
        &self,
        run: &RunSummary,
        newest: usize,
    ) -> Result<Reopened, ReopenError> {
        self.holder(run.id).await?.reopen_listed(run, newest).await
    }

    /// Returns the summary of a run of any owner, or `None` when it does not exist. The caller answers for the
    /// run, or has looked it up for its reader with [`RunLogs::find`] before.
    ///
    /// # Errors
    /// [`StorageError`] when it cannot be read.
    pub async fn summary(&self, run: RunId) -> Result<Option<RunSummary>, StorageError> {
        self.find(run, &Owners::All).await
    }

    /// Returns the summary of a run of some owners, or `None` when it does not exist or belongs to another owner,
    /// with the same work for both.
    ///
    /// # Errors
    /// [`StorageError`] when it cannot be read.
    pub async fn find(
        &self,
        run: RunId,
        owners: &Owners,
    ) -> Result<Option<RunSummary>, StorageError> {
        match self.memory.summary(run, owners).await? {
            Some(summary) => Ok(Some(summary)),
            None => self.sync.summary(run, owners).await,
        }
    }

    /// Returns the run that a request of a tenant created, or `None`.
    ///
    /// # Errors
    /// [`StorageError`] when it cannot be read.
    pub async fn by_request(
        &self,
        tenant: Tenant,
        scope: &str,
        request_id: &RequestId,
    ) -> Result<Option<RunSummary>, StorageError> {
        match self.memory.by_request(tenant, scope, request_id).await? {
            Some(summary) => Ok(Some(summary)),
            None => self.sync.by_request(tenant, scope, request_id).await,
        }
    }

    /// Lists runs. A page has at most `limit` runs, held between 1 and
    /// [`MAX_PAGE_RUNS`](crate::limits::MAX_PAGE_RUNS).
    ///
    /// # Errors
    /// [`StorageError`] when they cannot be read.
    pub async fn list(
        &self,
        filter: &RunFilter,
        order: Order,
        after: Option<&RunCursor>,
        limit: usize,
    ) -> Result<RunPage, StorageError> {
        if filter.names_none() {
            return Ok(RunPage::cut(Vec::new(), 1));
        }
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

    /// Lists runs of all tenants that rest and are due at `now`, the earliest first: at most `limit`,
    /// held between 1 and [`MAX_PAGE_RUNS`](crate::limits::MAX_PAGE_RUNS). A run that was taken over does
    /// not rest.
    ///
    /// # Errors
    /// [`StorageError`] when they cannot be read.
    pub async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunSummary>, StorageError> {
        let mut due = self.sync.due(now, limit).await?;
        due.extend(self.memory.due(now, limit).await?);
        due.sort_by_key(|run| run.due);
        due.truncate(limit.clamp(1, crate::limits::MAX_PAGE_RUNS));
        Ok(due)
    }

    /// Returns the time at which the first resting run is due, or `None` when none rests.
    ///
    /// # Errors
    /// [`StorageError`] when it cannot be read.
    pub async fn next_due(&self) -> Result<Option<Timestamp>, StorageError> {
        let sync = self.sync.store.next_due().await?;
        let memory = self.memory.store.next_due().await?;
        Ok(sync.into_iter().chain(memory).min())
    }

    /// Reads events after sequence `after`: at most `limit`, held between 1 and
    /// [`MAX_READ_EVENTS`](crate::limits::MAX_READ_EVENTS), and no more than about
    /// [`MAX_READ_BYTES`](crate::limits::MAX_READ_BYTES). An empty list means the end of the log.
    ///
    /// # Errors
    /// [`ReadError`] when the run is not there or cannot be read.
    pub async fn read(
        &self,
        run: RunId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, ReadError> {
        self.holder(run).await?.read(run, after, limit).await
    }

    /// Follows a run: the events after sequence `after` and all later ones, to the terminal event.
    ///
    /// At or past the end of a finished run the terminal event is returned again. Past the end of
    /// an open run, following starts at its end.
    ///
    /// # Errors
    /// [`ReadError`] when the run is not there or cannot be read.
    pub async fn follow(&self, run: RunId, after: u64) -> Result<Follower, ReadError> {
        self.holder(run).await?.follow(run, after).await
    }

    /// Recomputes the hash chain of a run.
    ///
    /// # Errors
    /// [`ReadError`] when the run is not there or cannot be read.
    pub async fn verify(&self, run: RunId) -> Result<Verification, ReadError> {
        self.holder(run).await?.verify(run).await
    }

    /// Deletes a finished run with its events. Followers that have not reached its end receive
    /// [`ReadError::NoSuchRun`]. The request id that created it stays used.
    ///
    /// # Errors
    /// [`DeleteError`] when the run is not there or is open, or cannot be deleted.
    pub async fn delete(&self, run: RunId) -> Result<(), DeleteError> {
        self.holder(run).await?.delete(run).await
    }

    /// Deletes a finished run as [`RunLogs::delete`] does, and with it the name of its request, which may then
    /// start another run. A run of up to 4,096 events goes in one commit.
    ///
    /// # Errors
    /// As [`RunLogs::delete`].
    pub async fn forget(&self, run: RunId) -> Result<(), DeleteError> {
        self.holder(run).await?.forget(run).await
    }

    /// Whether a fork of the run is in the log, or a run of the log that it started is open.
    ///
    /// # Errors
    /// [`StorageError`] when that cannot be read.
    pub async fn has_dependents(&self, run: RunId) -> Result<bool, StorageError> {
        Ok(self.memory.store.has_dependents(run).await?
            || self.sync.store.has_dependents(run).await?)
    }

    /// Frees request ids of deleted runs that had ended before a time, up to some hundreds in one commit.
    /// Returns their number; zero when none is left.
    ///
    /// # Errors
    /// [`StorageError`] when they cannot be deleted.
    pub async fn forget_requests(&self, before: Timestamp) -> Result<u64, StorageError> {
        self.forget_requests_in(before, None).await
    }

    async fn forget_requests_in(
        &self,
        before: Timestamp,
        tenant: Option<Tenant>,
    ) -> Result<u64, StorageError> {
        let in_memory = self.memory.store.forget_requests(before, tenant).await?;
        Ok(in_memory + self.sync.store.forget_requests(before, tenant).await?)
    }

    /// Returns up to 1 MiB of free space to the file system, in one commit. Returns the number of bytes; zero when
    /// little is free.
    ///
    /// # Errors
    /// [`StorageError`] when the file cannot be written.
    pub async fn reclaim(&self) -> Result<u64, StorageError> {
        self.sync.store.reclaim().await
    }

    /// Stores the accepted steps, then ends. Later calls return [`StorageError::Closed`], and so do
    /// followers.
    pub async fn close(&self) {
        self.memory.close().await;
        self.sync.close().await;
    }

    /// Returns the number of runs of a tenant that have not ended, at most `most`.
    ///
    /// # Errors
    /// [`StorageError`] when they cannot be counted.
    pub async fn open_runs_of(&self, tenant: Tenant, most: u64) -> Result<u64, StorageError> {
        let in_memory = self.memory.store.open_of(tenant, most).await?;
        let stored = self.sync.store.open_of(tenant, most).await?;
        Ok(most.min(in_memory + stored))
    }

    /// Returns the number of runs that have not ended of each tenant that has some.
    ///
    /// # Errors
    /// [`StorageError`] when they cannot be counted.
    pub async fn open_runs_by_tenant(&self) -> Result<BTreeMap<Tenant, u64>, StorageError> {
        let mut all = self.memory.store.open_by_tenant().await?;
        for (tenant, runs) in self.sync.store.open_by_tenant().await? {
            *all.entry(tenant).or_default() += runs;
        }
        Ok(all)
    }

    /// Removes at most `most` runs of a tenant that have ended, and request ids of deleted ones, after `before` has
    /// deleted the data of each run. Returns a number that is zero once nothing of the tenant is left.
    ///
    /// # Errors
    /// The error of `before`, or of a storage that does not work.
    pub async fn remove_of<E: From<StorageError>, B: Future<Output = Result<(), E>>>(
        &self,
        tenant: Tenant,
        most: usize,
        before: impl Fn(RunSummary) -> B,
    ) -> Result<u64, E> {
        let filter = RunFilter {
            owners: Owners::Tenant(tenant),
            ..RunFilter::default()
        };
        let page = self.list(&filter, Order::OldestFirst, None, most).await?;
        let mut left = page.runs.len() as u64 + u64::from(page.next.is_some());
        let ended = |run: &RunSummary| run.state != RunState::Open;
        for run in page.runs.into_iter().filter(ended) {
            let id = run.id;
            before(run).await?;
            match self.forget(id).await {
                Ok(()) | Err(DeleteError::NoSuchRun) => left -= 1,
                Err(DeleteError::Open) => {}
                Err(DeleteError::Storage(error)) => return Err(error.into()),
            }
        }
        // More may follow where some were found.
        Ok(left + self.forget_requests_in(END_OF_TIME, Some(tenant)).await?)
    }

    /// Lists the runs of all tenants that have not ended, oldest first: the runs that a restart must resume.
    ///
    /// # Errors
    /// [`StorageError`] when they cannot be read.
    pub async fn open_runs(
        &self,
        after: Option<&RunCursor>,
        limit: usize,
    ) -> Result<RunPage, StorageError> {
        let filter = RunFilter {
            state: StateFilter::Open,
            ..RunFilter::default()
        };
        self.list(&filter, Order::OldestFirst, after, limit).await
    }

    fn stripe(&self, tenant: Tenant, scope: &str, request_id: &RequestId) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        (tenant, scope, request_id).hash(&mut hasher);
        let index = hasher.finish() % self.creating.len() as u64;
        &self.creating[usize::try_from(index).expect("a remainder of a length is an index")]
    }

    /// Returns the log that holds the run. Memory first: it costs next to nothing to ask.
    async fn holder(&self, run: RunId) -> Result<&Engine, StorageError> {
        let in_memory = self.memory.summary(run, &Owners::All).await?.is_some();
        Ok(if in_memory {
            &*self.memory
        } else {
            &*self.sync
        })
    }
}

/// Makes an empty log in memory.
pub(crate) fn in_memory(limits: MemoryLimits) -> Engine {
    let store = Arc::new(MemoryStore::new(limits));
    let sink = Sink::Memory(Arc::clone(&store));
    Engine::new(store, sink, Keys::counted(1))
}
