//! Runs and their events in memory, within limits.
//!
//! When the log is full, the runs that finished longest ago are dropped, and with them the memory of their
//! request ids. When only open runs are left, it answers [`StorageError::Full`].

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Mutex,
};

use async_trait::async_trait;
use core_types::{Durability, Principal, RequestId, RunId, Tenant, Timestamp};

use crate::{
    AppendError, Event, NewRun, Order, Owners, RequestKey, RunCursor, RunFilter, RunPage, RunState,
    RunSummary, StateFilter, StorageError,
    cell::{Chain, Registry, lock},
    event::up_to,
    step::{Deletion, RunRow, Step, StepError, Store, Tail},
};

/// The cost of a run or an event in addition to its own bytes; a round figure.
const OVERHEAD_BYTES: usize = 256;

/// The bounds of a log in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimits {
    /// The most runs, open and finished.
    pub(crate) max_runs: usize,
    /// The most bytes of all payloads and metas, with a flat charge for each run and event.
    pub(crate) max_bytes: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self {
            max_runs: 10_000,
            max_bytes: 64 << 20,
        }
    }
}

/// The runs of a memory log.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    limits: MemoryLimits,
    /// Locked while handles of one page are copied, never across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    runs: HashMap<i64, MemoryRun>,
    by_id: HashMap<RunId, i64>,
    by_request: HashMap<RequestName, i64>,
    by_time: BTreeMap<(Timestamp, String), i64>,
    /// Finished runs, the earliest first.
    finished: VecDeque<i64>,
    bytes: usize,
    closed: bool,
}

/// The name of a request: tenant, scope and id.
type RequestName = (Tenant, String, RequestId);

#[derive(Debug)]
struct MemoryRun {
    /// Whether it was deleted, and only the name of its request is kept until there is no room.
    deleted: bool,
    summary: RunSummary,
    events: Vec<Event>,
    bytes: usize,
}

impl MemoryStore {
    pub(crate) fn new(limits: MemoryLimits) -> Self {
        Self {
            limits,
            state: Mutex::default(),
        }
    }

    /// Stores a step at once; `chain` is the locked chain of its run.
    pub(crate) fn apply(&self, mut step: Step, chain: &mut Chain) {
        if let Err(error) = chain.admits(step.epoch) {
            return step.reject(chain, error);
        }
        let stored = lock(&self.state).store(&mut step, self.limits);
        match stored {
            Ok(()) => {
                step.cell.publish(&step.events, step.place);
                step.acknowledge(chain);
            }
            Err(StepError::Append(error)) => step.reject(chain, error),
            Err(error) => step.answer(Err(error)),
        }
    }
}

impl State {
    fn store(&mut self, step: &mut Step, limits: MemoryLimits) -> Result<(), StepError> {
        if self.closed {
            return Err(AppendError::Storage(StorageError::Closed).into());
        }
        if let Some(run) = &step.create {
            let request = name_of(&run.owner, run.request.as_ref());
            if self.by_id.contains_key(&run.id)
                || request.is_some_and(|request| self.by_request.contains_key(&request))
            {
                return Err(StepError::Duplicate);
            }
        }
        if let Some(deletion) = step.deletion {
            match deletion {
                Deletion::Hide => self.delete(step.key),
                Deletion::Forget => self.forget(step.key),
                Deletion::Events { .. } | Deletion::Run => {}
            }
            return Ok(());
        }
        let bytes = charge(step);
        self.make_room(bytes, usize::from(step.create.is_some()), limits)?;
        if let Some(run) = step.create.take() {
            self.insert(step.key, *run);
        }
        let Some(run) = self.runs.get_mut(&step.key) else {
            return Err(AppendError::Fenced.into());
        };
        run.events.extend(step.events.iter().cloned());
        if let Some(last) = step.events.last() {
            run.summary.last_sequence = last.sequence;
        }
        run.bytes += bytes;
        self.bytes += bytes;
        if step.takes_over {
            run.summary.due = None;
        }
        if let Some(phase) = step.phase {
            run.summary.phase = phase.code;
            run.summary.due = phase.due;
        }
        if let Some(finish) = step.finish {
            run.summary.state = RunState::Finished(finish.state);
            run.summary.finished = Some(finish.time);
            self.finished.push_back(step.key);
        }
        Ok(())
    }

    fn make_room(
        &mut self,
        bytes: usize,
        runs: usize,
        limits: MemoryLimits,
    ) -> Result<(), AppendError> {
        while self.bytes + bytes > limits.max_bytes || self.runs.len() + runs > limits.max_runs {
            let oldest = self.finished.pop_front().ok_or(StorageError::Full)?;
            self.remove(oldest);
        }
        Ok(())
    }

