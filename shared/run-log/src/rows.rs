//! Reading runs and events.

use std::{collections::BTreeMap, sync::Mutex};

use async_trait::async_trait;
use core_types::{Durability, Principal, RequestId, RunId, Tenant, Timestamp};
use sql_store::{Reader, SqliteDatabase, Statement, Value};
use sqlx::FromRow;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    Event, Hash, Order, Owners, RequestKey, RunCursor, RunFilter, RunPage, RunState, RunSummary,
    StateFilter, StorageError,
    cell::{Registry, lock},
    event::Head,
    maintenance::{self, MaintenanceTask, Work},
    open_runs::OpenRuns,
    step::{RunRow, Store, Tail},
};

/// Reads through the database's reading connections, and maintains the storage through the committing task.
#[derive(Debug)]
pub(crate) struct StoredRuns {
    pub(crate) reader: Reader,
    /// The log whose runs are read; `None` where the database holds those of one log.
    pub(crate) log: Option<&'static str>,
    /// The file, which is closed with the log; a database of a server is the process's.
    pub(crate) owned: Option<SqliteDatabase>,
    pub(crate) open: OpenRuns,
    pub(crate) maintenance: mpsc::Sender<MaintenanceTask>,
    /// Asks the committing task to end.
    pub(crate) closing: watch::Sender<bool>,
    pub(crate) tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// The columns of [`StoredRun`]; the index on events makes the subquery one look-up.
pub(crate) const RUNS: &str = "SELECT key, id, principal, kind, subject, conversation, scope, request_id, body_hash, parent, \
     forks, state, phase, batched, deleted, created, finished, deadline, due, meta, end_sequence, end_hash, \
     (SELECT coalesce(max(sequence), 0) FROM events WHERE run = runs.key) AS last_sequence FROM runs";

#[derive(FromRow)]
pub(crate) struct StoredRun {
    pub(crate) key: i64,
    pub(crate) id: String,
    principal: String,
    kind: String,
    subject: String,
    conversation: String,
    scope: Option<String>,
    request_id: Option<String>,
    body_hash: Option<Vec<u8>>,
    parent: Option<String>,
    forks: Option<String>,
    state: Option<i32>,
    phase: i32,
    batched: bool,
    pub(crate) deleted: bool,
    created: i64,
    finished: Option<i64>,
    deadline: Option<i64>,
    due: Option<i64>,
    meta: Vec<u8>,
    end_sequence: Option<i64>,
    end_hash: Option<Vec<u8>>,
    last_sequence: i64,
}

impl StoredRun {
    /// Returns the end of a run that is over.
    pub(crate) fn end(&self) -> Result<Option<Head>, StorageError> {
        let corrupt = |column| StorageError::Corrupt {
            table: "runs",
            column,
            row: self.key.to_string(),
        };
        Ok(match (self.end_sequence, &self.end_hash) {
            (Some(sequence), Some(end_hash)) => Some(Head {
                sequence: u64::try_from(sequence).map_err(|_| corrupt("end_sequence"))?,
                hash: hash(end_hash).ok_or_else(|| corrupt("end_hash"))?,
            }),
            _ => None,
        })
    }

    /// Returns the values of the row of a run that is stored elsewhere under a key of its own.
    pub(crate) fn values(&self, key: i64) -> [Value; 23] {
        let tenant = Principal::new(&self.principal).map(|owner| owner.tenant());
        [
            key.into(),
            (&self.id).into(),
            tenant.unwrap_or(Tenant::DEFAULT).as_str().into(),
            (&self.principal).into(),
            (&self.kind).into(),
            (&self.subject).into(),
            (&self.conversation).into(),
            self.scope.clone().into(),
            self.request_id.clone().into(),
            self.body_hash.clone().into(),
            self.parent.clone().into(),
            self.forks.clone().into(),
            self.state.into(),
            self.phase.into(),
            self.batched.into(),
            self.deleted.into(),
            self.created.into(),
            self.finished.into(),
            self.deadline.into(),
            self.due.into(),
            self.meta.clone().into(),
            self.end_sequence.into(),
            self.end_hash.clone().into(),
        ]
    }
}

impl TryFrom<StoredRun> for RunRow {
    type Error = StorageError;

