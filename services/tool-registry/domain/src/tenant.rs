//! Tenants as they are stored, and the decisions about changes.

use std::collections::BTreeMap;

use core_types::{Tenant, Timestamp};
use serde::{Deserialize, Serialize};

/// The most tenants, removed ones included.
pub const MAX_TENANTS: usize = 10_000;

/// A tenant as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRecord {
    /// The name.
    pub name: Tenant,
    /// Its share of the installation, from 1.
    pub weight: u32,
    /// Its bounds by the number of the quantity in the contract.
    pub limits: BTreeMap<i32, Bounds>,
    /// The time of its creation.
    pub created: Timestamp,
    /// Its end; `None` while it is open.
    pub end: Option<TenantEnd>,
}

/// Bounds of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// The bound that nothing passes.
    pub hard: u64,
    /// The bound from which the log warns; zero for none.
    pub soft: u64,
}

/// The end of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantEnd {
    /// The time at which it was closed.
    pub closed: Timestamp,
    /// The time at which its open runs are cancelled.
    pub cancel: Timestamp,
    /// The progress.
    pub step: EndStep,
}

/// The progress of the end of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndStep {
    /// Runs are open.
    Closing,
    /// Stored values are being removed.
    Removing,
    /// Nothing is stored.
    Removed,
}

/// An amount of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayAmount {
    /// The tenant.
    pub tenant: Tenant,
    /// The number of the day since 1970.
    pub day: i64,
    /// The number of the quantity in the contract.
    pub quantity: i32,
    /// The amount.
    pub amount: u64,
}

/// The reason for which a change of tenants is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantRefusal {
    /// A tenant has the name.
    #[error("a tenant has the name `{0}`, or had it")]
    Exists(Tenant),
    /// No tenant has the name.
    #[error("no tenant has the name `{0}`")]
    Missing(String),
    /// The tenant is closed.
    #[error("the tenant `{0}` is closed")]
    Closed(Tenant),
    /// The tenant belongs to the installation.
    #[error("is the name of a tenant of the installation itself, or of callers without a key")]
    Reserved,
    /// There are too many.
    #[error("there are too many tenants")]
    TooMany,
}

/// Every tenant. A change makes another value.
#[derive(Clone, Debug)]
pub struct TenantRecords(BTreeMap<Tenant, TenantRecord>);

impl TenantRecord {
    /// Makes an open tenant without limits.
    pub fn new(name: Tenant, created: Timestamp) -> Self {
        Self {
            name,
            weight: 1,
            limits: BTreeMap::new(),
            created,
            end: None,
        }
    }

    /// Sets the weight, unless it is zero, and limits; bounds of zero take a limit away.
    fn set(&mut self, weight: u32, limits: &BTreeMap<i32, Bounds>) {
        if weight > 0 {
            self.weight = weight;
        }
        for (quantity, bounds) in limits {
            match bounds {
                Bounds { hard: 0, soft: 0 } => self.limits.remove(quantity),
                bounds => self.limits.insert(*quantity, *bounds),
            };
        }
    }
}

impl TenantRecords {
    /// Takes the stored tenants; those of the installation itself are open from `now` on unless they are among
    /// them.
    pub fn new(stored: impl IntoIterator<Item = TenantRecord>, now: Timestamp) -> Self {
        let own = [Tenant::DEFAULT, Tenant::SYSTEM].map(|name| TenantRecord::new(name, now));
        let all = own.into_iter().chain(stored);
        Self(all.map(|tenant| (tenant.name, tenant)).collect())
    }

    /// Returns these tenants with one added or replaced.
    #[must_use]
    pub fn with(mut self, tenant: TenantRecord) -> Self {
        self.0.insert(tenant.name, tenant);
        self
    }

    /// Returns every tenant by name.
    pub fn all(&self) -> impl Iterator<Item = &TenantRecord> {
        self.0.values()
    }

    /// Returns a tenant.
    ///
    /// # Errors
    /// [`TenantRefusal::Missing`].
    pub fn get(&self, name: Tenant) -> Result<&TenantRecord, TenantRefusal> {
        let missing = || TenantRefusal::Missing(name.to_string());
        self.0.get(&name).ok_or_else(missing)
    }

    /// Returns a tenant that is open.
    ///
    /// # Errors
    /// [`TenantRefusal::Missing`], [`TenantRefusal::Closed`].
    pub fn open(&self, name: Tenant) -> Result<&TenantRecord, TenantRefusal> {
        let found = self.get(name)?;
        match found.end {
            None => Ok(found),
            Some(_) => Err(TenantRefusal::Closed(name)),
        }
    }

