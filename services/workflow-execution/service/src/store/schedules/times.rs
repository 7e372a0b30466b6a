//! The times of schedules.

use contracts::tavern::workflow::v1::ScheduleNotRunReason;
use core_types::{Tenant, Timestamp};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Transaction};

use super::{TimeRow, TimeState};
use crate::store::StoreError;

/// The most settled times of a schedule that are kept.
const KEPT: i64 = 200;

pub(super) async fn insert(
    transaction: &mut Transaction<'static, Sqlite>,
    tenant: Tenant,
    id: &str,
    time: &TimeRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO schedule_times \
         (tenant, schedule_id, time, last, state, reason, message, run_id, manual, request_id, principal) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT DO NOTHING",
    )
    .bind(tenant.as_str())
    .bind(id)
    .bind(time.time.unix_nanos())
    .bind(time.last.map(Timestamp::unix_nanos))
    .bind(number(time.state))
    .bind(i32::from(time.reason))
    .bind(&time.message)
    .bind(&time.run_id)
    .bind(time.manual)
    .bind(&time.request_id)
    .bind(&time.principal)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

/// Deletes all but the latest settled times.
pub(super) async fn trim(
    transaction: &mut Transaction<'static, Sqlite>,
    tenant: Tenant,
    id: &str,
) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM schedule_times WHERE tenant = ?1 AND schedule_id = ?2 AND state >= 2 AND time <= \
         (SELECT time FROM schedule_times WHERE tenant = ?1 AND schedule_id = ?2 AND state >= 2 \
          ORDER BY time DESC LIMIT 1 OFFSET ?3)",
    )
    .bind(tenant.as_str())
    .bind(id)
    .bind(KEPT)
    .execute(&mut **transaction)
    .await?;
    Ok(())
}

pub(super) fn number(state: TimeState) -> i64 {
    match state {
        TimeState::Buffered => 0,
        TimeState::Started => 1,
        TimeState::Ended => 2,
        TimeState::NotRun => 3,
    }
}

pub(super) fn time_of(row: &SqliteRow) -> Result<TimeRow, StoreError> {
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
        principal: row.try_get(8)?,
    })
}
