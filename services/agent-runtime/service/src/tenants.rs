//! The data of tenants: their uses, and their end.

use std::sync::Arc;

use agent_store::{knowledge::Knowledge, store::AgentStore};
use async_trait::async_trait;
use core_types::Tenant;
use documents::DocumentStore;
use run_events::Runs;
use tenancy::{TenantData, Use};
use tonic::Status;

use crate::error::store_failure;

/// The most rows of a table that are removed in a step.
const STEP: u32 = 500;

/// The data of tenants in this service.
#[derive(Debug)]
pub(crate) struct AgentTenants {
    pub(crate) runs: Runs,
    pub(crate) store: AgentStore,
    pub(crate) documents: Arc<dyn DocumentStore>,
    pub(crate) knowledge: Knowledge,
}

#[async_trait]
impl TenantData for AgentTenants {
    async fn uses(&self) -> Result<Vec<Use>, Status> {
        Ok(self.runs.uses().await?)
    }

    async fn cancel(&self, tenant: Tenant) -> Result<(), Status> {
        // Turns and scenes.
        Ok(self.runs.cancel_of(tenant).await?)
    }

    async fn remove(&self, tenant: Tenant) -> Result<u64, Status> {
        let failed = |error| store_failure(&error).into_status();
        let runs = self.runs.remove_of(tenant).await?;
        self.knowledge.forget(tenant);
        let rows = self.store.remove_tenant(tenant, STEP).await;
        let documents = self.documents.remove_tenant(tenant, STEP).await;
        Ok(runs + rows.map_err(failed)? + documents.map_err(failed)?)
    }
}
