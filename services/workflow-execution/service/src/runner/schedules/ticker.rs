//! Starts the runs of schedules at their times.

use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::common::v1::RunState;
use contracts::tavern::workflow::v1::start_run_request::Target;
use contracts::tavern::workflow::v1::{ScheduleNotRunReason, StartRunRequest};
use core_types::{CallPath, Principal, Reach, RequestId, Tenant};
use grpc_kit::CallContext;
use schedules::{Decision, Overlap, due, settle, utc};
use tokio::task::JoinHandle;
use tonic::{Code, Status};

use crate::runner::Inner;
use crate::store::schedules::{ScheduleRow, TimeRow, TimeState};

use super::creator::{self, Rights};
use super::{definition, failure};

/// The longest rest until the next check; the clock may be moved meanwhile.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// The rest until the next check whether a buffered time can be run.
const BUFFERED_REST: Duration = Duration::from_millis(250);

/// The time limit of a start; a start that takes longer is repeated, and finds its run if it
/// exists.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest reason for people, in characters.
const MAX_MESSAGE: usize = 1_000;

/// The task that starts the runs of schedules.
#[derive(Debug, Default)]
pub(crate) struct ScheduleTicker {
    task: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl ScheduleTicker {
    pub(crate) fn start(&self, inner: &Arc<Inner>) {
        let inner = Arc::clone(inner);
        let task = tokio::spawn(async move {
            loop {
                let rest = match inner.advance_schedules().await {
                    Ok(rest) => rest,
                    Err(status) => {
                        tracing::error!(error = status.message(), "schedules cannot be advanced");
                        LONGEST_REST
                    }
                };
                let changed = inner.schedules.changed.notified();
                tokio::select! {
                    () = tokio::time::sleep(rest) => {}
                    () = changed => {}
                }
            }
        });
        *self.task.lock().expect("no holder of the lock panics") = Some(task);
    }

    /// Ends the task. A start in progress is repeated by the next process.
    pub(crate) async fn stop(&self) {
        let task = self
            .task
            .lock()
            .expect("no holder of the lock panics")
            .take();
        if let Some(task) = task {
            task.abort();
            drop(task.await);
        }
    }
}

impl Inner {
    /// Runs the due schedules of all tenants; returns the time to rest.
    async fn advance_schedules(self: &Arc<Self>) -> Result<Duration, Status> {
        let store = &self.schedules.store;
        for row in store.due(self.clock.now()).await.map_err(failure)? {
            let _turn = self.schedules.turn.lock().await;
            // It may have been changed since it was listed.
            if let Some(row) = store.get(row.tenant(), row.id()).await.map_err(failure)? {
                self.look(row).await?;
            }
        }
        for (tenant, id) in store.with_buffered().await.map_err(failure)? {
            let _turn = self.schedules.turn.lock().await;
            self.settle_schedule(tenant, &id).await?;
        }
        if !store.with_buffered().await.map_err(failure)?.is_empty() {
            return Ok(BUFFERED_REST);
        }
        let next = store.next().await.map_err(failure)?;
        let rest = next.map_or(LONGEST_REST, |next| next.since(self.clock.now()));
        Ok(rest.min(LONGEST_REST))
    }

    /// Records the times of a schedule that have come.
    pub(super) async fn look(&self, mut row: ScheduleRow) -> Result<(), Status> {
        let now = self.clock.now();
        if row.next.is_none_or(|next| next > now) {
            return Ok(());
        }
        let timing = match definition::timing(&row.definition) {
            Ok(timing) => timing,
            Err(unreadable) => {
                tracing::error!(schedule = row.id(), error = %unreadable.into_status(), "a schedule cannot be read");
                row.next = None;
                self.schedules.store.put(&row, &[]).await.map_err(failure)?;
                return Ok(());
            }
        };
        let due = due(
            &timing,
            definition::catch_up(&row.definition),
            row.since,
            now,
        );
        let missed = due.missed.map(|missed| {
            TimeRow::not_run(missed.first, missed.last, ScheduleNotRunReason::Missed)
        });
        let run = due.run.into_iter().map(TimeRow::buffered);
        let times: Vec<_> = missed.into_iter().chain(run).collect();
        (row.since, row.next) = (now, timing.next_after(now));
        self.schedules
            .store
            .put(&row, &times)
            .await
            .map_err(failure)?;
        Ok(())
    }

    /// Starts the runs that a schedule may start now.
    pub(super) async fn settle_schedule(
        self: &Arc<Self>,
        tenant: Tenant,
        id: &str,
    ) -> Result<(), Status> {
        let store = &self.schedules.store;
        let Some(mut row) = store.get(tenant, id).await.map_err(failure)? else {
            return Ok(());
        };
        let (mut running, mut buffered) = (Vec::new(), Vec::new());
        for mut time in store.open_times(tenant, id).await.map_err(failure)? {
            if time.state == TimeState::Buffered {
                buffered.push(time);
            } else if has_ended(self.state_of_run(tenant, &time.run_id).await?) {
                time.state = TimeState::Ended;
                store.set_time(tenant, id, &time).await.map_err(failure)?;
            } else {
                running.push(time);
            }
        }
        buffered.retain(|time| time.manual || !row.paused);
        let overlap: Overlap = definition::overlap(&row.definition);
        let settled = settle(overlap, !running.is_empty(), buffered.len());
        if settled.cancel {
            let own = CallContext::of_tenant(tenant);
            for time in &running {
                let reason = format!("a later time of the schedule `{id}` has come");
                drop(self.runs.cancel(&own, &time.run_id, &reason).await);
            }
        }
        for (mut time, decision) in buffered.into_iter().zip(settled.decisions) {
            match decision {
                Decision::Keep => continue,
                Decision::Start if !self.start_time(&mut row, &mut time).await? => break,
                Decision::Start => {}
                Decision::Overlapped => not_run(&mut time, ScheduleNotRunReason::Overlap),
                Decision::BufferFull => not_run(&mut time, ScheduleNotRunReason::BufferFull),
            }
            store.set_time(tenant, id, &time).await.map_err(failure)?;
        }
        Ok(())
    }

