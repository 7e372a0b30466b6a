//! The times of schedules.

use contracts::tavern::workflow::v1::ScheduleNotRunReason;
use core_types::{Tenant, Timestamp};
use sql_store::Statement;
use sqlx::FromRow;

use super::{TimeRow, TimeState, of};
use crate::store::StoreError;

/// The most settled times of a schedule that are kept.
const KEPT: i64 = 200;

/// Returns the statement that stores a time; one that is there stays as it is.
pub(super) fn insertion(tenant: Tenant, id: &str, time: &TimeRow) -> Statement {
    let insertion = of(
        "INSERT INTO schedule_times \
         (tenant, schedule_id, time, last, state, reason, message, run_id, manual, request_id, principal) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING",
        (tenant, id),
    );
    insertion
        .bind(time.time.unix_nanos())
        .bind(time.last.map(Timestamp::unix_nanos))
        .bind(number(time.state))
        .bind(i32::from(time.reason))
        .bind(&time.message)
        .bind(&time.run_id)
        .bind(time.manual)
        .bind(&time.request_id)
        .bind(&time.principal)
}

/// Returns the statement that deletes all but the latest settled times.
pub(super) fn trimming(tenant: Tenant, id: &str) -> Statement {
    let trimming = of(
        "DELETE FROM schedule_times WHERE tenant = $1 AND schedule_id = $2 AND state >= 2 AND time <= \
         (SELECT time FROM schedule_times WHERE tenant = $1 AND schedule_id = $2 AND state >= 2 \
          ORDER BY time DESC LIMIT 1 OFFSET $3)",
        (tenant, id),
    );
    trimming.bind(KEPT)
}

/// Returns the beginning of a query for times of a schedule, as [`StoredTime`]s.
pub(super) fn of_schedule(tenant: Tenant, id: &str) -> Statement {
    of(
        "SELECT time, last, state, reason, message, run_id, manual, request_id, principal \
         FROM schedule_times WHERE tenant = $1 AND schedule_id = $2",
        (tenant, id),
    )
}

pub(super) fn number(state: TimeState) -> i64 {
    match state {
        TimeState::Buffered => 0,
        TimeState::Started => 1,
        TimeState::Ended => 2,
        TimeState::NotRun => 3,
    }
}

/// A time as it is stored.
#[derive(FromRow)]
pub(super) struct StoredTime {
    time: i64,
    last: Option<i64>,
    state: i64,
    reason: i64,
    message: String,
    run_id: String,
    manual: bool,
    request_id: String,
    principal: String,
}

impl TryFrom<StoredTime> for TimeRow {
    type Error = StoreError;

    fn try_from(stored: StoredTime) -> Result<Self, StoreError> {
        let damaged = |column| StoreError::Damaged {
            table: "schedule_times",
            column,
        };
        let reason = i32::try_from(stored.reason).map_err(|_| damaged("reason"))?;
        Ok(Self {
            time: Timestamp::from_unix_nanos(stored.time),
            last: stored.last.map(Timestamp::from_unix_nanos),
            state: match stored.state {
                0 => TimeState::Buffered,
                1 => TimeState::Started,
                2 => TimeState::Ended,
                3 => TimeState::NotRun,
                _ => return Err(damaged("state")),
            },
            reason: ScheduleNotRunReason::try_from(reason).map_err(|_| damaged("reason"))?,
            message: stored.message,
            run_id: stored.run_id,
            manual: stored.manual,
            request_id: stored.request_id,
            principal: stored.principal,
        })
    }
}
