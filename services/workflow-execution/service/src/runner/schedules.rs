//! Schedules: the requests of callers.

mod creator;
mod definition;
mod ticker;

use std::sync::Arc;

use contracts::tavern::common::v1::RunState;
use contracts::tavern::workflow::v1::{Schedule, ScheduleNotRunReason, ScheduleTime};
use core_types::{Principal, Tenant, Timestamp};
use documents::change::request_id_reused;
use grpc_kit::{CallContext, Failure};
use run_events::{request_hash, timestamp_to_proto};
use schedules::{CatchUp, due};
use tokio::sync::{Mutex, MutexGuard, Notify};
use tonic::Status;

use crate::error::{schedule_not_found, store_failure};
use crate::store::StoreError;
use crate::store::schedules::{ScheduleRow, ScheduleStore, TimeRow, TimeState};

use super::Inner;

pub(crate) use ticker::ScheduleTicker;

/// The most schedules of a tenant.
const MAX_SCHEDULES: usize = 10_000;

/// The schedules of the service.
#[derive(Debug)]
pub(crate) struct Schedules {
    store: Arc<dyn ScheduleStore>,
    /// Held while schedules are changed or their runs started, so that each change sees the
    /// previous one.
    turn: Mutex<()>,
    /// Notified when there may be an earlier time to wait for.
    changed: Notify,
}

impl Schedules {
    pub(crate) fn new(store: Arc<dyn ScheduleStore>) -> Self {
        Self {
            store,
            turn: Mutex::default(),
            changed: Notify::new(),
        }
    }
}

impl Schedules {
    /// Returns the turn in which schedules are changed, for a removal of schedules.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }
}

impl Inner {
    pub(crate) async fn put_schedule(
        &self,
        context: &CallContext,
        mut asked: Schedule,
        etag: &str,
    ) -> Result<Schedule, Status> {
        (asked.paused, asked.etag) = (false, String::new());
        (asked.next_time, asked.create_time) = (None, None);
        (asked.creator, asked.pause_reason) = (String::new(), String::new());
        let timing = definition::check(&asked)?;
        let tenant = context.tenant();
        self.library.get(tenant, &asked.workflow_id).await?;
        let _turn = self.schedules.turn.lock().await;
        let (now, store) = (self.clock.now(), &self.schedules.store);
        let found = store.get(tenant, &asked.schedule_id).await;
        let found = found.map_err(failure)?;
        match &found {
            Some(found) => check_etag(found, etag)?,
            None if !etag.is_empty() => return Err(Failure::etag_mismatch(String::new()).into()),
            None => {
                let count = store.count(tenant).await.map_err(failure)?;
                if count >= MAX_SCHEDULES {
                    return Err(
                        Failure::limit_exceeded("schedules", MAX_SCHEDULES, count + 1).into(),
                    );
                }
            }
        }
        // The etag of a definition changes with its creator.
        let digest = request_hash(context, &asked).to_string();
        let mut row = ScheduleRow {
            etag: digest.chars().take(32).collect(),
            definition: asked,
            paused: false,
            since: now,
            next: timing.next_after(now),
            created: now,
            creator: context.principal().clone(),
            pause_reason: String::new(),
        };
        if let Some(found) = found {
            if found.etag == row.etag {
                return Ok(to_proto(found));
            }
            (row.paused, row.created) = (found.paused, found.created);
            row.pause_reason = found.pause_reason;
            if row.paused || found.definition.timing == row.definition.timing {
                (row.since, row.next) = (found.since, found.next);
            }
        }
        store.put(&row, &[]).await.map_err(failure)?;
        self.schedules.changed.notify_one();
        Ok(to_proto(row))
    }

    pub(crate) async fn schedule(&self, tenant: Tenant, id: &str) -> Result<Schedule, Status> {
        Ok(to_proto(self.find_schedule(tenant, id).await?))
    }

