//! One entry of the ledger: an attempt at an effect, read back from its events.

use contracts::tavern::{
    common::v1::{CallGrant, CallResult},
    registry::v1::{CallDecision, CallResolution},
};
use core_types::{Durability, EffectId, Principal, Reach, RunId, Timestamp};
use run_log::{Event, Hash, RunState, RunSummary};
use serde::{Deserialize, Serialize};
use tonic::Status;
use tool_domain::tool::Tool;

use super::Effect;
use super::codec::{self, Recorded};

/// The data that the ledger keeps alongside the events, to dispatch a call again unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The tool's id.
    pub tool_id: String,
    /// The etag of the tool as it was dispatched; empty in entries of earlier versions.
    #[serde(default)]
    pub tool_etag: String,
    /// The digest of the package whose files it runs; empty if no plugin brings the tool.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub package_digest: String,
    /// Whether the tool was declared safe to dispatch again when it was dispatched.
    pub may_repeat: bool,
    /// Whether the call is executed by a run of another service.
    pub is_run: bool,
    /// Which attempt at the effect it is, from 1.
    #[serde(default = "first_attempt")]
    pub attempt: u32,
    /// The grant for the run below: a message in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<String>,
    /// The conversation; empty if there is none.
    pub conversation_id: String,
    /// The timeout of the call, in milliseconds; `None` leaves it to its run.
    pub timeout_ms: Option<u64>,
    /// The principal that the call acts for: the owner of the entry in the log.
    #[serde(skip)]
    pub principal: Principal,
    /// The objects that the call can see.
    #[serde(default, skip_serializing_if = "Reach::is_tenant")]
    pub reach: Reach,
    /// The run that made the call; empty if none did.
    #[serde(default)]
    pub run_id: String,
    /// Whether no owner requests the call again after a restart.
    #[serde(default)]
    pub detached: bool,
}

impl Record {
    /// Returns the grant for the run below.
    pub fn grant(&self) -> Option<CallGrant> {
        codec::grant_from_text(self.granted.as_ref()?)
    }
}

fn first_attempt() -> u32 {
    1
}

/// The state of an effect in the ledger, by the last of its attempts.
#[derive(Debug)]
pub enum LedgerEntry {
    /// The ledger has no entry of it.
    Absent,
    /// It settled.
    Settled(Box<Settled>),
    /// It was dispatched and its end is not recorded.
    InFlight(Box<Entry>),
}

/// An attempt at an effect that was dispatched.
#[derive(Debug)]
pub struct Entry {
    pub(super) summary: RunSummary,
    /// The data to dispatch it again.
    pub record: Record,
    /// The arguments as they left.
    pub arguments_json: String,
    /// The time of its dispatch.
    pub dispatched: Timestamp,
    /// The run that executes it, if one was noted.
    pub child_run_id: Option<String>,
    /// The result as its tool returned it, while hooks decide about it.
    pub returned: Option<Box<CallResult>>,
}

/// An attempt that settled.
#[derive(Debug)]
pub struct Settled {
    /// The attempt.
    pub entry: Entry,
    /// The result with which it settled.
    pub result: CallResult,
    /// The decision, if it was in doubt and was decided.
    pub resolution: Option<CallResolution>,
}

impl Settled {
    /// Whether it was in doubt and the decision is to dispatch the next attempt.
    pub fn is_to_be_repeated(&self) -> bool {
        let decision = self.resolution.as_ref().map(CallResolution::decision);
        decision == Some(CallDecision::Repeat)
    }
}

impl Entry {
    /// Returns the durability of the entry.
    pub fn durability(&self) -> Durability {
        self.summary.durability
    }

    /// Returns the effect id.
    pub fn effect_id(&self) -> &str {
        self.summary
            .request
            .as_ref()
            .map_or("", |request| request.request_id.as_str())
    }

    /// Returns the name of the effect.
    ///
    /// # Errors
    /// INTERNAL if the entry has no effect id.
    pub fn effect(&self) -> Result<Effect, Status> {
        let id = EffectId::new(self.effect_id()).map_err(|error| grpc_kit::internal(&error))?;
        Ok(Effect::of(self.owner(), id))
    }

    /// Returns the principal that the call acts for.
    pub fn owner(&self) -> &Principal {
        &self.summary.owner
    }

    /// Returns the digest of the request for the entry: the call's body, or the decision.
    pub fn body(&self) -> Option<Hash> {
        let request = self.summary.request.as_ref();
        request.map(|request| request.body_hash)
    }

    /// Whether a repeat runs the same as the attempt: the tool is unchanged, or the run that was
    /// started is found again.
    pub fn runs_again(&self, tool: &Tool) -> bool {
        let etag = &self.record.tool_etag;
        self.child_run_id.is_some() || etag.is_empty() || etag == tool.etag()
    }

    /// Whether the entry can still be appended to.
    pub fn is_open(&self) -> bool {
        self.summary.state == RunState::Open
    }
}

/// A reason for which an entry cannot be read.
#[derive(Debug, thiserror::Error)]
enum Damaged {
    #[error("the ledger's entry {0} has no dispatch or no end")]
    Events(RunId),
    #[error("the grant of the ledger's entry {0} is no grant")]
    Grant(RunId),
    #[error("what is kept beside the ledger's entry {run} is no record")]
    Record {
        run: RunId,
        source: serde_json::Error,
    },
}

/// Reads the record kept alongside the events.
pub(super) fn record_of(summary: &RunSummary) -> Result<Record, Status> {
    let run = summary.id;
    let mut record: Record = serde_json::from_slice(&summary.meta)
        .map_err(|source| grpc_kit::internal(&Damaged::Record { run, source }))?;
    record.principal = summary.owner.clone();
    // Without its grant a call would have more rights than it was given.
    if record.granted.is_some() && record.grant().is_none() {
        return Err(grpc_kit::internal(&Damaged::Grant(run)));
    }
    Ok(record)
}

/// Reads an entry from its events.
pub(super) fn read(summary: RunSummary, events: Vec<Event>) -> Result<LedgerEntry, Status> {
    let record = record_of(&summary)?;
    let (mut dispatched, mut child_run_id) = (None, None);
    let is_open = summary.state == RunState::Open;
    let returned = match is_open {
        true => codec::returned_in(&events)?,
        false => None,
    };
    let (mut settled, mut resolution) = (None, None);
    for stored in events {
        match codec::decode(stored)? {
            Recorded::Dispatched(time, arguments) => dispatched = Some((time, arguments)),
            Recorded::RunStarted(run_id) => child_run_id = Some(run_id),
            Recorded::Settled(result) => settled = settled.or(Some(*result)),
            Recorded::Resolved(decision) => resolution = Some(decision),
            Recorded::Other => {}
        }
    }
    let run = summary.id;
    let entry = dispatched.map(|(dispatched, arguments_json)| Entry {
        summary,
        record,
        arguments_json,
        dispatched,
        child_run_id,
        returned: returned.map(Box::new),
    });
    match (entry, settled) {
        (Some(entry), Some(result)) => Ok(LedgerEntry::Settled(Box::new(Settled {
            entry,
            result,
            resolution,
        }))),
        (Some(entry), None) if is_open => Ok(LedgerEntry::InFlight(Box::new(entry))),
        _ => Err(grpc_kit::internal(&Damaged::Events(run))),
    }
}
