//! The ledger of effects: the calls that were dispatched, and their results.
//!
//! Each call with an effect id is a small run in a run log of its own. Its first event,
//! `CallDispatched`, is durable before the tool is started; its last is `CallSettled`. A call whose
//! entry is open and that no task of this process executes was cut off by a crash: the ledger
//! keeps enough of it to decide whether it may be dispatched again.
//!
//! A later attempt at an effect is an entry of its own; the last entry has the state of the effect.
//! A decision about a call in doubt is an entry too, which replaces the entry of that call.

mod codec;
mod effect;
mod entry;
mod list;
mod long_output;
mod resolve;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use call_wire::MAX_ATTEMPTS;
use contracts::tavern::common::v1::{
    CallDispatched, CallResult, CallSettled, CallStatus, ErrorReason, HookApplied, RunEvent,
    run_event::Kind,
};
use core_types::{Clock, Durability, EffectId, IdSource, RequestId, RunOwner, Tenant};
use grpc_kit::{Backoff, CallContext, Failure};
use run_log::{
    AppendError, CreateError, Created, Hash, NewEvent, NewRun, Order, ReopenError, RequestKey,
    RunFilter, RunLogs, RunState, RunSummary, RunWriter, StateFilter, StorageError,
};
use tonic::{Code, Status};

pub use codec::{encode, grant_from_text, grant_to_text};
pub use effect::Effect;
pub use entry::{Entry, LedgerEntry, Record, Settled};
pub use list::CallPage;
pub use long_output::{MAX_INLINE_BYTES, OutputKeeper, OutputPart};

const SCOPE: &str = "effect";
const KIND: &str = "effect";
const MAX_EVENTS: usize = 1_000;
const SETTLE_TRIES: u32 = 8;

/// The way in which the entry of a call begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// Durably, before the call leaves.
    Durable,
    /// The same, without a search for an earlier request: the owner made the effect id just now.
    First,
    /// With the next batch: a crash may lose the entry of a call that has no effect.
    InBatch,
}

/// The ledger.
#[derive(Clone)]
pub struct Ledger {
    logs: RunLogs,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    /// The last of the entries that wait for their batch. Locked for a change, never across an await.
    handed_over: Arc<Mutex<Option<RunWriter>>>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Ledger")
    }
}

impl Ledger {
    /// Takes the run log.
    pub fn new(logs: RunLogs, clock: Arc<dyn Clock>, ids: Arc<dyn IdSource>) -> Self {
        Self {
            logs,
            clock,
            ids,
            handed_over: Arc::default(),
        }
    }

    /// Returns the clock that entries are dated by.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Returns the log that holds the entries.
    pub fn logs(&self) -> &RunLogs {
        &self.logs
    }

    /// Returns an effect id that no call of any tenant has.
    pub fn new_effect(&self) -> EffectId {
        let name = format!("call-{}", self.ids.next_uuid().simple());
        EffectId::new(name).expect("it has no character that ids must not have")
    }

    /// Looks an effect up for a caller: the last of its attempts. A call that the caller cannot see is absent.
    ///
    /// # Errors
    /// A failure when the log cannot be read.
    pub async fn find(
        &self,
        context: &CallContext,
        effect: &Effect,
    ) -> Result<LedgerEntry, Status> {
        self.catch_up().await;
        let request_id = request_id_of(effect)?;
        let last = self.last_attempt(effect.tenant(), &request_id, MAX_ATTEMPTS);
        match last.await? {
            Some((attempt, summary)) if context.sees(&summary.owner) => {
                self.as_decided(attempt, summary, &request_id).await
            }
            _ => Ok(LedgerEntry::Absent),
        }
    }

    /// Looks an effect up: the last of its attempts up to `attempt`. With a body it is that of a call that is
    /// about to leave, which is alone in flight.
    ///
    /// # Errors
    /// A failure when the effect id was used with another body, or the log cannot be read.
    pub async fn look_up(
        &self,
        effect: &Effect,
        attempt: u32,
        body: Option<Hash>,
    ) -> Result<LedgerEntry, Status> {
        if body.is_none() {
            self.catch_up().await;
        }
        let request_id = request_id_of(effect)?;
        let last = self.last_attempt(effect.tenant(), &request_id, attempt);
        let Some((attempt, summary)) = last.await? else {
            return Ok(LedgerEntry::Absent);
        };
        let same_body = summary
            .request
            .as_ref()
            .is_some_and(|request| Some(request.body_hash) == body);
        if body.is_some() && !same_body {
            return Err(reused(effect.as_str()));
        }
        self.as_decided(attempt, summary, &request_id).await
    }

