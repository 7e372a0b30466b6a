//! Weights and limits of tenants, and whether more is permitted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use contracts::tavern::common::v1::ErrorReason;
use contracts::tavern::tenant::v1 as proto;
use core_types::Tenant;
use grpc_kit::Failure;
use tonic::Code;

pub use proto::TenantQuantity as Quantity;

/// The pause before a retry of a request that a limit refused.
const RETRY: Duration = Duration::from_secs(1);

/// The quantities that are counted for a day.
const OF_DAY: [Quantity; 3] = [
    Quantity::SandboxSeconds,
    Quantity::ModelTokens,
    Quantity::ModelMicros,
];

/// An amount of a quantity that a tenant uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The tenant.
    pub tenant: Tenant,
    /// The quantity.
    pub quantity: Quantity,
    /// The amount.
    pub amount: u64,
}

/// The tenants as the registry sent them last. Clone, cheap; clones share them.
///
/// Before the registry has sent any, every tenant has the weight 1 and no limit.
#[derive(Clone, Debug, Default)]
pub struct Tenants(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Replaced as a whole. Locked for the time of a pointer copy only.
    facts: RwLock<Arc<HashMap<Tenant, Facts>>>,
    /// The amounts of the present day that this process has used. Locked for an addition or a copy.
    spent: Mutex<HashMap<(Tenant, i32), Spent>>,
    /// The uses that this process reported last. Locked for a look-up or a copy.
    reported: Mutex<HashMap<(Tenant, i32), u64>>,
}

/// A tenant as the registry sent it.
#[derive(Clone, Debug, Default)]
struct Facts {
    weight: u32,
    /// The hard bounds.
    limits: HashMap<i32, u64>,
    /// The uses: of quantities of the day in all services, of others in the other ones.
    uses: HashMap<i32, u64>,
    end: Option<End>,
}

/// The end of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It accepts no new work, and its open runs come to their end.
    Closing,
    /// Its stored values are being removed.
    Removing,
}

/// An amount that this process has used.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    /// All of it since the process began.
    total: u64,
    /// The part that the registry knows.
    reported: u64,
}

impl Tenants {
    /// Returns the weight of a tenant, from 1.
    pub fn weight(&self, tenant: Tenant) -> u32 {
        let facts = self.facts();
        facts.get(&tenant).map_or(1, |facts| facts.weight.max(1))
    }

    /// Returns the end of a tenant; `None` while it is open.
    pub fn end(&self, tenant: Tenant) -> Option<End> {
        self.facts().get(&tenant).and_then(|facts| facts.end)
    }

    /// Returns every tenant that is being removed.
    pub fn removing(&self) -> Vec<Tenant> {
        let facts = self.facts();
        let removing = facts
            .iter()
            .filter(|(_, facts)| facts.end == Some(End::Removing));
        removing.map(|(tenant, _)| *tenant).collect()
    }

    /// Checks whether a tenant may use one more of a quantity of which it uses `here` in this process, and elsewhere
    /// as much as the registry reported.
    ///
    /// # Errors
    /// TENANT_LIMIT, TENANT_CLOSED.
    pub fn admit(&self, tenant: Tenant, quantity: Quantity, here: u64) -> Result<(), Failure> {
        if self.end(tenant).is_some() {
            return Err(closed(tenant));
        }
        let used = here + self.elsewhere(tenant, quantity);
        Ok(self.check(tenant, quantity, used)?)
    }

    /// Checks whether one more than an amount is within the limit.
    fn check(&self, tenant: Tenant, quantity: Quantity, used: u64) -> Result<(), LimitReached> {
        match self.limit(tenant, quantity) {
            Some(maximum) if used >= maximum => Err(LimitReached { quantity, maximum }),
            _ => Ok(()),
        }
    }

    /// Returns the hard bound of a quantity, whether the tenant is open or not: the runs of a closed one continue to their
    /// end within its bounds.
    pub fn limit(&self, tenant: Tenant, quantity: Quantity) -> Option<u64> {
        let facts = self.facts();
        let limits = &facts.get(&tenant)?.limits;
        limits.get(&(quantity as i32)).copied()
    }

    /// Returns the most of a quantity that a tenant may use in this process, whether it is open or not: its hard bound
    /// without the use elsewhere.
    pub fn most_here(&self, tenant: Tenant, quantity: Quantity) -> Option<u64> {
        let maximum = self.limit(tenant, quantity)?;
        Some(maximum.saturating_sub(self.elsewhere(tenant, quantity)))
    }

