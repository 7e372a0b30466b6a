//! Stores schedules and their times.
//!
//! A time is recorded before its run is started, so that after a crash the run is found again under
//! the same time.

mod times;

use async_trait::async_trait;
use contracts::tavern::workflow::v1::{Schedule, ScheduleNotRunReason};
use core_types::{Principal, Tenant, Timestamp};
use prost::Message;
use sql_store::{Database, Statement};
use sqlx::FromRow;

use crate::store::StoreError;

/// The columns of [`StoredSchedule`].
const SCHEDULES: &str =
    "SELECT definition, etag, paused, since, next, created, creator, pause_reason FROM schedules ";

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

/// The work of all schedules of all tenants.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Agenda {
    /// The first time that is not recorded yet.
    pub(crate) next: Option<Timestamp>,
    /// The tenants and ids of the schedules that have a buffered time, apart from times of a pause.
    pub(crate) buffered: Vec<(Tenant, String)>,
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

    /// Returns the work of all schedules of all tenants.
    async fn agenda(&self) -> Result<Agenda, StoreError>;

    /// Deletes a schedule with its times.
    async fn delete(&self, tenant: Tenant, id: &str) -> Result<(), StoreError>;

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

#[async_trait]
impl ScheduleStore for Database {
    async fn put(&self, schedule: &ScheduleRow, times: &[TimeRow]) -> Result<(), StoreError> {
        let (tenant, id) = (schedule.tenant(), schedule.id());
        let put = of(
            "INSERT INTO schedules \
             (tenant, id, definition, etag, paused, since, next, created, creator, pause_reason) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (tenant, id) DO UPDATE SET \
             definition = excluded.definition, etag = excluded.etag, paused = excluded.paused, \
             since = excluded.since, next = excluded.next, creator = excluded.creator, \
             pause_reason = excluded.pause_reason",
            (tenant, id),
        );
        let put = put
            .bind(schedule.definition.encode_to_vec())
            .bind(&schedule.etag)
            .bind(schedule.paused)
            .bind(schedule.since.unix_nanos())
            .bind(schedule.next.map(Timestamp::unix_nanos))
            .bind(schedule.created.unix_nanos())
            .bind(schedule.creator.as_str())
            .bind(&schedule.pause_reason);
        let mut transaction = self.begin().await?;
        let mut session = transaction.session();
        session.execute(put).await?;
        for time in times {
            session.execute(times::insertion(tenant, id, time)).await?;
        }
        session.execute(times::trimming(tenant, id)).await?;
        transaction.commit().await.map_err(StoreError::from)
    }

    async fn get(&self, tenant: Tenant, id: &str) -> Result<Option<ScheduleRow>, StoreError> {
        let mut one = Statement::new(SCHEDULES);
        one.push("WHERE tenant = ").push_bind(tenant.as_str());
        one.push(" AND id = ").push_bind(id);
        let found: Option<StoredSchedule> = self.reader().fetch_optional(one).await?;
        found.map(ScheduleRow::try_from).transpose()
    }