    /// Returns the schedules of a tenant after the id `after`, at most `limit`.
    pub(crate) async fn list_schedules(
        &self,
        tenant: Tenant,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Schedule>, Status> {
        let found = self.schedules.store.list(tenant, after, limit).await;
        let found = found.map_err(failure)?;
        Ok(found.into_iter().map(to_proto).collect())
    }

    pub(crate) async fn delete_schedule(
        &self,
        tenant: Tenant,
        id: &str,
        etag: &str,
    ) -> Result<(), Status> {
        let _turn = self.schedules.turn.lock().await;
        check_etag(&self.find_schedule(tenant, id).await?, etag)?;
        let deleted = self.schedules.store.delete(tenant, id).await;
        deleted.map_err(failure)?;
        Ok(())
    }

    pub(crate) async fn pause_schedule(
        &self,
        tenant: Tenant,
        id: &str,
    ) -> Result<Schedule, Status> {
        let _turn = self.schedules.turn.lock().await;
        self.look(self.find_schedule(tenant, id).await?).await?;
        let mut row = self.find_schedule(tenant, id).await?;
        (row.paused, row.next) = (true, None);
        self.schedules.store.put(&row, &[]).await.map_err(failure)?;
        Ok(to_proto(row))
    }

    pub(crate) async fn resume_schedule(
        &self,
        tenant: Tenant,
        id: &str,
    ) -> Result<Schedule, Status> {
        let _turn = self.schedules.turn.lock().await;
        let mut row = self.find_schedule(tenant, id).await?;
        if !row.paused {
            return Ok(to_proto(row));
        }
        let (timing, now) = (definition::timing(&row.definition)?, self.clock.now());
        let paused = due(&timing, CatchUp::Latest, row.since, now);
        let first = paused.missed.map(|missed| missed.first);
        let last = paused.run.last().copied();
        let of_pause = first.or(last).map(|first| {
            let last = last.unwrap_or(first);
            TimeRow::not_run(first, last, ScheduleNotRunReason::Paused)
        });
        (row.paused, row.since, row.next) = (false, now, timing.next_after(now));
        row.pause_reason.clear();
        let of_pause: Vec<_> = of_pause.into_iter().collect();
        let stored = self.schedules.store.put(&row, &of_pause).await;
        stored.map_err(failure)?;
        self.schedules.changed.notify_one();
        Ok(to_proto(row))
    }

    pub(crate) async fn trigger_schedule(
        self: &Arc<Self>,
        context: &CallContext,
        id: &str,
        request_id: &str,
    ) -> Result<ScheduleTime, Status> {
        let (tenant, principal) = (context.tenant(), context.principal().recorded());
        let _turn = self.schedules.turn.lock().await;
        let (row, store) = (self.find_schedule(tenant, id).await?, &self.schedules.store);
        if !request_id.is_empty() {
            let found = store.time_of_request(tenant, id, request_id).await;
            if let Some(found) = found.map_err(failure)? {
                if found.principal != principal {
                    return Err(request_id_reused(request_id).into());
                }
                return self.time_to_proto(context, found).await;
            }
        }
        let manual = TimeRow {
            manual: true,
            request_id: request_id.to_owned(),
            principal: principal.to_owned(),
            ..TimeRow::buffered(self.clock.now())
        };
        let time = manual.time;
        store.put(&row, &[manual]).await.map_err(failure)?;
        self.settle_schedule(tenant, id).await?;
        self.schedules.changed.notify_one();
        let after = Timestamp::from_unix_nanos(time.unix_nanos().saturating_add(1));
        let found = store.times(tenant, id, after, 1).await;
        let found = found.map_err(failure)?;
        match found.into_iter().next() {
            Some(found) => self.time_to_proto(context, found).await,
            None => Err(schedule_not_found(id).into()),
        }
    }

    /// Returns the times of a schedule before `before`, the latest first, at most `limit`.
    pub(crate) async fn schedule_times(
        &self,
        context: &CallContext,
        id: &str,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, ScheduleTime)>, Status> {
        let tenant = context.tenant();
        self.find_schedule(tenant, id).await?;
        let found = self.schedules.store.times(tenant, id, before, limit).await;
        let mut times = Vec::new();
        for found in found.map_err(failure)? {
            times.push((found.time, self.time_to_proto(context, found).await?));
        }
        Ok(times)
    }

    async fn find_schedule(&self, tenant: Tenant, id: &str) -> Result<ScheduleRow, Failure> {
        let found = self
            .schedules
            .store
            .get(tenant, id)
            .await
            .map_err(failure)?;
        found.ok_or_else(|| schedule_not_found(id))
    }

    /// Describes a time to a caller, without the run if the caller cannot see it.
    async fn time_to_proto(
        &self,
        context: &CallContext,
        mut row: TimeRow,
    ) -> Result<ScheduleTime, Status> {
        use contracts::tavern::workflow::v1::ScheduleTimeState as Wire;
        let state = match row.state {
            TimeState::Buffered => Wire::Buffered,
            TimeState::Started | TimeState::Ended => Wire::Started,
            TimeState::NotRun => Wire::NotRun,
        };
        let mut run = self.run_of_time(context.tenant(), &row.run_id).await?;
        let owner = run.as_ref().map(|run| Principal::new(&run.principal));
        if owner.is_some_and(|owner| !owner.is_ok_and(|owner| context.sees(&owner))) {
            row.run_id.clear();
            run = None;
        }
        Ok(ScheduleTime {
            time: Some(timestamp_to_proto(row.time)),
            last_time: row.last.map(timestamp_to_proto),
            state: state.into(),
            reason: row.reason.into(),
            message: row.message,
            run_state: run.map_or(RunState::Unspecified, |run| run.state()).into(),
            run_id: row.run_id,
            manual: row.manual,
            triggered_by: row.principal,
        })
    }
}

fn check_etag(found: &ScheduleRow, etag: &str) -> Result<(), Failure> {
    match etag.is_empty() || etag == found.etag {
        true => Ok(()),
        false => Err(Failure::etag_mismatch(found.etag.clone())),
    }
}

fn to_proto(row: ScheduleRow) -> Schedule {
    Schedule {
        paused: row.paused,
        etag: row.etag,
        next_time: row.next.map(timestamp_to_proto),
        create_time: Some(timestamp_to_proto(row.created)),
        creator: row.creator.to_string(),
        pause_reason: row.pause_reason,
        ..row.definition
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn failure(error: StoreError) -> Failure {
    store_failure(&error)
}
