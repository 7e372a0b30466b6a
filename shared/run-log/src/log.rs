//! The contract of a run log.

use async_trait::async_trait;
use core_types::{RequestId, RunId, Timestamp};

use crate::{
    CreateError, DeleteError, Event, Follower, Hash, NewEvent, NewRun, Order, ReadError,
    ReopenError, RunCursor, RunFilter, RunPage, RunSummary, RunWriter, StateFilter, StorageError,
};

/// A log of runs.
#[async_trait]
pub trait RunLog: Send + Sync {
    /// Creates a run with its first events (there may be none) in one commit.
    ///
    /// Of several calls with one request id and scope exactly one creates; the others receive the
    /// run that it created.
    ///
    /// # Errors
    /// [`CreateError`]; only after [`CreateError::Unknown`] may anything have been stored.
    async fn create(&self, run: NewRun, first: Vec<NewEvent>) -> Result<Created, CreateError>;

    /// Creates a run with its first events, whose request the caller knows to be unused. They are
    /// queued, and their commit may wait for others within the log's window; if they are lost, the
    /// writer's next call reports it.
    ///
    /// # Errors
    /// [`CreateError`]; the run was then not accepted.
    async fn create_in_batch(
        &self,
        run: NewRun,
        first: Vec<NewEvent>,
    ) -> Result<RunWriter, CreateError>;

    /// Takes over an open run, mostly after a restart. Every earlier writer of it is fenced.
    ///
    /// # Errors
    /// [`ReopenError`] when the run does not exist or has ended, or cannot be read.
    async fn reopen(&self, run: RunId) -> Result<RunWriter, ReopenError>;

    /// Takes over an open run that was listed before, as [`RunLog::reopen`] does with one look-up less, and
    /// returns its newest events with it: at most `newest`, held between 1 and
    /// [`MAX_READ_EVENTS`](crate::limits::MAX_READ_EVENTS), and no more than about
    /// [`MAX_READ_BYTES`](crate::limits::MAX_READ_BYTES).
    ///
    /// # Errors
    /// As [`RunLog::reopen`].
    async fn reopen_listed(&self, run: &RunSummary, newest: usize)
    -> Result<Reopened, ReopenError>;

    /// Returns the summary of a run, or `None` when it does not exist.
    ///
    /// # Errors
    /// [`StorageError`] when it cannot be read.
    async fn summary(&self, run: RunId) -> Result<Option<RunSummary>, StorageError>;

    /// Returns the run that a request created, or `None`.
    ///
    /// # Errors
    /// [`StorageError`] when it cannot be read.
    async fn by_request(
        &self,
        scope: &str,
        request_id: &RequestId,
    ) -> Result<Option<RunSummary>, StorageError>;

    /// Lists runs. A page has at most `limit` runs, held between 1 and
    /// [`MAX_PAGE_RUNS`](crate::limits::MAX_PAGE_RUNS).
    ///
    /// # Errors
    /// [`StorageError`] when they cannot be read.
    async fn list(
        &self,
        filter: &RunFilter,
        order: Order,
        after: Option<&RunCursor>,
        limit: usize,
    ) -> Result<RunPage, StorageError>;

    /// Lists runs that rest and are due at `now`, the earliest first: at most `limit`,
    /// held between 1 and [`MAX_PAGE_RUNS`](crate::limits::MAX_PAGE_RUNS). A run that was taken over does
    /// not rest.
    ///
    /// # Errors
    /// [`StorageError`] when they cannot be read.
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunSummary>, StorageError>;

    /// Returns the time at which the first resting run is due, or `None` when none rests.
    ///
    /// # Errors
    /// [`StorageError`] when it cannot be read.
    async fn next_due(&self) -> Result<Option<Timestamp>, StorageError>;

    /// Reads events after sequence `after`: at most `limit`, held between 1 and
    /// [`MAX_READ_EVENTS`](crate::limits::MAX_READ_EVENTS), and no more than about
    /// [`MAX_READ_BYTES`](crate::limits::MAX_READ_BYTES). An empty list means the end of the log.
    ///
    /// # Errors
    /// [`ReadError`] when the run does not exist or cannot be read.
    async fn read(&self, run: RunId, after: u64, limit: usize) -> Result<Vec<Event>, ReadError>;

    /// Follows a run: the events after sequence `after` and all later ones, to the terminal event.
    ///
    /// At or past the end of a finished run the terminal event is returned again. Past the end of
    /// an open run, following starts at its end.
    ///
    /// # Errors
    /// [`ReadError`] when the run does not exist or cannot be read.
    async fn follow(&self, run: RunId, after: u64) -> Result<Follower, ReadError>;

    /// Recomputes the hash chain of a run.
    ///
    /// # Errors
    /// [`ReadError`] when the run does not exist or cannot be read.
    async fn verify(&self, run: RunId) -> Result<Verification, ReadError>;

    /// Deletes a finished run with its events. Followers that have not reached its end receive
    /// [`ReadError::NoSuchRun`]. The request id that created it stays used.
    ///
    /// # Errors
    /// [`DeleteError`] when the run does not exist or is open, or cannot be deleted.
    async fn delete(&self, run: RunId) -> Result<(), DeleteError>;

