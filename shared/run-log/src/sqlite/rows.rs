//! Reading runs and events.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use core_types::{Durability, Principal, RequestId, RunId, Tenant, Timestamp};
use futures::TryStreamExt;
use futures::stream::BoxStream;
use sql_store::SqliteDatabase;
use sqlx::{FromRow, QueryBuilder, Row, Sqlite, sqlite::SqliteRow};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinHandle,
};

use super::{
    batch::integer,
    maintenance::{self, MaintenanceTask, Work},
};
use crate::{
    Event, Hash, Order, Owners, RequestKey, RunCursor, RunFilter, RunPage, RunState, RunSummary,
    StateFilter, StorageError,
    cell::{Registry, lock},
    event::Head,
    step::{RunRow, Store, Tail},
};

/// Reads through the database's reading connections, and cares for the file through the committing task.
#[derive(Debug)]
pub(super) struct SqliteStore {
    pub(super) database: SqliteDatabase,
    pub(super) maintenance: mpsc::Sender<MaintenanceTask>,
    /// Asks the committing task to end.
    pub(super) closing: Arc<Notify>,
    pub(super) tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// The columns of [`StoredRun`]; the index on events makes the subquery one look-up.
const SELECT_COLUMNS: &str = "SELECT key, id, principal, kind, subject, conversation, scope, request_id, body_hash, parent, \
     forks, state, phase, batched, deleted, created, finished, deadline, due, meta, end_sequence, end_hash, \
     (SELECT coalesce(max(sequence), 0) FROM events WHERE run = runs.key) AS last_sequence";

#[derive(FromRow)]
struct StoredRun {
    key: i64,
    id: String,
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
    deleted: bool,
    created: i64,
    finished: Option<i64>,
    deadline: Option<i64>,
    due: Option<i64>,
    meta: Vec<u8>,
    end_sequence: Option<i64>,
    end_hash: Option<Vec<u8>>,
    last_sequence: i64,
}

impl TryFrom<StoredRun> for RunRow {
    type Error = StorageError;

