//! Starts the runs of schedules at their times.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::common::v1::{ErrorReason, Run, RunState};
use contracts::tavern::workflow::v1::start_run_request::Target;
use contracts::tavern::workflow::v1::{ScheduleNotRunReason, StartRunRequest};
use core_types::{CallPath, RequestId, Tenant};
use grpc_kit::CallContext;
use schedules::{Decision, Overlap, due, settle, utc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
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
            let mut limited = Limited::new();
            loop {
                let rest = match inner.advance_schedules(&mut limited).await {
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

/// The tenants that a limit refused a run, each with the end of the pause that was stated.
type Limited = HashMap<Tenant, Instant>;

/// The result of a start.
enum Start {
    /// The time is settled.
    Settled,
    /// The same start may succeed later.
    Later,
    /// The same start may succeed after a pause, as any other of the tenant.
    Limited(Duration),
}

impl Inner {
    /// Runs the due schedules of all tenants, but for tenants that a limit has refused a run shortly before. A schedule
    /// that fails leaves the others alone. Returns the time to rest.
    async fn advance_schedules(
        self: &Arc<Self>,
        limited: &mut Limited,
    ) -> Result<Duration, Status> {
        let store = &self.schedules.store;
        let mut shortest = Duration::ZERO;
        let mut agenda = store.agenda().await.map_err(failure)?;
        let now = self.clock.now();
        if agenda.next.is_some_and(|next| next <= now) {
            for row in store.due(now).await.map_err(failure)? {
                let _turn = self.schedules.turn.lock().await;
                if let Err(status) = self.look_again(&row).await {
                    // It is due again at once.
                    shortest = BUFFERED_REST;
                    report(row.tenant(), row.id(), &status);
                }
            }
            agenda = store.agenda().await.map_err(failure)?;
        }
        limited.retain(|_, until| *until > Instant::now());
        if !agenda.buffered.is_empty() {
            for (tenant, id) in agenda.buffered {
                if limited.contains_key(&tenant) {
                    continue;
                }
                let _turn = self.schedules.turn.lock().await;
                match self.settle_schedule(tenant, &id).await {
                    Ok(None) => {}
                    Ok(Some(pause)) => drop(limited.insert(tenant, Instant::now() + pause)),
                    Err(status) => report(tenant, &id, &status),
                }
            }
            agenda = store.agenda().await.map_err(failure)?;
        }
        let next = agenda.next;
        let next = next.map_or(LONGEST_REST, |next| next.since(self.clock.now()));
        let buffered = agenda.buffered.into_iter();
        let rests = buffered.map(|(tenant, _)| match limited.get(&tenant) {
            Some(until) => until.duration_since(Instant::now()).max(BUFFERED_REST),
            None => BUFFERED_REST,
        });
        let rest = rests.min().unwrap_or(LONGEST_REST).min(next);
        Ok(rest.min(LONGEST_REST).max(shortest))
    }

    /// Records the times of a schedule that have come, which may have been changed since it was listed.
    async fn look_again(&self, row: &ScheduleRow) -> Result<(), Status> {
        let row = self.schedules.store.get(row.tenant(), row.id()).await;
        match row.map_err(failure)? {
            Some(row) => self.look(row).await,
            None => Ok(()),
        }
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

    /// Starts the runs that a schedule may start now. Returns the pause of its tenant if a limit of the tenant refused
    /// one.
    pub(super) async fn settle_schedule(
        self: &Arc<Self>,
        tenant: Tenant,
        id: &str,
    ) -> Result<Option<Duration>, Status> {
        let store = &self.schedules.store;
        let Some(mut row) = store.get(tenant, id).await.map_err(failure)? else {
            return Ok(None);
        };
        let (mut running, mut buffered) = (Vec::new(), Vec::new());
        for mut time in store.open_times(tenant, id).await.map_err(failure)? {
            if time.state == TimeState::Buffered {
                buffered.push(time);
            } else if has_ended(self.run_of_time(tenant, &time.run_id).await?.as_ref()) {
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
                Decision::Start => match self.start_time(&mut row, &mut time).await? {
                    Start::Settled => {}
                    Start::Later => break,
                    Start::Limited(pause) => return Ok(Some(pause)),
                },
                Decision::Overlapped => not_run(&mut time, ScheduleNotRunReason::Overlap),
                Decision::BufferFull => not_run(&mut time, ScheduleNotRunReason::BufferFull),
            }
            store.set_time(tenant, id, &time).await.map_err(failure)?;
        }
        Ok(None)
    }

    /// Starts the run of a time, or finds it.
    async fn start_time(
        self: &Arc<Self>,
        row: &mut ScheduleRow,
        time: &mut TimeRow,
    ) -> Result<Start, Status> {
        let request_id = format!("schedule/{}/{}", row.id(), utc(time.time));
        let context = CallContext::new(row.creator.clone(), CallPath::default());
        // The schedule may have been changed between an earlier start and now.
        if let Some(run_id) = self.run_of_request(&context, &request_id).await? {
            time.state = TimeState::Started;
            time.run_id = run_id;
            return Ok(Start::Settled);
        }
        let reach = match self.rights_of(&row.creator).await {
            Rights::Invoke(reach) => reach,
            Rights::Unknown => return Ok(Start::Later),
            Rights::Missing => {
                not_run(time, ScheduleNotRunReason::Refused);
                time.message = creator::missing(&row.creator);
                self.pause_for(row, &time.message).await?;
                return Ok(Start::Settled);
            }
        };
        let request = StartRunRequest {
            request_id,
            target: Some(Target::WorkflowId(row.definition.workflow_id.clone())),
            inputs_json: row.definition.inputs_json.clone(),
            options: row.definition.options,
            ..StartRunRequest::default()
        };
        let started = self.start(context.reaching(reach), request);
        match tokio::time::timeout(START_TIMEOUT, started).await {
            Ok(Ok(started)) => {
                time.state = TimeState::Started;
                time.run_id = started.run.map(|run| run.run_id).unwrap_or_default();
                Ok(Start::Settled)
            }
            Ok(Err(status)) if !is_passing(&status) => {
                not_run(time, ScheduleNotRunReason::Refused);
                let violations = grpc_kit::violations(&status);
                let violations = violations
                    .iter()
                    .map(|(field, wrong)| format!("; {field}: {wrong}"));
                let message = format!("{}{}", status.message(), violations.collect::<String>());
                time.message = message.chars().take(MAX_MESSAGE).collect();
                Ok(Start::Settled)
            }
            Ok(Err(status)) if grpc_kit::reason(&status) == Some(ErrorReason::TenantLimit) => {
                let pause = grpc_kit::retry_after(&status);
                Ok(Start::Limited(pause.unwrap_or(LONGEST_REST)))
            }
            Ok(Err(_)) | Err(_) => Ok(Start::Later),
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

    /// Returns the run of a time of a tenant's schedule; none if there is none or it was deleted.
    pub(super) async fn run_of_time(
        &self,
        tenant: Tenant,
        run_id: &str,
    ) -> Result<Option<Run>, Status> {
        if run_id.is_empty() {
            return Ok(None);
        }
        match self.runs.get(&CallContext::of_tenant(tenant), run_id).await {
            Ok(run) => Ok(Some(run)),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }
}

fn report(tenant: Tenant, id: &str, status: &Status) {
    let (tenant, error) = (tenant.as_str(), status.message());
    tracing::error!(
        tenant,
        schedule = id,
        error,
        "a schedule cannot be advanced"
    );
}

fn not_run(time: &mut TimeRow, reason: ScheduleNotRunReason) {
    time.state = TimeState::NotRun;
    time.reason = reason;
}

/// Whether a run has ended, or does not exist any more.
fn has_ended(run: Option<&Run>) -> bool {
    match run.map_or(RunState::Unspecified, Run::state) {
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
