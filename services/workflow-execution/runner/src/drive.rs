//! The I/O of the loop of one run: carries out the actions of a [`RunLoop`] and reports what happened.

mod cached;
mod effects;
mod interaction;
mod of_run;
mod resting;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use call_outcome::{Category, Failure};
use contracts::tavern::common::v1::WaitKind;
use core_types::{Durability, Timestamp};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use run_client::{CallEnd, cancel_words};
use run_events::{CancelReason, End, Recorder, RunControl, StartGuard, Waits, outcome};
use run_log::AppendError;
use telemetry::attributes::{NODE_ID, NODE_TYPE};
use tracing::Instrument;

use workflow_domain::engine::Engine;
use workflow_domain::plan::NodeIndex;

use super::activity::{Active, Activity};
use super::checkpoints::Checkpoints;
use super::effect_end::EffectEnd;
use super::permits::{Admission, Permit, QueuePlace};
use super::run_loop::{
    Action, EventBatch, Happening, LoopRun, Moment, NodeWait, PermitRequest, Rest, RunLoop,
    StartedEffect, Starts,
};
use super::settle::with_unconsumed_signals;
use super::{Prepared, RunPlace, Runner};
use cached::{KeptResults, NodeLookup};
use interaction::Question;
use of_run::OfRun;
use resting::DriveEnd;

/// The number of pure nodes that run before other tasks of the process have their turn.
const NODES_PER_TURN: usize = 64;

/// The happening at a node, or the failure of the run's log, with which the run cannot continue.
type Happened = Result<Happening, AppendError>;

type UnderWay<T> = FuturesUnordered<BoxFuture<'static, (NodeIndex, T)>>;

/// The answer to a request of a node.
enum Requested {
    /// The turn of its effect came; nothing if its time was over before.
    Permit(Option<Permit>),
    /// The cache answered.
    LookedUp(NodeLookup),
}

/// Executes a run to its end.
pub(super) async fn run(
    runner: Arc<Runner>,
    prepared: Prepared,
    (waits, checkpoints): (Waits, Checkpoints),
    mut place: RunPlace,
    recorder: Recorder,
    control: RunControl,
) -> End {
    let turn = place.turn(&recorder, &control).await;
    let rests_after = resting::rests_after(&runner, &prepared, &place, &recorder);
    let run_id = recorder.run_id();
    let of_loop = LoopRun {
        run_id,
        allowance: Arc::clone(&prepared.allowance),
        max_effects: runner.permits.per_run(),
    };
    let nodes = RunLoop::new(of_loop, prepared.state);
    let of_run = OfRun {
        runner,
        recorder,
        waits: waits.clone(),
        activity: Activity::default(),
        asking: Activity::default(),
        place: Arc::new(place),
        checkpoints,
        allowance: prepared.allowance,
        conversation_id: prepared.conversation_id,
        workflow_id: prepared.workflow_id,
    };
    let overrides = of_run.runner.overrides();
    let mut drive = Drive::new(nodes, of_run, control);
    let reached = match turn {
        Ok(()) => drive.reach_end_or_rest(&waits, rests_after).await,
        Err(error) => Err(error),
    };
    if let Ok(DriveEnd::To(_)) = &reached {
        let context = drive.control.call_context();
        interaction::withdraw_open(&overrides, &context, run_id, &waits).await;
    }
    match reached {
        Ok(DriveEnd::To(DriveStop::End)) => {
            let unconsumed = waits.close().await;
            End::Finished(with_unconsumed_signals(drive.outcome(), unconsumed))
        }
        Ok(DriveEnd::ToRest(departure)) => End::Rests(departure),
        Ok(DriveEnd::To(DriveStop::Stop)) => {
            let reason = drive.control.why().unwrap_or(CancelReason::Deadline);
            End::Finished(drive.nodes.stopped(&reason))
        }
        Err(AppendError::Invalid(violations)) => {
            tracing::error!(?violations, "an event of a run does not fit into the log");
            End::Finished(outcome::internal(&telemetry::context::current_trace_id()))
        }
        Err(error) => {
            tracing::error!(run = %run_id, error = %error, "a run cannot continue now; it resumes later");
            End::LeaveOpen
        }
    }
}

/// The reason for which driving the nodes of a run, or of an iteration in it, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DriveStop {
    /// No node is left to run.
    End,
    /// The nodes were ended from outside.
    Stop,
}