    fn try_from(stored: StoredRun) -> Result<Self, StorageError> {
        let key = stored.key;
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
        let end = match (stored.end_sequence, stored.end_hash) {
            (Some(sequence), Some(end_hash)) => Some(Head {
                sequence: u64::try_from(sequence).map_err(|_| corrupt("end_sequence"))?,
                hash: hash(&end_hash).ok_or_else(|| corrupt("end_hash"))?,
            }),
            _ => None,
        };
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

fn event(row: &SqliteRow) -> Result<Event, StorageError> {
    let (key, sequence): (i64, i64) = (row.try_get("run")?, row.try_get("sequence")?);
    let corrupt = |column| {
        let row = format!("run {key}, sequence {sequence}");
        StorageError::Corrupt {
            table: "events",
            column,
            row,
        }
    };
    Ok(Event {
        sequence: u64::try_from(sequence).map_err(|_| corrupt("sequence"))?,
        time: Timestamp::from_unix_nanos(row.try_get("time").map_err(|_| corrupt("time"))?),
        kind: row.try_get("kind").map_err(|_| corrupt("kind"))?,
        payload: row
            .try_get::<Vec<u8>, _>("payload")
            .map_err(|_| corrupt("payload"))?
            .into(),
        hash: row
            .try_get("hash")
            .ok()
            .and_then(hash)
            .ok_or_else(|| corrupt("hash"))?,
    })
}

fn hash(bytes: &[u8]) -> Option<Hash> {
    bytes.try_into().ok().map(Hash)
}

/// A deleted run whose events are still there, because its process ended too early.
#[derive(Debug, FromRow)]
pub(super) struct HiddenRun {
    pub(super) key: i64,
    pub(super) id: String,
    pub(super) end_sequence: i64,
}

/// Returns the runs that were deleted in part.
pub(super) async fn hidden(database: &SqliteDatabase) -> Result<Vec<HiddenRun>, sqlx::Error> {
    sqlx::query_as("SELECT key, id, end_sequence FROM runs WHERE hidden")
        .fetch_all(database.reader())
        .await
}

#[async_trait]
impl Store for SqliteStore {
    async fn row(&self, run: RunId, owners: &Owners) -> Result<Option<RunRow>, StorageError> {
        let mut query = QueryBuilder::<Sqlite>::new(SELECT_COLUMNS);
        query.push(" FROM runs WHERE NOT deleted AND id = ");
        query.push_bind(run.to_string());
        push_owners(&mut query, owners);
        let stored: Option<StoredRun> = query
            .build_query_as()
            .fetch_optional(self.database.reader())
            .await?;
        stored.map(RunRow::try_from).transpose()
    }

    async fn page_of(
        &self,
        run: RunId,
        after: u64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StorageError> {
        let rows = sqlx::query(
            "SELECT run, sequence, time, kind, payload, hash FROM events \
             WHERE run = (SELECT key FROM runs WHERE id = ? AND NOT deleted) AND sequence > ? \
             ORDER BY sequence LIMIT ?",
        );
        let rows = rows
            .bind(run.to_string())
            .bind(integer(after))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX));
        read_page(rows.fetch(self.database.reader()), max_bytes).await
    }

    async fn row_by_request(
        &self,
        tenant: Tenant,
        scope: &str,
        request_id: &RequestId,
    ) -> Result<Option<RunRow>, StorageError> {
        let mut query = QueryBuilder::<Sqlite>::new(SELECT_COLUMNS);
        query
            .push(" FROM runs WHERE tenant = ")
            .push_bind(tenant.to_string());
        query.push(" AND scope = ").push_bind(scope.to_owned());
        query
            .push(" AND request_id = ")
            .push_bind(request_id.to_string());
        let stored: Option<StoredRun> = query
            .build_query_as()
            .fetch_optional(self.database.reader())
            .await?;
        stored.map(RunRow::try_from).transpose()
    }

    async fn list(
        &self,
        filter: &RunFilter,
        order: Order,
        after: Option<&RunCursor>,
        limit: usize,
    ) -> Result<RunPage, StorageError> {
        let mut query = QueryBuilder::<Sqlite>::new(SELECT_COLUMNS);
        query.push(" FROM runs");
        query.push(match filter.state {
            StateFilter::Any => " WHERE NOT deleted",
            StateFilter::Open | StateFilter::OpenIn(_) => " WHERE state IS NULL",
            StateFilter::Awake => " WHERE state IS NULL AND due IS NULL",
            StateFilter::Finished | StateFilter::FinishedAs(_) => {
                " WHERE NOT deleted AND state IS NOT NULL"
            }
        });
        push_owners(&mut query, &filter.owners);
        if let StateFilter::OpenIn(phases) = filter.state {
            let mut list = query.push(" AND phase IN (").separated(", ");
            for phase in phases {
                list.push_bind(*phase);
            }
            query.push(")");
        }
        if let StateFilter::FinishedAs(code) = filter.state {
            query.push(" AND state = ").push_bind(code);
        }
        if let Some(subject) = &filter.subject {
            query.push(" AND subject = ").push_bind(subject.clone());
        }
        if let Some(conversation) = &filter.conversation {
            query
                .push(" AND conversation <> '' AND conversation = ")
                .push_bind(conversation.clone());
        }
        if let Some(since) = filter.created_since {
            query.push(" AND created >= ").push_bind(since.unix_nanos());
        }
        if let Some(before) = filter.created_before {
            query.push(" AND created < ").push_bind(before.unix_nanos());
        }
        if let Some(kind) = &filter.kind {
            query.push(" AND kind = ").push_bind(kind.clone());
        }
        if let Some(parent) = filter.parent {
            query.push(" AND parent = ").push_bind(parent.to_string());
        }
        let (past, direction) = match order {
            Order::NewestFirst => ("<", "DESC"),
            Order::OldestFirst => (">", "ASC"),
        };
        if let Some(after) = after {
            query.push(format_args!(" AND (created, id) {past} ("));
            query.push_bind(after.created().unix_nanos()).push(", ");
            query.push_bind(after.id().to_string()).push(")");
        }
        query.push(format_args!(
            " ORDER BY created {direction}, id {direction} LIMIT "
        ));
        query.push_bind(i64::try_from(limit + 1).unwrap_or(i64::MAX));
        let stored: Vec<StoredRun> = query
            .build_query_as()
            .fetch_all(self.database.reader())
            .await?;
        let runs = stored
            .into_iter()
            .map(|stored| RunRow::try_from(stored).map(|row| row.summary));
        Ok(RunPage::cut(runs.collect::<Result<_, _>>()?, limit))
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunSummary>, StorageError> {
        let mut query = QueryBuilder::<Sqlite>::new(SELECT_COLUMNS);
        query
            .push(" FROM runs WHERE due <= ")
            .push_bind(now.unix_nanos());
        query.push(" ORDER BY due, id LIMIT ");
        query.push_bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let stored: Vec<StoredRun> = query
            .build_query_as()
            .fetch_all(self.database.reader())
            .await?;
        let runs = stored.into_iter();
        runs.map(|stored| RunRow::try_from(stored).map(|row| row.summary))
            .collect()
    }

    async fn has_dependents(&self, run: RunId) -> Result<bool, StorageError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM runs WHERE forks = ?1 AND NOT deleted) \
                   OR EXISTS (SELECT 1 FROM runs WHERE parent = ?1 AND state IS NULL)";
        let named = sqlx::query_scalar(sql).bind(run.to_string());
        Ok(named.fetch_one(self.database.reader()).await?)
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StorageError> {
        let sql = "SELECT due FROM runs WHERE due IS NOT NULL ORDER BY due LIMIT 1";
        let next: Option<i64> = sqlx::query_scalar(sql)
            .fetch_optional(self.database.reader())
            .await?;
        Ok(next.map(Timestamp::from_unix_nanos))
    }

    async fn tail(
        &self,
        key: i64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Option<Tail>, StorageError> {
        let rows = sqlx::query(
            "SELECT state IS NOT NULL AS ended, run, sequence, time, events.kind, payload, hash \
             FROM runs LEFT JOIN events ON run = key \
             WHERE key = ? AND NOT deleted ORDER BY sequence DESC LIMIT ?",
        );
        let rows = rows
            .bind(key)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let mut rows = rows.fetch(self.database.reader());
        let (mut ended, mut events, mut bytes) = (None, Vec::new(), 0);
        while let Some(row) = rows.try_next().await? {
            ended = Some(row.try_get("ended")?);
            // A run without events is one row without an event.
            if row.try_get::<Option<i64>, _>("sequence")?.is_none() {
                break;
            }
            let event = event(&row)?;
            bytes += event.payload.len();
            if bytes > max_bytes && !events.is_empty() {
                break;
            }
            events.push(event);
        }
        events.reverse();
        Ok(ended.map(|ended| Tail { ended, events }))
    }

    async fn page(
        &self,
        key: i64,
        after: u64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StorageError> {
        let rows = sqlx::query(
            "SELECT run, sequence, time, kind, payload, hash FROM events \
             WHERE run = ? AND sequence > ? ORDER BY sequence LIMIT ?",
        );
        let rows = rows
            .bind(key)
            .bind(integer(after))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX));
        read_page(rows.fetch(self.database.reader()), max_bytes).await
    }

    async fn open_of(&self, tenant: Tenant, most: u64) -> Result<u64, StorageError> {
        let counted = sqlx::query_scalar(
            "SELECT count(*) FROM (SELECT 1 FROM runs WHERE tenant = ? AND state IS NULL LIMIT ?)",
        );
        let counted = counted.bind(tenant.to_string()).bind(integer(most));
        let counted: i64 = counted.fetch_one(self.database.reader()).await?;
        Ok(counted.unsigned_abs())
    }

    async fn open_by_tenant(&self) -> Result<BTreeMap<Tenant, u64>, StorageError> {
        let counted = sqlx::query_as::<_, (String, i64)>(
            "SELECT tenant, count(*) FROM runs WHERE state IS NULL GROUP BY tenant",
        );
        let counted = counted.fetch_all(self.database.reader()).await?;
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
        self.closing.notify_one();
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the run log ended badly");
            }
        }
        runs.close();
        self.database.close().await;
    }
}

/// Adds the condition that a run belongs to some owners.
fn push_owners(query: &mut QueryBuilder<Sqlite>, owners: &Owners) {
    let tenant = match owners {
        Owners::All => return,
        Owners::Tenant(tenant) => *tenant,
        Owners::One(principal) => principal.tenant(),
    };
    query.push(" AND tenant = ").push_bind(tenant.to_string());
    if let Owners::One(principal) = owners {
        query
            .push(" AND principal = ")
            .push_bind(principal.to_string());
    }
}

/// Reads events until they have too many bytes together.
async fn read_page(
    mut rows: BoxStream<'_, Result<SqliteRow, sqlx::Error>>,
    max_bytes: usize,
) -> Result<Vec<Event>, StorageError> {
    let mut events = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.try_next().await? {
        let event = event(&row)?;
        bytes += event.payload.len();
        if bytes > max_bytes && !events.is_empty() {
            break;
        }
        events.push(event);
    }
    Ok(events)
}
