//! The unit of storage, and the interface for reading it back.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use core_types::{RequestId, RunId, Tenant, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    AppendError, Event, NewRun, Order, Owners, RunCursor, RunFilter, RunPage, RunSummary,
    StorageError,
    cell::{Chain, ChainPosition, Finish, Phase, Registry, RunCell},
    event::Head,
};

/// The changes of one call, stored all together or not at all.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) cell: Arc<RunCell>,
    pub(crate) key: i64,
    /// The chain's epoch when the events got their places.
    pub(crate) epoch: u64,
    pub(crate) create: Option<Box<NewRun>>,
    pub(crate) events: Vec<Event>,
    pub(crate) finish: Option<Finish>,
    /// The phase that the run enters.
    pub(crate) phase: Option<Phase>,
    /// Whether a writer takes the run over, which ends its rest.
    pub(crate) takes_over: bool,
    /// The part of a finished run that is deleted.
    pub(crate) deletion: Option<Deletion>,
    /// The position of the run after this step.
    pub(crate) place: ChainPosition,
    /// The channel of the answer; a submitted event needs none.
    pub(crate) reply: Option<oneshot::Sender<Result<(), StepError>>>,
    /// Whether it may wait a while for others to be stored with.
    pub(crate) may_wait: bool,
    /// The room of its payloads in the queue.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// One part of deleting a finished run. The first part hides it; the others free its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// Hides the run: it is gone for every reader.
    Hide,
    /// Deletes its events up to this sequence.
    Events {
        /// The last sequence to delete.
        up_to: u64,
    },
    /// Deletes the rest. If a request created the run, its name stays taken.
    Run,
    /// Deletes the rest and the name of the request.
    Forget,
}

/// The reason why a step was not stored.
#[derive(Clone, Debug)]
pub(crate) enum StepError {
    /// A run with this id or this request exists already.
    Duplicate,
    /// Another process holds the run.
    HeldElsewhere,
    /// Any failure of an append.
    Append(AppendError),
}

impl From<AppendError> for StepError {
    fn from(error: AppendError) -> Self {
        StepError::Append(error)
    }
}

impl Step {
    /// Notes the success on the run's chain and answers the caller.
    pub(crate) fn acknowledge(&mut self, chain: &mut Chain) {
        chain.acknowledge(self.epoch, self.place);
        self.answer(Ok(()));
    }

    /// Notes the failure on the run's chain and answers the caller.
    pub(crate) fn reject(&mut self, chain: &mut Chain, error: AppendError) {
        chain.reject(self.epoch, self.reply.is_some(), &error);
        self.answer(Err(error.into()));
    }

    /// Answers the caller; a caller that is gone misses only the answer.
    pub(crate) fn answer(&mut self, outcome: Result<(), StepError>) {
        if let Some(reply) = self.reply.take() {
            reply.send(outcome).unwrap_or_default();
        }
    }
}

/// The reads of a store.
#[async_trait]
pub(crate) trait Store: Send + Sync + std::fmt::Debug {
    /// Returns up to `limit` resting runs that are due at `now`, the earliest first.
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunSummary>, StorageError>;

    /// Returns the time at which the first resting run is due.
    async fn next_due(&self) -> Result<Option<Timestamp>, StorageError>;

    /// Whether a fork of the run is stored, or a stored run that it started is open.
    async fn has_dependents(&self, run: RunId) -> Result<bool, StorageError>;

    /// Returns a run of some owners that is not deleted. A run of another owner costs no more than a missing one.
    async fn row(&self, run: RunId, owners: &Owners) -> Result<Option<RunRow>, StorageError>;

    /// Returns the run that a request of a tenant created, also if it is deleted.
    async fn row_by_request(
        &self,
        tenant: Tenant,
        scope: &str,
        request_id: &RequestId,
    ) -> Result<Option<RunRow>, StorageError>;

    async fn list(
        &self,
        filter: &RunFilter,
        order: Order,
        after: Option<&RunCursor>,
        limit: usize,
    ) -> Result<RunPage, StorageError>;

    /// Reads events of a run that is not deleted, as [`Store::page`] does; none if there is no such run.
    async fn page_of(
        &self,
        run: RunId,
        after: u64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StorageError>;

    /// Reads the newest events of the run with `key`, the oldest of them in front: at most `limit`,
    /// and no more than `max_bytes` of payload unless the last one has more. `None` if the run does
    /// not exist or is deleted.
    async fn tail(
        &self,
        key: i64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Option<Tail>, StorageError>;

    /// Reads events of the run with `key`: at most `limit`, and no more than `max_bytes` of payload
    /// unless one event has more; the arguments are within the limits.
    async fn page(
        &self,
        key: i64,
        after: u64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StorageError>;

    /// Returns the number of runs of a tenant that have not ended, at most `most`.
    async fn open_of(&self, tenant: Tenant, most: u64) -> Result<u64, StorageError>;

    /// Returns the number of runs that have not ended of each tenant that has some.
    async fn open_by_tenant(&self) -> Result<BTreeMap<Tenant, u64>, StorageError>;

    /// Frees request ids of deleted runs, of one tenant or of all, that had ended before a time, a bounded number of
    /// them, and returns their number.
    async fn forget_requests(
        &self,
        before: Timestamp,
        tenant: Option<Tenant>,
    ) -> Result<u64, StorageError>;

    /// Returns free space to the file system, a bounded number of bytes, and returns their number.
    async fn reclaim(&self) -> Result<u64, StorageError>;

    /// Stores the accepted steps, ends the followers of `runs` and refuses every later step.
    async fn close(&self, runs: &Registry);
}

/// The end of a stored run's log.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    /// Whether the run has ended.
    pub(crate) ended: bool,
    /// The newest events, the last one at the end.
    pub(crate) events: Vec<Event>,
}

/// A stored run.
#[derive(Clone, Debug)]
pub(crate) struct RunRow {
    pub(crate) key: i64,
    pub(crate) summary: RunSummary,
    /// The chain's head when the run ended.
    pub(crate) end: Option<Head>,
    /// Whether the run was deleted, and only the name of its request is kept.
    pub(crate) deleted: bool,
}