    fn insert(&mut self, key: i64, run: NewRun) {
        let summary = RunSummary {
            id: run.id,
            owner: run.owner,
            kind: run.kind,
            subject: run.subject,
            conversation: run.conversation,
            request: run.request,
            parent: run.parent,
            forks: run.forks,
            state: RunState::Open,
            phase: 0,
            created: run.created,
            finished: None,
            deadline: run.deadline,
            due: None,
            durability: Durability::Memory,
            meta: run.meta,
            last_sequence: 0,
            key,
        };
        self.by_id.insert(summary.id, key);
        self.by_time.insert(summary.cursor().sort_key(), key);
        if let Some(name) = name_of(&summary.owner, summary.request.as_ref()) {
            self.by_request.insert(name, key);
        }
        self.runs.insert(
            key,
            MemoryRun {
                deleted: false,
                summary,
                events: Vec::new(),
                bytes: 0,
            },
        );
    }

    /// Deletes a run with the name of its request.
    fn forget(&mut self, key: i64) {
        self.finished.retain(|finished| *finished != key);
        self.remove(key);
    }

    fn open_by_tenant(&self) -> BTreeMap<Tenant, u64> {
        let mut counts = BTreeMap::new();
        let runs = self.runs.values().map(|run| &run.summary);
        for run in runs.filter(|run| run.state == RunState::Open) {
            *counts.entry(run.owner.tenant()).or_default() += 1;
        }
        counts
    }

    /// Deletes the names of requests whose runs were deleted and had ended before a time.
    fn forget_requests(&mut self, before: Timestamp, tenant: Option<Tenant>) -> u64 {
        let runs = self.runs.iter();
        let old = runs.filter(|(_, run)| {
            let is_of = tenant.is_none_or(|tenant| run.summary.owner.tenant() == tenant);
            run.deleted && is_of && run.summary.finished < Some(before)
        });
        let old: Vec<i64> = old.map(|(key, _)| *key).collect();
        old.iter().for_each(|key| self.forget(*key));
        old.len() as u64
    }

    /// Deletes all of a run but the name of its request.
    fn delete(&mut self, key: i64) {
        let Some(run) = self.runs.get_mut(&key) else {
            return;
        };
        if run.summary.request.is_none() {
            return self.forget(key);
        }
        self.bytes -= run.bytes;
        run.bytes = 0;
        run.deleted = true;
        run.events = Vec::new();
        run.summary.meta = bytes::Bytes::new();
        self.by_id.remove(&run.summary.id);
        self.by_time.remove(&run.summary.cursor().sort_key());
    }

    fn remove(&mut self, key: i64) {
        let Some(run) = self.runs.remove(&key) else {
            return;
        };
        self.by_id.remove(&run.summary.id);
        self.by_time.remove(&run.summary.cursor().sort_key());
        if let Some(name) = name_of(&run.summary.owner, run.summary.request.as_ref()) {
            self.by_request.remove(&name);
        }
        self.bytes -= run.bytes;
    }

    fn row(&self, key: i64) -> Option<RunRow> {
        let run = self.runs.get(&key)?;
        let ended = run.summary.state != RunState::Open;
        let end = run.events.last().map(Event::head).filter(|_| ended);
        Some(RunRow {
            key,
            summary: run.summary.clone(),
            end,
            deleted: run.deleted,
        })
    }
}

fn name_of(owner: &Principal, request: Option<&RequestKey>) -> Option<RequestName> {
    request.map(|key| (owner.tenant(), key.scope.clone(), key.request_id.clone()))
}

/// The bytes that a step adds to the size of the log.
fn charge(step: &Step) -> usize {
    let run = step
        .create
        .as_ref()
        .map_or(0, |run| OVERHEAD_BYTES + run.meta.len());
    let events: usize = step
        .events
        .iter()
        .map(|e| OVERHEAD_BYTES + e.payload.len())
        .sum();
    run + events
}

fn admits(filter: &RunFilter, run: &RunSummary) -> bool {
    filter.owners.admit(&run.owner)
        && filter
            .subject
            .as_ref()
            .is_none_or(|subject| *subject == run.subject)
        && filter
            .conversation
            .as_ref()
            .is_none_or(|conversation| *conversation == run.conversation)
        && filter.kind.as_ref().is_none_or(|kind| *kind == run.kind)
        && filter
            .created_since
            .is_none_or(|since| run.created >= since)
        && filter
            .created_before
            .is_none_or(|before| run.created < before)
        && filter
            .parent
            .is_none_or(|parent| Some(parent) == run.parent)
        && match filter.state {
            StateFilter::Any => true,
            StateFilter::Open => run.state == RunState::Open,
            StateFilter::Awake => run.state == RunState::Open && run.due.is_none(),
            StateFilter::OpenIn(phases) => {
                run.state == RunState::Open && phases.contains(&run.phase)
            }
            StateFilter::Finished => run.state != RunState::Open,
            StateFilter::FinishedAs(code) => run.state == RunState::Finished(code),
        }
}

