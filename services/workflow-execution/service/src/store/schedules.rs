//! Stores schedules and their times.
//!
//! A time is recorded before its run is started, so that after a crash the run is found again under
//! the same time.

mod times;

use async_trait::async_trait;
use contracts::tavern::workflow::v1::{Schedule, ScheduleNotRunReason};
use core_types::{Principal, Tenant, Timestamp};
use prost::Message;
use sql_store::SqliteDatabase;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::store::StoreError;

/// A query for schedules with the columns that [`schedule_of`] reads.
macro_rules! select {
    ($which:literal) => {
        concat!(
            "SELECT definition, etag, paused, since, next, created, creator, pause_reason \
             FROM schedules ",
            $which
        )
    };
}

/// A stored schedule.
#[derive(Clone, Debug)]
pub(crate) struct ScheduleRow {
    /// The requested schedule: no part of it comes from the service.
    pub(crate) definition: Schedule,
    pub(crate) etag: String,
    pub(crate) paused: bool,
    /// The time up to which its times were recorded.
    pub(crate) since: Timestamp,
    /// The first time after that; none while it is paused.
    pub(crate) next: Option<Timestamp>,
    pub(crate) created: Timestamp,
    /// The principal for which its runs act.
    pub(crate) creator: Principal,
    /// The reason for which the service paused it; empty unless it did.
    pub(crate) pause_reason: String,
}

impl ScheduleRow {
    pub(crate) fn id(&self) -> &str {
        &self.definition.schedule_id
    }

