//! Places for so much at once, with a queue before them in which tenants have fair turns. Each tenant has a bound of its
//! own there, so that none can fill it for the others.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use core_types::Tenant;
use tokio::sync::oneshot;

use crate::tags::{Tag, Tags};

/// Places for so much at once. Clone, cheap; clones share the places.
#[derive(Clone, Debug)]
pub struct FairSlots {
    /// Locked for a look-up or a change, never across an await.
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    most: usize,
    /// The most waiters of a tenant.
    most_waiting: usize,
    waiting_of: HashMap<Tenant, usize>,
    running: usize,
    tags: Tags,
    /// The number of the next waiter: the order of equal tags.
    next: u64,
    waiting: BTreeMap<(Tag, u64), Waiter>,
}

#[derive(Debug)]
struct Waiter {
    tenant: Tenant,
    sender: oneshot::Sender<Slot>,
}

/// A place, given back when this is dropped.
#[derive(Debug)]
pub struct Slot {
    slots: FairSlots,
}

/// No place is free, and the tenant has as many waiters as it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no place is free, and {waiting} of the tenant wait already")]
pub struct QueueFull {
    /// The number of waiters of the tenant.
    pub waiting: usize,
}

/// A request for a place: by a tenant of a weight.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The tenant.
    pub tenant: Tenant,
    /// The weight of the tenant, from 1.
    pub weight: u32,
}

impl FairSlots {
    /// Makes `most` places, for which at most `most_waiting` of a tenant wait.
    pub fn new(most: usize, most_waiting: usize) -> Self {
        let inner = Inner {
            most,
            most_waiting,
            waiting_of: HashMap::new(),
            running: 0,
            tags: Tags::default(),
            next: 0,
            waiting: BTreeMap::new(),
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// Takes a place, for which it waits where the queue has room. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`QueueFull`].
    pub async fn acquire(&self, ask: Ask) -> Result<Slot, QueueFull> {
        let Ask { tenant, weight } = ask;
        let (granted, place) = {
            let mut inner = self.lock();
            // A free place implies an empty queue.
            if inner.running < inner.most {
                let tag = inner.tags.next(tenant, weight);
                inner.tags.granted(tag);
                inner.running += 1;
                return Ok(self.slot());
            }
            let waiting = inner.waiting_of.get(&tenant).copied().unwrap_or_default();
            if waiting >= inner.most_waiting {
                return Err(QueueFull { waiting });
            }
            let (sender, granted) = oneshot::channel();
            let place = (inner.tags.next(tenant, weight), inner.next);
            inner.next += 1;
            inner.waiting.insert(place, Waiter { tenant, sender });
            *inner.waiting_of.entry(tenant).or_default() += 1;
            (granted, place)
        };
        let leaving = Leaving {
            slots: self,
            place,
            ask,
        };
        let slot = granted.await;
        drop(leaving);
        // A waiter is dropped only with its future.
        slot.map_err(|_| QueueFull { waiting: 0 })
    }

    /// Returns the number of places in use.
    pub fn running(&self) -> usize {
        self.lock().running
    }

    /// Returns the number of waiters.
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    fn slot(&self) -> Slot {
        Slot {
            slots: self.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Counts a waiter of a tenant as gone.
    fn leave(&mut self, tenant: Tenant) {
        if let Some(waiting) = self.waiting_of.get_mut(&tenant) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting_of.remove(&tenant);
            }
        }
    }
}

/// Leaves the queue when the future that waits is dropped.
struct Leaving<'a> {
    slots: &'a FairSlots,
    place: (Tag, u64),
    ask: Ask,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut inner = self.slots.lock();
        if inner.waiting.remove(&self.place).is_some() {
            let Ask { tenant, weight } = self.ask;
            inner.leave(tenant);
            inner.tags.give_up(tenant, weight);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let next = {
            let mut inner = self.slots.lock();
            let next = inner.waiting.pop_first();
            match &next {
                None => inner.running -= 1,
                // The place passes on.
                Some(((tag, _), waiter)) => {
                    inner.tags.granted(*tag);
                    inner.leave(waiter.tenant);
                }
            }
            next
        };
        if let Some((_, waiter)) = next {
            // It fails if the future was dropped meanwhile, and the next waiter has its turn.
            drop(waiter.sender.send(self.slots.slot()));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, poll};

    use super::*;

    fn ask(tenant: &str) -> Ask {
        Ask {
            tenant: Tenant::new(tenant).unwrap(),
            weight: 1,
        }
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_the_first_to_wait_of_a_tenant_is_the_first_to_run() {
        let slots = FairSlots::new(1, 2);
        let running = slots.acquire(ask("a")).await.unwrap();
        let mut first = Box::pin(slots.acquire(ask("a")));
        let mut second = Box::pin(slots.acquire(ask("a")));
        assert!(poll!(&mut first).is_pending());
        assert!(poll!(&mut second).is_pending());
        let refused = slots.acquire(ask("a")).now_or_never().unwrap();
        assert_eq!(refused.unwrap_err(), QueueFull { waiting: 2 });
        assert_eq!((slots.running(), slots.waiting()), (1, 2));
        drop(running);
        assert!(poll!(&mut second).is_pending());
        let slot = first.now_or_never().unwrap().unwrap();
        drop(slot);
        assert!(second.now_or_never().unwrap().is_ok());
        assert_eq!((slots.running(), slots.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn w51_a_tenant_with_a_backlog_does_not_delay_another() {
        let slots = FairSlots::new(1, 200);
        let running = slots.acquire(ask("flood")).await.unwrap();
        let mut backlog: Vec<_> = (0..100)
            .map(|_| Box::pin(slots.acquire(ask("flood"))))
            .collect();
        for waiting in &mut backlog {
            assert!(poll!(waiting).is_pending());
        }
        let mut other = Box::pin(slots.acquire(ask("other")));
        assert!(poll!(&mut other).is_pending());
        drop(running);
        let slot = other.now_or_never().unwrap().unwrap();
        assert_eq!((slots.running(), slots.waiting()), (1, backlog.len()));
        drop(slot);
    }

    #[tokio::test]
    async fn a_request_that_stops_waiting_leaves_the_queue() {
        let slots = FairSlots::new(1, 1);
        let running = slots.acquire(ask("a")).await.unwrap();
        let mut waiting = Box::pin(slots.acquire(ask("a")));
        assert!(poll!(&mut waiting).is_pending());
        drop(waiting);
        assert_eq!(slots.waiting(), 0);
        let mut waiting = Box::pin(slots.acquire(ask("a")));
        assert!(poll!(&mut waiting).is_pending());
        drop(running);
        // The place was granted to a request that is dropped before it sees it.
        drop(waiting);
        assert!(slots.acquire(ask("a")).now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn a_tenant_that_fills_its_queue_leaves_the_others_theirs() {
        let slots = FairSlots::new(1, 1);
        let running = slots.acquire(ask("flood")).await.unwrap();
        let mut waiting = Box::pin(slots.acquire(ask("flood")));
        assert!(poll!(&mut waiting).is_pending());
        assert!(slots.acquire(ask("flood")).await.is_err());
        let mut other = Box::pin(slots.acquire(ask("other")));
        assert!(poll!(&mut other).is_pending());
        drop(running);
        assert!(other.now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn without_a_queue_the_next_request_is_refused() {
        let slots = FairSlots::new(1, 0);
        let running = slots.acquire(ask("a")).await.unwrap();
        assert!(slots.acquire(ask("b")).await.is_err());
        drop(running);
        assert!(slots.acquire(ask("b")).await.is_ok());
    }
}