#[async_trait]
impl Store for MemoryStore {
    async fn row(&self, run: RunId, owners: &Owners) -> Result<Option<RunRow>, StorageError> {
        let state = lock(&self.state);
        let found = state.by_id.get(&run);
        let found = found.filter(|key| {
            let run = state.runs.get(key);
            run.is_some_and(|run| owners.admit(&run.summary.owner))
        });
        Ok(found.and_then(|key| state.row(*key)))
    }

    async fn row_by_request(
        &self,
        tenant: Tenant,
        scope: &str,
        request_id: &RequestId,
    ) -> Result<Option<RunRow>, StorageError> {
        let state = lock(&self.state);
        let request = (tenant, scope.to_owned(), request_id.clone());
        Ok(state
            .by_request
            .get(&request)
            .and_then(|key| state.row(*key)))
    }

    async fn list(
        &self,
        filter: &RunFilter,
        order: Order,
        after: Option<&RunCursor>,
        limit: usize,
    ) -> Result<RunPage, StorageError> {
        let state = lock(&self.state);
        let after = after.map(RunCursor::sort_key);
        let past = |key: &(Timestamp, String)| {
            after.as_ref().is_none_or(|after| match order {
                Order::NewestFirst => key < after,
                Order::OldestFirst => key > after,
            })
        };
        let wanted = |(place, key): (&(Timestamp, String), &i64)| {
            let run = state
                .runs
                .get(key)
                .filter(|run| past(place) && admits(filter, &run.summary));
            run.map(|run| run.summary.clone())
        };
        let runs = match order {
            Order::NewestFirst => state
                .by_time
                .iter()
                .rev()
                .filter_map(wanted)
                .take(limit + 1)
                .collect(),
            Order::OldestFirst => state
                .by_time
                .iter()
                .filter_map(wanted)
                .take(limit + 1)
                .collect(),
        };
        Ok(RunPage::cut(runs, limit))
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunSummary>, StorageError> {
        let state = lock(&self.state);
        let runs = state.runs.values().map(|run| &run.summary);
        let mut due: Vec<_> = runs
            .filter(|run| run.due.is_some_and(|due| due <= now))
            .cloned()
            .collect();
        due.sort_by_key(|run| (run.due, run.id));
        due.truncate(limit);
        Ok(due)
    }

    async fn has_dependents(&self, run: RunId) -> Result<bool, StorageError> {
        let state = lock(&self.state);
        let mut runs = state.runs.values().filter(|other| !other.deleted);
        Ok(runs.any(|MemoryRun { summary, .. }| {
            let is_open = summary.state == RunState::Open;
            summary.forks == Some(run) || (is_open && summary.parent == Some(run))
        }))
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StorageError> {
        let state = lock(&self.state);
        Ok(state.runs.values().filter_map(|run| run.summary.due).min())
    }

    async fn page_of(
        &self,
        run: RunId,
        after: u64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StorageError> {
        let key = lock(&self.state).by_id.get(&run).copied();
        match key {
            Some(key) => self.page(key, after, limit, max_bytes).await,
            None => Ok(Vec::new()),
        }
    }

    async fn tail(
        &self,
        key: i64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Option<Tail>, StorageError> {
        let state = lock(&self.state);
        let run = state.runs.get(&key).filter(|run| !run.deleted);
        Ok(run.map(|run| {
            let newest = run.events.iter().rev().take(limit);
            let mut events: Vec<_> = up_to(max_bytes, newest).cloned().collect();
            events.reverse();
            Tail {
                ended: run.summary.state != RunState::Open,
                events,
            }
        }))
    }

    async fn page(
        &self,
        key: i64,
        after: u64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StorageError> {
        let state = lock(&self.state);
        let Some(run) = state.runs.get(&key) else {
            return Ok(Vec::new());
        };
        // Sequences begin at 1, so the event after N is at index N.
        let skip = usize::try_from(after).unwrap_or(usize::MAX);
        let after = run.events.iter().skip(skip).take(limit);
        Ok(up_to(max_bytes, after).cloned().collect())
    }

    async fn open_of(&self, tenant: Tenant, most: u64) -> Result<u64, StorageError> {
        let open = lock(&self.state).open_by_tenant();
        Ok(open.get(&tenant).copied().unwrap_or_default().min(most))
    }

    async fn open_by_tenant(&self) -> Result<BTreeMap<Tenant, u64>, StorageError> {
        Ok(lock(&self.state).open_by_tenant())
    }

    async fn forget_requests(
        &self,
        before: Timestamp,
        tenant: Option<Tenant>,
    ) -> Result<u64, StorageError> {
        Ok(lock(&self.state).forget_requests(before, tenant))
    }

    async fn reclaim(&self) -> Result<u64, StorageError> {
        Ok(0)
    }

    async fn close(&self, runs: &Registry) {
        lock(&self.state).closed = true;
        runs.close();
    }
}

#[cfg(test)]
mod tests;
