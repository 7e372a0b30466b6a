//! The limits of requests to a model: at once, and per minute.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use core_types::Tenant;
use tenancy::{Ask, FairSlots, Slot};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::ModelError;

/// The most requests of a tenant that wait for one model; more are refused.
const MAX_WAITING: usize = 1_024;
/// The divisor of a minute's requests that makes the burst: requests without a wait.
const BURST_PART: u32 = 10;

/// The limits of requests to one model.
#[derive(Debug)]
pub struct Gate {
    /// One place for each request in flight; tenants wait for them in fair turns.
    slots: FairSlots,
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
            slots: FairSlots::new(max_concurrent, MAX_WAITING),
            rate,
        }
    }

    /// Waits until a request of a tenant of this weight may be sent; the place is kept while it is in flight.
    ///
    /// # Errors
    /// [`ModelError::Busy`] if too many wait, [`ModelError::TimedOut`] if it may not be sent before
    /// `deadline`.
    pub async fn enter(
        &self,
        (tenant, weight): (Tenant, u32),
        deadline: Instant,
    ) -> Result<Slot, ModelError> {
        let started = Instant::now();
        let late = || ModelError::TimedOut {
            what: "to be free for the request",
            limit: deadline.saturating_duration_since(started),
        };
        let ask = Ask { tenant, weight };
        let slot = timeout_at(deadline, self.slots.acquire(ask));
        let slot = slot.await.map_err(|_| late())?;
        let slot = slot.map_err(|_| ModelError::Busy { limit: MAX_WAITING })?;
        if let Some(rate) = &self.rate {
            let at = rate.reserve(deadline).ok_or_else(late)?;
            sleep_until(at).await;
        }
        Ok(slot)
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
    use futures::{FutureExt as _, poll};

    use super::*;

    const ACME: (Tenant, u32) = (Tenant::DEFAULT, 1);

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    #[tokio::test]
    async fn one_more_than_may_be_on_their_way_waits_for_a_slot() {
        let gate = Gate::new(1, 0);
        let first = gate.enter(ACME, soon()).await.unwrap();
        let late = gate.enter(ACME, soon()).await.unwrap_err();
        assert_eq!(late.code(), "model_timeout");
        let far = Instant::now() + Duration::from_secs(60);
        let (second, ()) = tokio::join!(gate.enter(ACME, far), async { drop(first) });
        assert!(second.is_ok());
    }

    #[tokio::test]
    async fn w51_a_flood_of_one_tenant_fills_its_queue_and_delays_no_other_for_long() {
        let (gate, far) = (Gate::new(1, 0), Instant::now() + Duration::from_secs(60));
        let other = (Tenant::new("other").unwrap(), 1);
        let first = gate.enter(ACME, far).await.unwrap();
        let mut flood: Vec<_> = (0..MAX_WAITING)
            .map(|_| Box::pin(gate.enter(ACME, far)))
            .collect();
        for waiting in &mut flood {
            assert!(poll!(waiting).is_pending());
        }
        let mut late = Box::pin(gate.enter(other, far));
        assert!(poll!(&mut late).is_pending());
        let busy = gate.enter(ACME, far).await.unwrap_err();
        assert_eq!(busy, ModelError::Busy { limit: MAX_WAITING });
        drop(first);
        // At most one request of the flood, which has an equal turn, comes before it.
        let sent = flood[0].as_mut().now_or_never();
        drop(sent);
        assert!(late.now_or_never().unwrap().is_ok());
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
