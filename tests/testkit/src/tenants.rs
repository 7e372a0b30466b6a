//! Tenants and their principals.

use contracts::access::Role;
use contracts::tavern::registry::v1::{
    CreateKeyRequest, CreateTenantRequest, tenant_service_client::TenantServiceClient,
};
use contracts::tavern::tenant::v1::TenantLimit;
use grpc_kit::{Outbound, Transport};

use crate::Stack;

impl Stack {
    /// Returns a client of tenants, at the gateway, with the key of the administrator.
    pub fn tenants(&self) -> TenantServiceClient<Outbound> {
        TenantServiceClient::new(self.transport_with(self.key()).outermost())
    }

    /// Creates a tenant.
    ///
    /// # Errors
    /// The registry refuses it.
    pub async fn create_tenant(
        &self,
        name: &str,
        weight: u32,
        limits: Vec<TenantLimit>,
    ) -> anyhow::Result<()> {
        let request = CreateTenantRequest {
            name: name.to_owned(),
            weight,
            limits,
        };
        self.tenants().create_tenant(request).await?;
        Ok(())
    }

    /// Makes a principal of a tenant, and returns the transport of a client that sends its key. The empty tenant is
    /// that of the administrator.
    ///
    /// # Errors
    /// The registry refuses it.
    pub async fn transport_of_principal(
        &self,
        tenant: &str,
        principal: &str,
        role: Role,
    ) -> anyhow::Result<Transport> {
        let request = CreateKeyRequest {
            principal: principal.to_owned(),
            tenant: tenant.to_owned(),
            roles: vec![role.name().to_owned()],
            ..CreateKeyRequest::default()
        };
        let created = self.identities().create_key(request).await?.into_inner();
        Ok(self.transport_with(Some(&created.secret_key)))
    }
}
