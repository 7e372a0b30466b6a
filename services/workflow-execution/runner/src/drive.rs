//! The loop of one run.

mod admission;
mod attempts;
mod cached;
mod effects;
mod ending;
mod finish;
mod resting;
mod waits;

use call_outcome::{Category, Failure};
use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::Timestamp;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use run_client::CallEnd;
use run_events::{End, Recorder, RunControl, Waits, outcome};
use run_log::AppendError;
use telemetry::attributes::{NODE_ID, NODE_TYPE};
use tracing::Instrument;

use workflow_domain::engine::{Command, Engine, Event, Status};
use workflow_domain::evaluate;
use workflow_domain::node_type::{Effect, NodeCall, Settled, Step};
use workflow_domain::plan::NodeIndex;

use super::allowance::Allowance;
use super::checkpoints::Checkpoints;
use super::history::{Attempts, Calls, RecordedCall, Zones};
use super::interface_stream::InterfaceStreams;
use super::permits::Permit;
use super::settle::{check_effect, settled_tool, with_unconsumed_signals};
use super::tool_text::ToolText;
use super::zone::ZoneEnd;
use super::{Prepared, RunPlace, Runner};
use admission::{Admissions, WaitingEffect};
use cached::NodeCaches;
use effects::{EffectOutcome, NodeWrites};
use resting::DriveEnd;
use waits::{NodeWaits, RunWaits};

/// How many outcomes are collected before they are handed to the log.
const MAX_PENDING: usize = 256;

/// How many bytes of outcomes are collected before they are handed to the log.
const MAX_PENDING_BYTES: usize = 1024 * 1024;

/// How many pure nodes run before other tasks of the process get their turn.
const NODES_PER_TURN: usize = 64;

type Running = FuturesUnordered<BoxFuture<'static, (NodeIndex, EffectOutcome)>>;

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
    let of_run = RunWaits::new(waits.clone(), checkpoints, place, prepared.handled.clone());
    let whole = (String::new(), InterfaceStreams::of_run(&prepared.engine));
    let mut drive = Drive::new(runner, prepared, whole, of_run, recorder, control);
    let reached = match turn {
        Ok(()) => drive.reach_end_or_rest(&waits, rests_after).await,
        Err(error) => Err(error),
    };
    match reached {
        Ok(DriveEnd::To(DriveStop::End)) => {
            let unconsumed = waits.close().await;
            End::Finished(with_unconsumed_signals(drive.outcome(), unconsumed))
        }
        Ok(DriveEnd::ToRest(departure)) => End::Rests(departure),
        Ok(DriveEnd::To(DriveStop::Stop)) => End::Finished(drive.stopped()),
        Err(AppendError::Invalid(violations)) => {
            tracing::error!(?violations, "an event of a run does not fit into the log");
            End::Finished(outcome::internal(&telemetry::context::current_trace_id()))
        }
        Err(error) => {
            tracing::error!(run = %drive.recorder.run_id(), error = %error, "a run cannot continue; it resumes at the next start");
            End::LeaveOpen
        }
    }
}

/// Where the nodes of a run, or of an iteration in it, came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DriveStop {
    /// Nothing is left to happen.
    End,
    /// They were ended from outside.
    Stop,
}

/// Drives the nodes of a run, or of an iteration of a zone in it.
struct Drive {
    runner: Arc<Runner>,
    /// What stands in front of the ids of the nodes: the zone and the iteration; empty for the run.
    path: String,
    recorder: Recorder,
    control: RunControl,
    conversation_id: String,
    workflow_id: String,
    /// The streaming outputs of the run; none in an iteration.
    streams: InterfaceStreams,
    engine: Engine,
    commands: VecDeque<Command>,
    /// What one event of the engine led to; empty in between.
    released: Vec<Command>,
    /// What happened and is not handed to the log yet.
    pending: Vec<Kind>,
    pending_bytes: usize,
    admissions: Admissions,
    waits: NodeWaits,
    caches: NodeCaches,
    running: Running,
    /// When each running node was started.
    started: Vec<(NodeIndex, Instant)>,
    calls: Calls,
    written: NodeWrites,
    /// The present attempt of each node that is tried again.
    attempts: Attempts,
    zones: Zones,
    /// The calls of an earlier process that have not settled and that this one has not taken up.
    earlier_calls: Vec<(NodeIndex, String)>,
    /// The failures inside zones that have ended and are not recorded yet that were handled.
    handled_inside: HashMap<NodeIndex, Vec<common::NodeFailure>>,
    allowance: Arc<Allowance>,
    /// When each node with settings for its execution was ready first.
    begun: HashMap<NodeIndex, Timestamp>,
    /// Calls of which it is not known whether they took effect. Nothing is started after the first.
    unknown: Vec<(String, common::CallError)>,
    /// Calls that had not ended when the run was cancelled.
    unended: Vec<String>,
    /// Whether something is left to start when the run is resumed.
    held: bool,
}