    fn try_from(stored: StoredRun) -> Result<Self, StorageError> {
        let key = stored.key;
        let end = stored.end()?;
        let corrupt = |column| StorageError::Corrupt {
            table: "runs",
            column,
            row: key.to_string(),
        };
        let request = match (stored.scope, stored.request_id, stored.body_hash) {
            (Some(scope), Some(request_id), Some(body_hash)) => Some(RequestKey {
                scope,
                request_id: RequestId::new(request_id).map_err(|_| corrupt("request_id"))?,
                body_hash: hash(&body_hash).ok_or_else(|| corrupt("body_hash"))?,
            }),
            _ => None,
        };
        let parent = stored.parent.map(|parent| parent.parse()).transpose();
        let forks = stored.forks.map(|forks| forks.parse()).transpose();
        let last_sequence =
            u64::try_from(stored.last_sequence).map_err(|_| corrupt("last_sequence"))?;
        let summary = RunSummary {
            id: stored.id.parse().map_err(|_| corrupt("id"))?,
            owner: Principal::new(&stored.principal).map_err(|_| corrupt("principal"))?,
            kind: stored.kind,
            subject: stored.subject,
            conversation: stored.conversation,
            request,
            parent: parent.map_err(|_| corrupt("parent"))?,
            forks: forks.map_err(|_| corrupt("forks"))?,
            state: stored.state.map_or(RunState::Open, RunState::Finished),
            phase: stored.phase,
            created: Timestamp::from_unix_nanos(stored.created),
            finished: stored.finished.map(Timestamp::from_unix_nanos),
            deadline: stored.deadline.map(Timestamp::from_unix_nanos),
            due: stored.due.map(Timestamp::from_unix_nanos),
            durability: match stored.batched {
                true => Durability::Batched,
                false => Durability::Sync,
            },
            meta: stored.meta.into(),
            last_sequence,
            key,
        };
        Ok(RunRow {
            key,
            summary,
            end,
            deleted: stored.deleted,
        })
    }
}

/// The columns of [`StoredEvent`].
pub(crate) const EVENTS: &str = "SELECT run, sequence, time, kind, payload, hash FROM events";

#[derive(Clone, FromRow)]
pub(crate) struct StoredEvent {
    run: i64,
    sequence: i64,
    time: i64,
    kind: i32,
    payload: Vec<u8>,
    hash: Vec<u8>,
}

/// An event, and whether its run has ended.
#[derive(FromRow)]
struct StoredTail {
    ended: bool,
    #[sqlx(flatten)]
    event: StoredEvent,
}

/// Returns whether events have no more than some bytes of payload together, the first one in any case.
fn within(max_bytes: usize) -> impl FnMut(&StoredEvent) -> bool {
    let (mut bytes, mut any) = (0, false);
    move |event| {
        bytes += event.payload.len();
        !std::mem::replace(&mut any, true) || bytes <= max_bytes
    }
}

impl StoredEvent {
    /// Returns the values of the row of an event whose run has another key.
    pub(crate) fn values(self, run: i64) -> [Value; 6] {
        [
            run.into(),
            self.sequence.into(),
            self.time.into(),
            self.kind.into(),
            self.payload.into(),
            self.hash.into(),
        ]
    }
}

impl TryFrom<StoredEvent> for Event {
    type Error = StorageError;

