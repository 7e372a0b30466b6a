//! Runs that rest: only waits of theirs are in progress, so they leave memory until a wait is due
//! or a request reaches the run.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use core_types::{RunId, Timestamp};
use tokio::sync::{Mutex, MutexGuard, Notify};

use crate::control::Leaving;

/// Runs whose ids hash to one of these are woken one after the other.
const STRIPES: usize = 256;

/// A run that rests in the log. Nothing reaches its task any more.
#[derive(Debug)]
pub struct Departure {
    due: Timestamp,
    _left: Leaving,
}

impl Departure {
    /// Consumes the guard that keeps others from the run until its task is forgotten.
    pub(crate) fn new(due: Timestamp, mut leaving: Leaving) -> Self {
        leaving.leave();
        Self {
            due,
            _left: leaving,
        }
    }

    /// Returns the latest time to wake the run.
    pub(crate) fn due(&self) -> Timestamp {
        self.due
    }
}

/// Wakes the task that looks for runs that are due.
#[derive(Debug)]
pub(crate) struct Alarm {
    /// The time of its next look, in Unix nanoseconds; the largest number during a look.
    next: AtomicI64,
    earlier: Notify,
}

impl Default for Alarm {
    fn default() -> Self {
        Self {
            next: AtomicI64::new(i64::MAX),
            earlier: Notify::new(),
        }
    }
}

impl Alarm {
    /// Makes sure that the task looks for due runs at `due`.
    pub(crate) fn set(&self, due: Timestamp) {
        if due.unix_nanos() < self.next.load(Ordering::SeqCst) {
            self.earlier.notify_one();
        }
    }

    /// Notes that a look begins: it may miss runs that rest from now on.
    pub(crate) fn look(&self) {
        self.next.store(i64::MAX, Ordering::SeqCst);
    }

    /// Notes the time of the next look.
    pub(crate) fn rest_until(&self, next: Timestamp) {
        self.next.store(next.unix_nanos(), Ordering::SeqCst);
    }

    /// Waits until a run is due before the noted time of the next look.
    pub(crate) async fn earlier(&self) {
        self.earlier.notified().await;
    }
}

/// Ensures that a run is taken over once, however many requests reach it at the same time.
#[derive(Clone, Debug)]
pub(crate) struct Wakers(Arc<[Mutex<()>]>);

impl Default for Wakers {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| Mutex::default()).collect())
    }
}

impl Wakers {
    /// Waits until no other task takes this run over.
    pub(crate) async fn lock(&self, run: RunId) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        run.hash(&mut hasher);
        let index = hasher.finish() % STRIPES as u64;
        let index = usize::try_from(index).expect("a remainder of a length is an index");
        self.0[index].lock().await
    }
}
