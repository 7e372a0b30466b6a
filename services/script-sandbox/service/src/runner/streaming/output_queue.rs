//! The queue of output between a script and a reader that may be slow.
//!
//! Output waits here in bounded space: a producer takes [`QueueSpace`] first, and without space its
//! pipe is not read, so that in the end the script waits in its own write. Events are few and need
//! no space.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sandbox_engine::domain::stream::Stream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The most bytes that are read from a pipe at once.
pub const CHUNK: usize = 32 << 10;

/// The most bytes of one chunk for the reader.
const MERGED: usize = 64 << 10;

/// The most bytes of output that wait, with [`OVERHEAD`] for every chunk.
pub const BUDGET: usize = 256 << 10;

/// The cost of a chunk in addition to its bytes, so that many small ones are bounded as well.
const OVERHEAD: usize = 256;

/// A chunk of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its stream.
    pub stream: Stream,
    /// The number of bytes of the stream before it.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// One item for the reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<E> {
    /// Output.
    Output(Chunk),
    /// An event.
    Event(E),
}

/// The right to add one chunk. Without a permit another bound holds, such as the capacity of a
/// pipe.
#[derive(Debug, Default)]
pub struct QueueSpace(Option<OwnedSemaphorePermit>);

/// The items that wait for a reader, in order.
#[derive(Debug)]
pub struct OutputQueue<E> {
    /// Locked for a look or an insertion only, never across an await.
    state: Mutex<QueueState<E>>,
    changed: Notify,
    budget: Arc<Semaphore>,
}

#[derive(Debug)]
struct QueueState<E> {
    /// Each item with its cost to the budget.
    items: VecDeque<(Item<E>, usize)>,
    closed: bool,
}

impl<E> OutputQueue<E> {
    /// Makes an empty queue.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(QueueState {
                items: VecDeque::new(),
                closed: false,
            }),
            changed: Notify::new(),
            budget: Arc::new(Semaphore::new(BUDGET)),
        })
    }

    /// Waits until a chunk of [`CHUNK`] bytes fits.
    pub async fn room(&self) -> QueueSpace {
        let cost = u32::try_from(CHUNK + OVERHEAD).unwrap_or(u32::MAX);
        QueueSpace(self.budget.clone().acquire_many_owned(cost).await.ok())
    }

    /// Adds output. It is joined to waiting output of the same stream that it directly continues.
    pub fn output(&self, room: QueueSpace, chunk: Chunk) {
        let cost = match room.0 {
            Some(mut permit) => {
                let cost = (chunk.bytes.len() + OVERHEAD).min(permit.num_permits());
                if let Some(taken) = permit.split(cost) {
                    taken.forget();
                }
                cost
            }
            None => 0,
        };
        let mut state = self.lock();
        match state.items.back_mut() {
            Some((Item::Output(last), paid))
                if last.stream == chunk.stream
                    && last.bytes.len() + chunk.bytes.len() <= MERGED =>
            {
                last.bytes.extend_from_slice(&chunk.bytes);
                *paid += cost;
            }
            _ => state.items.push_back((Item::Output(chunk), cost)),
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Adds an event.
    pub fn put(&self, event: E) {
        self.lock().items.push_back((Item::Event(event), 0));
        self.changed.notify_one();
    }

    /// Adds an event, and removes the last waiting one if it is `outdated`.
    pub fn put_latest(&self, event: E, outdated: impl Fn(&E) -> bool) {
        let mut state = self.lock();
        let is_outdated =
            |(item, _): &(Item<E>, usize)| matches!(item, Item::Event(event) if outdated(event));
        if let Some(place) = state.items.iter().rposition(is_outdated) {
            state.items.remove(place);
        }
        state.items.push_back((Item::Event(event), 0));
        drop(state);
        self.changed.notify_one();
    }

    /// Lifts the bounds: the capacity of the pipes bounds the rest.
    pub fn lift(&self) {
        self.budget.close();
    }

    /// Closes the queue: no more items will come.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// Takes the next item, waiting for it; `None` when no more will come. For one reader.
    pub async fn take(&self) -> Option<Item<E>> {
        loop {
            {
                let mut state = self.lock();
                if let Some((item, cost)) = state.items.pop_front() {
                    drop(state);
                    self.budget.add_permits(cost);
                    return Some(item);
                }
                if state.closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<E>> {
        // Every change is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn chunk(stream: Stream, offset: u64, bytes: &[u8]) -> Chunk {
        Chunk {
            stream,
            offset,
            bytes: bytes.to_vec(),
        }
    }

    #[tokio::test]
    async fn output_waits_for_room_and_goes_on_when_some_is_read() {
        let queue = OutputQueue::<()>::new();
        let mut filled = 0;
        let full = vec![7; CHUNK];
        while let Ok(room) = tokio::time::timeout(Duration::from_millis(20), queue.room()).await {
            queue.output(room, chunk(Stream::Stdout, filled as u64, &full));
            filled += CHUNK;
            assert!(filled <= BUDGET);
        }
        assert!(filled >= BUDGET / 2, "{filled}");
        assert!(matches!(queue.take().await, Some(Item::Output(_))));
        queue.room().await;
    }

    #[tokio::test]
    async fn small_pieces_are_joined_and_cost_their_overhead() {
        let queue = OutputQueue::<()>::new();
        let mut pieces = 0_u64;
        while let Ok(room) = tokio::time::timeout(Duration::from_millis(20), queue.room()).await {
            let stream = if pieces.is_multiple_of(2) {
                Stream::Stdout
            } else {
                Stream::Stderr
            };
            queue.output(room, chunk(stream, pieces / 2, b"x"));
            pieces += 1;
        }
        assert!(pieces <= (BUDGET / OVERHEAD) as u64, "{pieces}");

        let queue = OutputQueue::<()>::new();
        for offset in 0..3 {
            queue.output(
                QueueSpace::default(),
                chunk(Stream::Stdout, offset, &[b'a' + offset as u8]),
            );
        }
        assert_eq!(
            queue.take().await,
            Some(Item::Output(chunk(Stream::Stdout, 0, b"abc")))
        );
    }

    #[tokio::test]
    async fn lifting_lets_everybody_through_and_closing_ends_the_reader() {
        let queue = OutputQueue::<u8>::new();
        let mut rooms = Vec::new();
        for _ in 0..BUDGET / (CHUNK + OVERHEAD) {
            rooms.push(queue.room().await);
        }
        queue.lift();
        queue.output(queue.room().await, chunk(Stream::Stderr, 0, b"late"));
        queue.put_latest(1, |_| true);
        queue.put_latest(2, |_| true);
        queue.close();
        assert!(matches!(queue.take().await, Some(Item::Output(_))));
        assert_eq!(queue.take().await, Some(Item::Event(2)));
        assert_eq!(queue.take().await, None);
    }
}