/// Carries out the loop of the nodes of a run, or of an iteration of a zone in it.
struct Drive {
    nodes: RunLoop,
    of_run: OfRun,
    control: RunControl,
    /// Counts this loop as busy.
    busy: Option<Active>,
    /// Effects and short pauses.
    effects: UnderWay<Happened>,
    waits: UnderWay<Happened>,
    /// Turns to permits, and look-ups in the cache.
    requests: UnderWay<Requested>,
    /// The permits of effects that have not started.
    permits: HashMap<NodeIndex, Permit>,
    kept: KeptResults,
    /// The start time of each running node.
    started: HashMap<NodeIndex, Instant>,
}

impl Drive {
    fn new(nodes: RunLoop, of_run: OfRun, control: RunControl) -> Self {
        Self {
            busy: Some(of_run.activity.begin()),
            nodes,
            of_run,
            control,
            effects: FuturesUnordered::new(),
            waits: FuturesUnordered::new(),
            requests: FuturesUnordered::new(),
            permits: HashMap::new(),
            kept: KeptResults::default(),
            started: HashMap::new(),
        }
    }

    /// Runs the nodes until none is left to run, or until they are ended from outside.
    async fn reach_end(&mut self) -> Result<DriveStop, AppendError> {
        let control = self.control.clone();
        loop {
            if let Some(checkpoints) = self.of_run.checkpoint_due() {
                checkpoints.make().await;
            }
            self.compute().await?;
            if control.is_cancelled() {
                return self.stop().await;
            }
            let rest = self.begin().await?;
            match rest {
                Rest::Over => return Ok(DriveStop::End),
                Rest::Waits => self.only_waits().await?,
                Rest::Held | Rest::Busy => {}
            }
            tokio::select! {
                Some((node, happened)) = self.effects.next() => self.take(node, happened?),
                Some((node, happened)) = self.waits.next() => self.take(node, happened?),
                Some((node, requested)) = self.requests.next() => self.answered(node, requested),
                () = control.cancelled() => return self.stop().await,
                () = control.until_resumed(), if rest == Rest::Held => {}
            }
            self.awake();
        }
    }

