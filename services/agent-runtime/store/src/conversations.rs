//! Conversations: their turns from the run log, and the messages appended between turns.

mod branch;
mod idle;
mod seen;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use agent_domain::{message::ChatMessage, plan::Plan, scene::conversation::copied_world};
use call_prompt::prompt::Language;
use contracts::tavern::common::v1::{self as common, ErrorReason};
use core_types::{Clock, Principal, RunId, Tenant, Timestamp};
use documents::{Seen, change::request_id_reused};
use grpc_kit::{CallContext, Failure, run_list::timestamp_from_proto};
use run_events::{RunMeta, Runs, seen_by, store_failure};
use tokio::sync::{Mutex, MutexGuard};
use tonic::Code;

use crate::{
    history::{self, Batch, Earlier, plan_of},
    store::{
        APPEND, ConversationCursor, ConversationRow, ConversationStore, NamedRequest,
        QuestionStore, StateStore,
    },
};

pub use branch::Branched;
pub use branch::branch_key;

/// The most changes of different conversations at once.
const STRIPES: usize = 64;

/// The most turns that wait for the end of the active one (rule G407).
const MAX_QUEUED: usize = 64;

/// The conversations. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Conversations {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn ConversationStore>,
    states: Arc<dyn StateStore>,
    questions: Arc<dyn QuestionStore>,
    runs: Runs,
    clock: Arc<dyn Clock>,
    /// One conversation changes at a time: checking for a turn and changing it are one step. A
    /// conversation's stripe is found by its hash; held across the commit.
    changing: Vec<Mutex<()>>,
}

/// A conversation at the time of a request.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The stored row.
    pub row: ConversationRow,
    /// The number of its changes.
    pub revision: u64,
    /// The active turn.
    pub active_run_id: Option<String>,
    /// The turns that wait for its end, in their order.
    pub queued_run_ids: Vec<String>,
}

/// One part of a conversation, by time.
enum Part {
    Turn(Box<common::Run>, Box<Plan>),
    Appended(Batch),
}

impl Conversations {
    /// Makes the conversations of the stores and the runs.
    pub fn new(
        store: Arc<dyn ConversationStore>,
        states: Arc<dyn StateStore>,
        questions: Arc<dyn QuestionStore>,
        runs: Runs,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let changing = std::iter::repeat_with(Mutex::default).take(STRIPES);
        Self {
            inner: Arc::new(Inner {
                store,
                states,
                questions,
                runs,
                clock,
                changing: changing.collect(),
            }),
        }
    }

