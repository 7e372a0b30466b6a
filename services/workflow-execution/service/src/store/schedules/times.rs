//! The times of schedules.

use contracts::tavern::workflow::v1::ScheduleNotRunReason;
use core_types::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Transaction};

use super::{ScheduleStore, TimeRow, TimeState};
use crate::store::StoreError;

/// How many times of a schedule are kept that are settled.
const KEPT: i64 = 200;

impl ScheduleStore {
    /// Returns the ids of the schedules that have a buffered time, apart from those of a pause.
    pub(crate) async fn with_buffered(&self) -> Result<Vec<String>, StoreError> {
        sqlx::query_scalar(
            "SELECT DISTINCT t.schedule_id FROM schedule_times t \
             JOIN schedules s ON s.id = t.schedule_id \
             WHERE t.state = 0 AND (t.manual OR NOT s.paused)",
        )
        .fetch_all(self.database.reader())
        .await
        .map_err(StoreError::from)
    }

    /// Returns the times of a schedule that are buffered or whose run may continue, the earliest first.
    pub(crate) async fn open_times(&self, id: &str) -> Result<Vec<TimeRow>, StoreError> {
        let found = sqlx::query(
            "SELECT time, last, state, reason, message, run_id, manual, request_id \
             FROM schedule_times WHERE schedule_id = ?1 AND state < 2 ORDER BY time",
        )
        .bind(id)
        .fetch_all(self.database.reader())
        .await?;
        found.iter().map(time_of).collect()
    }

    /// Returns the times of a schedule before `before`, the latest first, at most `limit`.
    pub(crate) async fn times(
        &self,
        id: &str,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<TimeRow>, StoreError> {
        let found = sqlx::query(
            "SELECT time, last, state, reason, message, run_id, manual, request_id \
             FROM schedule_times WHERE schedule_id = ?1 AND time < ?2 ORDER BY time DESC LIMIT ?3",
        )
        .bind(id)
        .bind(before.unix_nanos())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(self.database.reader())
        .await?;
        found.iter().map(time_of).collect()
    }

    /// Returns the time that a request made.
    pub(crate) async fn time_of_request(
        &self,
        id: &str,
        request_id: &str,
    ) -> Result<Option<TimeRow>, StoreError> {
        let found = sqlx::query(
            "SELECT time, last, state, reason, message, run_id, manual, request_id \
             FROM schedule_times WHERE schedule_id = ?1 AND request_id = ?2",
        )
        .bind(id)
        .bind(request_id)
        .fetch_optional(self.database.reader())
        .await?;
        found.as_ref().map(time_of).transpose()
    }

    /// Stores what became of a time; one that was deleted stays deleted.
    pub(crate) async fn set_time(&self, id: &str, time: &TimeRow) -> Result<(), StoreError> {
        sqlx::query(
            "UPDATE schedule_times SET state = ?3, reason = ?4, message = ?5, run_id = ?6 \
             WHERE schedule_id = ?1 AND time = ?2",
        )
        .bind(id)
        .bind(time.time.unix_nanos())
        .bind(number(time.state))
        .bind(i32::from(time.reason))
        .bind(&time.message)
        .bind(&time.run_id)
        .execute(self.database.writer())
        .await?;
        Ok(())
    }
}

pub(super) async fn insert(
    transaction: &mut Transaction<'static, Sqlite>,
    id: &str,
    time: &TimeRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO schedule_times \
         (schedule_id, time, last, state, reason, message, run_id, manual, request_id) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
    )
    .bind(id)
    .bind(time.time.unix_nanos())
    .bind(time.last.map(Timestamp::unix_nanos))
    .bind(number(time.state))
    .bind(i32::from(time.reason))
    .bind(&time.message)
    .bind(&time.run_id)
    .bind(time.manual)
    .bind(&time.request_id)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Forgets settled times but the latest.
pub(super) async fn trim(
    transaction: &mut Transaction<'static, Sqlite>,
    id: &str,
) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM schedule_times WHERE schedule_id = ?1 AND state >= 2 AND time <= \
         (SELECT time FROM schedule_times WHERE schedule_id = ?1 AND state >= 2 \
          ORDER BY time DESC LIMIT 1 OFFSET ?2)",
    )
    .bind(id)
    .bind(KEPT)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

fn number(state: TimeState) -> i64 {
    match state {
        TimeState::Buffered => 0,
        TimeState::Started => 1,
        TimeState::Ended => 2,
        TimeState::NotRun => 3,
    }
}

fn time_of(row: &SqliteRow) -> Result<TimeRow, StoreError> {
    let damaged = |column| StoreError::Damaged {
        table: "schedule_times",
        column,
    };
    let state: i64 = row.try_get(2)?;
    let state = match state {
        0 => TimeState::Buffered,
        1 => TimeState::Started,
        2 => TimeState::Ended,
        3 => TimeState::NotRun,
        _ => return Err(damaged("state")),
    };
    let reason: i32 = row.try_get(3)?;
    let last: Option<i64> = row.try_get(1)?;
    Ok(TimeRow {
        time: Timestamp::from_unix_nanos(row.try_get(0)?),
        last: last.map(Timestamp::from_unix_nanos),
        state,
        reason: ScheduleNotRunReason::try_from(reason).map_err(|_| damaged("reason"))?,
        message: row.try_get(4)?,
        run_id: row.try_get(5)?,
        manual: row.try_get(6)?,
        request_id: row.try_get(7)?,
    })
}
