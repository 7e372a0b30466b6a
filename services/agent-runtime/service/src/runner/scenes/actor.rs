//! One running scene.

use std::{sync::Arc, time::Duration};

use agent_domain::{channel::Dropped, scene::Scene};
use contracts::tavern::common::v1::{self as common, ErrorCategory, run_event::Kind};
use core_types::{RunId, RunOwner, Timestamp};
use futures::future::join_all;
use grpc_kit::{Failure, FailureClass};
use run_client::{ChildRun, policy::GRACE};
use run_events::{CancelReason, End, Recorder, RunControl, outcome};
use run_log::AppendError;
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use super::{
    Inner,
    replay::{DueWorkflow, Replayed},
    throttle::Throttle,
    tickers::Ticks,
};
use crate::{
    running_scenes::{Change, InstanceStatus, Request, SceneInbox},
    wire,
};

/// The longest sleep of an actor if no event is due.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// The wait before another request to a storage that did not answer.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The most events of a queue that are shown.
const SHOWN: usize = 100;

/// One running scene.
pub(super) struct Actor {
    pub(super) shared: Arc<Inner>,
    pub(super) recorder: Recorder,
    pub(super) control: RunControl,
    pub(super) scene: Arc<Scene>,
    pub(super) state: Replayed,
    pub(super) throttle: Throttle,
    /// The changes of the world state that are not published yet, and the time of their
    /// publication.
    pub(super) changes: Option<(Timestamp, Vec<Change>)>,
    /// Turns and workflows in progress.
    pub(super) tasks: JoinSet<Done>,
    /// Whether changes of the world state before this process were looked for.
    pub(super) is_caught_up: bool,
    /// Whether a workflow is in progress.
    pub(super) runs_workflow: bool,
    /// The time by which turns have to end after the end of the scene was requested.
    pub(super) close_by: Option<Timestamp>,
    /// The times at which agents think by themselves.
    pub(super) ticks: Ticks,
    /// The time of another request to a storage that did not answer.
    look_again: Option<Timestamp>,
    inbox: SceneInbox,
}

/// The end of a turn or a workflow.
pub(super) enum Done {
    Turn(common::EventsHandled),
    Workflow(Box<WorkflowEnd>),
}

/// A workflow that has ended.
pub(super) struct WorkflowEnd {
    pub(super) due: DueWorkflow,
    /// Its run; empty if it could not start.
    pub(super) run_id: String,
    /// Its outputs, or the problem.
    pub(super) outputs: Result<Map<String, Value>, String>,
}

/// The reason for which a scene ends early.
pub(super) enum SceneStop {
    Cancelled(CancelReason),
    Failed(Box<common::CallError>),
    Storage(AppendError),
}

impl Actor {
    pub(super) fn new(
        shared: Arc<Inner>,
        recorder: Recorder,
        control: RunControl,
        inbox: SceneInbox,
        scene: Arc<Scene>,
        state: Replayed,
    ) -> Self {
        Self {
            shared,
            recorder,
            control,
            scene,
            state,
            throttle: Throttle::default(),
            changes: None,
            tasks: JoinSet::new(),
            is_caught_up: false,
            runs_workflow: false,
            close_by: None,
            ticks: Ticks::default(),
            look_again: None,
            inbox,
        }
    }

    /// Carries out the scene to its end.
    pub(super) async fn run(mut self) -> End {
        match self.go().await {
            Ok(()) => End::Finished(outcome::succeeded(Value::Null.to_string())),
            Err(SceneStop::Cancelled(reason)) => {
                self.cancel_all("the scene ends").await;
                if let Err(SceneStop::Storage(error)) = self.drop_left().await {
                    tracing::warn!(%error, "the events that waited in a cancelled scene are not noted");
                }
                End::Finished(outcome::stopped(&reason, Vec::new()))
            }
            Err(SceneStop::Failed(error)) => {
                self.cancel_all("the scene failed").await;
                End::Finished(outcome::failed(*error))
            }
            Err(SceneStop::Storage(AppendError::Invalid(error))) => {
                tracing::error!(?error, "an event of a scene cannot be stored");
                End::Finished(outcome::internal(&telemetry::context::current_trace_id()))
            }
            Err(SceneStop::Storage(error)) => {
                tracing::error!(%error, "a scene waits for the storage and continues later");
                End::LeaveOpen
            }
        }
    }

    async fn go(&mut self) -> Result<(), SceneStop> {
        if let Some(reason) = self.state.cancelled.take() {
            self.cancel_taken().await;
            return Err(SceneStop::Cancelled(CancelReason::Requested(reason)));
        }
        let taken: Vec<_> = self.state.taken.values().cloned().collect();
        for taken in taken {
            self.spawn_turn(taken);
        }
        loop {
            if let Some(reason) = self.control.why() {
                return Err(SceneStop::Cancelled(reason));
            }
            self.look_again = None;
            self.drop_expired().await?;
            self.fire_timers().await?;
            self.announce_world().await?;
            self.tick().await?;
            self.wake_sleepers().await?;
            self.begin_turns().await?;
            if self.is_over().await {
                return self.drop_left().await;
            }
            self.begin_workflow().await?;
            self.wait().await?;
        }
    }

    /// Waits for the next request, end or due time.
    async fn wait(&mut self) -> Result<(), SceneStop> {
        let now = self.shared.clock.now();
        let due = self.due(now).map_or(LONGEST_SLEEP, |due| due.since(now));
        let is_paused = self.control.is_paused();
        tokio::select! {
            () = self.control.cancelled() => Ok(()),
            () = self.control.until_resumed(), if is_paused => Ok(()),
            () = tokio::time::sleep(due.min(LONGEST_SLEEP)) => Ok(()),
            Some(request) = self.inbox.requests.recv() => self.obey(request).await,
            Some(done) = self.tasks.join_next() => match done {
                Ok(done) => self.done(done).await,
                Err(error) => {
                    tracing::error!(%error, "a task of a scene ended with a panic");
                    let error = outcome::internal(&telemetry::context::current_trace_id()).error;
                    Err(SceneStop::Failed(Box::new(error.unwrap_or_default())))
                }
            },
        }
    }