    /// Runs every node without an effect outside.
    async fn compute(&mut self) -> Result<(), AppendError> {
        let mut turn = 0;
        loop {
            self.note_cancel();
            match self.nodes.compute(self.control.is_paused()) {
                None => return Ok(()),
                Some(Action::Run(node)) => {
                    let begin = Instant::now();
                    let ran = self.nodes.run(node);
                    self.take_after(node, Happening::Ran(ran), begin.elapsed());
                }
                Some(action) => self.carry_out(action, None).await?,
            }
            turn += 1;
            if turn % NODES_PER_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Begins everything that may begin, and returns the rest.
    async fn begin(&mut self) -> Result<Rest, AppendError> {
        let control = self.control.clone();
        let not_paused = control.admit_start().await;
        let may_start = not_paused.is_some();
        while let Some(action) = self.nodes.begin(may_start, self.now()) {
            self.carry_out(action, not_paused.as_ref()).await?;
        }
        Ok(self.nodes.rest(may_start))
    }

    async fn carry_out(
        &mut self,
        action: Action,
        not_paused: Option<&StartGuard<'_>>,
    ) -> Result<(), AppendError> {
        match action {
            Action::Run(_) => {}
            Action::LookUp(node) => self.look_up(node),
            Action::Submit(events) => self.submit(events).await?,
            Action::Ask(request) => self.ask(request),
            Action::Release(node) => drop(self.permits.remove(&node)),
            Action::Start(starts) => {
                self.recorder().note_only_waits(not_paused, false).await?;
                self.start(starts).await?;
            }
            Action::Wait(wait) => self.wait(wait).await?,
            Action::Pause(node, until) => self.pause(node, until),
        }
        Ok(())
    }

    /// Passes all collected events to the log, without waiting for the disk.
    async fn submit(&mut self, events: EventBatch) -> Result<(), AppendError> {
        // One append accepts a bounded number of bytes.
        if !events.is_large() {
            return self.recorder().submit_all(events.into_kinds()).await;
        }
        for kind in events.into_kinds() {
            self.recorder().submit(kind).await?;
        }
        Ok(())
    }

    /// Starts effects, once all that happened before and their starts are durable.
    async fn start(&mut self, starts: Starts) -> Result<(), AppendError> {
        let is_batched = self.recorder().durability() == Durability::Batched;
        let repeatable = match starts.tools_to_repeat.filter(|_| is_batched) {
            Some(tools) => {
                let peers = self.of_run.runner.peers(&self.control.call_context());
                self.of_run.runner.may_repeat(&peers, &tools).await
            }
            None => false,
        };
        self.record_starts(starts.events, repeatable).await?;
        for started in starts.effects {
            self.started.insert(started.node, Instant::now());
            let work = self.work(started);
            self.effects.push(work);
        }
        Ok(())
    }

    /// Records the starts of nodes with all earlier events. A batched run may lose the starts of
    /// effects that may be repeated (rule W44).
    async fn record_starts(
        &mut self,
        events: EventBatch,
        repeatable: bool,
    ) -> Result<(), AppendError> {
        // One append accepts a bounded number of events, and the starts belong in the last one.
        if events.is_large() {
            self.submit(events).await?;
            if !repeatable {
                self.recorder().flush().await?;
            }
            return Ok(());
        }
        match (events.is_empty(), repeatable) {
            (true, _) => Ok(()),
            (false, true) => self
                .recorder()
                .record_in_batch(events.into_kinds())
                .await
                .map(drop),
            (false, false) => self.recorder().record(events.into_kinds()).await.map(drop),
        }
    }

    /// Makes the task of a node with an effect, which holds its permit.
    fn work(&mut self, started: StartedEffect) -> BoxFuture<'static, (NodeIndex, Happened)> {
        let node = started.node;
        let permit = self.permits.remove(&node);
        let span = tracing::info_span!(
            "workflow.node.run",
            { NODE_ID } = self.nodes.state().path_of(node),
            { NODE_TYPE } = &*self.engine().node(node).definition().full_type,
        );
        if let Some(settled) = started.settled {
            let end = EffectEnd::Tool(CallEnd::Settled(Box::new(settled)));
            return std::future::ready((node, Ok(Happening::Ended(end)))).boxed();
        }
        let work = self.effect(node, started.effect, started.began_before);
        let guarded = async move {
            let ended = AssertUnwindSafe(work).catch_unwind().await;
            drop(permit);
            let ended = ended.unwrap_or_else(|_| {
                let message = "internal error: the node panicked; please report this";
                let failure = Failure::new(Category::Internal, "node_panicked", message);
                Ok(EffectEnd::Answered(Err(failure)))
            });
            (node, ended.map(Happening::Ended))
        };
        guarded.instrument(span).boxed()
    }

    /// Asks for the permits of an effect.
    fn ask(&mut self, request: PermitRequest) {
        let PermitRequest { node, key, since } = request;
        let planned = self.engine().node(node);
        let execution = planned.execution.as_ref();
        let priority = execution.and_then(|execution| execution.priority);
        let priority = priority.unwrap_or_else(|| self.of_run.place.priority());
        let full_type = &planned.definition().full_type;
        let (permits, tenant) = (&self.of_run.runner.permits, self.of_run.tenant());
        let place = QueuePlace {
            tenant,
            weight: self.of_run.runner.tenants.weight(tenant),
            since,
            priority,
        };
        match permits.ask(self.recorder(), full_type, key, place) {
            Admission::Now(permit) => self.answered(node, Requested::Permit(Some(permit))),
            Admission::Later(turn) => {
                let left = self.nodes.total_left(node, self.now());
                let turn = async move {
                    let permit = match left {
                        Some(left) => tokio::time::timeout(left, turn).await.ok(),
                        None => Some(turn.await),
                    };
                    (node, Requested::Permit(permit))
                };
                self.requests.push(turn.boxed());
            }
        }
    }

    fn answered(&mut self, node: NodeIndex, requested: Requested) {
        match requested {
            Requested::LookedUp(looked) => self.looked_up(node, looked),
            Requested::Permit(None) => self.take(node, Happening::Overdue),
            Requested::Permit(Some(permit)) => {
                self.permits.insert(node, permit);
                self.take(node, Happening::Admitted);
            }
        }
    }

    /// Begins a wait. It may have begun before the run left memory.
    async fn wait(&mut self, wait: NodeWait) -> Result<(), AppendError> {
        let NodeWait { node, wait, due } = wait;
        let retries = wait.kind() == WaitKind::Retry;
        let waits = self.of_run.waits.clone();
        let named = (self.of_run.recorder.run_id().to_string(), wait.clone());
        let begun = waits.begin(wait, due).await?;
        let asked = (waits.clone(), &begun);
        let client = self.of_run.runner.overrides();
        let control = self.control.clone();
        let question = Question::of(client, named, asked, (control, self.of_run.asking.clone()));
        let waited = self.now().since(begun.begun());
        let now = Instant::now();
        self.started
            .insert(node, now.checked_sub(waited).unwrap_or(now));
        let woken = async move {
            let woken = waits.woken(begun);
            let woken = match question {
                Some(question) => question.until(woken).await,
                None => woken.await.map(Ok),
            };
            let happened = woken.map(|woken| match retries {
                true => Happening::RetryDue,
                false => Happening::Woken(woken),
            });
            (node, happened)
        };
        self.waits.push(woken.boxed());
        Ok(())
    }

    fn pause(&mut self, node: NodeIndex, until: Timestamp) {
        let (control, left) = (self.control.clone(), until.since(self.now()));
        let pause = async move {
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = control.cancelled() => {}
            }
            (node, Ok(Happening::PauseOver))
        };
        self.effects.push(pause.boxed());
    }