    /// Returns the tenant, which is its creator's.
    pub(crate) fn tenant(&self) -> Tenant {
        self.creator.tenant()
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
    /// The principal of that request, as it is recorded.
    pub(crate) principal: String,
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
            principal: String::new(),
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

/// Stores schedules and their times.
///
/// Every method fails with a [`StoreError`] when the database does not work or a row is damaged.
#[async_trait]
pub(crate) trait ScheduleStore: Send + Sync + std::fmt::Debug {
    /// Stores a schedule of its creator's tenant, new or in place of the schedule with its id, with new `times`.
    async fn put(&self, schedule: &ScheduleRow, times: &[TimeRow]) -> Result<(), StoreError>;

    /// Returns a schedule.
    async fn get(&self, tenant: Tenant, id: &str) -> Result<Option<ScheduleRow>, StoreError>;

    /// Returns the schedules of a tenant after the id `after` in order, at most `limit`.
    async fn list(
        &self,
        tenant: Tenant,
        after: &str,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, StoreError>;

    /// Returns the number of schedules of a tenant.
    async fn count(&self, tenant: Tenant) -> Result<usize, StoreError>;

    /// Returns the schedules of all tenants that have a time up to `now`, the earliest first, at most 1,000.
    async fn due(&self, now: Timestamp) -> Result<Vec<ScheduleRow>, StoreError>;

    /// Returns the first time of all schedules of all tenants that is not recorded yet.
    async fn next(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Deletes a schedule with its times.
    async fn delete(&self, tenant: Tenant, id: &str) -> Result<(), StoreError>;

    /// Returns the tenants and ids of the schedules that have a buffered time, apart from times of a pause.
    async fn with_buffered(&self) -> Result<Vec<(Tenant, String)>, StoreError>;

    /// Returns the times of a schedule that are buffered or whose run may continue, the earliest first.
    async fn open_times(&self, tenant: Tenant, id: &str) -> Result<Vec<TimeRow>, StoreError>;

    /// Returns the times of a schedule before `before`, the latest first, at most `limit`.
    async fn times(
        &self,
        tenant: Tenant,
        id: &str,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<TimeRow>, StoreError>;

    /// Returns the time of a request.
    async fn time_of_request(
        &self,
        tenant: Tenant,
        id: &str,
        request_id: &str,
    ) -> Result<Option<TimeRow>, StoreError>;

    /// Stores the new state of a time; a deleted time stays deleted.
    async fn set_time(&self, tenant: Tenant, id: &str, time: &TimeRow) -> Result<(), StoreError>;
}

/// The schedules on SQLite.
#[derive(Clone, Debug)]
pub(crate) struct SqliteSchedules {
    database: SqliteDatabase,
}

impl SqliteSchedules {
    /// Opens the schedules on a database with the migrations of the service applied.
    pub(crate) fn new(database: SqliteDatabase) -> Self {
        Self { database }
    }
}

#[async_trait]
impl ScheduleStore for SqliteSchedules {
    async fn put(&self, schedule: &ScheduleRow, times: &[TimeRow]) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        sqlx::query(
            "INSERT INTO schedules \
             (tenant, id, definition, etag, paused, since, next, created, creator, pause_reason) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (tenant, id) DO UPDATE SET \
             definition = excluded.definition, etag = excluded.etag, paused = excluded.paused, \
             since = excluded.since, next = excluded.next, creator = excluded.creator, \
             pause_reason = excluded.pause_reason",
        )
        .bind(schedule.tenant().as_str())
        .bind(schedule.id())
        .bind(schedule.definition.encode_to_vec())
        .bind(&schedule.etag)
        .bind(schedule.paused)
        .bind(schedule.since.unix_nanos())
        .bind(schedule.next.map(Timestamp::unix_nanos))
        .bind(schedule.created.unix_nanos())
        .bind(schedule.creator.as_str())
        .bind(&schedule.pause_reason)
        .execute(&mut *transaction)
        .await?;
        for time in times {
            times::insert(&mut transaction, schedule.tenant(), schedule.id(), time).await?;
        }
        times::trim(&mut transaction, schedule.tenant(), schedule.id()).await?;
        transaction.commit().await.map_err(StoreError::from)
    }

    async fn get(&self, tenant: Tenant, id: &str) -> Result<Option<ScheduleRow>, StoreError> {
        let found = sqlx::query(select!("WHERE tenant = ?1 AND id = ?2"))
            .bind(tenant.as_str())
            .bind(id)
            .fetch_optional(self.database.reader())
            .await?;
        found.as_ref().map(schedule_of).transpose()
    }

    async fn list(
        &self,
        tenant: Tenant,
        after: &str,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, StoreError> {
        let found = sqlx::query(select!(
            "WHERE tenant = ?1 AND id > ?2 ORDER BY id LIMIT ?3"
        ))
        .bind(tenant.as_str())
        .bind(after)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(self.database.reader())
        .await?;
        found.iter().map(schedule_of).collect()
    }

    async fn count(&self, tenant: Tenant) -> Result<usize, StoreError> {
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM schedules WHERE tenant = ?1")
            .bind(tenant.as_str())
            .fetch_one(self.database.reader())
            .await?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    async fn due(&self, now: Timestamp) -> Result<Vec<ScheduleRow>, StoreError> {
        let found = sqlx::query(select!("WHERE next <= ?1 ORDER BY next LIMIT 1000"))
            .bind(now.unix_nanos())
            .fetch_all(self.database.reader())
            .await?;
        found.iter().map(schedule_of).collect()
    }

    async fn next(&self) -> Result<Option<Timestamp>, StoreError> {
        let next: Option<i64> = sqlx::query_scalar("SELECT min(next) FROM schedules")
            .fetch_one(self.database.reader())
            .await?;
        Ok(next.map(Timestamp::from_unix_nanos))
    }

    async fn delete(&self, tenant: Tenant, id: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_write().await?;
        for statement in [
            "DELETE FROM schedule_times WHERE tenant = ?1 AND schedule_id = ?2",
            "DELETE FROM schedules WHERE tenant = ?1 AND id = ?2",
        ] {
            sqlx::query(statement)
                .bind(tenant.as_str())
                .bind(id)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await.map_err(StoreError::from)
    }

    async fn with_buffered(&self) -> Result<Vec<(Tenant, String)>, StoreError> {
        let found: Vec<(String, String)> = sqlx::query_as(
            "SELECT DISTINCT t.tenant, t.schedule_id FROM schedule_times t \
             JOIN schedules s ON s.tenant = t.tenant AND s.id = t.schedule_id \
             WHERE t.state = 0 AND (t.manual OR NOT s.paused)",
        )
        .fetch_all(self.database.reader())
        .await?;
        let named = |(tenant, id): (String, String)| {
            let tenant = Tenant::new(&tenant).map_err(|_| StoreError::Damaged {
                table: "schedule_times",
                column: "tenant",
            })?;
            Ok((tenant, id))
        };
        found.into_iter().map(named).collect()
    }

    async fn open_times(&self, tenant: Tenant, id: &str) -> Result<Vec<TimeRow>, StoreError> {
        let found = sqlx::query(
            "SELECT time, last, state, reason, message, run_id, manual, request_id, principal \
             FROM schedule_times WHERE tenant = ?1 AND schedule_id = ?2 AND state < 2 ORDER BY time",
        )
        .bind(tenant.as_str())
        .bind(id)
        .fetch_all(self.database.reader())
        .await?;
        found.iter().map(times::time_of).collect()
    }

    async fn times(
        &self,
        tenant: Tenant,
        id: &str,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<TimeRow>, StoreError> {
        let found = sqlx::query(
            "SELECT time, last, state, reason, message, run_id, manual, request_id, principal \
             FROM schedule_times WHERE tenant = ?1 AND schedule_id = ?2 AND time < ?3 \
             ORDER BY time DESC LIMIT ?4",
        )
        .bind(tenant.as_str())
        .bind(id)
        .bind(before.unix_nanos())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(self.database.reader())
        .await?;
        found.iter().map(times::time_of).collect()
    }

    async fn time_of_request(
        &self,
        tenant: Tenant,
        id: &str,
        request_id: &str,
    ) -> Result<Option<TimeRow>, StoreError> {
        let found = sqlx::query(
            "SELECT time, last, state, reason, message, run_id, manual, request_id, principal \
             FROM schedule_times WHERE tenant = ?1 AND schedule_id = ?2 AND request_id = ?3",
        )
        .bind(tenant.as_str())
        .bind(id)
        .bind(request_id)
        .fetch_optional(self.database.reader())
        .await?;
        found.as_ref().map(times::time_of).transpose()
    }

    async fn set_time(&self, tenant: Tenant, id: &str, time: &TimeRow) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE schedule_times SET state = ?4, reason = ?5, message = ?6, run_id = ?7 \
             WHERE tenant = ?1 AND schedule_id = ?2 AND time = ?3",
        )
        .bind(tenant.as_str())
        .bind(id)
        .bind(time.time.unix_nanos())
        .bind(times::number(time.state))
        .bind(i32::from(time.reason))
        .bind(&time.message)
        .bind(&time.run_id)
        .execute(self.database.writer())
        .await?;
        Ok(())
    }
}

fn schedule_of(row: &SqliteRow) -> Result<ScheduleRow, StoreError> {
    let definition: Vec<u8> = row.try_get(0)?;
    let definition = Schedule::decode(&definition[..]).map_err(|_| StoreError::Damaged {
        table: "schedules",
        column: "definition",
    })?;
    let next: Option<i64> = row.try_get(4)?;
    let creator = Principal::new(row.try_get(6)?).map_err(|_| StoreError::Damaged {
        table: "schedules",
        column: "creator",
    })?;
    Ok(ScheduleRow {
        definition,
        etag: row.try_get(1)?,
        paused: row.try_get(2)?,
        since: Timestamp::from_unix_nanos(row.try_get(3)?),
        next: next.map(Timestamp::from_unix_nanos),
        created: Timestamp::from_unix_nanos(row.try_get(5)?),
        creator,
        pause_reason: row.try_get(7)?,
    })
}