    /// Decides about a new tenant.
    ///
    /// # Errors
    /// [`TenantRefusal`].
    pub fn create(
        &self,
        name: Tenant,
        (weight, limits): (u32, &BTreeMap<i32, Bounds>),
        now: Timestamp,
    ) -> Result<TenantRecord, TenantRefusal> {
        if [Tenant::DEFAULT, Tenant::SYSTEM].contains(&name) || name.as_str() == "local" {
            return Err(TenantRefusal::Reserved);
        }
        if self.0.contains_key(&name) {
            return Err(TenantRefusal::Exists(name));
        }
        if self.0.len() >= MAX_TENANTS {
            return Err(TenantRefusal::TooMany);
        }
        let mut tenant = TenantRecord::new(name, now);
        tenant.set(weight, limits);
        Ok(tenant)
    }

    /// Decides about weight and limits of a tenant.
    ///
    /// # Errors
    /// [`TenantRefusal`].
    pub fn update(
        &self,
        name: Tenant,
        (weight, limits): (u32, &BTreeMap<i32, Bounds>),
    ) -> Result<TenantRecord, TenantRefusal> {
        let mut tenant = self.open(name)?.clone();
        tenant.set(weight, limits);
        Ok(tenant)
    }

    /// Decides about closing a tenant, whose open runs are cancelled at `cancel` at the latest.
    ///
    /// # Errors
    /// [`TenantRefusal`].
    pub fn close(
        &self,
        name: Tenant,
        cancel: Timestamp,
        now: Timestamp,
    ) -> Result<TenantRecord, TenantRefusal> {
        if [Tenant::DEFAULT, Tenant::SYSTEM].contains(&name) {
            return Err(TenantRefusal::Reserved);
        }
        let mut tenant = self.get(name)?.clone();
        let end = tenant.end.get_or_insert(TenantEnd {
            closed: now,
            cancel,
            step: EndStep::Closing,
        });
        end.cancel = end.cancel.min(cancel);
        Ok(tenant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> TenantRecords {
        TenantRecords::new([], Timestamp::from_unix_nanos(0))
    }

    fn named(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    #[test]
    fn a_name_is_given_once_and_not_that_of_the_installation() {
        let now = Timestamp::from_unix_nanos(1);
        let none = BTreeMap::new();
        let acme = records().create(named("acme"), (2, &none), now).unwrap();
        assert_eq!((acme.weight, acme.end), (2, None));
        let records = records().with(acme);
        for (name, refusal) in [
            ("acme", TenantRefusal::Exists(named("acme"))),
            ("default", TenantRefusal::Reserved),
            ("system", TenantRefusal::Reserved),
            ("local", TenantRefusal::Reserved),
        ] {
            assert_eq!(records.create(named(name), (1, &none), now), Err(refusal));
        }
    }

    #[test]
    fn bounds_of_zero_take_a_limit_away_and_others_stay() {
        let [bounds, none] = [5, 0].map(|hard| Bounds { hard, soft: 0 });
        let now = Timestamp::from_unix_nanos(1);
        let limits = BTreeMap::from([(1, bounds), (2, bounds)]);
        let acme = records().create(named("acme"), (0, &limits), now).unwrap();
        let records = records().with(acme);
        let change = BTreeMap::from([(1, none)]);
        let acme = records.update(named("acme"), (0, &change)).unwrap();
        assert_eq!(acme.limits, BTreeMap::from([(2, bounds)]));
        assert_eq!(acme.weight, 1);
    }

    #[test]
    fn a_closed_tenant_can_only_be_cancelled_sooner() {
        let [now, late, soon] = [1, 9, 5].map(Timestamp::from_unix_nanos);
        let acme = TenantRecord::new(named("acme"), now);
        let records = records().with(acme);
        let closed = records.close(named("acme"), soon, now).unwrap();
        let records = records.with(closed);
        let again = records.close(named("acme"), late, late).unwrap();
        let end = again.end.unwrap();
        assert_eq!((end.closed, end.cancel), (now, soon));
        let refused = records.update(named("acme"), (1, &BTreeMap::new()));
        assert_eq!(refused, Err(TenantRefusal::Closed(named("acme"))));
        let refused = records.close(Tenant::DEFAULT, soon, now);
        assert_eq!(refused, Err(TenantRefusal::Reserved));
    }
}
