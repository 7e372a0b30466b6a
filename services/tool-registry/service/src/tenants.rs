//! Tenants, their limits and their end.
//!
//! All of them are held in memory and replaced as a whole by a change, after it is stored.
//!
//! - `uses`: the uses of tenants, as the services report them.

mod uses;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use contracts::tavern::registry::v1::DoorLimits;
use contracts::tavern::tenant::v1::{
    SyncTenantsResponse, Tenant as Message, TenantLimit, TenantQuantity, TenantState, TenantUsage,
};
use core_types::{Clock, Tenant, Timestamp};
use run_events::timestamp_to_proto;
use tokio::sync::Notify;
use tool_domain::tenant::{EndStep, TenantRecord, TenantRecords, TenantRefusal};

use uses::Uses;
pub(crate) use uses::day_of;

use crate::store::{StoreError, tenants::TenantStore};

/// The pause between two warnings about one use.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

/// Every tenant. Clone, cheap.
#[derive(Clone)]
pub struct Tenants {
    inner: Arc<Inner>,
}

struct Inner {
    /// Replaced as a whole by a change. Locked for the time of a pointer copy only.
    records: RwLock<Arc<TenantRecords>>,
    /// Held by one change at a time, over its write to the store.
    changing: tokio::sync::Mutex<()>,
    /// Locked for a report or a copy, never across an await.
    uses: Mutex<Uses>,
    /// The times of the last warnings about soft bounds.
    warned: Mutex<HashMap<(Tenant, i32), Timestamp>>,
    /// Notified of each change, so that services learn of it at once.
    changed: Notify,
    store: Arc<dyn TenantStore>,
    clock: Arc<dyn Clock>,
}

/// The reason for which a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum TenantNotChanged {
    /// It is refused.
    #[error(transparent)]
    Refused(#[from] TenantRefusal),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl std::fmt::Debug for Tenants {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Tenants")
    }
}

impl Tenants {
    /// Loads every tenant.
    ///
    /// # Errors
    /// [`StoreError`] when the database does not work or a row is damaged.
    pub(crate) async fn load(
        store: Arc<dyn TenantStore>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let now = clock.now();
        let records = TenantRecords::new(store.load().await?, now);
        let day = day_of(now);
        let uses = Uses::stored(day, store.amounts_of(day).await?);
        Ok(Self {
            inner: Arc::new(Inner {
                records: RwLock::new(Arc::new(records)),
                changing: tokio::sync::Mutex::default(),
                uses: Mutex::new(uses),
                changed: Notify::new(),
                warned: Mutex::default(),
                store,
                clock,
            }),
        })
    }

