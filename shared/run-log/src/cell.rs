//! The state of a live run in the process: the position of its chain, and its latest events.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use core_types::{RunId, Timestamp};
use tokio::sync::watch;

use crate::{
    AppendError, Event, NewEvent,
    event::{Head, up_to},
};

/// The number of latest events that are kept for followers that are up to date.
const TAIL_EVENTS: usize = 1024;
/// The most bytes of payload that they may have together.
const TAIL_BYTES: usize = 1 << 20;

/// One run that has a writer, followers or both in this process.
#[derive(Debug)]
pub(crate) struct RunCell {
    id: RunId,
    /// Locked while one append is hashed and queued, never across an await.
    chain: Mutex<Chain>,
    /// Locked while handles of events are copied, never across an await.
    tail: Mutex<ChainTail>,
    progress: watch::Sender<Progress>,
    /// The connection to the server by which the stored head was last confirmed; zero for none.
    confirmed: AtomicU64,
    registry: Weak<Registry>,
}

/// The progress that followers wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The last committed sequence.
    pub(crate) sequence: u64,
    /// Whether the run has ended with it.
    pub(crate) ended: bool,
    /// Whether the log was closed.
    pub(crate) closed: bool,
    /// The number of times that events which were shown were lost with the server.
    pub(crate) losses: u32,
}

/// A place in a run's life: the chain's head, and whether the run has ended there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainPosition {
    pub(crate) head: Head,
    pub(crate) ended: bool,
}

/// The writing side of a run.
#[derive(Debug)]
pub(crate) struct Chain {
    /// The number of the writer that owns the run; 0 while none does.
    lease: u64,
    /// Counts the failures and takeovers. A queued step of an earlier epoch is not stored: it would
    /// leave a gap or follow an event that does not exist.
    epoch: u64,
    /// The position of the chain when all queued steps are stored.
    assigned: ChainPosition,
    /// The stored position of the chain.
    durable: ChainPosition,
    /// The reason for the end of the last epoch.
    rejection: AppendError,
    /// The loss of a submitted event that has not been reported to a caller.
    lost: Option<AppendError>,
    /// Whether the stored position is unknown.
    unknown: bool,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finish {
    pub(crate) state: i32,
    pub(crate) time: Timestamp,
}

/// The phase that an open run enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    pub(crate) code: i32,
    /// The time at which the owner takes the run up again, if it rests.
    pub(crate) due: Option<Timestamp>,
}

/// The change that a step makes in addition to its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Append,
    Flush,
    /// Sets the phase.
    Enter(Phase),
    Finish(i32),
}

#[derive(Debug, Default)]
struct ChainTail {
    followers: usize,
    events: VecDeque<Event>,
    bytes: usize,
}

