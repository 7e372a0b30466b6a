//! The data of tenants in this service, and their removal. Their principals leave at the end of all services.

use std::sync::Arc;

use async_trait::async_trait;
use core_types::Tenant;
use documents::DocumentStore;
use run_events::{Runs, TENANT_CLOSED};
use tenancy::{TenantData, Use};
use tonic::Status;

use workspace_store::Workspaces;

use crate::{
    approvals::Approvals, runner::calls::Calls, store::StoreError, tool_search::ToolSearch,
    tools::Tools,
};

/// The most rows of a table, or directories, that are removed in a step.
const STEP: u32 = 256;

/// Everything of tenants in this service.
#[derive(Debug)]
pub(crate) struct RegistryData {
    pub(crate) runs: Runs,
    pub(crate) calls: Calls,
    pub(crate) approvals: Approvals,
    pub(crate) documents: Arc<dyn DocumentStore>,
    pub(crate) workspaces: Workspaces,
    pub(crate) tools: Tools,
    pub(crate) search: ToolSearch,
}

#[async_trait]
impl TenantData for RegistryData {
    async fn uses(&self) -> Result<Vec<Use>, Status> {
        Ok(self.runs.uses().await?)
    }

    async fn cancel(&self, tenant: Tenant) -> Result<(), Status> {
        self.calls.cancel_of(tenant, TENANT_CLOSED);
        Ok(self.runs.cancel_of(tenant).await?)
    }

    async fn remove(&self, tenant: Tenant) -> Result<u64, Status> {
        let in_flight = self.calls.count_of(tenant);
        let runs = self.runs.remove_of(tenant).await?;
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
        self.search.forget(tenant);
        Ok(in_flight + runs + entries + approvals + documents + files)
    }
}

fn store_failed(error: StoreError) -> Status {
    run_events::store_failure(&error).into_status()
}
