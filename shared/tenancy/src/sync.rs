//! The service by which a service receives tenants, returns their uses and removes their stored values.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use contracts::tavern::tenant::v1::{
    SyncTenantsRequest, SyncTenantsResponse, TenantUsage, TenantUses,
    tenant_peer_service_server::{TenantPeerService, TenantPeerServiceServer},
};
use core_types::Tenant;
use tonic::{Request, Response, Status};

use crate::tenants::{Tenants, Use};

/// The data of tenants in a service.
#[async_trait]
pub trait TenantData: fmt::Debug + Send + Sync {
    /// Returns the present uses of each tenant, without the quantities of a day.
    ///
    /// # Errors
    /// A store that does not work.
    async fn uses(&self) -> Result<Vec<Use>, Status>;

    /// Cancels the open runs of a tenant.
    ///
    /// # Errors
    /// A store that does not work.
    async fn cancel(&self, tenant: Tenant) -> Result<(), Status>;

    /// Removes stored values of a tenant, a bounded number of them, and returns the number of those that are left.
    ///
    /// # Errors
    /// A store that does not work.
    async fn remove(&self, tenant: Tenant) -> Result<u64, Status>;
}

/// The service by which tenants arrive.
#[derive(Clone, Debug)]
pub struct TenantSync {
    tenants: Tenants,
    data: Arc<dyn TenantData>,
}

impl TenantSync {
    /// Makes the service of a service with `data`; `tenants` are replaced by those that arrive.
    pub fn service(tenants: Tenants, data: Arc<dyn TenantData>) -> TenantPeerServiceServer<Self> {
        TenantPeerServiceServer::new(Self { tenants, data })
    }
}

#[tonic::async_trait]
impl TenantPeerService for TenantSync {
    async fn sync_tenants(
        &self,
        request: Request<SyncTenantsRequest>,
    ) -> Result<Response<SyncTenantsResponse>, Status> {
        let request = request.into_inner();
        self.tenants.replace(&request.tenants);
        let mut answers = BTreeMap::<Tenant, TenantUses>::new();
        let answer = |tenant: Tenant| TenantUses {
            tenant: tenant.to_string(),
            ..TenantUses::default()
        };
        for synced in &request.tenants {
            let Some(tenant) = synced
                .tenant
                .as_ref()
                .and_then(|it| Tenant::new(&it.name).ok())
            else {
                continue;
            };
            if synced.cancel {
                self.data.cancel(tenant).await?;
            }
        }
        for tenant in self.tenants.removing() {
            let left = self.data.remove(tenant).await?;
            answers.entry(tenant).or_insert_with(|| answer(tenant)).left = left;
        }
        let present = self.data.uses().await?;
        self.tenants.note(&present);
        // Last, as a reported use is not reported again.
        for Use {
            tenant,
            quantity,
            amount,
        } in present.into_iter().chain(self.tenants.report())
        {
            let usage = TenantUsage {
                quantity: quantity.into(),
                used: amount,
            };
            let answer = answers.entry(tenant).or_insert_with(|| answer(tenant));
            answer.uses.push(usage);
        }
        let tenants = answers.into_values().collect();
        Ok(Response::new(SyncTenantsResponse { tenants }))
    }
}
