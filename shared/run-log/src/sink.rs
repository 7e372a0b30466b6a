//! The way of steps to the store.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::{StorageError, cell::Chain, memory_store::MemoryStore, step::Step};

/// The destination of steps.
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
pub(crate) enum Reservation<'a> {
    Queue(mpsc::Permit<'a, Step>, OwnedSemaphorePermit),
    Memory(&'a MemoryStore),
}

impl Sink {
    /// Waits until there is room for a step with `bytes` of payload.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<Reservation<'_>, StorageError> {
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
                Ok(Reservation::Queue(permit, room))
            }
            Sink::Memory(store) => Ok(Reservation::Memory(store)),
        }
    }
}

impl Reservation<'_> {
    /// Sends the step. `chain` is the locked chain of its run, so that steps leave in the order
    /// in which they got their places.
    pub(crate) fn send(self, mut step: Step, chain: &mut Chain) {
        match self {
            Reservation::Queue(permit, room) => {
                step.room = Some(room);
                permit.send(step);
            }
            Reservation::Memory(store) => store.apply(step, chain),
        }
    }
}
