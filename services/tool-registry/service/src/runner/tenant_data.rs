//! The data of tenants in this service, and their removal.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use core_types::Tenant;
use documents::DocumentStore;
use run_events::Runs;
use tenancy::{TenantData, Use};
use tonic::Status;

use crate::{
    approvals::Approvals, identities::Identities, runner::calls::Calls, store::StoreError,
    tools::Tools, workspace::Workspaces,
};

/// The most rows of a table, or directories, that are removed in a step.
const STEP: u32 = 256;

/// The reason that is recorded where the end of a tenant cancels a call.
const CLOSED: &str = "the tenant is closed";

/// Everything of tenants in this service.
#[derive(Debug)]
pub(crate) struct RegistryData {
    pub(crate) runs: Runs,
    pub(crate) calls: Calls,
    pub(crate) approvals: Approvals,
    pub(crate) documents: Arc<dyn DocumentStore>,
    pub(crate) workspaces: Workspaces,
    pub(crate) tools: Tools,
    pub(crate) identities: Identities,
    /// The tenants of which nothing but principals was left in the round before. Locked for a look-up or a change.
    pub(crate) bare: Mutex<BTreeSet<Tenant>>,
}

#[async_trait]
impl TenantData for RegistryData {
    async fn uses(&self) -> Result<Vec<Use>, Status> {
        Ok(self.runs.uses())
    }

    async fn cancel(&self, tenant: Tenant) -> Result<(), Status> {
        self.calls.cancel_of(tenant, CLOSED);
        self.runs.cancel_of(tenant).await
    }

    async fn remove(&self, tenant: Tenant) -> Result<u64, Status> {
        self.cancel(tenant).await?;
        let in_flight = self.calls.count_of(tenant);
        let runs = self.runs.remove_of(tenant).await;
        let runs = runs.map_err(grpc_kit::Failure::into_status)?;
        let entries = self.calls.ledger().remove_of(tenant, STEP as usize).await?;
        let approvals = self.approvals.remove_of(tenant, STEP).await;
        let approvals = approvals.map_err(store_failed)?;
        let documents = self.documents.remove_tenant(tenant, STEP).await;
        let documents = documents.map_err(store_failed)?;
        let workspaces = self.workspaces.clone();
        let files = move || workspaces.remove_of(tenant, STEP as usize);
        let files = tokio::task::spawn_blocking(files).await;
        let files = files.map_err(|error| grpc_kit::internal(&error))?;
        let files = files.map_err(|error| grpc_kit::internal(&error))?;
        self.tools.forget(tenant);
        let left = in_flight + runs + entries + approvals + documents + files;
        // Principals leave last, so that their keys are refused as those of a closed tenant until then.
        let is_bare = left + self.identities.tenants().left_in_others(tenant) == 0;
        let principals = match self.has_settled(tenant, is_bare) {
            true => self.identities.remove_of(tenant).await,
            false => self.identities.count_of(tenant).await,
        };
        Ok(left + principals.map_err(store_failed)?)
    }
}

impl RegistryData {
    /// Whether a tenant was bare in the round before too, in which the other services have counted their values.
    fn has_settled(&self, tenant: Tenant, is_bare: bool) -> bool {
        let mut bare = self.bare.lock().unwrap_or_else(PoisonError::into_inner);
        match is_bare {
            true => !bare.insert(tenant),
            false => {
                bare.remove(&tenant);
                false
            }
        }
    }
}

fn store_failed(error: StoreError) -> Status {
    run_events::store_failure(&error).into_status()
}
