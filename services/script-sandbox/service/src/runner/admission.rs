//! Admission: bounds the requests that run at once and those that wait.
//!
//! A request takes a [`Permit`]; where none is free it waits in a bounded queue, first come, first
//! served. Beyond the bound a request is refused, which the contract reports as OVERLOADED with a
//! delay before a retry.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Refusal;

/// Permits, and a bounded queue for them. Clones share both.
#[derive(Clone, Debug)]
pub struct Admission {
    permits: Arc<Semaphore>,
    places: Arc<Semaphore>,
    /// The number of permits and of places.
    most: (u32, u32),
}

/// The right to run, returned on drop.
#[derive(Debug)]
pub struct Permit {
    _permit: OwnedSemaphorePermit,
}

impl Admission {
    /// Admits `permits` requests at once and lets `queue` more wait.
    pub fn new(permits: u32, queue: u32) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(permits as usize)),
            places: Arc::new(Semaphore::new(queue as usize)),
            most: (permits, queue),
        }
    }

    /// Takes a permit, waiting for one where the queue has room. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// Fails when no permit is free and the queue is full.
    pub async fn acquire(&self) -> Result<Permit, Refusal> {
        // A free permit implies an empty queue: the semaphore hands permits to waiters first.
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return Ok(Permit { _permit: permit });
        }
        let full = || Refusal::Busy {
            waiting: self.waiting(),
        };
        let _place = self.places.try_acquire().map_err(|_| full())?;
        let permit = self.permits.clone().acquire_owned().await;
        // The semaphore is never closed.
        let permit = permit.map_err(|_| full())?;
        Ok(Permit { _permit: permit })
    }

    /// The number of permits in use.
    pub fn running(&self) -> u32 {
        taken(&self.permits, self.most.0)
    }

    /// The number of waiting requests.
    pub fn waiting(&self) -> u32 {
        taken(&self.places, self.most.1)
    }
}

fn taken(semaphore: &Semaphore, most: u32) -> u32 {
    let free = u32::try_from(semaphore.available_permits()).unwrap_or(u32::MAX);
    most.saturating_sub(free)
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
        assert!(matches!(refused, Err(Refusal::Busy { waiting: 2 })));
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
        // The permit was granted to a request that is dropped before it sees it.
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