    /// Deletes a finished run as [`RunLog::delete`] does, and with it the name of its request, which may then
    /// start another run. A run of up to 4,096 events goes in one commit.
    ///
    /// # Errors
    /// As [`RunLog::delete`].
    async fn forget(&self, run: RunId) -> Result<(), DeleteError>;

    /// Whether a fork of the run is in the log, or a run of the log that it started is open.
    ///
    /// # Errors
    /// [`StorageError`] when that cannot be read.
    async fn has_dependents(&self, run: RunId) -> Result<bool, StorageError>;

    /// Frees request ids of deleted runs that had ended before a time, up to some hundreds in one commit.
    /// Returns their number; zero when none is left.
    ///
    /// # Errors
    /// [`StorageError`] when they cannot be deleted.
    async fn forget_requests(&self, before: Timestamp) -> Result<u64, StorageError>;

    /// Returns up to 1 MiB of free space to the file system, in one commit. Returns the number of bytes; zero when
    /// little is free.
    ///
    /// # Errors
    /// [`StorageError`] when the file cannot be written.
    async fn reclaim(&self) -> Result<u64, StorageError>;

    /// Stores the accepted steps, then ends. Later calls return [`StorageError::Closed`], and so do
    /// followers.
    async fn close(&self);

    /// Lists the runs that have not ended, oldest first: the runs that a restart must resume.
    ///
    /// # Errors
    /// [`StorageError`] when they cannot be read.
    async fn open_runs(
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
}

/// The result of a request to create a run.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per request, and it is taken apart at once"
)]
pub enum Created {
    /// The run is new; this is its writer.
    New(RunWriter),
    /// The request was answered before, by this run.
    Replayed(RunSummary),
}

/// A run that was taken over.
#[derive(Debug)]
pub struct Reopened {
    /// The run's writer.
    pub writer: RunWriter,
    /// The newest events that the run had then, the last one at the end.
    pub events: Vec<Event>,
}

/// The result of recomputing a run's hash chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Every event exists and follows from its predecessor.
    Intact {
        /// The number of events.
        events: u64,
        /// The last event's hash.
        head: Hash,
    },
    /// The chain is broken.
    Broken {
        /// The first event that is not as it was written.
        sequence: u64,
        /// The fault of the event.
        fault: Fault,
    },
}

/// The fault of an event of a broken chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The event is missing.
    Missing,
    /// Its hash does not follow from the event before it and its own content. One of the two was
    /// changed; if this event was changed together with its hash, the next is named instead.
    HashMismatch,
    /// It is not the event that the run ended with.
    EndMismatch,
}

/// Implements [`RunLog`] for a log that keeps an `Engine` in its field `engine`; methods on the
/// file or the memory differ between them.
macro_rules! delegate_to_engine {
    ($log:ty, { $($own:item)* }) => {
        #[async_trait]
        impl RunLog for $log {
            async fn create(
                &self,
                run: NewRun,
                first: Vec<NewEvent>,
            ) -> Result<Created, CreateError> {
                self.engine.create(run, first).await
            }

            async fn create_in_batch(
                &self,
                run: NewRun,
                first: Vec<NewEvent>,
            ) -> Result<RunWriter, CreateError> {
                self.engine.create_in_batch(run, first).await
            }

            async fn reopen(&self, run: RunId) -> Result<RunWriter, ReopenError> {
                self.engine.reopen(run).await
            }

            async fn reopen_listed(
                &self,
                run: &RunSummary,
                newest: usize,
            ) -> Result<Reopened, ReopenError> {
                self.engine.reopen_listed(run, newest).await
            }

            async fn summary(&self, run: RunId) -> Result<Option<RunSummary>, StorageError> {
                self.engine.summary(run).await
            }

            async fn by_request(
                &self,
                scope: &str,
                request_id: &RequestId,
            ) -> Result<Option<RunSummary>, StorageError> {
                self.engine.by_request(scope, request_id).await
            }

            async fn list(
                &self,
                filter: &RunFilter,
                order: Order,
                after: Option<&RunCursor>,
                limit: usize,
            ) -> Result<RunPage, StorageError> {
                self.engine.list(filter, order, after, limit).await
            }

            async fn due(
                &self,
                now: core_types::Timestamp,
                limit: usize,
            ) -> Result<Vec<RunSummary>, StorageError> {
                self.engine.due(now, limit).await
            }

            async fn next_due(&self) -> Result<Option<core_types::Timestamp>, StorageError> {
                self.engine.next_due().await
            }

            async fn read(
                &self,
                run: RunId,
                after: u64,
                limit: usize,
            ) -> Result<Vec<Event>, ReadError> {
                self.engine.read(run, after, limit).await
            }

            async fn follow(&self, run: RunId, after: u64) -> Result<Follower, ReadError> {
                self.engine.follow(run, after).await
            }

            async fn verify(&self, run: RunId) -> Result<Verification, ReadError> {
                self.engine.verify(run).await
            }

            async fn delete(&self, run: RunId) -> Result<(), DeleteError> {
                self.engine.delete(run).await
            }

            async fn forget(&self, run: RunId) -> Result<(), DeleteError> {
                self.engine.forget(run).await
            }

            async fn has_dependents(&self, run: RunId) -> Result<bool, StorageError> {
                self.engine.has_dependents(run).await
            }

            $($own)*
        }
    };
}
pub(crate) use delegate_to_engine;
