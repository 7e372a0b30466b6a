//! Permits of several limits at once: all of them are acquired, or none (rule W50).

mod queue;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use core_types::{RunId, Timestamp};
use tokio::sync::oneshot;

use queue::{Granted, Queue, Rank, Waiter};

/// A limit of concurrency.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Limit {
    /// Active runs of a depth of nesting. A run that waits for a run below it must not keep that
    /// run from its turn.
    Runs(usize),
    /// Runs that only wait.
    WaitingRuns,
    /// Runs with this key of their own.
    RunKey(String),
    /// Effects of all runs of a depth of nesting.
    Effects(usize),
    /// Effects of a run.
    EffectsOfRun(RunId),
    /// Effects of nodes of this type in all runs of a depth of nesting.
    NodeType(usize, &'static str),
    /// Effects of nodes with this key.
    Key(String),
    /// Effects of the nodes of a run with this key. Runs below them are part of the holder.
    KeyOfRun(String, String),
}

/// A limit, and the most holders of it.
pub(super) type Bound = (Limit, usize);

/// Grants permits, in the order of the queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Permits {
    /// Locked for a lookup or a change, never across an await.
    queue: Arc<Mutex<Queue>>,
}

/// Counts as a holder of its limits until it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    limits: Vec<Limit>,
    permits: Permits,
}

/// A place in the queue, which becomes a permit. Dropped before, it leaves the queue.
#[derive(Debug)]
pub(super) struct Turn {
    rank: Rank,
    limits: Vec<Limit>,
    granted: oneshot::Receiver<Permit>,
    permits: Permits,
}

/// The order of the queue: 30 s of waiting count as much as one step of priority (rule W51).
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuePlace {
    /// The start of the wait.
    pub(super) since: Timestamp,
    /// The priority, 0 to 9.
    pub(super) priority: u32,
}

/// The result of a request for a permit.
#[derive(Debug)]
pub(super) enum Admission {
    /// The permit, as there is room.
    Now(Permit),
    /// A place in the queue.
    Later(Turn),
}

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

impl Permits {
    /// Acquires a permit of every bound, or a place among at most `most_waiting` waiters.
    ///
    /// # Errors
    /// [`QueueFull`].
    pub(super) fn ask(
        &self,
        bounds: Vec<Bound>,
        place: QueuePlace,
        most_waiting: usize,
    ) -> Result<Admission, QueueFull> {
        let mut queue = self.lock();
        let limits = limits(&bounds);
        let Some(full) = queue.first_full(&bounds) else {
            queue.hold(&limits);
            drop(queue);
            return Ok(Admission::Now(self.permit(limits)));
        };
        if queue.waiting() >= most_waiting {
            return Err(QueueFull);
        }
        let rank = queue.next_rank(place);
        let (sender, granted) = oneshot::channel();
        queue.park(full, rank, Waiter { bounds, sender });
        drop(queue);
        Ok(Admission::Later(Turn {
            rank,
            limits,
            granted,
            permits: self.clone(),
        }))
    }

    /// Whether a limit has a holder.
    pub(super) fn is_held(&self, limit: &Limit) -> bool {
        self.lock().is_held(limit)
    }

    /// Acquires a permit even if there is no room for it.
    pub(super) fn take(&self, limits: Vec<Limit>) -> Permit {
        self.lock().hold(&limits);
        self.permit(limits)
    }

    fn release(&self, limits: &[Limit]) {
        let granted = self.lock().release(limits);
        for Granted { limits, sender } in granted {
            // It fails if the turn was dropped meanwhile, and releases the permit.
            let _ = sender.send(self.permit(limits));
        }
    }

    fn permit(&self, limits: Vec<Limit>) -> Permit {
        Permit {
            limits,
            permits: self.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn limits(bounds: &[Bound]) -> Vec<Limit> {
    bounds.iter().map(|(limit, _)| limit.clone()).collect()
}

impl Future for Turn {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        Pin::new(&mut self.granted)
            .poll(context)
            .map(|granted| granted.expect("a waiter is dropped only with its turn"))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.permits.lock().leave(self.rank, &self.limits);
    }
}

impl Permit {
    /// Releases one of its limits.
    pub(super) fn give_back(&mut self, limit: &Limit) {
        if let Some(at) = self.limits.iter().position(|held| held == limit) {
            let limit = self.limits.swap_remove(at);
            self.permits.release(&[limit]);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.release(&self.limits);
    }
}
