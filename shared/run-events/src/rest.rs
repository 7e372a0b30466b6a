//! Runs that rest: nothing of them is under way but waits, so they leave memory until one of them is due
//! or something reaches them from outside.

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
    /// Takes what keeps others from the run until its task is forgotten.
    pub(crate) fn new(due: Timestamp, mut leaving: Leaving) -> Self {
        leaving.leave();
        Self {
            due,
            _left: leaving,
        }
    }

    /// Returns when the run is to be woken at the latest.
    pub(crate) fn due(&self) -> Timestamp {
        self.due
    }
}

/// Wakes the task that looks for runs that are due.
#[derive(Debug)]
pub(crate) struct Alarm {
    /// When it looks again, in Unix nanoseconds; the largest number while it is looking.
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
    /// Makes sure that a look is taken at `due`.
    pub(crate) fn set(&self, due: Timestamp) {
        if due.unix_nanos() < self.next.load(Ordering::SeqCst) {
            self.earlier.notify_one();
        }
    }

    /// Notes that a look begins: what rests from now on may be missed by it.
    pub(crate) fn look(&self) {
        self.next.store(i64::MAX, Ordering::SeqCst);
    }

    /// Notes when the next look is taken.
    pub(crate) fn rest_until(&self, next: Timestamp) {
        self.next.store(next.unix_nanos(), Ordering::SeqCst);
    }

    /// Waits until a look is to be taken earlier than noted.
    pub(crate) async fn earlier(&self) {
        self.earlier.notified().await;
    }
}

/// Sees to it that a run is taken over once, however many things reach it at the same time.
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
