//! Results that a node is computing while others wait for them (rule W46).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::TenantKey;

/// The keys whose results are being computed.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights {
    flying: Arc<Mutex<HashMap<TenantKey, watch::Sender<()>>>>,
}

/// The right to compute the result of a key. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Flight {
    flights: Flights,
    key: TenantKey,
}

impl Flights {
    /// Acquires the right to compute the result of a key, or returns a receiver that closes when
    /// another's right ends.
    pub(super) fn begin(&self, key: TenantKey) -> Result<Flight, watch::Receiver<()>> {
        let mut flying = self.lock();
        if let Some(under_way) = flying.get(&key) {
            return Err(under_way.subscribe());
        }
        flying.insert(key, watch::Sender::new(()));
        Ok(Flight {
            flights: self.clone(),
            key,
        })
    }

    /// Returns the number of waiters for the result of a key.
    #[cfg(test)]
    pub(super) fn waiting(&self, key: &TenantKey) -> usize {
        let flying = self.lock();
        flying.get(key).map_or(0, watch::Sender::receiver_count)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantKey, watch::Sender<()>>> {
        self.flying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // The waiters see that the sender is dropped.
        self.flights.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use core_types::Tenant;
    use workflow_domain::cache_key::CacheKey;

    use super::*;

    #[tokio::test]
    async fn w46_the_second_waits_until_the_first_is_over() {
        let flights = Flights::default();
        let key = (Tenant::DEFAULT, CacheKey([1; 32]));
        let first = flights.begin(key).expect("nothing is under way");
        let mut waits = flights.begin(key).expect_err("the first is under way");
        assert!(flights.begin((key.0, CacheKey([2; 32]))).is_ok());
        assert!(flights.begin((Tenant::SYSTEM, key.1)).is_ok());
        drop(first);
        assert!(waits.changed().await.is_err());
        assert!(flights.begin(key).is_ok());
    }
}
