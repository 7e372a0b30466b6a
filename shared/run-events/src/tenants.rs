//! The runs of tenants: their limits, and their end.

use core_types::Tenant;
use grpc_kit::{CallContext, Failure};
use run_log::{Owners, RunFilter, RunState, StateFilter};
use tenancy::{Quantity, Tenants, Use};
use tonic::Status;

use crate::failure::storage_failure;
use crate::runs::Runs;

/// The most runs that are cancelled or removed in a step.
const STEP: usize = 256;

/// The reason that is recorded where the end of a tenant cancels a run.
const CLOSED: &str = "the tenant is closed";

impl Runs {
    /// Returns weights and limits of tenants, as the registry sends them.
    pub fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// Checks whether a call may start a run. A run below another belongs to its work, which no limit stops.
    pub(crate) fn admit(&self, context: &CallContext) -> Result<(), Failure> {
        if context.path().depth() > 0 {
            return Ok(());
        }
        let tenant = context.tenant();
        let open = self.store().logs.open_runs_of(tenant);
        self.tenants.admit(tenant, Quantity::OpenRuns, open)
    }

    /// Returns the number of runs that have not ended of each tenant.
    pub fn uses(&self) -> Vec<Use> {
        let open = self.store().logs.open_runs_by_tenant();
        let uses = open.into_iter().map(|(tenant, amount)| Use {
            tenant,
            quantity: Quantity::OpenRuns,
            amount,
        });
        uses.collect()
    }

    /// Cancels open runs of a tenant, some hundreds of them.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn cancel_of(&self, tenant: Tenant) -> Result<(), Status> {
        let context = CallContext::outermost();
        let mut cursor = None;
        loop {
            let filter = RunFilter {
                owners: Owners::Tenant(tenant),
                state: StateFilter::Open,
                ..RunFilter::default()
            };
            let order = run_log::Order::OldestFirst;
            let page = self
                .store()
                .logs
                .list(&filter, order, cursor.as_ref(), STEP);
            let page = page.await.map_err(|error| storage_failure(&error))?;
            for run in page.runs.iter().filter(|run| run.parent.is_none()) {
                // A cancel reaches the runs below, so those without one above are enough.
                self.cancel(&context, &run.id.to_string(), CLOSED).await?;
            }
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Removes runs of a tenant that is being removed, some hundreds of them, with all that belongs to them. Returns the
    /// number of those that are left.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn remove_of(&self, tenant: Tenant) -> Result<u64, Failure> {
        let filter = RunFilter {
            owners: Owners::Tenant(tenant),
            ..RunFilter::default()
        };
        let logs = &self.store().logs;
        let page = logs.list(&filter, run_log::Order::OldestFirst, None, STEP);
        let page = page.await.map_err(|error| storage_failure(&error))?;
        for run in page.runs.iter().filter(|run| run.state != RunState::Open) {
            self.forget(run.id).await?;
        }
        // The ids of requests whose runs were deleted before.
        let forgotten = logs.forget_requests_of(tenant).await;
        let forgotten = forgotten.map_err(|error| storage_failure(&error))?;
        let left = logs.list(&filter, run_log::Order::OldestFirst, None, STEP);
        let left = left.await.map_err(|error| storage_failure(&error))?;
        let left = u64::try_from(left.runs.len()).unwrap_or(u64::MAX);
        Ok(left + forgotten)
    }
}
