//! The shares of tenants: their scripts and sessions at once, and the seconds of their scripts in a day.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use core_types::Tenant;
use tenancy::{LimitReached, Quantity, Tenants, Use};

/// The shares of all tenants. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    tenants: Tenants,
    /// Locked for a look-up or a change only, never across an await.
    held: Arc<Mutex<HashMap<Tenant, Held>>>,
}

/// The share of one tenant.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// The scripts, waiting ones included, and the sessions.
    places: u64,
    /// The part of a second that is not counted yet.
    rest: Duration,
}

/// A place for a script or a session, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    tenant: Tenant,
    shares: Shares,
}

impl Shares {
    pub(crate) fn new(tenants: Tenants) -> Self {
        Self {
            tenants,
            held: Arc::default(),
        }
    }

    /// Takes a place of a tenant. A closed tenant has its places as well: its open runs continue.
    ///
    /// # Errors
    /// The tenant has no place left.
    pub(crate) fn take(&self, tenant: Tenant) -> Result<Share, LimitReached> {
        let quantity = Quantity::SandboxSlots;
        let most = self.tenants.most_here(tenant, quantity);
        let mut held = self.held();
        let own = held.entry(tenant).or_default();
        match most {
            Some(most) if own.places >= most => {
                let maximum = self.tenants.limit(tenant, quantity).unwrap_or(most);
                Err(LimitReached { quantity, maximum })
            }
            _ => {
                own.places += 1;
                let shares = self.clone();
                Ok(Share { tenant, shares })
            }
        }
    }

    /// Checks whether a tenant has seconds left in the present day.
    ///
    /// # Errors
    /// The tenant has none.
    pub(crate) fn check_seconds(&self, tenant: Tenant) -> Result<(), LimitReached> {
        self.tenants.check_of_day(tenant, Quantity::SandboxSeconds)
    }

    /// Returns the places of each tenant that has some.
    pub(crate) fn uses(&self) -> Vec<Use> {
        let held = self.held();
        let uses = held.iter().map(|(tenant, held)| Use {
            tenant: *tenant,
            quantity: Quantity::SandboxSlots,
            amount: held.places,
        });
        uses.filter(|it| it.amount > 0).collect()
    }

    /// Forgets a tenant that is removed. Returns the number of its places.
    pub(crate) fn forget(&self, tenant: Tenant) -> u64 {
        let mut held = self.held();
        let places = held.get(&tenant).map_or(0, |held| held.places);
        if places == 0 {
            held.remove(&tenant);
        }
        places
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Tenant, Held>> {
        // Every change is complete before anything can panic.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Counts the time of a script or a cell among the seconds of the day. Parts of a second are added up.
    pub(crate) fn spend(&self, time: Duration) {
        let seconds = {
            let mut held = self.shares.held();
            let own = held.entry(self.tenant).or_default();
            let sum = own.rest + time;
            own.rest = Duration::from_nanos(sum.subsec_nanos().into());
            sum.as_secs()
        };
        let tenants = &self.shares.tenants;
        tenants.spend(self.tenant, Quantity::SandboxSeconds, seconds);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.shares.held();
        if let Some(own) = held.get_mut(&self.tenant) {
            own.places = own.places.saturating_sub(1);
            if own.places == 0 && own.rest.is_zero() {
                held.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s608_parts_of_a_second_are_added_up_for_each_tenant() {
        let (tenants, acme) = (Tenants::default(), Tenant::new("acme").unwrap());
        let shares = Shares::new(tenants.clone());
        let of_day = |tenant| tenants.used_of_day(tenant, Quantity::SandboxSeconds);
        for _ in 0..3 {
            shares.take(acme).unwrap().spend(Duration::from_millis(700));
            let own = shares.take(Tenant::DEFAULT).unwrap();
            own.spend(Duration::from_millis(300));
        }
        assert_eq!((of_day(acme), of_day(Tenant::DEFAULT)), (2, 0));
        assert!(shares.uses().is_empty());
        let place = shares.take(acme).unwrap();
        assert_eq!(shares.forget(acme), 1);
        drop(place);
        assert_eq!(shares.forget(acme), 0);
    }
}