/// Locks a mutex whose data stays whole whatever its holders do.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RunCell {
    pub(crate) fn id(&self) -> RunId {
        self.id
    }

    pub(crate) fn chain(&self) -> MutexGuard<'_, Chain> {
        lock(&self.chain)
    }

    /// Notes that the stored head is the position of the chain, as a connection showed.
    pub(crate) fn confirm(&self, connection: u64) {
        self.confirmed.store(connection, Ordering::Relaxed);
    }

    /// Whether a connection has shown that the stored head is the position of the chain.
    pub(crate) fn is_confirmed(&self, connection: u64) -> bool {
        self.confirmed.load(Ordering::Relaxed) == connection
    }

    /// Registers a follower; from now on new events are kept for it.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Progress> {
        lock(&self.tail).followers += 1;
        self.progress.subscribe()
    }

    pub(crate) fn unsubscribe(&self) {
        let mut tail = lock(&self.tail);
        tail.followers -= 1;
        if tail.followers == 0 {
            *tail = ChainTail::default();
        }
    }

    /// Returns up to `limit` events after `sequence`, with no more than `max_bytes` of payload unless
    /// one event has more, or `None` when the tail begins later.
    pub(crate) fn tail_after(
        &self,
        sequence: u64,
        limit: usize,
        max_bytes: usize,
    ) -> Option<Vec<Event>> {
        let tail = lock(&self.tail);
        let first = tail.events.front()?.sequence;
        let skip = usize::try_from((sequence + 1).checked_sub(first)?).ok()?;
        let after = tail.events.iter().skip(skip).take(limit);
        let events: Vec<Event> = up_to(max_bytes, after).cloned().collect();
        (!events.is_empty()).then_some(events)
    }

    /// Shows committed events to the followers.
    pub(crate) fn publish(&self, events: &[Event], place: ChainPosition) {
        {
            let mut tail = lock(&self.tail);
            if tail.followers > 0 {
                tail.push(events);
            }
        }
        self.advance(place.head.sequence, place.ended);
    }

    /// Notes that events which were shown were lost with the server: followers end, and new ones begin with the rows.
    pub(crate) fn lose(&self) {
        {
            let mut tail = lock(&self.tail);
            tail.events.clear();
            tail.bytes = 0;
        }
        self.progress.send_modify(|progress| {
            progress.sequence = 0;
            progress.losses += 1;
        });
    }

    /// Moves the high-water mark; only a loss moves it back.
    pub(crate) fn advance(&self, sequence: u64, ended: bool) {
        self.progress.send_if_modified(|progress| {
            let next = Progress {
                sequence: progress.sequence.max(sequence),
                ended: progress.ended || ended,
                ..*progress
            };
            std::mem::replace(progress, next) != next
        });
    }
}

impl Drop for RunCell {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.forget(self.id);
        }
    }
}

impl ChainTail {
    fn push(&mut self, events: &[Event]) {
        let expected = self.events.back().map(|event| event.sequence + 1);
        if expected.is_some_and(|expected| events.first().is_some_and(|e| e.sequence != expected)) {
            // A tail with a hole would be taken for the whole truth.
            self.events.clear();
            self.bytes = 0;
        }
        for event in events {
            self.bytes += event.payload.len();
            self.events.push_back(event.clone());
        }
        while self.events.len() > TAIL_EVENTS || self.bytes > TAIL_BYTES {
            let Some(dropped) = self.events.pop_front() else {
                break;
            };
            self.bytes -= dropped.payload.len();
        }
    }
}

impl Chain {
    fn new() -> Self {
        let place = ChainPosition {
            head: Head::empty(),
            ended: false,
        };
        Self {
            lease: 0,
            epoch: 0,
            assigned: place,
            durable: place,
            rejection: AppendError::Fenced,
            lost: None,
            unknown: false,
        }
    }