    fn take(&mut self, node: NodeIndex, happening: Happening) {
        self.note_cancel();
        let started = self.started.remove(&node);
        let took = started.map_or(Duration::ZERO, |started| started.elapsed());
        self.take_after(node, happening, took);
    }

    fn take_after(&mut self, node: NodeIndex, happening: Happening, took: Duration) {
        let moment = Moment {
            now: self.now(),
            chance: fastrand::f64(),
            took,
        };
        if let Some(end) = self.nodes.take(node, happening, &moment) {
            self.keep_result(node, end);
        }
    }

    fn note_cancel(&mut self) {
        if self.control.is_cancelled() {
            self.nodes.cancel();
        }
    }

    /// Waits for all running nodes, which were cancelled, and ends the calls of an earlier process
    /// that still waited for a permit or for the end of a pause.
    async fn stop(&mut self) -> Result<DriveStop, AppendError> {
        let (calls, context) = (
            self.of_run.runner.calls().clone(),
            self.control.call_context(),
        );
        let (earlier, reason) = (self.nodes.take_earlier_calls(), cancel_words(&self.control));
        let earlier = calls.cancel_all(earlier, &reason, &context);
        let running = async {
            while let Some((node, happened)) = self.effects.next().await {
                self.take(node, happened?);
            }
            Ok::<(), AppendError>(())
        };
        let (stopped, left) = tokio::join!(running, earlier);
        stopped?;
        self.nodes.leave_unended(left);
        while let Some(action) = self.nodes.begin(false, self.now()) {
            self.carry_out(action, None).await?;
        }
        Ok(DriveStop::Stop)
    }

    /// Notes that nothing of this loop is under way but waits. If so in the whole run, the run gives its
    /// place among those that continue to another (rule W8).
    async fn only_waits(&mut self) -> Result<(), AppendError> {
        if self.busy.take().is_none() || !self.of_run.activity.is_quiet() {
            return Ok(());
        }
        self.of_run.place.rest();
        let not_paused = self.control.admit_start().await;
        self.recorder()
            .note_only_waits(not_paused.as_ref(), true)
            .await
    }

    /// Notes that this loop continues.
    fn awake(&mut self) {
        let activity = &self.of_run.activity;
        self.busy.get_or_insert_with(|| activity.begin());
    }

    /// Returns the outcome of the run, with its usage.
    fn outcome(&self) -> contracts::tavern::common::v1::RunOutcome {
        self.nodes.outcome().unwrap_or_else(|| {
            tracing::error!(run = %self.recorder().run_id(), "a run has nothing left to do and is not over");
            outcome::internal(&telemetry::context::current_trace_id())
        })
    }

    fn engine(&self) -> &Engine {
        self.nodes.state().engine()
    }

    fn recorder(&self) -> &Recorder {
        &self.of_run.recorder
    }

    fn now(&self) -> Timestamp {
        self.of_run.recorder.now()
    }
}
