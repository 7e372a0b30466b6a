//! Keeps schedules and their times.
//!
//! What is to be run is written down before it is started, so that after a crash it is found again
//! under the same time.

mod times;

use contracts::tavern::workflow::v1::{Schedule, ScheduleNotRunReason};
use core_types::Timestamp;
use prost::Message;
use sql_store::SqliteDatabase;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::store::StoreError;

/// A stored schedule.
#[derive(Clone, Debug)]
pub(crate) struct ScheduleRow {
    /// What was asked for: nothing in it comes from the service.
    pub(crate) definition: Schedule,
    pub(crate) etag: String,
    pub(crate) paused: bool,
    /// Up to where its times were looked at.
    pub(crate) since: Timestamp,
    /// The first time after that; nothing while it is paused.
    pub(crate) next: Option<Timestamp>,
    pub(crate) created: Timestamp,
}

impl ScheduleRow {
    pub(crate) fn id(&self) -> &str {
        &self.definition.schedule_id
    }
}

/// The state of a scheduled time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeState {
    /// It waits to be run.
    Buffered,
    /// Its run was started.
    Started,
    /// Its run has ended.
    Ended,
    /// It is not run.
    NotRun,
}

/// A time of a schedule.
#[derive(Clone, Debug)]
pub(crate) struct TimeRow {
    pub(crate) time: Timestamp,
    /// The last of several times that are not run.
    pub(crate) last: Option<Timestamp>,
    pub(crate) state: TimeState,
    pub(crate) reason: ScheduleNotRunReason,
    pub(crate) message: String,
    pub(crate) run_id: String,
    pub(crate) manual: bool,
    /// The request that made it; empty for none.
    pub(crate) request_id: String,
}

impl TimeRow {
    /// A time that is to be run.
    pub(crate) fn buffered(time: Timestamp) -> Self {
        Self {
            time,
            last: None,
            state: TimeState::Buffered,
            reason: ScheduleNotRunReason::Unspecified,
            message: String::new(),
            run_id: String::new(),
            manual: false,
            request_id: String::new(),
        }
    }

    /// Times from `first` to `last` that are not run.
    pub(crate) fn not_run(first: Timestamp, last: Timestamp, reason: ScheduleNotRunReason) -> Self {
        Self {
            last: (last > first).then_some(last),
            state: TimeState::NotRun,
            reason,
            ..Self::buffered(first)
        }
    }
}

/// Keeps schedules and their times.
#[derive(Clone, Debug)]
pub(crate) struct ScheduleStore {
    database: SqliteDatabase,
}

impl ScheduleStore {
    /// Takes an open database with the migrations of the service applied.
    pub(crate) fn new(database: SqliteDatabase) -> Self {
        Self { database }
    }

    /// Stores a schedule, new or in place of the one with its id, with `times` that are new.
    pub(crate) async fn put(
        &self,
        schedule: &ScheduleRow,
        times: &[TimeRow],
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        sqlx::query(
            "INSERT INTO schedules (id, definition, etag, paused, since, next, created) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO UPDATE SET \
             definition = excluded.definition, etag = excluded.etag, paused = excluded.paused, \
             since = excluded.since, next = excluded.next",
        )
        .bind(schedule.id())
        .bind(schedule.definition.encode_to_vec())
        .bind(&schedule.etag)
        .bind(schedule.paused)
        .bind(schedule.since.unix_nanos())
        .bind(schedule.next.map(Timestamp::unix_nanos))
        .bind(schedule.created.unix_nanos())
        .execute(&mut *transaction)
        .await?;
        for time in times {
            times::insert(&mut transaction, schedule.id(), time).await?;
        }
        times::trim(&mut transaction, schedule.id()).await?;
        transaction.commit().await.map_err(StoreError::from)
    }

    /// Returns a schedule.
    pub(crate) async fn get(&self, id: &str) -> Result<Option<ScheduleRow>, StoreError> {
        let found = sqlx::query(
            "SELECT definition, etag, paused, since, next, created FROM schedules WHERE id = ?1",
        )
        .bind(id)
        .fetch_optional(self.database.reader())
        .await?;
        found.as_ref().map(schedule_of).transpose()
    }

    /// Returns the schedules after the id `after` in order, at most `limit`.
    pub(crate) async fn list(
        &self,
        after: &str,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, StoreError> {
        let found = sqlx::query("SELECT definition, etag, paused, since, next, created FROM schedules WHERE id > ?1 ORDER BY id LIMIT ?2")
            .bind(after)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(self.database.reader())
            .await?;
        found.iter().map(schedule_of).collect()
    }

    /// Returns the number of schedules.
    pub(crate) async fn count(&self) -> Result<usize, StoreError> {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM schedules")
            .fetch_one(self.database.reader())
            .await?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Returns the schedules that have a time up to `now`, the earliest first, at most 1,000.
    pub(crate) async fn due(&self, now: Timestamp) -> Result<Vec<ScheduleRow>, StoreError> {
        let found = sqlx::query("SELECT definition, etag, paused, since, next, created FROM schedules WHERE next <= ?1 ORDER BY next LIMIT 1000")
            .bind(now.unix_nanos())
            .fetch_all(self.database.reader())
            .await?;
        found.iter().map(schedule_of).collect()
    }

    /// Returns the first time of all schedules that was not looked at yet.
    pub(crate) async fn next(&self) -> Result<Option<Timestamp>, StoreError> {
        let next: Option<i64> = sqlx::query_scalar("SELECT min(next) FROM schedules")
            .fetch_one(self.database.reader())
            .await?;
        Ok(next.map(Timestamp::from_unix_nanos))
    }

    /// Deletes a schedule with its times.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        for statement in [
            "DELETE FROM schedule_times WHERE schedule_id = ?1",
            "DELETE FROM schedules WHERE id = ?1",
        ] {
            sqlx::query(statement)
                .bind(id)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await.map_err(StoreError::from)
    }
}

fn schedule_of(row: &SqliteRow) -> Result<ScheduleRow, StoreError> {
    let definition: Vec<u8> = row.try_get(0)?;
    let definition = Schedule::decode(&definition[..]).map_err(|_| StoreError::Damaged {
        table: "schedules",
        column: "definition",
    })?;
    let next: Option<i64> = row.try_get(4)?;
    Ok(ScheduleRow {
        definition,
        etag: row.try_get(1)?,
        paused: row.try_get(2)?,
        since: Timestamp::from_unix_nanos(row.try_get(3)?),
        next: next.map(Timestamp::from_unix_nanos),
        created: Timestamp::from_unix_nanos(row.try_get(5)?),
    })
}