impl Drive {
    fn new(
        runner: Arc<Runner>,
        prepared: Prepared,
        (path, streams): (String, InterfaceStreams),
        waits: RunWaits,
        recorder: Recorder,
        control: RunControl,
    ) -> Self {
        let unsettled = prepared.calls.iter();
        let unsettled = unsettled.filter(|(_, call)| call.settled.is_none());
        let of_zones = prepared.zones.iter().flat_map(|(node, history)| {
            let effects = history.effects();
            effects.map(|effect_id| (*node, effect_id.to_owned()))
        });
        let earlier_calls = unsettled
            .map(|((node, _), call)| (*node, call.effect_id.clone()))
            .chain(of_zones)
            .collect();
        let mut drive = Self {
            runner,
            path,
            recorder,
            control,
            conversation_id: prepared.conversation_id,
            workflow_id: prepared.workflow_id,
            streams,
            engine: prepared.engine,
            commands: prepared.commands.into(),
            released: Vec::new(),
            pending: Vec::new(),
            pending_bytes: 0,
            admissions: Admissions::default(),
            waits: NodeWaits::new(waits),
            caches: NodeCaches::default(),
            running: FuturesUnordered::new(),
            started: Vec::new(),
            calls: prepared.calls,
            written: NodeWrites::default(),
            attempts: prepared.attempts,
            zones: prepared.zones,
            earlier_calls,
            handled_inside: HashMap::new(),
            begun: prepared.begun,
            allowance: prepared.allowance,
            unknown: Vec::new(),
            unended: Vec::new(),
            held: false,
        };
        for call in drive
            .calls
            .values()
            .filter_map(|call| call.settled.as_ref())
        {
            if call.status() == common::CallStatus::InDoubt {
                drive.unknown.push((
                    call.effect_id.clone(),
                    call.error.clone().unwrap_or_default(),
                ));
            }
        }
        drive.continue_pauses();
        drive
    }

    /// Runs the nodes until nothing is left to happen, or until they are ended from outside.
    async fn reach_end(&mut self) -> Result<DriveStop, AppendError> {
        let control = self.control.clone();
        loop {
            self.held = false;
            if !self.allowance.is_bounded()
                && let Some(checkpoints) = self.waits.checkpoint_due()
            {
                checkpoints.make().await;
            }
            self.advance().await?;
            if control.is_cancelled() {
                return self.stop().await;
            }
            self.launch().await?;
            self.begin_waits().await?;
            let is_busy = !self.running.is_empty() || !self.caches.is_idle();
            if !is_busy && !self.held && !self.is_waiting() && !self.is_queued() {
                break;
            }
            self.rest().await?;
            tokio::select! {
                Some((node, outcome)) = self.running.next() => self.settle(node, outcome)?,
                Some((node, outcome)) = self.waits.next() => self.settle(node, outcome)?,
                Some(turn) = self.admissions.next() => self.take_turn(turn)?,
                Some((node, found)) = self.caches.next() => self.looked_up(node, found),
                () = control.cancelled() => return self.stop().await,
                () = control.until_resumed(), if self.held => {}
            }
            self.waits.awake();
        }
        // The last outcomes ride on the commit of the run's end.
        self.hand_over().await?;
        Ok(DriveStop::End)
    }

    /// Returns the id of a node with the iterations around it.
    fn path_of(&self, node: NodeIndex) -> String {
        format!("{}{}", self.path, self.engine.node(node).id)
    }

