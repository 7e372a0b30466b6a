//! Permits of several limits at once: all of them are acquired, or none (rule W50).

mod queue;
#[cfg(test)]
mod tests;
mod turns;

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use core_types::{RunId, Tenant, Timestamp};
use tokio::sync::oneshot;

use queue::{Granted, Queue, Ticket, Waiter};

/// A limit of concurrency.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Limit {
    /// Active runs of a depth of nesting. A run that waits for a run below it must not keep that
    /// run from its turn.
    Runs(usize),
    /// Runs that only wait.
    WaitingRuns,
    /// Runs of a tenant with this key of their own.
    RunKey(Tenant, String),
    /// Effects of all runs of a depth of nesting.
    Effects(usize),
    /// Effects of a run.
    EffectsOfRun(RunId),
    /// Effects of nodes of this type in all runs of a depth of nesting.
    NodeType(usize, String),
    /// Effects of nodes of a tenant's runs with this key.
    Key(Tenant, String),
    /// Effects of the nodes of a run with this key. Runs below them are part of the holder.
    KeyOfRun(String, String),
}

impl Limit {
    /// Whether entries of several tenants may wait for it.
    fn is_shared(&self) -> bool {
        matches!(self, Self::Runs(_) | Self::Effects(_) | Self::NodeType(..))
    }
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
    ticket: Ticket,
    limits: Vec<Limit>,
    granted: oneshot::Receiver<Permit>,
    permits: Permits,
}

/// The order of the queue (rule W51): tenants have turns by weight, and in the turn of a tenant its own entries go by
/// priority, where 30 s of waiting count as much as one step of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuePlace {
    /// The tenant.
    pub(super) tenant: Tenant,
    /// The weight of the tenant, from 1.
    pub(super) weight: u32,
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

impl Permits {
    /// Acquires a permit of every bound, or a place in the queue if `may_wait` permits one more than so many of the
    /// tenant. Entries compete for their last bound; entries with the same key of a tenant compete for the key first.
    ///
    /// # Errors
    /// The refusal of `may_wait`.
    pub(super) fn ask<E>(
        &self,
        bounds: Vec<Bound>,
        place: QueuePlace,
        may_wait: impl FnOnce(usize) -> Result<(), E>,
    ) -> Result<Admission, E> {
        let mut queue = self.lock();
        let limits = limits(&bounds);
        let Some(full) = queue.first_full(&bounds) else {
            queue.begin(&limits, place.tenant, place.weight);
            drop(queue);
            return Ok(Admission::Now(self.permit(limits)));
        };
        may_wait(queue.waiting(place.tenant))?;
        let ticket = queue.next_ticket(place);
        let (sender, granted) = oneshot::channel();
        let waiter = Waiter {
            bounds,
            weight: place.weight,
            sender,
        };
        queue.park(full, ticket, waiter);
        drop(queue);
        Ok(Admission::Later(Turn {
            ticket,
            limits,
            granted,
            permits: self.clone(),
        }))
    }

    /// Returns the number of entries of each tenant that wait.
    pub(super) fn waiting_by_tenant(&self) -> Vec<(Tenant, usize)> {
        self.lock().waiting_by_tenant()
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
        self.permits.lock().leave(self.ticket, &self.limits);
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