    /// Returns the next due time.
    fn due(&self, now: Timestamp) -> Option<Timestamp> {
        let timers = self.scene.tasks.iter().filter(|_| !self.state.is_ending);
        let timers = timers.filter_map(|task| {
            task.due(self.state.started, self.state.fired.get(&task.id).copied())
        });
        let changes = self.changes.as_ref().map(|(at, _)| *at);
        let queues = self.state.channel.due(now);
        let ticks = self.ticks.due().filter(|_| !self.state.is_ending);
        let others = changes.into_iter().chain(queues).chain(self.close_by);
        let others = others.chain(ticks).chain(self.look_again);
        timers.chain(others).min()
    }

    /// Notes that the storage did not answer, so that the request is repeated.
    ///
    /// # Errors
    /// [`SceneStop::Failed`] if the stored data can never be read.
    pub(super) fn look_again(&mut self, failure: Failure, what: &str) -> Result<(), SceneStop> {
        let status = failure.into_status();
        let message = status.message();
        tracing::error!(what, error = message, "the storage does not answer");
        if FailureClass::of(&status) != FailureClass::Transient {
            let error = outcome::error(ErrorCategory::Internal, "state_unreadable", message);
            return Err(SceneStop::Failed(Box::new(error)));
        }
        self.look_again = Some(self.shared.clock.now().plus(LOOK_AGAIN));
        Ok(())
    }

    async fn obey(&mut self, request: Request) -> Result<(), SceneStop> {
        match request {
            Request::Publish(draft, answer) => {
                let published = self.publish_for(*draft).await?;
                // The caller may be gone.
                let _ = answer.send(published);
            }
            Request::WorldChanged(change) => self.note_change(change),
            Request::Status(answer) => {
                let _ = answer.send(self.status());
            }
            Request::Sleep(asleep, answer) => {
                let slept = self.let_sleep(asleep).await?;
                let _ = answer.send(slept);
            }
            Request::Wake(instance_id, cause, answer) => {
                let slept = self.wake(&instance_id, &cause).await?;
                let _ = answer.send(slept);
            }
            Request::End(reason, answer) => {
                self.request_end(reason).await?;
                let _ = answer.send(());
            }
        }
        Ok(())
    }

    async fn done(&mut self, done: Done) -> Result<(), SceneStop> {
        match done {
            Done::Turn(handled) => {
                let instance_id = handled.instance_id.clone();
                self.record(vec![Kind::EventsHandled(handled)]).await?;
                self.note_seen(&instance_id).await;
                Ok(())
            }
            Done::Workflow(end) => self.workflow_ended(*end).await,
        }
    }

    fn status(&self) -> Vec<InstanceStatus> {
        let channel = &self.state.channel;
        let members = channel.members().iter();
        let status = members.map(|member| InstanceStatus {
            instance_id: member.instance_id.clone(),
            is_busy: member.is_busy(),
            waiting: channel
                .waiting_for(member)
                .into_iter()
                .take(SHOWN)
                .cloned()
                .collect(),
            sleep: member.sleep().cloned(),
            is_paused: self.control.is_paused(),
            is_ending: self.state.is_ending,
        });
        status.collect()
    }

    async fn drop_expired(&mut self) -> Result<(), SceneStop> {
        let expired = self.state.channel.expired(self.shared.clock.now());
        self.note_dropped(&expired).await
    }

    /// Drops the events that no agent takes any more, as the scene ends.
    async fn drop_left(&mut self) -> Result<(), SceneStop> {
        let left = self.state.channel.left();
        self.note_dropped(&left).await
    }

    async fn note_dropped(&mut self, dropped: &[Dropped]) -> Result<(), SceneStop> {
        let kinds: Vec<Kind> = dropped
            .iter()
            .map(|dropped| Kind::EventDropped(wire::dropped_to_proto(dropped)))
            .collect();
        match kinds.is_empty() {
            true => Ok(()),
            false => self.record(kinds).await,
        }
    }

    /// Makes events durable in one commit, and applies them.
    pub(super) async fn record(&mut self, kinds: Vec<Kind>) -> Result<(), SceneStop> {
        self.recorder
            .record(kinds.clone())
            .await
            .map_err(SceneStop::Storage)?;
        for kind in &kinds {
            self.state.apply(&self.scene, kind);
        }
        Ok(())
    }

    /// Cancels every turn and workflow, and waits a short time for their ends.
    pub(super) async fn cancel_all(&self, reason: &str) {
        let in_flight = self.control.in_flight();
        let cancels = in_flight.iter().map(|work| self.cancel(&work.id, reason));
        // Others end by themselves: the cancel is in their logs.
        let _ = tokio::time::timeout(GRACE, join_all(cancels)).await;
    }

    pub(super) async fn cancel(&self, run_id: &str, reason: &str) {
        let owner = run_id.parse::<RunId>().map(|run| run.owner());
        let service = match owner == Ok(RunOwner::Agent) {
            true => &self.shared.own,
            false => &self.shared.peers.workflow,
        };
        let run = ChildRun::of(service, &self.control.call_context(), run_id);
        if let Err(status) = run.cancel(reason, GRACE).await {
            let error = status.message();
            tracing::warn!(
                run = run_id,
                error,
                "a run of a scene could not be cancelled"
            );
        }
    }
}
