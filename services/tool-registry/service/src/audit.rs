//! The audit: who changed what, and who was denied what, in a chain of hashes (S610, R602).
//!
//! - `chain`: the runs of the days, and appending to them.
//! - `changes`: intents and outcomes of administrative changes, also after a crash.
//! - `states`: the things of a change as they are now.
//! - `denials`: denials, counted for a minute.
//! - `failure`: the reasons for which it does not work.
//! - `key`: the key of the HMACs in records.
//! - `list`, `verify`: the records of a time, and whether they are as they were written.
//! - `names`: names as records have them.
//! - `settings`: the operator's choices.

mod chain;
mod changes;
mod denials;
pub(crate) mod failure;
mod key;
mod list;
mod names;
pub mod settings;
mod states;
mod verify;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use contracts::tavern::registry::v1::{AuditDenied, AuditHead, VerifyAuditResponse};
use core_types::{Clock, IdSource, Principal, SystemClock, SystemIds, Timestamp};
use data_home::DataHome;
use documents::DocumentStore;
use sql_store::Database;
use tokio::task::JoinHandle;

pub(crate) use chain::LOG;

use chain::Chain;
pub(crate) use changes::{AuditedChange, AuditedChanges, Ended};
use denials::Denials;
pub(crate) use failure::AuditFailure;
pub use key::{AuditKeyError, copy_audit_key};
pub(crate) use list::{AuditFilter, Place};
pub(crate) use names::Hmacs;
pub use settings::AuditSettings;
pub(crate) use states::{Subject, Things};

use crate::{error::Error, identities::Identities};

/// The method of each call of a tool, by whichever way it came.
const CALL_TOOL: &str = "tavern.registry.v1.CallService/CallTool";

/// The time between two looks for minutes that are over.
const TICK: Duration = Duration::from_secs(1);
/// The time after which a head is logged if there are new records.
const HEAD_PAUSE: Duration = Duration::from_secs(60);
/// The time between two passes of retention.
const RETENTION_PAUSE: Duration = Duration::from_secs(60 * 60);

/// The audit. Clone, cheap.
#[derive(Clone)]
pub(crate) struct Audit {
    chain: Chain,
    changes: AuditedChanges,
    denials: Denials,
    settings: AuditSettings,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Audit")
    }
}

/// The stores whose things are changed.
pub(crate) struct Stores {
    pub(crate) database: Database,
    pub(crate) identities: Identities,
    pub(crate) documents: Arc<dyn DocumentStore>,
}

impl Audit {
    /// Opens the audit, and records the outcomes of changes that a crash cut off.
    ///
    /// # Errors
    /// [`Error`]: its log or its key cannot be used.
    pub(crate) async fn open(
        home: &DataHome,
        settings: AuditSettings,
        stores: Stores,
        (clock, ids): (Arc<dyn Clock>, Arc<dyn IdSource>),
    ) -> Result<Self, Error> {
        let hmacs = Hmacs::under(key::key_of(home, &stores.database).await?);
        let parts = (Arc::clone(&clock), Arc::clone(&ids));
        let chain = Chain::open(home, settings.max_bytes, parts).await?;
        let things = Things::new(stores.identities, stores.documents, hmacs);
        let changes = AuditedChanges::new(chain.clone(), things, ids);
        let denials = Denials::new(stores.database, chain.clone(), Arc::clone(&clock));
        let audit = Self {
            chain,
            changes,
            denials,
            settings,
            clock,
        };
        audit.changes.recover().await.map_err(Error::Audit)?;
        audit.denials.recover().await.map_err(Error::Audit)?;
        Ok(audit)
    }

    /// Returns the administrative changes.
    pub(crate) fn changes(&self) -> &AuditedChanges {
        &self.changes
    }

    /// Counts denials of the present minute.
    ///
    /// # Errors
    /// [`AuditFailure`]: none of them is counted.
    pub(crate) async fn deny(&self, denials: Vec<AuditDenied>) -> Result<(), AuditFailure> {
        self.denials.count(denials).await
    }

    /// Counts a call of a tool that its principal may not call. The call is refused whether it can be counted or not.
    pub(crate) async fn deny_tool(&self, principal: &Principal, tool_id: &str) {
        let denied = AuditDenied {
            principal: principal.as_str().to_owned(),
            method: CALL_TOOL.to_owned(),
            reason: "PRINCIPAL_NOT_ALLOWED".to_owned(),
            count: 1,
            tool_id: tool_id.to_owned(),
            minute: None,
        };
        if let Err(error) = self.deny(vec![denied]).await {
            tracing::warn!(%principal, tool_id, %error, "a denied call is not counted");
        }
    }

    /// Begins the work that lasts as long as the registry: it records minutes that are over and outcomes that could
    /// not be recorded, logs heads, and deletes days that are too old.
    pub(crate) fn begin(&self) -> JoinHandle<()> {
        let audit = self.clone();
        tokio::spawn(async move {
            let (mut head, mut retention) = (Timestamp::default(), Timestamp::default());
            loop {
                let now = audit.clock.now();
                audit.tick(now).await;
                if now.since(head) >= HEAD_PAUSE {
                    audit.chain.log_head().await;
                    head = now;
                }
                if now.since(retention) >= RETENTION_PAUSE {
                    audit.retire(now).await;
                    retention = now;
                }
                tokio::time::sleep(TICK).await;
            }
        })
    }

    async fn tick(&self, now: Timestamp) {
        let flushed = self.chain.flush().await;
        let recorded = self.denials.record_before(now).await;
        if let Err(error) = flushed.and(recorded) {
            tracing::warn!(%error, "the audit cannot be written; administrative changes are refused");
        }
    }

    async fn retire(&self, now: Timestamp) {
        let Some(period) = self.settings.kept() else {
            return;
        };
        match self.chain.delete_before(now.minus(period)).await {
            Ok(0) => {}
            Ok(days) => tracing::info!(days, "days of the audit are deleted"),
            Err(error) => tracing::warn!(%error, "old days of the audit cannot be deleted"),
        }
    }

    /// Logs the last head, and closes the file.
    pub(crate) async fn close(&self) {
        self.chain.log_head().await;
        self.chain.close().await;
    }
}

/// Recomputes the chain of a registry that does not run, and compares it with heads that were logged.
///
/// # Errors
/// [`Error`]: the log cannot be read.
pub async fn verify_audit(
    home: &DataHome,
    settings: &AuditSettings,
    anchors: &[AuditHead],
) -> Result<VerifyAuditResponse, Error> {
    let clock = SystemClock;
    let kept_since = settings.kept().map(|kept| clock.now().minus(kept));
    let chain = Chain::open(home, 0, (Arc::new(clock), Arc::new(SystemIds))).await?;
    let report = verify::verify(&chain, anchors, kept_since).await;
    chain.close().await;
    Ok(report)
}
