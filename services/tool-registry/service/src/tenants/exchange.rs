//! Sends the tenants to every service, takes their uses, and leads closed tenants to their end.

use std::time::Duration;

use contracts::tavern::tenant::v1::{
    SyncTenantsRequest, SyncTenantsResponse, SyncedTenant, TenantQuantity,
    tenant_peer_service_client::TenantPeerServiceClient,
};
use core_types::Tenant;
use futures::future::join_all;
use grpc_kit::{CallContext, Transport};
use tokio::task::JoinHandle;
use tonic::Code;
use tool_domain::tenant::{EndStep, TenantRecord};

use super::{TenantNotChanged, Tenants, tenant_to_proto, uses::day_of};

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest time for the answer of a service.
const LONGEST: Duration = Duration::from_secs(10);

/// Exchanges tenants and uses with every service.
#[derive(Debug)]
pub(crate) struct TenantExchange {
    tenants: Tenants,
    services: Vec<Transport>,
}

impl TenantExchange {
    /// Takes the tenants and the services that have their data.
    pub(crate) fn new(tenants: Tenants, services: Vec<Transport>) -> Self {
        Self { tenants, services }
    }

    /// Begins the rounds. The first one is over when this returns, or a service did not answer in time.
    pub(crate) async fn begin(self) -> JoinHandle<()> {
        self.round().await;
        tokio::spawn(async move {
            loop {
                // It fails when no change comes before the next round.
                drop(tokio::time::timeout(PAUSE, self.tenants.changed()).await);
                self.round().await;
            }
        })
    }

    /// Sends the tenants to every service at once, and takes their uses.
    async fn round(&self) {
        let request = self.request();
        let answers = self.services.iter().map(|service| {
            let context = CallContext::outermost().with_timeout(LONGEST);
            let mut client = TenantPeerServiceClient::new(service.with(&context));
            let request = request.clone();
            async move { client.sync_tenants(request).await }
        });
        let mut all = true;
        for (service, answer) in join_all(answers).await.into_iter().enumerate() {
            match answer {
                Ok(answer) => self.take(service, &answer.into_inner()).await,
                Err(status) => {
                    // A service of another version, or a double of the tests, has no tenants.
                    all &= status.code() == Code::Unimplemented;
                    tracing::debug!(%status, service, "a service did not take the tenants");
                }
            }
        }
        self.tenants.warn();
        if all {
            self.advance().await;
        }
    }

    fn request(&self) -> SyncTenantsRequest {
        let (now, uses) = (self.tenants.now(), self.tenants.uses());
        let records = self.tenants.records();
        let records = records
            .all()
            .filter(|tenant| !is_at(tenant, EndStep::Removed));
        let tenants = records.map(|record| SyncedTenant {
            tenant: Some(tenant_to_proto(record)),
            uses: uses.of_tenant(record.name),
            cancel: record
                .end
                .is_some_and(|end| end.step == EndStep::Removing || end.cancel <= now),
        });
        SyncTenantsRequest {
            tenants: tenants.collect(),
        }
    }

    async fn take(&self, service: usize, answer: &SyncTenantsResponse) {
        let day = day_of(self.tenants.now());
        if let Err(error) = self.tenants.take_uses(service, answer, day).await {
            tracing::warn!(%error, "uses of tenants could not be stored; they are after the next ones");
        }
    }

    /// Takes closed tenants a step further: to the removal once no run is open, to the end once nothing is stored.
    async fn advance(&self) {
        let uses = self.tenants.uses();
        for tenant in self.tenants.records().all() {
            let open_runs = uses.of(tenant.name, TenantQuantity::OpenRuns.into());
            let next = match tenant.end.map(|end| end.step) {
                Some(EndStep::Closing) if open_runs == 0 => EndStep::Removing,
                Some(EndStep::Removing) if uses.left(tenant.name) == 0 => EndStep::Removed,
                _ => continue,
            };
            if !self.tenants.has_settled(tenant.name, next) {
                continue;
            }
            match self.step(tenant.name, next).await {
                Ok(()) => {
                    tracing::info!(tenant = %tenant.name, step = ?next, "the end of a tenant")
                }
                Err(error) => {
                    tracing::warn!(tenant = %tenant.name, %error, "a tenant stays at its step")
                }
            }
        }
    }

    async fn step(&self, name: Tenant, step: EndStep) -> Result<(), TenantNotChanged> {
        let changed = self.tenants.change(|tenants, _| {
            let mut tenant = tenants.get(name)?.clone();
            if let Some(end) = &mut tenant.end {
                end.step = end.step.max(step);
            }
            Ok(tenant)
        });
        changed.await.map(drop)
    }
}

fn is_at(tenant: &TenantRecord, step: EndStep) -> bool {
    tenant.end.is_some_and(|end| end.step == step)
}
