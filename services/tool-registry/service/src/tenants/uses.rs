//! The uses of tenants, as the services report them.

use std::collections::{BTreeMap, HashMap};

use contracts::tavern::tenant::v1::{SyncTenantsResponse, TenantQuantity, TenantUsage};
use core_types::{Tenant, Timestamp};
use tenancy::tenants::is_of_day;
use tool_domain::tenant::DayAmount;

/// The nanoseconds of a day.
const DAY: i64 = 24 * 60 * 60 * 1_000_000_000;

/// The uses of tenants. Amounts of a day are of the present one.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// The last report of each service, by its place.
    present: HashMap<usize, BTreeMap<(Tenant, i32), u64>>,
    /// The stored values that are left of tenants that are being removed, by service.
    left: HashMap<usize, BTreeMap<Tenant, u64>>,
    day: i64,
    of_day: BTreeMap<(Tenant, i32), u64>,
}

/// Returns the number of the day of a time since 1970.
pub(crate) fn day_of(time: Timestamp) -> i64 {
    time.unix_nanos().div_euclid(DAY)
}

impl Uses {
    /// Takes stored amounts of a day.
    pub(crate) fn stored(day: i64, amounts: impl IntoIterator<Item = DayAmount>) -> Self {
        let amounts = amounts.into_iter().filter(|amount| amount.day == day);
        let of_day = amounts.map(|it| ((it.tenant, it.quantity), it.amount));
        Self {
            day,
            of_day: of_day.collect(),
            ..Self::default()
        }
    }

    /// Takes the report of a service. Returns the new amounts of the day, to be stored.
    pub(crate) fn take(
        &mut self,
        service: usize,
        report: &SyncTenantsResponse,
        day: i64,
    ) -> Vec<DayAmount> {
        if day != self.day {
            self.day = day;
            self.of_day.clear();
        }
        let (mut present, mut left, mut changed) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for uses in &report.tenants {
            let Ok(tenant) = Tenant::new(&uses.tenant) else {
                continue;
            };
            left.insert(tenant, uses.left);
            for usage in &uses.uses {
                let (quantity, key) = (usage.quantity(), (tenant, usage.quantity));
                if !is_of_day(quantity) {
                    present.insert(key, usage.used);
                    continue;
                }
                let amount = self.of_day.entry(key).or_default();
                *amount += usage.used;
                changed.push(DayAmount {
                    tenant,
                    day,
                    quantity: usage.quantity,
                    amount: *amount,
                });
            }
        }
        self.present.insert(service, present);
        self.left.insert(service, left);
        changed
    }

    /// Returns the use of a quantity.
    pub(crate) fn of(&self, tenant: Tenant, quantity: i32) -> u64 {
        let key = (tenant, quantity);
        let present = self.present.values().filter_map(|uses| uses.get(&key));
        present.chain(self.of_day.get(&key)).sum()
    }

    /// Returns every use of a tenant.
    pub(crate) fn of_tenant(&self, tenant: Tenant) -> Vec<TenantUsage> {
        let all = (1..).map_while(|number| TenantQuantity::try_from(number).ok());
        let uses = all.map(|quantity| TenantUsage {
            quantity: quantity.into(),
            used: self.of(tenant, quantity.into()),
        });
        uses.filter(|usage| usage.used > 0).collect()
    }

    /// Forgets the amounts of the day of a tenant.
    pub(crate) fn forget(&mut self, tenant: Tenant) {
        self.of_day.retain(|(of, _), _| *of != tenant);
    }

    /// Returns the number of stored values that are left of a tenant.
    pub(crate) fn left(&self, tenant: Tenant) -> u64 {
        let left = self.left.values().filter_map(|left| left.get(&tenant));
        left.sum()
    }
}