    /// Waits until no other request changes the conversation.
    pub async fn lock(&self, tenant: Tenant, conversation_id: &str) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        (tenant, conversation_id).hash(&mut hasher);
        let stripe = usize::try_from(hasher.finish() % STRIPES as u64).unwrap_or_default();
        self.inner.changing[stripe].lock().await
    }

    /// Begins a conversation of a principal, unless it has begun.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn begin(&self, owner: &Principal, conversation_id: &str) -> Result<(), Failure> {
        let (store, now) = (&self.inner.store, self.inner.clock.now());
        let begun = store.begin_conversation(owner, conversation_id, now);
        begun.await.map_err(|error| store_failure(&error))
    }

    /// Refuses a change of a conversation during a turn.
    ///
    /// # Errors
    /// CONVERSATION_BUSY, or a storage that does not work.
    pub async fn refuse_if_busy(
        &self,
        tenant: Tenant,
        conversation_id: &str,
    ) -> Result<(), Failure> {
        let open = self.open_turns(tenant, conversation_id).await?;
        match active(&open) {
            Some(run_id) => Err(busy(run_id)),
            None => Ok(()),
        }
    }

    /// Returns whether another turn has to wait for the turns that have not ended (rule G407).
    ///
    /// # Errors
    /// CONVERSATION_BUSY when too many wait or one of them is above the call of `context`, or a storage that does
    /// not work.
    pub async fn queues(
        &self,
        context: &CallContext,
        conversation_id: &str,
    ) -> Result<bool, Failure> {
        let runs = self.open_turns(context.tenant(), conversation_id).await?;
        let open: Vec<&str> = open(&runs).collect();
        let above = context.path().steps();
        // A turn that waits for this one would wait for ever (rule G901).
        let asking = open
            .iter()
            .find(|run| above.iter().any(|step| step == *run));
        if let Some(run) = asking {
            return Err(busy(run));
        }
        match open.first() {
            Some(active) if open.len() > MAX_QUEUED => Err(busy(active)),
            first => Ok(first.is_some()),
        }
    }

    /// Returns the first turn before another that has not ended.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn turn_before(
        &self,
        tenant: Tenant,
        conversation_id: &str,
        run: RunId,
    ) -> Result<Option<common::Run>, Failure> {
        let runs = self.turns(tenant, conversation_id).await?;
        let own = run.to_string();
        let mut before = runs.into_iter().take_while(|(run, _)| run.run_id != own);
        let first = before.find(|(run, _)| run.outcome.is_none());
        Ok(first.map(|(run, _)| run))
    }

    /// Returns the turns of a conversation, of every principal, the oldest first.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn turns(
        &self,
        tenant: Tenant,
        conversation_id: &str,
    ) -> Result<Vec<(common::Run, RunMeta)>, Failure> {
        let own = CallContext::of_tenant(tenant);
        self.inner.runs.by_conversation(&own, conversation_id).await
    }

    /// Returns the turns of a conversation that have not ended, of every principal, the oldest first.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn open_turns(
        &self,
        tenant: Tenant,
        conversation_id: &str,
    ) -> Result<Vec<(common::Run, RunMeta)>, Failure> {
        let (own, runs) = (CallContext::of_tenant(tenant), &self.inner.runs);
        runs.open_by_conversation(&own, conversation_id).await
    }

    /// Returns a conversation that a call can see.
    ///
    /// # Errors
    /// CONVERSATION_NOT_FOUND, or a storage that does not work.
    pub async fn get(
        &self,
        context: &CallContext,
        conversation_id: &str,
    ) -> Result<Conversation, Failure> {
        let row = self.seen(context, conversation_id).await?;
        self.describe(row.ok_or_else(|| not_found(conversation_id))?)
            .await
    }

    /// Returns the agent of the last turn of a conversation.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn last_agent(
        &self,
        tenant: Tenant,
        conversation_id: &str,
    ) -> Result<Option<String>, Failure> {
        let runs = self.turns(tenant, conversation_id).await?;
        Ok(runs.into_iter().next_back().map(|(run, _)| run.subject))
    }

    /// Returns at most `limit` conversations that a call can see before `before`, the newest first.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn list(
        &self,
        context: &CallContext,
        before: Option<ConversationCursor<'_>>,
        limit: usize,
    ) -> Result<Vec<Conversation>, Failure> {
        let (store, owners) = (&self.inner.store, seen_by(context));
        let rows = store.conversations(&owners, before, limit);
        let mut list = Vec::new();
        for row in rows.await.map_err(|error| store_failure(&error))? {
            list.push(self.describe(row).await?);
        }
        Ok(list)
    }

    /// Deletes a conversation with its messages and the runs of its turns.
    ///
    /// # Errors
    /// CONVERSATION_NOT_FOUND, CONVERSATION_BUSY, or a storage that does not work.
    pub async fn delete(
        &self,
        context: &CallContext,
        conversation_id: &str,
    ) -> Result<(), Failure> {
        let tenant = context.tenant();
        let _one_at_a_time = self.lock(tenant, conversation_id).await;
        if self.seen(context, conversation_id).await?.is_none() {
            return Err(not_found(conversation_id));
        }
        let runs = self.turns(tenant, conversation_id).await?;
        if let Some(run_id) = active(&runs) {
            return Err(busy(run_id));
        }
        let own = CallContext::of_tenant(tenant);
        for (run, _) in runs {
            self.inner.runs.delete(&own, &run.run_id).await?;
        }
        self.delete_without_runs(tenant, conversation_id).await
    }

    /// Deletes all data of a conversation except its runs.
    async fn delete_without_runs(
        &self,
        tenant: Tenant,
        conversation_id: &str,
    ) -> Result<(), Failure> {
        let states = &self.inner.states;
        let deleted = states.delete_states(tenant, conversation_id).await;
        deleted.map_err(|error| store_failure(&error))?;
        if let Some(world) = copied_world(conversation_id) {
            let deleted = states.delete_world(tenant, world).await;
            deleted.map_err(|error| store_failure(&error))?;
        }
        // Last, so that a deletion that was interrupted can be repeated.
        let store = &self.inner.store;
        let deleted = store.delete_conversation(tenant, conversation_id).await;
        deleted.map_err(|error| store_failure(&error))
    }

    /// Appends messages to a conversation at an expected revision, once per request. Returns whether
    /// the request was seen before.
    ///
    /// # Errors
    /// CONVERSATION_NOT_FOUND for a conversation that the call cannot see, INVALID_FIELDS for an id that a client cannot
    /// begin, REVISION_MISMATCH, CONVERSATION_BUSY, REQUEST_ID_REUSED, or a storage that does not work.
    pub async fn append(
        &self,
        context: &CallContext,
        conversation_id: &str,
        expected_revision: u64,
        messages: Vec<ChatMessage>,
        request: Option<NamedRequest>,
    ) -> Result<(Conversation, bool), Failure> {
        let tenant = context.tenant();
        let _one_at_a_time = self.lock(tenant, conversation_id).await;
        let row = self.seen_or_begun(context, conversation_id).await?;
        if let Some(request) = &request
            && let Some(revision) = self.appended_by(tenant, conversation_id, request).await?
        {
            let current = self.get(context, conversation_id).await?;
            let first = Conversation {
                revision,
                active_run_id: None,
                queued_run_ids: Vec::new(),
                ..current
            };
            return Ok((first, true));
        }
        let current = match row {
            Some(row) => self.describe(row).await?.revision,
            None => 0,
        };
        self.refuse_if_busy(tenant, conversation_id).await?;
        if current != expected_revision {
            let message =
                format!("the conversation has revision {current}; read it again and repeat");
            let reason = ErrorReason::RevisionMismatch;
            let failure = Failure::new(Code::Aborted, reason, message);
            return Err(failure.metadata("revision", current.to_string()));
        }
        let created = self.inner.clock.now();
        let batch = [Batch { created, messages }];
        let request = request.as_ref().map(|request| (request, current + 1));
        let (store, owner) = (&self.inner.store, context.principal());
        let appended = store.append(owner, conversation_id, created, &batch, request);
        appended.await.map_err(|error| store_failure(&error))?;
        Ok((self.get(context, conversation_id).await?, false))
    }

    /// Returns the revision of a conversation after a request, if the request was seen before.
    async fn appended_by(
        &self,
        tenant: Tenant,
        conversation_id: &str,
        request: &NamedRequest,
    ) -> Result<Option<u64>, Failure> {
        let store = &self.inner.store;
        let known = store.seen(tenant, request.within(APPEND, conversation_id));
        let known = known.await;
        match known.map_err(|error| store_failure(&error))? {
            Seen::Same(revision) => Ok(Some(revision.parse().unwrap_or(0))),
            Seen::OtherBody => Err(request_id_reused(&request.id)),
            Seen::New => Ok(None),
        }
    }

    /// Returns the turns of a conversation before `before` (all if none) and the messages appended
    /// to it, the oldest first; of a long conversation only the newest parts that hold up to
    /// `most_bytes`, and one more.
    ///
    /// A turn whose log cannot be replayed is left out, and named in the log of the server.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn history(
        &self,
        tenant: Tenant,
        conversation_id: &str,
        before: Option<RunId>,
        most_bytes: usize,
    ) -> Result<Vec<Earlier>, Failure> {
        let of = (tenant, conversation_id);
        self.read(of, before, most_bytes, false).await
    }

    /// Reads the newest parts, back to the last compaction if `is_context`.
    async fn read(
        &self,
        (tenant, conversation_id): (Tenant, &str),
        before: Option<RunId>,
        most_bytes: usize,
        is_context: bool,
    ) -> Result<Vec<Earlier>, Failure> {
        let parts = self.parts(tenant, conversation_id, before).await?;
        let (mut history, mut bytes) = (Vec::<Earlier>::new(), 0);
        let mut compacted = None;
        for (time, part) in parts.into_iter().rev() {
            if compacted.is_some_and(|until| time <= until) {
                // Results are compacted with their calls.
                history.pop_if(|oldest| oldest.continues());
                break;
            }
            let earlier = match part {
                Part::Turn(run, plan) => history::turn(&self.inner.runs, *run, &plan).await?,
                Part::Appended(batch) => Some(history::appended(&batch)),
            };
            let Some(mut earlier) = earlier else {
                continue;
            };
            let texts = earlier.messages.iter().map(|said| said.message.bytes());
            bytes += texts.sum::<usize>();
            // No call is parted from its result (rule G603).
            if earlier.run_id.is_empty()
                && let Some(results) = history.pop_if(|newer| newer.continues())
            {
                earlier.join(results);
            }
            if let Some(compaction) = earlier.compaction.as_ref().filter(|_| is_context) {
                compacted = compacted.or(Some(compaction.until));
            }
            history.push(earlier);
            if bytes > most_bytes && !history.last().is_some_and(Earlier::continues) {
                break;
            }
        }
        history.reverse();
        Ok(history)
    }

    /// Returns the conversation that a model reads before a turn: its history, in which compacted
    /// turns are replaced by their summary.
    ///
    /// # Errors
    /// A storage that does not work.
    pub async fn context(
        &self,
        tenant: Tenant,
        conversation_id: &str,
        before: RunId,
        most_bytes: usize,
        language: Language,
    ) -> Result<Vec<Earlier>, Failure> {
        let of = (tenant, conversation_id);
        let mut history = self.read(of, Some(before), most_bytes, true).await?;
        let newest = history
            .iter()
            .rev()
            .find_map(|part| part.compaction.clone());
        if let Some(compaction) = newest {
            history.retain(|part| !compaction.covers(&part.messages));
            let summary = Earlier {
                run_id: String::new(),
                untrusted: vec![compaction.summary.clone()],
                messages: vec![compaction.message(language)],
                handle_given: false,
                compaction: Some(compaction),
            };
            history.insert(0, summary);
        }
        Ok(history)
    }

    /// Returns the turns before `before` and the appended messages, by time.
    async fn parts(
        &self,
        tenant: Tenant,
        conversation_id: &str,
        before: Option<RunId>,
    ) -> Result<Vec<(Timestamp, Part)>, Failure> {
        let mut runs = self.turns(tenant, conversation_id).await?;
        let mut until = None;
        if let Some(before) = before.map(|run| run.to_string()) {
            let place = runs.iter().position(|(run, _)| run.run_id == before);
            let run = place.and_then(|place| runs.get(place));
            until = run.and_then(|(run, _)| timestamp_from_proto(run.create_time?));
            runs.truncate(place.unwrap_or(runs.len()));
        }
        let batches = self.inner.store.appended(tenant, conversation_id).await;
        let mut batches = batches.map_err(|error| store_failure(&error))?;
        batches.retain(|batch| until.is_none_or(|until| batch.created <= until));
        let mut parts: Vec<(Timestamp, Part)> = Vec::new();
        for (run, meta) in runs {
            let Ok(plan) = plan_of(meta) else {
                continue;
            };
            if !plan.ephemeral {
                let time = run.create_time.and_then(timestamp_from_proto);
                let turn = Part::Turn(Box::new(run), Box::new(plan));
                parts.push((time.unwrap_or_default(), turn));
            }
        }
        parts.extend(
            batches
                .into_iter()
                .map(|batch| (batch.created, Part::Appended(batch))),
        );
        parts.sort_by_key(|(time, _)| *time);
        Ok(parts)
    }

    async fn find(
        &self,
        tenant: Tenant,
        conversation_id: &str,
    ) -> Result<Option<ConversationRow>, Failure> {
        let found = self.inner.store.conversation(tenant, conversation_id).await;
        found.map_err(|error| store_failure(&error))
    }

    async fn describe(&self, row: ConversationRow) -> Result<Conversation, Failure> {
        let runs = self.turns(row.owner.tenant(), &row.id).await?;
        let mut open = open(&runs).map(str::to_owned);
        Ok(Conversation {
            revision: row.batches + runs.len() as u64,
            active_run_id: open.next(),
            queued_run_ids: open.collect(),
            row,
        })
    }
}