    /// Returns every tenant as it is now.
    pub fn records(&self) -> Arc<TenantRecords> {
        let records = self.inner.records.read();
        records.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a tenant exists and is not closed.
    pub fn is_open(&self, tenant: Tenant) -> bool {
        self.records().open(tenant).is_ok()
    }

    /// Decides about a change of a tenant and carries it out, one at a time. Returns the tenant.
    ///
    /// # Errors
    /// [`TenantNotChanged`].
    pub async fn change(
        &self,
        decide: impl FnOnce(&TenantRecords, Timestamp) -> Result<TenantRecord, TenantRefusal>,
    ) -> Result<TenantRecord, TenantNotChanged> {
        let _changing = self.inner.changing.lock().await;
        let records = self.records();
        let changed = decide(&records, self.inner.clock.now())?;
        self.inner.store.save(&changed).await?;
        let next = TenantRecords::clone(&records).with(changed.clone());
        let records = self.inner.records.write();
        *records.unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        self.inner.changed.notify_one();
        Ok(changed)
    }

    /// Returns the bounds of a tenant that the door keeps.
    pub(crate) fn door_limits(&self, tenant: Tenant) -> Option<DoorLimits> {
        let records = self.records();
        let limits = &records.get(tenant).ok()?.limits;
        let bound = |quantity: TenantQuantity| {
            let bounds = limits.get(&quantity.into());
            bounds.map_or(0, |bounds| bounds.hard)
        };
        let limits = DoorLimits {
            calls_per_second: bound(TenantQuantity::CallsPerSecond),
            streams: bound(TenantQuantity::Streams),
        };
        (limits != DoorLimits::default()).then_some(limits)
    }

    /// Removes the amounts of a tenant that is being removed.
    pub(crate) async fn remove_amounts(&self, tenant: Tenant) -> Result<(), StoreError> {
        self.uses().forget(tenant);
        self.inner.store.remove_amounts(tenant).await
    }

    /// Returns the amounts by which the uses of a tenant pass its hard bounds.
    pub(crate) fn over(&self, tenant: &TenantRecord) -> Vec<TenantUsage> {
        let uses = self.uses();
        let over = tenant.limits.iter().map(|(quantity, bounds)| TenantUsage {
            quantity: *quantity,
            used: uses.of(tenant.name, *quantity).saturating_sub(bounds.hard),
        });
        over.filter(|over| over.used > 0).collect()
    }

    /// Warns in the log about uses that have reached a soft bound, once a minute each.
    pub(crate) fn warn(&self) {
        let (records, uses, now) = (self.records(), self.uses(), self.now());
        let warned = self.inner.warned.lock();
        let mut warned = warned.unwrap_or_else(PoisonError::into_inner);
        for tenant in records.all() {
            let soft = tenant.limits.iter().filter(|(_, bounds)| bounds.soft > 0);
            for (quantity, bounds) in soft {
                let used = uses.of(tenant.name, *quantity);
                let key = (tenant.name, *quantity);
                let is_new = warned
                    .get(&key)
                    .is_none_or(|at| at.plus(WARNING_PAUSE) <= now);
                if used >= bounds.soft && is_new {
                    warned.insert(key, now);
                    let limit = TenantQuantity::try_from(*quantity).unwrap_or_default();
                    let limit = limit.name();
                    let (soft, hard) = (bounds.soft, bounds.hard);
                    tracing::warn!(tenant = %tenant.name, limit, used, soft, hard, "a tenant nears a limit");
                }
            }
        }
    }

    /// Returns the uses, locked.
    pub(crate) fn uses(&self) -> MutexGuard<'_, Uses> {
        let uses = self.inner.uses.lock();
        uses.unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the report of a service, and stores its amounts of the day.
    pub(crate) async fn take_uses(
        &self,
        service: usize,
        report: &SyncTenantsResponse,
    ) -> Result<(), StoreError> {
        let day = day_of(self.now());
        let changed = self.uses().take(service, report, day);
        match changed.is_empty() {
            true => Ok(()),
            false => self.inner.store.set_amounts(&changed).await,
        }
    }

    /// Waits for a change since the last call.
    pub(crate) async fn changed(&self) {
        self.inner.changed.notified().await;
    }

    /// Returns the time.
    pub(crate) fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }
}

/// Returns a tenant as a message.
pub(crate) fn tenant_to_proto(tenant: &TenantRecord) -> Message {
    let limits = tenant.limits.iter().map(|(quantity, bounds)| TenantLimit {
        quantity: *quantity,
        hard: bounds.hard,
        soft: bounds.soft,
    });
    let state = match tenant.end.map(|end| end.step) {
        None => TenantState::Open,
        Some(EndStep::Closing) => TenantState::Closing,
        Some(EndStep::Removing) => TenantState::Removing,
        Some(EndStep::Removed) => TenantState::Removed,
    };
    Message {
        name: tenant.name.to_string(),
        weight: tenant.weight,
        limits: limits.collect(),
        state: state.into(),
        create_time: Some(timestamp_to_proto(tenant.created)),
        close_time: tenant.end.map(|end| timestamp_to_proto(end.closed)),
        cancel_time: tenant.end.map(|end| timestamp_to_proto(end.cancel)),
    }
}
