//! The data of tenants: sessions, scripts and blobs.

use std::sync::Arc;

use async_trait::async_trait;
use blob_store::Bounds;
use core_types::Tenant;
use tenancy::{Quantity, TenantData, Tenants, Use};
use tonic::Status;

use crate::{rpc::blobs, runner::sandbox::Sandbox};

/// The most blobs that are removed in a step.
const STEP: usize = 1024;

/// The data of tenants in a sandbox.
#[derive(Debug)]
pub(crate) struct SandboxData(pub(crate) Arc<Sandbox>);

/// The bounds of the blobs of tenants.
#[derive(Debug)]
pub(crate) struct BlobBounds(pub(crate) Tenants);

impl Bounds for BlobBounds {
    fn most(&self, tenant: Tenant) -> Option<u64> {
        self.0.most_here(tenant, Quantity::StoredBytes)
    }
}

#[async_trait]
impl TenantData for SandboxData {
    async fn uses(&self) -> Result<Vec<Use>, Status> {
        let stored = self.0.blobs().bytes_by_tenant().into_iter();
        let stored = stored.map(|(tenant, amount)| Use {
            tenant,
            quantity: Quantity::StoredBytes,
            amount,
        });
        Ok(self.0.places_in_use().into_iter().chain(stored).collect())
    }

    async fn cancel(&self, tenant: Tenant) -> Result<(), Status> {
        self.0.end_of(tenant).await;
        Ok(())
    }

    async fn remove(&self, tenant: Tenant) -> Result<u64, Status> {
        self.0.end_of(tenant).await;
        let at_work = self.0.forget(tenant);
        let blobs = self.0.blobs().clone();
        let left = blobs::blocking(move || blobs.remove_of(tenant, STEP)).await?;
        Ok(at_work + left)
    }
}