/// Returns the active turn.
fn active(runs: &[(common::Run, RunMeta)]) -> Option<&str> {
    open(runs).next()
}

/// Returns the turns that have not ended: the active one, and the turns that wait for it.
fn open(runs: &[(common::Run, RunMeta)]) -> impl Iterator<Item = &str> {
    let runs = runs.iter().map(|(run, _)| run);
    let open = runs.filter(|run| run.outcome.is_none());
    open.map(|run| run.run_id.as_str())
}

/// Returns the turn to which calls of a conversation belong: the active one, else the newest.
pub fn present(mut runs: Vec<(common::Run, RunMeta)>) -> Option<(common::Run, RunMeta)> {
    let active = runs.iter().position(|(run, _)| run.outcome.is_none());
    match active {
        Some(place) => Some(runs.swap_remove(place)),
        None => runs.pop(),
    }
}

fn busy(run_id: &str) -> Failure {
    let message = format!(
        "the conversation has a turn that continues, {run_id}; wait for its end or cancel it"
    );
    Failure::new(
        Code::FailedPrecondition,
        ErrorReason::ConversationBusy,
        message,
    )
    .metadata("run_id", run_id)
    .violation("conversation_id", "has a turn that continues")
}

/// Reports that no conversation has this id.
pub fn not_found(conversation_id: &str) -> Failure {
    let shown: String = conversation_id.chars().take(80).collect();
    let message = format!("no conversation has the id `{shown}`");
    Failure::new(Code::NotFound, ErrorReason::ConversationNotFound, message)
        .metadata("conversation_id", shown)
}
