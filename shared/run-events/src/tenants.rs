//! The runs of tenants: their limit, and their end.

use contracts::tavern::common::v1::ErrorReason;
use core_types::Tenant;
use futures::{StreamExt, TryStreamExt, stream};
use grpc_kit::{CallContext, Failure};
use run_log::{Order, Owners, RunFilter, RunSummary, StateFilter, StorageError};
use tenancy::{Quantity, Tenants, Use};
use tokio::sync::OwnedMutexGuard;

use crate::failure::storage_failure;
use crate::runs::Runs;

/// The most runs that are cancelled at the same time, or removed in a step.
const STEP: usize = 256;

/// The reason that is recorded where the end of a tenant cancels its work.
pub const TENANT_CLOSED: &str = "the tenant is closed";

/// The permission to start one run of a tenant, until it is in the log.
pub(crate) struct Admission {
    /// Held where a limit counts, as the count of the next start includes this run.
    _alone: Option<OwnedMutexGuard<()>>,
}

impl Runs {
    /// Returns weights and limits of tenants, as the registry sends them.
    pub fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// Checks whether a call may start a run. A run below another belongs to its work, which no limit stops.
    ///
    /// # Errors
    /// TENANT_CLOSED, TENANT_LIMIT, or a storage that does not work.
    pub(crate) async fn admit(&self, context: &CallContext) -> Result<Admission, Failure> {
        if context.path().depth() > 0 {
            return Ok(Admission { _alone: None });
        }
        let tenant = context.tenant();
        let Some(most) = self.tenants.limit(tenant, Quantity::OpenRuns) else {
            self.tenants.admit(tenant, Quantity::OpenRuns, 0)?;
            return Ok(Admission { _alone: None });
        };
        let alone = self.starting.of(tenant).lock_owned().await;
        let open = self.store().logs.open_runs_of(tenant, most).await;
        let open = open.map_err(|error| storage_failure(&error))?;
        self.tenants.admit(tenant, Quantity::OpenRuns, open)?;
        Ok(Admission {
            _alone: Some(alone),
        })
    }

    /// Returns the number of runs that have not ended of each tenant.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn uses(&self) -> Result<Vec<Use>, Failure> {
        let open = self.store().logs.open_runs_by_tenant().await;
        let open = open.map_err(|error| storage_failure(&error))?;
        let uses = open.into_iter().map(|(tenant, amount)| Use {
            tenant,
            quantity: Quantity::OpenRuns,
            amount,
        });
        Ok(uses.collect())
    }

    /// Orders the cancellation of every open run of a tenant, without waiting for its end.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn cancel_of(&self, tenant: Tenant) -> Result<(), Failure> {
        let context = CallContext::outermost();
        let filter = RunFilter {
            owners: Owners::Tenant(tenant),
            state: StateFilter::Open,
            ..RunFilter::default()
        };
        let mut after = None;
        loop {
            let logs = &self.store().logs;
            let page = logs.list(&filter, Order::OldestFirst, after.as_ref(), STEP);
            let page = page.await.map_err(|error| storage_failure(&error))?;
            // A cancel reaches the runs below.
            let outermost = page.runs.into_iter().filter(|run| run.parent.is_none());
            let orders = stream::iter(outermost).map(Ok);
            let ordered = orders.try_for_each_concurrent(STEP, |run| {
                let context = &context;
                async move { self.order_cancel_of(context, &run.id.to_string()).await }
            });
            ordered.await?;
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn order_cancel_of(&self, context: &CallContext, run_id: &str) -> Result<(), Failure> {
        match self.order_cancel(context, run_id, TENANT_CLOSED).await {
            // It ended and was deleted meanwhile.
            Err(failure) if failure.reason() == ErrorReason::RunNotFound => Ok(()),
            ordered => ordered.map(drop),
        }
    }

    /// Removes finished runs of a tenant, some hundreds of them, with all that belongs to them. Returns a number that
    /// is zero once nothing of the tenant is left.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn remove_of(&self, tenant: Tenant) -> Result<u64, Failure> {
        let before = |run: RunSummary| async move {
            let deleted = self.delete_what_belongs_to(&run).await;
            deleted.map_err(Failed)
        };
        let left = self.store().logs.remove_of(tenant, STEP, before).await;
        left.map_err(|Failed(failure)| failure)
    }
}

/// A failure of a removal, which the log can return.
struct Failed(Failure);

impl From<StorageError> for Failed {
    fn from(error: StorageError) -> Self {
        Self(storage_failure(&error))
    }
}