    /// Checks whether the open work of a tenant, which may be closed, may use more of a quantity of the day.
    ///
    /// # Errors
    /// The limit that is reached.
    pub fn check_of_day(&self, tenant: Tenant, quantity: Quantity) -> Result<(), LimitReached> {
        self.check(tenant, quantity, self.used_of_day(tenant, quantity))
    }

    /// Returns the amount of a quantity that a tenant uses in other services.
    fn elsewhere(&self, tenant: Tenant, quantity: Quantity) -> u64 {
        let facts = self.facts();
        let found = facts.get(&tenant);
        let found = found.and_then(|facts| facts.uses.get(&(quantity as i32)));
        found.copied().unwrap_or_default()
    }

    /// Returns the amount of a quantity that a tenant has used in the present day, in all services.
    pub fn used_of_day(&self, tenant: Tenant, quantity: Quantity) -> u64 {
        let spent = self.spent().get(&(tenant, quantity as i32)).copied();
        let Spent { total, reported } = spent.unwrap_or_default();
        // That of the day is the sum of all services.
        self.elsewhere(tenant, quantity) + (total - reported)
    }

    /// Adds an amount of a quantity of the day.
    pub fn spend(&self, tenant: Tenant, quantity: Quantity, amount: u64) {
        if amount > 0 {
            let mut spent = self.spent();
            spent.entry((tenant, quantity as i32)).or_default().total += amount;
        }
    }

    /// Takes the tenants that the registry sends. The amounts that it knows include [`Tenants::report`]'s.
    pub(crate) fn replace(&self, tenants: &[proto::SyncedTenant]) {
        let reported = lock(&self.0.reported);
        let read = tenants.iter().filter_map(|synced| {
            let tenant = synced.tenant.as_ref()?;
            let name = Tenant::new(&tenant.name).ok()?;
            let bounds = tenant
                .limits
                .iter()
                .map(|limit| (limit.quantity, limit.hard));
            let uses = synced.uses.iter().map(|usage| {
                // The sum has the answer to the request before.
                let own = match is_of_day(usage.quantity()) {
                    true => None,
                    false => reported.get(&(name, usage.quantity)),
                };
                let own = own.copied().unwrap_or_default();
                (usage.quantity, usage.used.saturating_sub(own))
            });
            let end = match tenant.state() {
                proto::TenantState::Closing => Some(End::Closing),
                proto::TenantState::Removing | proto::TenantState::Removed => Some(End::Removing),
                proto::TenantState::Open | proto::TenantState::Unspecified => None,
            };
            let facts = Facts {
                weight: tenant.weight,
                limits: bounds.collect(),
                uses: uses.collect(),
                end,
            };
            Some((name, facts))
        });
        let read = Arc::new(read.collect());
        drop(reported);
        *self.0.facts.write().unwrap_or_else(PoisonError::into_inner) = read;
    }

    /// Returns the amounts of the day that the registry does not know yet, which counts them from now on.
    pub(crate) fn report(&self) -> Vec<Use> {
        let mut spent = self.spent();
        let new = spent.iter_mut().filter_map(|((tenant, quantity), spent)| {
            let amount = spent.total - spent.reported;
            spent.reported = spent.total;
            let quantity = Quantity::try_from(*quantity).ok()?;
            let tenant = *tenant;
            let new = Use {
                tenant,
                quantity,
                amount,
            };
            (amount > 0).then_some(new)
        });
        new.collect()
    }

    /// Notes the present uses that are reported.
    pub(crate) fn note(&self, present: &[Use]) {
        let noted = present.iter();
        let noted = noted.map(|it| ((it.tenant, it.quantity as i32), it.amount));
        *lock(&self.0.reported) = noted.collect();
    }

    fn facts(&self) -> Arc<HashMap<Tenant, Facts>> {
        let facts = self.0.facts.read();
        Arc::clone(&facts.unwrap_or_else(PoisonError::into_inner))
    }

    fn spent(&self) -> MutexGuard<'_, HashMap<(Tenant, i32), Spent>> {
        lock(&self.0.spent)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a quantity is counted for a day, and not by the present use.
pub fn is_of_day(quantity: Quantity) -> bool {
    OF_DAY.contains(&quantity)
}

/// A limit of a tenant that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the limit `{}` of the tenant is reached, which is {maximum}; wait, or ask the operator of the installation for \
     more",
    .quantity.name()
)]
pub struct LimitReached {
    /// The quantity.
    pub quantity: Quantity,
    /// The limit.
    pub maximum: u64,
}

