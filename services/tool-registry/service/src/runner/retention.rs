//! Retention of entries of the ledger and of approvals: they are deleted after the runs that made
//! the calls, once they are old.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use contracts::tavern::{
    agent::v1::{GetConversationRequest, conversation_service_client::ConversationServiceClient},
    common::v1::{CallStatus, ErrorReason},
};
use core_types::{RunId, Tenant, Timestamp};
use grpc_kit::{CallContext, Transport};
use run_events::{
    Neighbours, RetentionSettings, Runs,
    retention::{RunCache, RunsOnly, SweepTarget, Sweeper},
};
use run_log::{PassReport, RetentionGuard, RunSummary};
use tonic::Status;

use crate::{approvals::Approvals, ledger::Ledger, store::StoreError};

/// The number of approvals that are looked at and deleted together.
const PAGE: usize = 64;
/// The number of approvals that stay after which a pass ends; the next one continues there.
const MOST_KEPT: usize = 4_096;

/// The ledger and the approvals, with the services that are asked before something of them is deleted.
pub(crate) struct LedgerRetention {
    ledger: Ledger,
    approvals: Approvals,
    settings: RetentionSettings,
    /// The owners of runs.
    neighbours: Neighbours,
    /// The service that has the conversations for which decisions stand.
    agent: Transport,
    /// Whether runs that made calls were there in this pass.
    runs: RunCache,
    /// The place at which the next pass over the approvals continues: time of creation and id. Locked for a look
    /// or a change, never across an await.
    after: Mutex<(i64, String)>,
}

/// Begins to delete invocations, entries of the ledger and approvals that ended long ago, until the service
/// ends.
pub(crate) fn begin(
    settings: RetentionSettings,
    runs: &Runs,
    calls: (&Ledger, &Approvals),
    neighbours: Neighbours,
    agent: Transport,
) {
    let name = "tool-registry.runs.db";
    runs.retain(name, settings, neighbours.clone(), Arc::new(RunsOnly));
    let (ledger, approvals) = calls;
    let log = ledger.logs().clone();
    let (success, clock) = (CallStatus::Succeeded.into(), ledger.clock());
    let sweeper = Sweeper::new("tool-registry.effects.db", log, settings, success, clock);
    let target = LedgerRetention {
        ledger: ledger.clone(),
        approvals: approvals.clone(),
        settings,
        neighbours,
        agent,
        runs: RunCache::default(),
        after: Mutex::default(),
    };
    runs.sweep(sweeper, target);
}

fn store_failed(error: StoreError) -> Status {
    grpc_kit::internal(&error)
}

#[async_trait]
impl RetentionGuard for &LedgerRetention {
    async fn must_stay(&self, entry: &RunSummary) -> Result<bool, Box<dyn Error + Send + Sync>> {
        if self.ledger.is_undecided(entry).await? {
            return Ok(true);
        }
        match entry.parent {
            Some(run) => Ok(self.has_run(&run.to_string()).await?),
            None => Ok(false),
        }
    }

    async fn before_deletion(&self, _: &RunSummary) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}

#[async_trait]
impl SweepTarget for LedgerRetention {
    async fn begin(
        &self,
        now: Timestamp,
    ) -> Result<(Box<dyn RetentionGuard + '_>, PassReport), Status> {
        self.runs.clear();
        let beside = PassReport {
            bytes: self.sweep_approvals(now).await?,
            ..PassReport::default()
        };
        Ok((Box::new(self), beside))
    }
}

impl LedgerRetention {
    /// Deletes old approvals of all tenants whose run and entry are gone. Returns the bytes that went back to the file
    /// system.
    async fn sweep_approvals(&self, now: Timestamp) -> Result<u64, Status> {
        let periods = self.settings.succeeded().zip(self.settings.failed());
        let Some((succeeded, failed)) = periods else {
            return Ok(0);
        };
        let before = now.minus(succeeded.max(failed));
        self.approvals
            .expire_overdue()
            .await
            .map_err(store_failed)?;
        let mut kept = 0;
        while kept < MOST_KEPT {
            let begun = std::time::Instant::now();
            let (created, id) = { self.after().clone() };
            let page = self
                .approvals
                .ended_before(before, (created, &id), PAGE)
                .await
                .map_err(store_failed)?;
            let next = page.last().map(|(last, _)| (last.created, last.id.clone()));
            let mut leaving: BTreeMap<Tenant, Vec<String>> = BTreeMap::new();
            for (ended, remembered_for) in page {
                let tenant = ended.principal.tenant();
                // The entry last: it takes a look-up for each attempt.
                let stays = self.has_run(&ended.run_id).await?
                    || self.has_conversation(tenant, &remembered_for).await?
                    || self.ledger.has_entry(tenant, &ended.effect_id).await?;
                match stays {
                    true => kept += 1,
                    false => leaving.entry(tenant).or_default().push(ended.id),
                }
            }
            for (tenant, leaving) in leaving {
                let deleted = self.approvals.delete(tenant, &leaving).await;
                deleted.map_err(store_failed)?;
            }
            let is_last = next.is_none();
            *self.after() = next.unwrap_or_default();
            if is_last {
                break;
            }
            run_log::retention::rest_since(begun).await;
        }
        let returned = run_log::retention::in_steps(|| self.approvals.reclaim());
        returned.await.map_err(store_failed)
    }

    /// Whether a conversation of a tenant is there still; the empty id names none.
    async fn has_conversation(
        &self,
        tenant: Tenant,
        conversation_id: &str,
    ) -> Result<bool, Status> {
        if conversation_id.is_empty() {
            return Ok(false);
        }
        let request = GetConversationRequest {
            conversation_id: conversation_id.to_owned(),
        };
        let context = CallContext::of_tenant(tenant);
        let mut conversations = ConversationServiceClient::new(self.agent.with(&context));
        match conversations.get_conversation(request).await {
            Ok(_) => Ok(true),
            Err(status) if grpc_kit::reason(&status) == Some(ErrorReason::ConversationNotFound) => {
                Ok(false)
            }
            Err(status) => Err(status),
        }
    }

    /// Whether the run of this id is there still. A text that is no such id names none.
    async fn has_run(&self, run_id: &str) -> Result<bool, Status> {
        let Ok(run) = run_id.parse::<RunId>() else {
            return Ok(false);
        };
        let found = async { Ok(self.neighbours.run(run).await?.is_some()) };
        self.runs.get_or(run, found).await
    }

    fn after(&self) -> MutexGuard<'_, (i64, String)> {
        self.after.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