    /// Reads an attempt, or the decision in its place if it was in doubt.
    async fn as_decided(
        &self,
        attempt: u32,
        summary: RunSummary,
        request_id: &RequestId,
    ) -> Result<LedgerEntry, Status> {
        let in_doubt = RunState::Finished(CallStatus::InDoubt.into());
        let decided = match summary.state == in_doubt {
            true => {
                let scope = resolve::scope_of(attempt);
                let tenant = summary.owner.tenant();
                self.by_request(tenant, &scope, request_id).await?
            }
            false => None,
        };
        self.read(decided.unwrap_or(summary)).await
    }

    /// Whether the ledger has an entry of an effect of a tenant; the empty id names none.
    ///
    /// # Errors
    /// A failure when the log cannot be read.
    pub async fn has_entry(&self, tenant: Tenant, effect: &str) -> Result<bool, Status> {
        let Ok(request_id) = RequestId::new(effect) else {
            return Ok(false);
        };
        self.catch_up().await;
        let last = self.last_attempt(tenant, &request_id, MAX_ATTEMPTS);
        Ok(last.await?.is_some())
    }

    /// Returns the last attempt at an effect up to `attempt`, by its number.
    async fn last_attempt(
        &self,
        tenant: Tenant,
        request_id: &RequestId,
        attempt: u32,
    ) -> Result<Option<(u32, RunSummary)>, Status> {
        for attempt in (1..=attempt.min(MAX_ATTEMPTS)).rev() {
            let found = self
                .by_request(tenant, &scope_of(attempt), request_id)
                .await?;
            if let Some(summary) = found {
                return Ok(Some((attempt, summary)));
            }
        }
        Ok(None)
    }

    /// Returns one attempt at an effect as it was dispatched, without the decision about it.
    ///
    /// # Errors
    /// A failure when the log cannot be read.
    pub async fn attempt(&self, effect: &Effect, attempt: u32) -> Result<Option<Entry>, Status> {
        self.catch_up().await;
        let request_id = request_id_of(effect)?;
        let scope = scope_of(attempt);
        let found = self.by_request(effect.tenant(), &scope, &request_id);
        let Some(summary) = found.await? else {
            return Ok(None);
        };
        Ok(match self.read(summary).await? {
            LedgerEntry::Absent => None,
            LedgerEntry::InFlight(entry) => Some(*entry),
            LedgerEntry::Settled(settled) => Some(settled.entry),
        })
    }

    /// Records that a call is about to leave.
    ///
    /// # Errors
    /// A failure when it cannot be recorded; the call must not leave then.
    pub async fn begin(
        &self,
        effect: &Effect,
        body: Hash,
        record: &Record,
        (durability, beginning): (Durability, Beginning),
        dispatched: CallDispatched,
    ) -> Result<RunWriter, Status> {
        let now = self.clock.now();
        let mut run = NewRun::new(self.ids.next_run(RunOwner::Registry), KIND, now);
        run.owner = record.principal.clone();
        run.subject.clone_from(&record.tool_id);
        run.conversation.clone_from(&record.conversation_id);
        run.parent = record.run_id.parse().ok();
        run.request = Some(RequestKey {
            scope: scope_of(record.attempt),
            request_id: request_id_of(effect)?,
            body_hash: body,
        });
        run.durability = durability;
        run.meta = serde_json::to_vec(record)
            .expect("a record has text keys only")
            .into();
        let first = encode(&self.event(Kind::CallDispatched(dispatched)), now);
        if beginning == Beginning::InBatch {
            let created = self.logs.create_in_batch(run, vec![first]).await;
            let writer = created.map_err(|error| grpc_kit::internal(&error))?;
            self.hand_over(&writer);
            return Ok(writer);
        }
        let created = match beginning {
            Beginning::First => self.logs.create_first(run, vec![first]).await,
            _ => self.logs.create(run, vec![first]).await,
        };
        match created {
            Ok(Created::New(writer)) => Ok(writer),
            // One task of this process executes an effect at a time and looks it up first.
            Ok(Created::Replayed(_)) | Err(CreateError::RequestIdConflict { .. }) => {
                Err(reused(effect.as_str()))
            }
            Err(CreateError::Storage(error)) => Err(storage_failure(&error)),
            Err(error) => Err(grpc_kit::internal(&error)),
        }
    }

