//! The recovery of calls that a crash cut off.

use core_types::{CallPath, ConversationId, EffectId};
use grpc_kit::CallContext;
use std::time::Duration;
use tonic::Status;

use super::{Call, Calls};
use crate::ledger::{Entry, LedgerEntry};

impl Calls {
    /// Settles open calls that must not be dispatched again, dispatches again calls that no owner
    /// requests, finishes decisions, and lets calls wait again that people have not decided. The
    /// other calls stay open until their owners request them. Returns the number of calls that were
    /// touched. A call that cannot be continued is logged and stays open.
    ///
    /// # Errors
    /// A status when the ledger cannot be listed.
    pub async fn recover(&self) -> Result<usize, Status> {
        let waiting = self.wait_again().await;
        let mut touched = 0;
        for entry in self.inner.ledger.open_entries().await? {
            match self.continue_entry(&entry).await {
                Ok(is_touched) => touched += usize::from(is_touched),
                Err(status) => {
                    let (effect, error) = (effect_of(&entry), status.message());
                    tracing::error!(effect, error, "a call that a crash cut off stays open");
                }
            }
        }
        Ok(waiting? + touched)
    }

    /// Continues the call of an entry, unless it is left to its owner; returns whether it did.
    async fn continue_entry(&self, entry: &LedgerEntry) -> Result<bool, Status> {
        match entry {
            LedgerEntry::InFlight(entry) if self.is_in_flight(entry) => return Ok(false),
            // Its tool has returned, and only its hooks and its end are missing.
            LedgerEntry::InFlight(entry) if entry.returned.is_some() => {
                let call = call_of(entry, entry.record.attempt)?;
                drop(self.join(call, caller_of(entry))?);
            }
            LedgerEntry::InFlight(entry) if !entry.record.may_repeat => {
                self.inner.settle_unknown(entry).await?;
            }
            LedgerEntry::InFlight(entry) if entry.record.detached => {
                let call = call_of(entry, entry.record.attempt)?;
                drop(self.join(call, caller_of(entry))?);
            }
            LedgerEntry::Settled(decided) if decided.resolution.is_some() => {
                self.continue_decision(decided).await?;
            }
            // A run that has resumed already may have settled its call since the list was made.
            LedgerEntry::Settled(_) | LedgerEntry::InFlight(_) | LedgerEntry::Absent => {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_in_flight(&self, entry: &Entry) -> bool {
        let effect = entry.effect();
        effect.is_ok_and(|effect| self.inner.in_flight_calls().contains_key(&effect))
    }
}

fn effect_of(entry: &LedgerEntry) -> &str {
    match entry {
        LedgerEntry::InFlight(entry) => entry.effect_id(),
        LedgerEntry::Settled(settled) => settled.entry.effect_id(),
        LedgerEntry::Absent => "",
    }
}

/// Returns the context of the call of an entry: the principal that it acts for, and the run that made it.
pub(super) fn caller_of(entry: &Entry) -> CallContext {
    let made_by = caller_below(entry, CallPath::default());
    match made_by.enter(&entry.record.run_id) {
        Ok(below) if !entry.record.run_id.is_empty() => below,
        _ => made_by,
    }
}

/// Returns the context of the call of an entry below the runs of a path.
pub(super) fn caller_below(entry: &Entry, path: CallPath) -> CallContext {
    CallContext::new(entry.owner().clone(), path).reaching(entry.record.reach)
}

/// Makes the call of an entry again, as the given attempt.
pub(super) fn call_of(entry: &Entry, attempt: u32) -> Result<Call, Status> {
    let internal = |error: &(dyn std::error::Error + 'static)| grpc_kit::internal(error);
    let arguments = json_schema::parse_json_strict(&entry.arguments_json);
    let effect = EffectId::new(entry.effect_id()).map_err(|error| internal(&error))?;
    // Its run asks for it again after a restart.
    let detached = entry.record.detached || entry.record.run_id.is_empty();
    Ok(Call {
        tool: entry.record.tool_id.clone(),
        arguments: arguments.map_err(|error| internal(&error))?.into(),
        effect_id: Some(effect),
        conversation: ConversationId::new(entry.record.conversation_id.clone()).ok(),
        durability: entry.durability(),
        timeout: entry.record.timeout_ms.map(Duration::from_millis),
        index: 0,
        needs_confirmation: false,
        attempt,
        grant: entry.record.grant(),
        profile_id: String::new(),
        package_digest: entry.record.package_digest.clone(),
        is_hooked: true,
        detached,
        body: entry.body(),
        is_first: false,
    })
}