    async fn list(
        &self,
        tenant: Tenant,
        after: &str,
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, StoreError> {
        let mut page = Statement::new(SCHEDULES);
        page.push("WHERE tenant = ").push_bind(tenant.as_str());
        page.push(" AND id > ").push_bind(after);
        page.push(" ORDER BY id LIMIT ").push_bind(limit);
        let found: Vec<StoredSchedule> = self.reader().fetch_all(page).await?;
        found.into_iter().map(ScheduleRow::try_from).collect()
    }

    async fn count(&self, tenant: Tenant) -> Result<usize, StoreError> {
        let count = Statement::new("SELECT count(*) FROM schedules WHERE tenant = $1");
        let count = count.bind(tenant.as_str());
        let (count,): (i64,) = self.reader().fetch_one(count).await?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    async fn due(&self, now: Timestamp) -> Result<Vec<ScheduleRow>, StoreError> {
        let mut due = Statement::new(SCHEDULES);
        due.push("WHERE next <= ").push_bind(now.unix_nanos());
        due.push(" ORDER BY next LIMIT 1000");
        let found: Vec<StoredSchedule> = self.reader().fetch_all(due).await?;
        found.into_iter().map(ScheduleRow::try_from).collect()
    }

    async fn agenda(&self) -> Result<Agenda, StoreError> {
        let agenda = Statement::new(
            "SELECT min(next), NULL AS tenant, NULL AS schedule_id FROM schedules UNION ALL \
             SELECT DISTINCT CAST(NULL AS bigint), t.tenant, t.schedule_id FROM schedule_times t \
             JOIN schedules s ON s.tenant = t.tenant AND s.id = t.schedule_id \
             WHERE t.state = 0 AND (t.manual OR NOT s.paused)",
        );
        let found: Vec<(Option<i64>, Option<String>, Option<String>)> =
            self.reader().fetch_all(agenda).await?;
        let mut agenda = Agenda::default();
        for (next, tenant, id) in found {
            if let Some(next) = next {
                agenda.next = Some(Timestamp::from_unix_nanos(next));
            }
            if let (Some(tenant), Some(id)) = (tenant, id) {
                let tenant = Tenant::new(&tenant).map_err(|_| StoreError::Damaged {
                    table: "schedule_times",
                    column: "tenant",
                })?;
                agenda.buffered.push((tenant, id));
            }
        }
        Ok(agenda)
    }

    async fn delete(&self, tenant: Tenant, id: &str) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        for statement in [
            "DELETE FROM schedule_times WHERE tenant = $1 AND schedule_id = $2",
            "DELETE FROM schedules WHERE tenant = $1 AND id = $2",
        ] {
            let statement = of(statement, (tenant, id));
            transaction.session().execute(statement).await?;
        }
        transaction.commit().await.map_err(StoreError::from)
    }

    async fn open_times(&self, tenant: Tenant, id: &str) -> Result<Vec<TimeRow>, StoreError> {
        let mut open = times::of_schedule(tenant, id);
        open.push(" AND state < 2 ORDER BY time");
        let found: Vec<times::StoredTime> = self.reader().fetch_all(open).await?;
        found.into_iter().map(TimeRow::try_from).collect()
    }

    async fn times(
        &self,
        tenant: Tenant,
        id: &str,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<TimeRow>, StoreError> {
        let mut page = times::of_schedule(tenant, id);
        page.push(" AND time < ").push_bind(before.unix_nanos());
        page.push(" ORDER BY time DESC LIMIT ").push_bind(limit);
        let found: Vec<times::StoredTime> = self.reader().fetch_all(page).await?;
        found.into_iter().map(TimeRow::try_from).collect()
    }

    async fn time_of_request(
        &self,
        tenant: Tenant,
        id: &str,
        request_id: &str,
    ) -> Result<Option<TimeRow>, StoreError> {
        let mut one = times::of_schedule(tenant, id);
        one.push(" AND request_id = ").push_bind(request_id);
        let found: Option<times::StoredTime> = self.reader().fetch_optional(one).await?;
        found.map(TimeRow::try_from).transpose()
    }

    async fn set_time(&self, tenant: Tenant, id: &str, time: &TimeRow) -> Result<(), StoreError> {
        let set = of(
            "UPDATE schedule_times SET state = $4, reason = $5, message = $6, run_id = $7 \
             WHERE tenant = $1 AND schedule_id = $2 AND time = $3",
            (tenant, id),
        );
        let set = set
            .bind(time.time.unix_nanos())
            .bind(times::number(time.state))
            .bind(i32::from(time.reason))
            .bind(&time.message)
            .bind(&time.run_id);
        Ok(self.execute(set).await?)
    }
}

/// Returns a statement about a schedule, whose tenant and id are its first two arguments.
fn of(text: &'static str, (tenant, id): (Tenant, &str)) -> Statement {
    Statement::new(text).bind(tenant.as_str()).bind(id)
}

/// A schedule as it is stored.
#[derive(FromRow)]
struct StoredSchedule {
    definition: Vec<u8>,
    etag: String,
    paused: bool,
    since: i64,
    next: Option<i64>,
    created: i64,
    creator: String,
    pause_reason: String,
}

impl TryFrom<StoredSchedule> for ScheduleRow {
    type Error = StoreError;

    fn try_from(stored: StoredSchedule) -> Result<Self, StoreError> {
        let damaged = |column| StoreError::Damaged {
            table: "schedules",
            column,
        };
        Ok(Self {
            definition: Schedule::decode(&stored.definition[..])
                .map_err(|_| damaged("definition"))?,
            etag: stored.etag,
            paused: stored.paused,
            since: Timestamp::from_unix_nanos(stored.since),
            next: stored.next.map(Timestamp::from_unix_nanos),
            created: Timestamp::from_unix_nanos(stored.created),
            creator: Principal::new(&stored.creator).map_err(|_| damaged("creator"))?,
            pause_reason: stored.pause_reason,
        })
    }
}
