//! The unit that is stored, and the way to where it is stored.

use std::sync::Arc;

use async_trait::async_trait;
use core_types::{RequestId, RunId, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::{
    AppendError, Event, NewRun, Order, RunCursor, RunFilter, RunPage, RunSummary, StorageError,
    cell::{Chain, Place, RunCell},
    event::Head,
    memory::MemoryStore,
};

/// What one call stores, all of it or nothing.
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
    pub(crate) phase: Option<i32>,
    /// What is deleted of a finished run.
    pub(crate) deletion: Option<Deletion>,
    /// Where the run stands when this is stored.
    pub(crate) place: Place,
    /// Where the answer goes; a submitted event needs none.
    pub(crate) reply: Option<oneshot::Sender<Result<(), StepError>>>,
    /// The room that its payloads take in the queue.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finish {
    pub(crate) state: i32,
    pub(crate) time: Timestamp,
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
}

/// Why a step was not stored.
#[derive(Clone, Debug)]
pub(crate) enum StepError {
    /// A run with this id or this request is already there.
    Duplicate,
    /// Anything that an append can meet as well.
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
        chain.acknowledge(self);
        self.answer(Ok(()));
    }

    /// Notes the failure on the run's chain and answers the caller.
    pub(crate) fn reject(&mut self, chain: &mut Chain, error: AppendError) {
        chain.reject(self, &error);
        self.answer(Err(error.into()));
    }

    /// Answers the caller; one that has gone away misses nothing but the answer.
    pub(crate) fn answer(&mut self, outcome: Result<(), StepError>) {
        if let Some(reply) = self.reply.take() {
            reply.send(outcome).unwrap_or_default();
        }
    }
}

/// Where steps go.
#[derive(Clone, Debug)]
pub(crate) enum Sink {
    /// To a task that commits them in groups.
    Queue(Queue),
    /// Into memory, at once.
    Memory(Arc<MemoryStore>),
}

/// The bounded way to the committing task.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) steps: mpsc::Sender<Step>,
    /// Bounds the payload bytes that wait, as `steps` bounds their number.
    pub(crate) room: Arc<Semaphore>,
}

/// A place in the sink that is taken and not yet used.
pub(crate) enum Slot<'a> {
    Queue(mpsc::Permit<'a, Step>, OwnedSemaphorePermit),
    Memory(&'a MemoryStore),
}

impl Sink {
    /// Waits until there is room for a step with `bytes` of payload.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<Slot<'_>, StorageError> {
        match self {
            Sink::Queue(queue) => {
                let bytes = u32::try_from(bytes.max(1)).map_err(|_| StorageError::Full)?;
                let closed = |_| StorageError::Closed;
                let room = Arc::clone(&queue.room)
                    .acquire_many_owned(bytes)
                    .await
                    .map_err(closed)?;
                let permit = queue
                    .steps
                    .reserve()
                    .await
                    .map_err(|_| StorageError::Closed)?;
                Ok(Slot::Queue(permit, room))
            }
            Sink::Memory(store) => Ok(Slot::Memory(store)),
        }
    }
}

impl Slot<'_> {
    /// Sends the step. `chain` is the locked chain of its run, so that steps leave in the order
    /// in which they got their places.
    pub(crate) fn send(self, mut step: Step, chain: &mut Chain) {
        match self {
            Slot::Queue(permit, room) => {
                step.room = Some(room);
                permit.send(step);
            }
            Slot::Memory(store) => store.apply(step, chain),
        }
    }
}

/// What is read back.
#[async_trait]
pub(crate) trait Store: Send + Sync + std::fmt::Debug {
    /// Returns a run that is not deleted.
    async fn row(&self, run: RunId) -> Result<Option<RunRow>, StorageError>;

    /// Returns the run that a request created, also if it is deleted.
    async fn row_by_request(
        &self,
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

    /// Reads events of the run with `key`: at most `limit`, and no more than `max_bytes` of payload
    /// unless one event has more; what is asked for is within the limits.
    async fn page(
        &self,
        key: i64,
        after: u64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StorageError>;
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