    /// Records the result of a tool before its hooks decide about it: durably, or with the next batch where the entry
    /// began [`Beginning::InBatch`].
    ///
    /// # Errors
    /// A failure when it cannot be recorded.
    pub async fn returned(
        &self,
        writer: &RunWriter,
        result: &CallResult,
        in_batch: bool,
    ) -> Result<(), Status> {
        let events = codec::encode_returned(result, self.clock.now());
        let mut tries = Tries::default();
        loop {
            let recorded = match in_batch {
                true => writer.submit_all(events.clone()).await,
                false => writer.append(events.clone()).await,
            };
            match recorded {
                Ok(_) => return Ok(()),
                Err(error) => tries.wait_after(error).await?,
            }
        }
    }

    /// Records applications of hooks, with the next event that is durable.
    pub async fn hooks_applied(&self, writer: &RunWriter, applied: &[HookApplied]) {
        if applied.is_empty() {
            return;
        }
        let events = applied.iter().map(|applied| {
            let event = self.event(Kind::HookApplied(applied.clone()));
            encode(&event, self.clock.now())
        });
        if let Err(error) = writer.submit_all(events.collect()).await {
            tracing::warn!(%error, "the ledger could not note applications of hooks");
        }
    }

    /// Takes over an open entry; its earlier writer is fenced.
    ///
    /// # Errors
    /// A failure when the log cannot be written; ABORTED when the effect was settled meanwhile.
    pub async fn reopen(&self, open: &Entry) -> Result<RunWriter, Status> {
        self.logs
            .reopen(open.summary.id)
            .await
            .map_err(|error| match error {
                ReopenError::Storage(error) => storage_failure(&error),
                ReopenError::Finished | ReopenError::Fenced => taken_over(),
                other => grpc_kit::internal(&other),
            })
    }

    /// Records the end of a call, durably.
    ///
    /// # Errors
    /// A failure when it cannot be recorded. The entry stays open then; ABORTED means that
    /// another request took it over.
    pub async fn settle(&self, writer: &RunWriter, result: &CallResult) -> Result<(), Status> {
        self.finish(writer, result.status, self.settled(result))
            .await
    }

    /// Records with the next batch the end of a call whose entry began [`Beginning::InBatch`]. The
    /// returned future waits until it is recorded.
    ///
    /// # Errors
    /// A failure when it cannot be recorded.
    pub async fn settle_in_batch(
        &self,
        writer: &RunWriter,
        result: &CallResult,
    ) -> Result<impl Future<Output = Result<(), AppendError>> + use<>, AppendError> {
        let event = self.settled(result);
        let recorded = writer.finish_in_batch(result.status, vec![event]).await?;
        self.hand_over(writer);
        Ok(recorded)
    }

    fn hand_over(&self, writer: &RunWriter) {
        *self.handed_over() = Some(writer.clone());
    }

    fn handed_over(&self) -> MutexGuard<'_, Option<RunWriter>> {
        self.handed_over
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every entry that was handed over can be read.
    async fn catch_up(&self) {
        let last = self.handed_over().take();
        if let Some(writer) = last
            && let Err(error) = writer.flush().await
        {
            tracing::warn!(%error, "calls that have no effect are not recorded");
        }
    }

    fn settled(&self, result: &CallResult) -> NewEvent {
        let settled = Kind::CallSettled(CallSettled {
            result: Some(result.clone()),
        });
        encode(&self.event(settled), self.clock.now())
    }

    async fn finish(&self, writer: &RunWriter, state: i32, event: NewEvent) -> Result<(), Status> {
        let mut tries = Tries::default();
        loop {
            match writer.finish(state, vec![event.clone()]).await {
                Ok(_) | Err(AppendError::Finished) => return Ok(()),
                Err(error) => tries.wait_after(error).await?,
            }
        }
    }

    /// Returns the digests of the packages that open calls of all tenants run.
    ///
    /// # Errors
    /// A failure when the log cannot be listed.
    pub async fn open_packages(&self) -> Result<BTreeSet<String>, Status> {
        let entries = self.open_entries().await?.into_iter();
        let packages = entries.filter_map(|entry| match entry {
            LedgerEntry::InFlight(entry) => Some(entry.record.package_digest),
            LedgerEntry::Settled(_) | LedgerEntry::Absent => None,
        });
        Ok(packages.filter(|digest| !digest.is_empty()).collect())
    }