    pub(crate) fn durable(&self) -> ChainPosition {
        self.durable
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Acquires a run without an owner, to create it. Returns the lease, or `None`.
    pub(crate) fn begin(&mut self) -> Option<u64> {
        (self.lease == 0).then(|| {
            self.lease = 1;
            self.lease
        })
    }

    /// Releases a run whose creation failed.
    pub(crate) fn abandon(&mut self) {
        let epoch = self.epoch + 1;
        *self = Self {
            epoch,
            ..Self::new()
        };
    }

    /// Acquires the run from its present writer, whose queued steps will be rejected.
    pub(crate) fn seize(&mut self) -> u64 {
        self.lease += 1;
        self.epoch += 1;
        self.assigned = self.durable;
        self.rejection = AppendError::Fenced;
        self.lost = None;
        self.unknown = false;
        self.lease
    }

    /// Sets the position read from storage, if `lease` still owns the run; returns whether it does.
    pub(crate) fn resume(&mut self, lease: u64, place: ChainPosition) -> bool {
        if self.lease == lease {
            self.assigned = place;
            self.durable = place;
        }
        self.lease == lease
    }

    /// Assigns events their places, in the order of the calls.
    pub(crate) fn assign(
        &mut self,
        lease: u64,
        run: RunId,
        events: Vec<NewEvent>,
        purpose: Purpose,
    ) -> Result<Assigned, AppendError> {
        if self.lease != lease {
            return Err(AppendError::Fenced);
        }
        if self.unknown {
            return Err(AppendError::Unknown);
        }
        if let Some(lost) = self.lost.take() {
            return Err(lost);
        }
        if self.assigned.ended && purpose != Purpose::Flush {
            return Err(AppendError::Finished);
        }
        let mut head = self.assigned.head;
        let events: Vec<Event> = events
            .into_iter()
            .map(|new| {
                let event = Event::after(head, run, new);
                head = event.head();
                event
            })
            .collect();
        let finish = match (purpose, events.last()) {
            (Purpose::Finish(state), Some(last)) => Some(Finish {
                state,
                time: last.time,
            }),
            _ => None,
        };
        let phase = match purpose {
            Purpose::Enter(phase) => Some(phase),
            _ => None,
        };
        self.assigned = ChainPosition {
            head,
            ended: self.assigned.ended || finish.is_some(),
        };
        Ok(Assigned {
            epoch: self.epoch,
            events,
            finish,
            phase,
            place: self.assigned,
        })
    }

    /// Returns whether a step that was queued in `epoch` may still be stored.
    pub(crate) fn admits(&self, epoch: u64) -> Result<(), AppendError> {
        if epoch == self.epoch {
            Ok(())
        } else {
            Err(self.rejection.clone())
        }
    }

    /// Notes that a step of `epoch` is stored, which makes `place` the position of the run.
    pub(crate) fn acknowledge(&mut self, epoch: u64, place: ChainPosition) {
        if epoch == self.epoch {
            self.durable = place;
        }
    }

    /// Notes that a step of `epoch` is not stored, or may not be; the steps behind it will not be.
    /// `awaited` is whether a caller gets the error as the answer to the step.
    pub(crate) fn reject(&mut self, epoch: u64, awaited: bool, error: &AppendError) {
        if epoch == self.epoch {
            self.epoch += 1;
            self.assigned = self.durable;
            self.rejection = error.clone();
            self.unknown = matches!(error, AppendError::Unknown);
        }
        // A caller that receives a failure knows that its earlier submitted events are lost too. A
        // fenced step does not concern the present writer of the run.
        if !matches!(error, AppendError::Fenced) {
            self.lost = (!awaited).then(|| error.clone());
        }
    }
}

/// Events that have their places.
#[derive(Debug)]
pub(crate) struct Assigned {
    pub(crate) epoch: u64,
    pub(crate) events: Vec<Event>,
    pub(crate) finish: Option<Finish>,
    pub(crate) phase: Option<Phase>,
    pub(crate) place: ChainPosition,
}

/// All live runs of a log, by id.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    cells: Mutex<HashMap<RunId, Weak<RunCell>>>,
}

impl Registry {
    /// Returns the one cell of a run, created now if there is no handle of it.
    pub(crate) fn cell(self: &Arc<Self>, id: RunId) -> Arc<RunCell> {
        let mut cells = lock(&self.cells);
        if let Some(cell) = cells.get(&id).and_then(Weak::upgrade) {
            return cell;
        }
        let cell = Arc::new(RunCell {
            id,
            chain: Mutex::new(Chain::new()),
            tail: Mutex::default(),
            progress: watch::Sender::default(),
            confirmed: AtomicU64::new(0),
            registry: Arc::downgrade(self),
        });
        cells.insert(id, Arc::downgrade(&cell));
        cell
    }

    /// Ends every follower: the log is closed.
    pub(crate) fn close(&self) {
        let cells: Vec<_> = lock(&self.cells)
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        for cell in cells {
            cell.progress.send_modify(|progress| progress.closed = true);
        }
    }

    fn forget(&self, id: RunId) {
        let mut cells = lock(&self.cells);
        // A new cell of the run may exist since the last handle was dropped.
        if cells.get(&id).is_some_and(|cell| cell.strong_count() == 0) {
            cells.remove(&id);
        }
    }
}
