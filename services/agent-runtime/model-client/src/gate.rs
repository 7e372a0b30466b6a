//! The limits of requests to a model: at once, and per minute.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until, timeout_at},
};

use super::ModelError;

/// The most requests that wait for one model; more are refused.
const MAX_WAITING: usize = 1_024;
/// The divisor of a minute's requests that makes the burst: requests without a wait.
const BURST_PART: u32 = 10;

/// The limits of requests to one model.
#[derive(Debug)]
pub struct Gate {
    /// One permit for each request in flight.
    slots: Arc<Semaphore>,
    /// One permit for each request that waits.
    waiting: Semaphore,
    rate: Option<Rate>,
}

/// A rate of requests, kept by the time at which the next one would be due if all were spread
/// evenly.
#[derive(Debug)]
struct Rate {
    interval: Duration,
    burst: u32,
    /// Locked for an addition only.
    due: Mutex<Instant>,
}

impl Gate {
    /// Makes a gate; a rate of zero is no limit.
    pub fn new(max_concurrent: usize, requests_per_minute: u32) -> Self {
        let rate = (requests_per_minute > 0).then(|| Rate {
            interval: Duration::from_secs(60) / requests_per_minute,
            burst: requests_per_minute / BURST_PART,
            due: Mutex::new(Instant::now()),
        });
        Self {
            slots: Arc::new(Semaphore::new(max_concurrent)),
            waiting: Semaphore::new(MAX_WAITING),
            rate,
        }
    }

    /// Waits until a request may be sent; the permit is kept while it is in flight.
    ///
    /// # Errors
    /// [`ModelError::Busy`] if too many wait, [`ModelError::TimedOut`] if it may not be sent before
    /// `deadline`.
    pub async fn enter(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, ModelError> {
        let started = Instant::now();
        let late = || ModelError::TimedOut {
            what: "to be free for the request",
            limit: deadline.saturating_duration_since(started),
        };
        let slot = Arc::clone(&self.slots);
        let permit = match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let busy = ModelError::Busy { limit: MAX_WAITING };
                let _waiting = self.waiting.try_acquire().map_err(|_| busy)?;
                timeout_at(deadline, slot.acquire_owned())
                    .await
                    .map_err(|_| late())?
                    .map_err(|_| late())?
            }
        };
        if let Some(rate) = &self.rate {
            let at = rate.reserve(deadline).ok_or_else(late)?;
            sleep_until(at).await;
        }
        Ok(permit)
    }
}

impl Rate {
    /// Returns the time at which the next request may be sent; none if that is after `deadline`.
    fn reserve(&self, deadline: Instant) -> Option<Instant> {
        let now = Instant::now();
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(self.interval * self.burst).unwrap_or(now);
        let at = (*due).max(earliest);
        if at > deadline {
            return None;
        }
        *due = at + self.interval;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    #[tokio::test]
    async fn one_more_than_may_be_on_their_way_waits_for_a_slot() {
        let gate = Gate::new(1, 0);
        let first = gate.enter(soon()).await.unwrap();
        let late = gate.enter(soon()).await.unwrap_err();
        assert_eq!(late.code(), "model_timeout");
        let far = Instant::now() + Duration::from_secs(60);
        let (second, ()) = tokio::join!(gate.enter(far), async { drop(first) });
        assert!(second.is_ok());
    }

    #[test]
    fn a_rate_lets_a_burst_pass_and_spreads_the_rest() {
        let rate = Gate::new(1, 60).rate.unwrap();
        let far = Instant::now() + Duration::from_secs(600);
        // The burst fills only with time, so that the first requests are spread too.
        let times: Vec<Instant> = (0..5).map(|_| rate.reserve(far).unwrap()).collect();
        for pair in times.windows(2) {
            assert_eq!(pair[1] - pair[0], Duration::from_secs(1));
        }
        assert_eq!(rate.reserve(Instant::now()), None);
    }
}
