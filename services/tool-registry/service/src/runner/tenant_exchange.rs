//! Sends the tenants to every service, takes their uses, and leads closed tenants to their end.

use std::{collections::BTreeSet, time::Duration};

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

use crate::{
    identities::Identities,
    tenants::{TenantNotChanged, Tenants, tenant_to_proto},
};

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest time for the answer of a service.
const LONGEST: Duration = Duration::from_secs(10);

/// The time after which no call of a closed tenant is on its way: the door remembers callers, and services tenants.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// Exchanges tenants and uses with every service.
#[derive(Debug)]
pub(crate) struct TenantExchange {
    identities: Identities,
    services: Vec<Transport>,
    /// The tenants that were ready for their next step in the round before.
    ready: BTreeSet<Tenant>,
}

impl TenantExchange {
    /// Takes the principals, whose tenants these are, and the services that have data of tenants.
    pub(crate) fn new(identities: Identities, services: Vec<Transport>) -> Self {
        Self {
            identities,
            services,
            ready: BTreeSet::new(),
        }
    }

    /// Begins the rounds. The first one is over when this returns, or a service did not answer in time.
    pub(crate) async fn begin(mut self) -> JoinHandle<()> {
        self.round().await;
        tokio::spawn(async move {
            loop {
                // It fails when no change comes before the next round.
                drop(tokio::time::timeout(PAUSE, self.tenants().changed()).await);
                self.round().await;
            }
        })
    }

    fn tenants(&self) -> &Tenants {
        self.identities.tenants()
    }

    /// Sends the tenants to every service at once, and takes their uses.
    async fn round(&mut self) {
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
        self.tenants().warn();
        if all {
            self.advance().await;
        }
    }

    fn request(&self) -> SyncTenantsRequest {
        let (now, records) = (self.tenants().now(), self.tenants().records());
        let uses = self.tenants().uses();
        let step = |tenant: &TenantRecord| tenant.end.map(|end| end.step);
        let records = records
            .all()
            .filter(|tenant| step(tenant) != Some(EndStep::Removed));
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
        if let Err(error) = self.tenants().take_uses(service, answer).await {
            tracing::warn!(%error, "uses of tenants could not be stored; they are after the next ones");
        }
    }

    /// Takes closed tenants a step further, those that were ready in the round before too: a run that had just begun
    /// is counted by then.
    async fn advance(&mut self) {
        let steps = self.next_steps();
        for (tenant, step) in &steps {
            if !self.ready.contains(tenant) {
                continue;
            }
            match self.step(*tenant, *step).await {
                Ok(()) => tracing::info!(%tenant, ?step, "the end of a tenant"),
                Err(error) => tracing::warn!(%tenant, %error, "a tenant stays at its step"),
            }
        }
        self.ready = steps.into_iter().map(|(tenant, _)| tenant).collect();
    }

    /// Returns the closed tenants that are ready for a step: the removal once no run is open, the end once nothing is
    /// stored.
    fn next_steps(&self) -> Vec<(Tenant, EndStep)> {
        let (now, records) = (self.tenants().now(), self.tenants().records());
        let uses = self.tenants().uses();
        let open_runs = TenantQuantity::OpenRuns.into();
        let next = |tenant: &TenantRecord| {
            let end = tenant.end?;
            let is_quiet = end.closed.plus(LAST_CALLS) <= now;
            match end.step {
                EndStep::Closing if is_quiet && uses.of(tenant.name, open_runs) == 0 => {
                    Some((tenant.name, EndStep::Removing))
                }
                EndStep::Removing if uses.left(tenant.name) == 0 => {
                    Some((tenant.name, EndStep::Removed))
                }
                _ => None,
            }
        };
        records.all().filter_map(next).collect()
    }

    async fn step(&self, name: Tenant, step: EndStep) -> Result<(), TenantNotChanged> {
        if step == EndStep::Removed {
            // Last, so that its keys are refused as those of a closed tenant until then.
            self.identities.remove_of(name).await?;
        }
        let changed = self.tenants().change(|tenants, _| {
            let mut tenant = tenants.get(name)?.clone();
            if let Some(end) = &mut tenant.end {
                end.step = step;
            }
            Ok(tenant)
        });
        changed.await.map(drop)
    }
}