    fn try_from(stored: StoredEvent) -> Result<Self, StorageError> {
        let (run, sequence) = (stored.run, stored.sequence);
        let corrupt = |column| StorageError::Corrupt {
            table: "events",
            column,
            row: format!("run {run}, sequence {sequence}"),
        };
        Ok(Event {
            sequence: u64::try_from(sequence).map_err(|_| corrupt("sequence"))?,
            time: Timestamp::from_unix_nanos(stored.time),
            kind: stored.kind,
            payload: stored.payload.into(),
            hash: hash(&stored.hash).ok_or_else(|| corrupt("hash"))?,
        })
    }
}

fn hash(bytes: &[u8]) -> Option<Hash> {
    bytes.try_into().ok().map(Hash)
}

/// A deleted run whose events are still there, because its process ended too early.
#[derive(Debug, FromRow)]
pub(crate) struct HiddenRun {
    pub(crate) key: i64,
    pub(crate) id: String,
    pub(crate) end_sequence: i64,
}

impl StoredRuns {
    /// Returns the runs that were deleted in part.
    pub(crate) async fn hidden(&self) -> Result<Vec<HiddenRun>, sqlx::Error> {
        let mut hidden = Statement::new("SELECT key, id, end_sequence FROM runs WHERE hidden");
        self.push_log(&mut hidden);
        self.reader.fetch_all(hidden).await
    }

    /// Adds the condition that a run belongs to this log.
    fn push_log(&self, statement: &mut Statement) {
        if let Some(log) = self.log {
            statement.push(" AND log = ").push_bind(log);
        }
    }

    async fn row_by(&self, statement: Statement) -> Result<Option<RunRow>, StorageError> {
        let stored: Option<StoredRun> = self.reader.fetch_optional(statement).await?;
        stored.map(RunRow::try_from).transpose()
    }

    async fn summaries(&self, statement: Statement) -> Result<Vec<RunSummary>, StorageError> {
        let stored: Vec<StoredRun> = self.reader.fetch_all(statement).await?;
        let runs = stored.into_iter();
        runs.map(|stored| RunRow::try_from(stored).map(|row| row.summary))
            .collect()
    }

    /// Returns the end of a run that has no event.
    async fn tail_without_events(&self, key: i64) -> Result<Option<Tail>, StorageError> {
        let state =
            Statement::new("SELECT state IS NOT NULL FROM runs WHERE key = $1 AND NOT deleted");
        let state: Option<(bool,)> = self.reader.fetch_optional(state.bind(key)).await?;
        Ok(state.map(|(ended,)| Tail {
            ended,
            events: Vec::new(),
        }))
    }

    async fn count_open(&self) -> Result<BTreeMap<Tenant, u64>, StorageError> {
        let mut open = Statement::new("SELECT tenant, count(*) FROM runs WHERE state IS NULL");
        self.push_log(&mut open);
        open.push(" GROUP BY tenant");
        let counted: Vec<(String, i64)> = self.reader.fetch_all(open).await?;
        let counted = counted.into_iter().map(|(tenant, runs)| {
            let row = tenant.clone();
            let tenant = Tenant::new(&tenant).map_err(|_| StorageError::Corrupt {
                table: "runs",
                column: "tenant",
                row,
            })?;
            Ok((tenant, runs.unsigned_abs()))
        });
        counted.collect()
    }

    /// Reads events until they have too many bytes together.
    async fn events(
        &self,
        statement: Statement,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StorageError> {
        let stored = self
            .reader
            .fetch_while(statement, within(max_bytes))
            .await?;
        stored.into_iter().map(Event::try_from).collect()
    }
}

#[async_trait]
impl Store for StoredRuns {
    async fn row(&self, run: RunId, owners: &Owners) -> Result<Option<RunRow>, StorageError> {
        let mut row = Statement::new(RUNS);
        row.push(" WHERE NOT deleted AND id = ")
            .push_bind(run.to_string());
        self.push_log(&mut row);
        push_owners(&mut row, owners);
        self.row_by(row).await
    }