impl From<LimitReached> for Failure {
    fn from(reached: LimitReached) -> Self {
        let (code, reason) = (Code::ResourceExhausted, ErrorReason::TenantLimit);
        Self::new(code, reason, reached.to_string())
            .metadata("limit", reached.quantity.name())
            .metadata("maximum", reached.maximum.to_string())
            .retry_after(RETRY)
    }
}

/// Begins the refusal of new work of a closed tenant.
pub fn closed(tenant: Tenant) -> Failure {
    let message = format!("the tenant `{tenant}` is closed; ask the operator of the installation");
    Failure::new(Code::FailedPrecondition, ErrorReason::TenantClosed, message)
        .metadata("tenant", tenant.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acme() -> Tenant {
        Tenant::new("acme").unwrap()
    }

    fn sent(quantity: Quantity, hard: u64, used: u64) -> proto::SyncedTenant {
        let tenant = proto::Tenant {
            name: "acme".to_owned(),
            weight: 3,
            limits: vec![proto::TenantLimit {
                quantity: quantity.into(),
                hard,
                soft: 0,
            }],
            ..proto::Tenant::default()
        };
        proto::SyncedTenant {
            tenant: Some(tenant),
            uses: vec![proto::TenantUsage {
                quantity: quantity.into(),
                used,
            }],
            cancel: false,
        }
    }

    #[test]
    fn s608_a_limit_counts_the_uses_of_all_services() {
        let tenants = Tenants::default();
        let quantity = Quantity::OpenRuns;
        tenants.admit(acme(), quantity, 1_000).unwrap();
        tenants.note(&[Use {
            tenant: acme(),
            quantity,
            amount: 4,
        }]);
        tenants.replace(&[sent(quantity, 10, 7)]);
        // Three are elsewhere.
        assert_eq!(tenants.most_here(acme(), quantity), Some(7));
        tenants.admit(acme(), quantity, 6).unwrap();
        let refused = tenants
            .admit(acme(), quantity, 7)
            .unwrap_err()
            .into_status();
        assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::TenantLimit));
        assert_eq!(grpc_kit::metadata(&refused)["limit"], "open_runs");
        assert!(grpc_kit::retry_after(&refused).is_some());
        assert_eq!(tenants.weight(acme()), 3);
        tenants.admit(Tenant::DEFAULT, quantity, 1_000).unwrap();
    }

    #[test]
    fn s608_an_amount_of_the_day_is_counted_once_also_while_it_is_reported() {
        let (tenants, quantity) = (Tenants::default(), Quantity::ModelTokens);
        tenants.replace(&[sent(quantity, 100, 0)]);
        tenants.spend(acme(), quantity, 60);
        assert_eq!(tenants.used_of_day(acme(), quantity), 60);
        let reported = tenants.report();
        assert_eq!(reported[0].amount, 60);
        tenants.spend(acme(), quantity, 30);
        tenants.replace(&[sent(quantity, 100, 60)]);
        assert_eq!(tenants.used_of_day(acme(), quantity), 90);
        tenants.check_of_day(acme(), quantity).unwrap();
        tenants.spend(acme(), quantity, 10);
        tenants.check_of_day(acme(), quantity).unwrap_err();
    }

    #[test]
    fn a_closed_tenant_is_refused_new_work() {
        let tenants = Tenants::default();
        let mut closing = sent(Quantity::OpenRuns, 10, 0);
        if let Some(tenant) = &mut closing.tenant {
            tenant.state = proto::TenantState::Closing.into();
        }
        tenants.replace(&[closing]);
        let refused = tenants.admit(acme(), Quantity::OpenRuns, 0).unwrap_err();
        let reason = grpc_kit::reason(&refused.into_status());
        assert_eq!(reason, Some(ErrorReason::TenantClosed));
        assert!(tenants.removing().is_empty());
        // Its open runs continue within its bounds.
        assert_eq!(tenants.limit(acme(), Quantity::OpenRuns), Some(10));
        assert_eq!(tenants.most_here(acme(), Quantity::OpenRuns), Some(10));
    }

    #[test]
    fn s608_the_open_work_of_a_closed_tenant_continues_within_its_limits() {
        let (tenants, quantity) = (Tenants::default(), Quantity::ModelTokens);
        let mut closing = sent(quantity, 10, 9);
        if let Some(tenant) = &mut closing.tenant {
            tenant.state = proto::TenantState::Closing.into();
        }
        tenants.replace(&[closing]);
        assert_eq!(tenants.check_of_day(acme(), quantity), Ok(()));
        tenants.spend(acme(), quantity, 1);
        let reached = LimitReached {
            quantity,
            maximum: 10,
        };
        assert_eq!(tenants.check_of_day(acme(), quantity), Err(reached));
    }
}