    /// Starts the run of a time, or finds it; returns whether the time is settled.
    async fn start_time(
        self: &Arc<Self>,
        row: &mut ScheduleRow,
        time: &mut TimeRow,
    ) -> Result<bool, Status> {
        let request_id = format!("schedule/{}/{}", row.id(), utc(time.time));
        let context = context_of(&row.creator);
        // The schedule may have been changed between an earlier start and now.
        if let Some(run_id) = self.run_of_request(&context, &request_id).await? {
            time.state = TimeState::Started;
            time.run_id = run_id;
            return Ok(true);
        }
        match self.rights_of(&row.creator).await {
            Rights::Invoke => {}
            Rights::Unknown => return Ok(false),
            Rights::Missing => {
                not_run(time, ScheduleNotRunReason::Refused);
                time.message = creator::missing(&row.creator);
                self.pause_for(row, &time.message).await?;
                return Ok(true);
            }
        }
        let request = StartRunRequest {
            request_id,
            target: Some(Target::WorkflowId(row.definition.workflow_id.clone())),
            inputs_json: row.definition.inputs_json.clone(),
            options: row.definition.options,
            ..StartRunRequest::default()
        };
        let started = self.start(context, request);
        match tokio::time::timeout(START_TIMEOUT, started).await {
            Ok(Ok(started)) => {
                time.state = TimeState::Started;
                time.run_id = started.run.map(|run| run.run_id).unwrap_or_default();
                Ok(true)
            }
            Ok(Err(status)) if !is_passing(&status) => {
                not_run(time, ScheduleNotRunReason::Refused);
                let violations = grpc_kit::violations(&status);
                let violations = violations
                    .iter()
                    .map(|(field, wrong)| format!("; {field}: {wrong}"));
                let message = format!("{}{}", status.message(), violations.collect::<String>());
                time.message = message.chars().take(MAX_MESSAGE).collect();
                Ok(true)
            }
            Ok(Err(_)) | Err(_) => Ok(false),
        }
    }

    /// Returns the run that a request of the creator started.
    async fn run_of_request(
        &self,
        context: &CallContext,
        request_id: &str,
    ) -> Result<Option<String>, Status> {
        let request_id = RequestId::new(request_id);
        let request_id = request_id.map_err(|error| grpc_kit::failure::internal(&error))?;
        let found = self.run_by_request(context, &request_id).await?;
        let own = found.filter(|run| run.principal == context.principal().as_str());
        Ok(own.map(|run| run.run_id))
    }

    /// Returns the state of a run of a tenant; unspecified if it does not exist.
    pub(super) async fn state_of_run(
        &self,
        tenant: Tenant,
        run_id: &str,
    ) -> Result<RunState, Status> {
        if run_id.is_empty() {
            return Ok(RunState::Unspecified);
        }
        match self.runs.get(&CallContext::of_tenant(tenant), run_id).await {
            Ok(run) => Ok(run.state()),
            Err(status) if status.code() == Code::NotFound => Ok(RunState::Unspecified),
            Err(status) => Err(status),
        }
    }
}

/// Makes the context of the runs of a schedule: they act for its creator, and reach the creator's own objects. The
/// runs of a schedule of `local`, from before there were keys, reach the whole tenant.
fn context_of(creator: &Principal) -> CallContext {
    let context = CallContext::new(creator.clone(), CallPath::default());
    match creator.is_nameless() {
        true => context,
        false => context.reaching(Reach::Own),
    }
}

fn not_run(time: &mut TimeRow, reason: ScheduleNotRunReason) {
    time.state = TimeState::NotRun;
    time.reason = reason;
}

/// Whether a run has ended, or does not exist any more.
fn has_ended(state: RunState) -> bool {
    match state {
        RunState::Running | RunState::Paused | RunState::Waiting | RunState::Queued => false,
        RunState::Unspecified
        | RunState::Succeeded
        | RunState::Failed
        | RunState::Cancelled
        | RunState::InDoubt => true,
    }
}

/// Whether the same start may succeed later.
fn is_passing(status: &Status) -> bool {
    grpc_kit::failure::retry_after(status).is_some()
        || matches!(
            status.code(),
            Code::Unavailable | Code::DeadlineExceeded | Code::Internal
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runs_of_a_schedule_reach_their_creators_own_objects() {
        for (creator, reach) in [
            ("bob", Reach::Own),
            ("acme/bob", Reach::Own),
            ("local", Reach::Tenant),
            ("acme/local", Reach::Tenant),
        ] {
            let creator = Principal::new(creator).unwrap();
            let context = context_of(&creator);
            assert_eq!((context.principal(), context.reach()), (&creator, reach));
        }
    }
}