    /// Runs everything that needs nothing done outside.
    async fn advance(&mut self) -> Result<(), AppendError> {
        let mut turn = 0;
        while let Some(command) = self.commands.pop_front() {
            if self.control.is_cancelled() || !self.unknown.is_empty() {
                return Ok(());
            }
            if self.control.is_paused() {
                self.held = true;
                self.commands.push_front(command);
                return Ok(());
            }
            match command {
                Command::Skip {
                    node,
                    because,
                    reason,
                } => self.skip(node, because, reason),
                Command::Execute(node) if self.look_up(node) => {}
                Command::Execute(node) => self.execute(node),
            }
            turn += 1;
            if self.pending.len() >= MAX_PENDING || self.pending_bytes >= MAX_PENDING_BYTES {
                self.hand_over().await?;
            }
            if turn % NODES_PER_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    fn execute(&mut self, node: NodeIndex) {
        let begin = Instant::now();
        match evaluate::execute(&self.engine, node) {
            Ok(Step::Done(outputs)) => {
                self.finish(node, Ok(evaluate::all_present(outputs)), begin.elapsed())
            }
            Ok(Step::Branch(outputs)) => self.finish(node, Ok(outputs), begin.elapsed()),
            Ok(Step::Wait(request)) => self.enqueue_wait(node, *request),
            Ok(Step::Effect(effect)) => {
                let checked = check_effect(&effect).and_then(|()| self.take_calls(node, &effect));
                match checked.and_then(|()| self.key_of(node)) {
                    Ok(key) => self.enqueue(node, effect, key),
                    Err(failure) => self.finish(node, Err(failure), begin.elapsed()),
                }
            }
            Err(failure) => self.finish(node, Err(failure), begin.elapsed()),
        }
    }

    fn apply(&mut self, event: Event) {
        self.engine
            .apply(event, &mut self.released)
            .expect("every event answers a command of the engine");
        self.commands.extend(self.released.drain(..));
    }

    /// Hands everything that happened to the log, without waiting for the disk.
    async fn hand_over(&mut self) -> Result<(), AppendError> {
        let bytes = std::mem::take(&mut self.pending_bytes);
        let pending = std::mem::take(&mut self.pending);
        if pending.is_empty() {
            return Ok(());
        }
        // One append takes a bounded number of bytes.
        if bytes < MAX_PENDING_BYTES {
            return self.recorder.submit_all(pending).await;
        }
        for kind in pending {
            self.recorder.submit(kind).await?;
        }
        Ok(())
    }

    /// Starts the waiting nodes for which there is a permit, once all that happened before and their
    /// starts are durable.
    async fn launch(&mut self) -> Result<(), AppendError> {
        let control = self.control.clone();
        let Some(not_paused) = control.admit_start().await else {
            self.held |= self.release_permits();
            self.held &= self.unknown.is_empty();
            return self.hand_over().await;
        };
        let mut starting = Vec::new();
        for (waiting, permit) in self.admit() {
            let began_before = self.note_started(waiting.node, &waiting.effect);
            starting.push((waiting, permit, began_before));
        }
        if starting.is_empty() {
            return self.hand_over().await;
        }
        self.recorder
            .note_only_waits(Some(&not_paused), false)
            .await?;
        let repeatable = match self.tools_to_repeat(&starting) {
            Some(tools) => {
                let peers = self.runner.peers(&control.call_context());
                self.runner.may_repeat(&peers, &tools).await
            }
            None => false,
        };
        self.record_starts(repeatable).await?;
        for (waiting, permit, began_before) in starting {
            self.started.push((waiting.node, Instant::now()));
            let work = self.work(waiting, permit, began_before);
            self.running.push(work);
        }
        Ok(())
    }

    /// Records the starts of nodes with all that happened before. A batched run may lose those of effects
    /// that may be repeated (rule W44).
    async fn record_starts(&mut self, repeatable: bool) -> Result<(), AppendError> {
        // One append takes a bounded number of events, and the starts belong into the last one.
        if self.pending_bytes >= MAX_PENDING_BYTES {
            self.hand_over().await?;
            if !repeatable {
                self.recorder.flush().await?;
            }
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        match (pending.is_empty(), repeatable) {
            (true, _) => Ok(()),
            (false, true) => self.recorder.record_in_batch(pending).await.map(drop),
            (false, false) => self.recorder.record(pending).await.map(drop),
        }
    }

    /// Notes the start of a node, and of its call. After a restart both may be in the log already.
    /// Returns whether the node's start was.
    fn note_started(&mut self, node: NodeIndex, effect: &Effect) -> bool {
        let planned = self.engine.node(node);
        let (node_id, node_type) = (
            self.path_of(node),
            planned.definition().full_type.to_owned(),
        );
        let began_before = self.engine.status(node) != Status::Ready;
        if !began_before {
            self.pending.push(Kind::NodeStarted(common::NodeStarted {
                node_id: node_id.clone(),
                node_type,
            }));
            self.apply(Event::Started(node));
        }
        let Effect::CallTool { tool_id, arguments } = effect else {
            return began_before;
        };
        if self.calls.contains_key(&(node, 0)) {
            return began_before;
        }
        let call = RecordedCall {
            effect_id: self.effect_id(node, 0),
            tool_id: tool_id.clone(),
            arguments_json: serde_json::to_string(arguments)
                .expect("a map with text keys always serialises"),
            settled: None,
            left_before: false,
            written: ToolText::default(),
        };
        self.pending_bytes += call.arguments_json.len();
        self.pending
            .push(Kind::CallDispatched(common::CallDispatched {
                effect_id: call.effect_id.clone(),
                tool_id: call.tool_id.clone(),
                arguments_json: call.arguments_json.clone(),
                index: 0,
                node_id,
            }));
        self.calls.insert((node, 0), call);
        began_before
    }

    /// Makes the task of a node with an effect, which holds its permit.
    fn work(
        &mut self,
        waiting: WaitingEffect,
        permit: Option<Permit>,
        began_before: bool,
    ) -> BoxFuture<'static, (NodeIndex, EffectOutcome)> {
        let WaitingEffect { node, effect, .. } = waiting;
        self.earlier_calls.retain(|(of, _)| *of != node);
        let planned = self.engine.node(node);
        let span = tracing::info_span!(
            "workflow.node.run",
            { NODE_ID } = self.path_of(node),
            { NODE_TYPE } = planned.definition().full_type,
        );
        let settled = self
            .calls
            .get(&(node, 0))
            .and_then(|call| call.settled.clone());
        let single = matches!(effect, Effect::CallTool { .. });
        if let Some(settled) = settled.filter(|_| single) {
            let outcome = EffectOutcome::Tool(CallEnd::Settled(Box::new(settled)));
            return std::future::ready((node, outcome)).boxed();
        }
        let work = self.effect(node, effect, began_before);
        let guarded = async move {
            let outcome = AssertUnwindSafe(work).catch_unwind().await;
            drop(permit);
            outcome.unwrap_or_else(|_| {
                let message = "internal error: the node panicked; please report this";
                EffectOutcome::Answered(Err(Failure::new(
                    Category::Internal,
                    "node_panicked",
                    message,
                )))
            })
        };
        guarded
            .map(move |outcome| (node, outcome))
            .instrument(span)
            .boxed()
    }

    /// Records how an effect ended.
    fn settle(&mut self, node: NodeIndex, outcome: EffectOutcome) -> Result<(), AppendError> {
        let took = self.take_started(node);
        let settled = match outcome {
            EffectOutcome::LogFailed(error) => return Err(error),
            EffectOutcome::Tool(CallEnd::NotEnded) => {
                self.unended.extend(
                    self.calls
                        .get(&(node, 0))
                        .map(|call| call.effect_id.clone()),
                );
                return Ok(());
            }
            EffectOutcome::Tool(CallEnd::Settled(result)) => {
                self.note_settled(node, &result);
                if result.status() == common::CallStatus::InDoubt {
                    self.unknown
                        .push((result.effect_id, result.error.unwrap_or_default()));
                    return Ok(());
                }
                settled_tool(&result)
            }
            EffectOutcome::Answered(settled) => settled,
            EffectOutcome::Zone(ZoneEnd::Ended(gave)) => gave.map(Settled::Zone),
            EffectOutcome::InlineZone(end) => {
                self.note_handled_inside(node, end.handled);
                end.gave.map(Settled::Zone)
            }
            EffectOutcome::Zone(ZoneEnd::Stopped(unsettled)) => {
                self.unknown.extend(unsettled.unknown);
                self.unended.extend(unsettled.unended);
                return Ok(());
            }
            EffectOutcome::Batch(end) => match self.settle_batch(end) {
                Some(settled) => settled,
                None => return Ok(()),
            },
            EffectOutcome::RetryDue => {
                self.commands.push_back(Command::Execute(node));
                return Ok(());
            }
        };
        let written = self.take_written(node);
        let gave = settled.and_then(|settled| {
            let inputs = self.engine.inputs_of(node)?;
            let planned = self.engine.node(node);
            let call = NodeCall {
                written: &written,
                ..planned.call(&inputs)
            };
            evaluate::contain(planned, || planned.node.settle(call, settled))
        });
        let gave = match gave {
            Err(failure) => match self.retry(node, failure) {
                Some(failure) => Err(failure),
                None => return Ok(()),
            },
            gave => gave,
        };
        self.finish(node, gave.map(evaluate::all_present), took);
        Ok(())
    }

    fn take_started(&mut self, node: NodeIndex) -> Duration {
        let place = self
            .started
            .iter()
            .position(|(started, _)| *started == node);
        place.map_or(Duration::ZERO, |place| {
            self.started.swap_remove(place).1.elapsed()
        })
    }
}