    async fn page_of(
        &self,
        run: RunId,
        after: u64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StorageError> {
        let mut page = Statement::new(EVENTS);
        page.push(" WHERE run = (SELECT key FROM runs WHERE NOT deleted AND id = ")
            .push_bind(run.to_string());
        self.push_log(&mut page);
        page.push(") AND sequence > ")
            .push_bind(integer(after))
            .push(" ORDER BY sequence LIMIT ")
            .push_bind(limit);
        self.events(page, max_bytes).await
    }

    async fn row_by_request(
        &self,
        tenant: Tenant,
        scope: &str,
        request_id: &RequestId,
    ) -> Result<Option<RunRow>, StorageError> {
        let mut row = Statement::new(RUNS);
        row.push(" WHERE tenant = ").push_bind(tenant.as_str());
        row.push(" AND scope = ").push_bind(scope);
        row.push(" AND request_id = ")
            .push_bind(request_id.as_str());
        self.push_log(&mut row);
        self.row_by(row).await
    }

    async fn list(
        &self,
        filter: &RunFilter,
        order: Order,
        after: Option<&RunCursor>,
        limit: usize,
    ) -> Result<RunPage, StorageError> {
        let mut list = Statement::new(RUNS);
        push_filter(&mut list, filter);
        self.push_log(&mut list);
        if let Some(after) = after {
            list.push(match order {
                Order::NewestFirst => " AND (created, id) < (",
                Order::OldestFirst => " AND (created, id) > (",
            });
            list.push_bind(after.created().unix_nanos()).push(", ");
            list.push_bind(after.id().to_string()).push(")");
        }
        list.push(match order {
            Order::NewestFirst => " ORDER BY created DESC, id DESC LIMIT ",
            Order::OldestFirst => " ORDER BY created, id LIMIT ",
        });
        list.push_bind(limit + 1);
        Ok(RunPage::cut(self.summaries(list).await?, limit))
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunSummary>, StorageError> {
        let mut due = Statement::new(RUNS);
        due.push(" WHERE due <= ").push_bind(now.unix_nanos());
        self.push_log(&mut due);
        due.push(" ORDER BY due, id LIMIT ").push_bind(limit);
        self.summaries(due).await
    }

    async fn has_dependents(&self, run: RunId) -> Result<bool, StorageError> {
        let named = Statement::new(
            "SELECT EXISTS (SELECT 1 FROM runs WHERE forks = $1 AND NOT deleted) \
             OR EXISTS (SELECT 1 FROM runs WHERE parent = $1 AND state IS NULL)",
        );
        let (named,): (bool,) = self.reader.fetch_one(named.bind(run.to_string())).await?;
        Ok(named)
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StorageError> {
        let mut next = Statement::new("SELECT due FROM runs WHERE due IS NOT NULL");
        self.push_log(&mut next);
        next.push(" ORDER BY due LIMIT 1");
        let next: Option<(i64,)> = self.reader.fetch_optional(next).await?;
        Ok(next.map(|(due,)| Timestamp::from_unix_nanos(due)))
    }

    async fn tail(
        &self,
        key: i64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Option<Tail>, StorageError> {
        let newest = Statement::new(
            "SELECT state IS NOT NULL AS ended, run, sequence, time, events.kind, payload, hash \
             FROM runs JOIN events ON run = key WHERE key = $1 AND NOT deleted ORDER BY sequence DESC LIMIT $2",
        );
        let mut fits = within(max_bytes);
        let newest = newest.bind(key).bind(limit);
        let rows = self
            .reader
            .fetch_while(newest, |row: &StoredTail| fits(&row.event));
        let mut rows = rows.await?;
        let Some(newest) = rows.first() else {
            return self.tail_without_events(key).await;
        };
        let ended = newest.ended;
        rows.reverse();
        let events = rows.into_iter().map(|row| Event::try_from(row.event));
        let events = events.collect::<Result<_, _>>()?;
        Ok(Some(Tail { ended, events }))
    }

    async fn page(
        &self,
        key: i64,
        after: u64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StorageError> {
        let mut page = Statement::new(EVENTS);
        page.push(" WHERE run = ").push_bind(key);
        page.push(" AND sequence > ").push_bind(integer(after));
        page.push(" ORDER BY sequence LIMIT ").push_bind(limit);
        self.events(page, max_bytes).await
    }

    async fn open_of(&self, tenant: Tenant, most: u64) -> Result<u64, StorageError> {
        let mut open = Statement::new(
            "SELECT count(*) FROM (SELECT 1 FROM runs WHERE state IS NULL AND tenant = ",
        );
        open.push_bind(tenant.as_str());
        self.push_log(&mut open);
        open.push(" LIMIT ")
            .push_bind(integer(most))
            .push(") AS open");
        let (open,): (i64,) = self.reader.fetch_one(open).await?;
        Ok(open.unsigned_abs())
    }

    async fn open_by_tenant(&self) -> Result<BTreeMap<Tenant, u64>, StorageError> {
        self.open.by_tenant(self.count_open()).await
    }

    async fn forget_requests(
        &self,
        before: Timestamp,
        tenant: Option<Tenant>,
    ) -> Result<u64, StorageError> {
        let work = Work::ForgetRequests { before, tenant };
        maintenance::ask(&self.maintenance, work).await
    }

    async fn reclaim(&self) -> Result<u64, StorageError> {
        maintenance::ask(&self.maintenance, Work::Reclaim).await
    }

    async fn close(&self, runs: &Registry) {
        self.closing.send_replace(true);
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the run log ended badly");
            }
        }
        runs.close();
        if let Some(database) = &self.owned {
            database.close().await;
        }
    }
}

/// Adds the conditions of a filter.
fn push_filter(list: &mut Statement, filter: &RunFilter) {
    list.push(match filter.state {
        StateFilter::Any => " WHERE NOT deleted",
        StateFilter::Open | StateFilter::OpenIn(_) => " WHERE state IS NULL",
        StateFilter::Awake => " WHERE state IS NULL AND due IS NULL",
        StateFilter::Finished | StateFilter::FinishedAs(_) => {
            " WHERE NOT deleted AND state IS NOT NULL"
        }
    });
    push_owners(list, &filter.owners);
    if let StateFilter::OpenIn(phases) = filter.state {
        list.push(" AND phase IN (")
            .push_list(phases.iter().copied())
            .push(")");
    }
    if let StateFilter::FinishedAs(code) = filter.state {
        list.push(" AND state = ").push_bind(code);
    }
    if let Some(subject) = &filter.subject {
        list.push(" AND subject = ").push_bind(subject);
    }
    if let Some(conversation) = &filter.conversation {
        list.push(" AND conversation <> '' AND conversation = ")
            .push_bind(conversation);
    }
    if let Some(since) = filter.created_since {
        list.push(" AND created >= ").push_bind(since.unix_nanos());
    }
    if let Some(before) = filter.created_before {
        list.push(" AND created < ").push_bind(before.unix_nanos());
    }
    if let Some(kind) = &filter.kind {
        list.push(" AND kind = ").push_bind(kind);
    }
    if let Some(parent) = filter.parent {
        list.push(" AND parent = ").push_bind(parent.to_string());
    }
}

/// Adds the condition that a run belongs to some owners.
fn push_owners(statement: &mut Statement, owners: &Owners) {
    let tenant = match owners {
        Owners::All => return,
        Owners::Tenant(tenant) => *tenant,
        Owners::One(principal) => principal.tenant(),
    };
    statement.push(" AND tenant = ").push_bind(tenant.as_str());
    if let Owners::One(principal) = owners {
        statement
            .push(" AND principal = ")
            .push_bind(principal.as_str());
    }
}

/// Sequences are counted up from 1, and the integers of a database end where no count gets.
pub(crate) fn integer(sequence: u64) -> i64 {
    i64::try_from(sequence).unwrap_or(i64::MAX)
}