    /// Returns every entry of all tenants that is open, oldest first: calls without an end, and decisions that
    /// were cut off. One that cannot be read is logged and left open, so that a request for its effect
    /// is refused.
    ///
    /// # Errors
    /// A failure when the log cannot be listed.
    pub async fn open_entries(&self) -> Result<Vec<LedgerEntry>, Status> {
        let filter = RunFilter {
            state: StateFilter::Open,
            ..RunFilter::default()
        };
        let mut entries = Vec::new();
        let mut after = None;
        loop {
            let page = self
                .logs
                .list(&filter, Order::OldestFirst, after.as_ref(), 500)
                .await;
            let page = page.map_err(|error| storage_failure(&error))?;
            for summary in page.runs {
                let (run, tool) = (summary.id, summary.subject.clone());
                match self.read(summary).await {
                    Ok(entry) => entries.push(entry),
                    Err(status) => {
                        let error = status.message();
                        tracing::error!(%run, tool, error, "an entry of the ledger stays open");
                    }
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(entries),
            }
        }
    }

    /// Removes at most `most` entries of a tenant that is being removed. Returns a number that is zero once nothing of
    /// the tenant is left.
    ///
    /// # Errors
    /// A failure when the log does not work.
    pub async fn remove_of(&self, tenant: Tenant, most: usize) -> Result<u64, Status> {
        self.catch_up().await;
        let nothing_more = |_| std::future::ready(Ok::<(), StorageError>(()));
        let left = self.logs.remove_of(tenant, most, nothing_more).await;
        left.map_err(|error| storage_failure(&error))
    }

    async fn by_request(
        &self,
        tenant: Tenant,
        scope: &str,
        request_id: &RequestId,
    ) -> Result<Option<RunSummary>, Status> {
        let found = self.logs.by_request(tenant, scope, request_id).await;
        found.map_err(|error| storage_failure(&error))
    }

    async fn read(&self, summary: RunSummary) -> Result<LedgerEntry, Status> {
        let events = self.events(&summary).await?;
        entry::read(summary, events)
    }

    fn event(&self, kind: Kind) -> RunEvent {
        let (trace_id, span_id) = telemetry::context::current_ids();
        RunEvent {
            time: Some(run_events::timestamp_to_proto(self.clock.now())),
            trace_id,
            span_id,
            kind: Some(kind),
            ..RunEvent::default()
        }
    }
}

/// The tries to store the end of a call while the storage does not work.
#[derive(Default)]
struct Tries {
    backoff: Backoff,
    failed: u32,
}

impl Tries {
    /// Waits for the next try after an error, unless it stays.
    async fn wait_after(&mut self, error: AppendError) -> Result<(), Status> {
        self.failed += 1;
        match error {
            AppendError::Storage(error) if self.failed < SETTLE_TRIES => {
                tracing::warn!(%error, "the end of a call could not be stored yet");
                tokio::time::sleep(self.backoff.next_wait()).await;
                Ok(())
            }
            AppendError::Storage(error) => Err(storage_failure(&error)),
            AppendError::Fenced => Err(taken_over()),
            error => Err(grpc_kit::internal(&error)),
        }
    }
}

/// Returns the scope under which the request id of an attempt is unique.
fn scope_of(attempt: u32) -> String {
    match attempt {
        1 => SCOPE.to_owned(),
        later => format!("{SCOPE}#{later}"),
    }
}

fn request_id_of(effect: &Effect) -> Result<RequestId, Status> {
    RequestId::new(effect.as_str()).map_err(|error| {
        Failure::invalid_fields()
            .violation("effect_id", error.to_string())
            .into_status()
    })
}

/// Returns the refusal of a call whose effect id belongs to another one.
pub fn reused(effect: &str) -> Status {
    let message = format!(
        "the effect id `{effect}` was used before: with another tool or other arguments, or by another principal"
    );
    Failure::new(Code::AlreadyExists, ErrorReason::RequestIdReused, message)
        .metadata("request_id", effect)
        .into_status()
}

/// Returns the status for an effect that another request of this process settles or has settled.
fn taken_over() -> Status {
    Status::aborted("the effect is settled by another request; ask again")
}

fn storage_failure(error: &StorageError) -> Status {
    run_events::storage_failure(error).into_status()
}
