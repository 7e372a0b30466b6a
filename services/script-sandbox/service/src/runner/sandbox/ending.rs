//! Ends scripts: all when the service shuts down, and those of a tenant with it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use core_types::Tenant;
use grpc_kit::Shutdown;
use sandbox_engine::domain::{outcome::Outcome, verdict::Verdict};
use tenancy::{Use, tenants::End};

use super::Sandbox;
use crate::error::Refusal;

/// The part of the grace period after which scripts are ended; the rest is for the answers.
const SCRIPTS_PART: f32 = 0.75;

/// The scripts that have to end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Whether all have to.
    all: bool,
    /// The tenants whose scripts have to. None of them is opened again.
    tenants: BTreeSet<Tenant>,
}

impl Sandbox {
    /// Ends scripts that outlast a shutdown: once it has begun, and most of the server's grace
    /// period for open calls has passed. Returns when they have ended.
    pub async fn end_scripts_in_time(self: Arc<Self>, shutdown: Shutdown, grace: Duration) {
        shutdown.started().await;
        tokio::time::sleep(grace.mul_f32(SCRIPTS_PART)).await;
        self.end_scripts().await;
    }

    /// Ends every script and every session, and refuses further ones. Callers who stream receive
    /// that their script is cancelled, other callers that the service shuts down.
    pub async fn end_scripts(&self) {
        self.ending.send_modify(|ending| ending.all = true);
        self.sessions.shutdown().await;
    }

    /// Ends every script and every session of a tenant that is closed, and refuses further ones.
    pub(crate) async fn end_of(&self, tenant: Tenant) {
        self.ending
            .send_if_modified(|ending| ending.tenants.insert(tenant));
        self.sessions.end_of(tenant).await;
    }

    /// Forgets ended sessions of a tenant and everything else about it in memory. Returns the number of its scripts and
    /// sessions that have not ended.
    pub(crate) fn forget(&self, tenant: Tenant) -> u64 {
        self.sessions.forget_of(tenant);
        if let Some(pool) = &self.engine.pool {
            pool.forget(tenant);
        }
        self.shares.forget(tenant)
    }

    /// Returns the scripts and sessions of each tenant.
    pub(crate) fn places_in_use(&self) -> Vec<Use> {
        self.shares.uses()
    }

    /// Waits for the order to end every script, of all or of a tenant.
    pub(super) fn asked_to_end(&self, tenant: Tenant) -> impl Future<Output = ()> + Send + use<> {
        let mut ending = self.ending.subscribe();
        let is_ordered = move |ending: &Ending| ending.all || ending.tenants.contains(&tenant);
        async move {
            if ending.wait_for(is_ordered).await.is_err() {
                // Without a sandbox the sender is dropped, and no order to end comes.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Refuses a script that has not begun, once scripts are ordered to end.
    pub(crate) fn still_serves(&self, tenant: Tenant) -> Result<(), Refusal> {
        let ending = self.ending.borrow();
        let is_removed = || self.tenants.end(tenant) == Some(End::Removing);
        match ending.all {
            true => Err(Refusal::ShutDown { begun: false }),
            false if ending.tenants.contains(&tenant) || is_removed() => {
                Err(Refusal::TenantClosed(tenant))
            }
            false => Ok(()),
        }
    }

    /// An outcome, unless it is that the service has ended the script for its own sake.
    pub(super) fn unless_shut_down(
        &self,
        tenant: Tenant,
        outcome: Outcome,
    ) -> Result<Outcome, Refusal> {
        let cancelled = matches!(outcome.verdict, Verdict::Cancelled { .. });
        let ending = self.ending.borrow();
        match cancelled {
            true if ending.all => Err(Refusal::ShutDown { begun: true }),
            true if ending.tenants.contains(&tenant) => Err(Refusal::TenantClosed(tenant)),
            _ => Ok(outcome),
        }
    }
}
