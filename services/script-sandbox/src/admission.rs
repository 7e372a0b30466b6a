//! Admission: how many requests run at once, and how many wait.
//!
//! A request takes a [`Permit`]; where none is free it waits in a queue whose length is bounded, first
//! come, first served. One more is refused, which the contract reports as OVERLOADED with a delay after
//! which to retry.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits, and a bounded queue for them. Clones share both.
#[derive(Clone, Debug)]
pub struct Admission {
    permits: Limited,
    queue: Limited,
}

/// The right to run, given back on drop.
#[derive(Debug)]
pub struct Permit {
    _permit: OwnedSemaphorePermit,
}

/// The queue is as long as it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull {
    /// How many requests are waiting.
    pub waiting: u32,
}

#[derive(Clone, Debug)]
struct Limited {
    semaphore: Arc<Semaphore>,
    maximum: u32,
}

impl Admission {
    /// Admits `permits` requests at once and lets `queue` more wait.
    pub fn new(permits: u32, queue: u32) -> Self {
        Self {
            permits: Limited::new(permits),
            queue: Limited::new(queue),
        }
    }

    /// Takes a permit, waiting for one where the queue has room. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// When no permit is free and the queue is full.
    pub async fn acquire(&self) -> Result<Permit, QueueFull> {
        // A free permit implies an empty queue: the semaphore hands permits to waiters first.
        if let Some(permit) = self.permits.try_take() {
            return Ok(Permit { _permit: permit });
        }
        let full = || QueueFull {
            waiting: self.waiting(),
        };
        let _place = self.queue.try_take().ok_or_else(full)?;
        let permit = self.permits.semaphore.clone().acquire_owned().await;
        // Nothing closes the semaphore.
        let permit = permit.map_err(|_| full())?;
        Ok(Permit { _permit: permit })
    }

    /// How many permits are in use.
    pub fn running(&self) -> u32 {
        self.permits.taken()
    }

    /// How many requests are waiting.
    pub fn waiting(&self) -> u32 {
        self.queue.taken()
    }
}

impl Limited {
    fn new(maximum: u32) -> Self {
        Self {
            semaphore: Arc::new(Semaphore::new(maximum as usize)),
            maximum,
        }
    }

    fn try_take(&self) -> Option<OwnedSemaphorePermit> {
        self.semaphore.clone().try_acquire_owned().ok()
    }

    fn taken(&self) -> u32 {
        let free = u32::try_from(self.semaphore.available_permits()).unwrap_or(u32::MAX);
        self.maximum.saturating_sub(free)
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, poll};

    use super::*;

    #[tokio::test]
    async fn a_full_queue_refuses_and_the_first_to_wait_is_the_first_to_run() {
        let admission = Admission::new(1, 2);
        let running = admission.acquire().await.unwrap();
        let mut first = Box::pin(admission.acquire());
        let mut second = Box::pin(admission.acquire());
        assert!(poll!(&mut first).is_pending());
        assert!(poll!(&mut second).is_pending());
        let refused = admission.acquire().now_or_never().unwrap();
        assert_eq!(refused.unwrap_err(), QueueFull { waiting: 2 });
        assert_eq!((admission.running(), admission.waiting()), (1, 2));
        drop(running);
        assert!(poll!(&mut second).is_pending());
        let permit = first.now_or_never().unwrap().unwrap();
        assert_eq!((admission.running(), admission.waiting()), (1, 1));
        drop(permit);
        assert!(second.now_or_never().unwrap().is_ok());
        assert_eq!((admission.running(), admission.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn a_request_that_stops_waiting_leaves_the_queue() {
        let admission = Admission::new(1, 1);
        let running = admission.acquire().await.unwrap();
        let mut waiting = Box::pin(admission.acquire());
        assert!(poll!(&mut waiting).is_pending());
        drop(waiting);
        assert_eq!(admission.waiting(), 0);
        let mut waiting = Box::pin(admission.acquire());
        assert!(poll!(&mut waiting).is_pending());
        drop(running);
        // The permit was handed to a request that is dropped before it sees it.
        drop(waiting);
        assert!(admission.acquire().now_or_never().unwrap().is_ok());
    }

    #[tokio::test]
    async fn without_a_queue_the_next_request_is_refused() {
        let admission = Admission::new(1, 0);
        let running = admission.acquire().await.unwrap();
        assert!(admission.acquire().await.is_err());
        drop(running);
        assert!(admission.acquire().await.is_ok());
    }
}
