//! The data of tenants: their uses, and their removal.

use std::sync::Arc;

use async_trait::async_trait;
use core_types::Tenant;
use documents::DocumentStore;
use sql_store::Database;
use tenancy::{TenantData, Use};
use tonic::Status;

use crate::error::store_failure;
use crate::runner::Inner;
use crate::store::remove_tenant;

/// The most rows of a table that are removed in a step.
const STEP: u32 = 1_000;

/// The data of tenants in this service.
#[derive(Debug)]
pub(crate) struct StoredData {
    pub(crate) inner: Arc<Inner>,
    pub(crate) documents: Arc<dyn DocumentStore>,
    pub(crate) database: Database,
}

#[async_trait]
impl TenantData for StoredData {
    async fn uses(&self) -> Result<Vec<Use>, Status> {
        let mut uses = self.inner.runs.uses().await?;
        uses.extend(self.inner.places.uses());
        Ok(uses)
    }

    async fn cancel(&self, tenant: Tenant) -> Result<(), Status> {
        Ok(self.inner.runs.cancel_of(tenant).await?)
    }

    async fn remove(&self, tenant: Tenant) -> Result<u64, Status> {
        // Nothing in memory may bring rows back.
        self.inner.definitions.forget_tenant(tenant).await;
        self.inner.runner.forget_tenant(tenant).await;
        let runs = self.inner.runs.remove_of(tenant).await?;
        let documents = self.documents.remove_tenant(tenant, STEP).await;
        let documents = documents.map_err(|error| store_failure(&error))?;
        // A change of a schedule that has read its row may not store it again.
        let _turn = self.inner.schedules.turn().await;
        let rows = remove_tenant(&self.database, tenant, STEP).await;
        let rows = rows.map_err(|error| store_failure(&error))?;
        Ok(runs + documents + rows)
    }
}
