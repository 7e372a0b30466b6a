//! A process that runs a workflow: it carries out the engine's commands, in the order of durability
//! that the runner keeps, and loses its memory when it is killed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use call_outcome::Failure;
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::Timestamp;
use run_events::{CancelReason, ForwardedSequences, outcome};
use serde_json::{Map, Value};
use workflow_domain::data_flow::Values;
use workflow_domain::engine::{Command, Engine, Event, Status};
use workflow_domain::evaluate;
use workflow_domain::interface::{bind, read_inputs};
use workflow_domain::node_type::{Effect, Settled, Step};
use workflow_domain::plan::{NodeIndex, Plan};
use workflow_domain::wait::{Due, WaitKind, WaitRequest, Wake};
use workflow_runner::history::{Attempt, Attempts, Replayed, Zones, replay};
use workflow_runner::settle::outcome_to_proto;
use workflow_runner::wire;

use super::children::cancelled_result;
use super::outside::{Continue, EditTarget, Happening, NodeOfRun, Outside, time};
use super::stop::Stopping;
use super::zone::Zone;

/// The longest wait of a call for its permit, in milliseconds.
const MAX_TURN: u64 = 10_000;

/// A process that executes a run.
pub(super) struct Process {
    run: OfRun,
    root: Scope,
    /// The recorded events of the runs below.
    below: ForwardedSequences,
    stopping: Option<Stopping>,
}

/// The state of a run in a process.
pub(super) struct OfRun {
    pub(super) number: u32,
    pub(super) run_id: String,
    /// The seed of the tools of this run.
    pub(super) seed: u64,
    pub(super) is_cancelled: bool,
}

/// The nodes of the run, or of an iteration in it.
pub(super) struct Scope {
    /// The prefix of the ids of its nodes.
    path: String,
    place: EditTarget,
    pub(super) engine: Engine,
    commands: Vec<Command>,
    pub(super) attempts: Attempts,
    /// The arguments of the calls that were dispatched.
    pub(super) dispatched: HashMap<NodeIndex, String>,
    /// The calls of this process that have not ended, with their tools.
    pub(super) calling: BTreeMap<NodeIndex, String>,
    /// The calls of an earlier process that have not settled and that this one has not made again.
    pub(super) not_taken_up: BTreeSet<NodeIndex>,
    /// The recorded ends of calls whose outputs an earlier process did not make.
    pub(super) settled: HashMap<NodeIndex, common::CallResult>,
    waiting: BTreeMap<NodeIndex, common::Wait>,
    /// The zones in progress.
    pub(super) zones: BTreeMap<NodeIndex, Zone>,
    /// The recorded events of zones that an earlier process began.
    pub(super) histories: Zones,
}

impl Process {
    /// Begins a run, or continues it where its log ends. `of_run` are its id, the seed and the number of the
    /// process.
    pub(super) fn start(
        plan: &Arc<Plan>,
        (run_id, seed, number): (&str, u64, u32),
        outside: &mut Outside,
        log: &[common::RunEvent],
    ) -> Self {
        let input_json = log.iter().find_map(|event| match &event.kind {
            Some(Kind::RunStarted(started)) => Some(started.input_json.as_str()),
            _ => None,
        });
        let given = read_inputs(input_json.unwrap()).unwrap();
        let inputs = bind(&plan.interface_inputs, &given).unwrap();
        let replayed = replay(Arc::clone(plan), inputs, run_id, log).unwrap();
        let mut below = ForwardedSequences::new(run_id.parse().unwrap());
        log.iter().for_each(|event| below.note(event));
        let run = OfRun {
            number,
            run_id: run_id.to_owned(),
            seed,
            is_cancelled: replayed.cancelled.is_some(),
        };
        let stopping = Self::continue_stopping(&run, outside, &replayed);
        let root = Scope::of(&run, outside, String::new(), EditTarget::new(), replayed);
        Self {
            run,
            root,
            below,
            stopping,
        }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.root.engine
    }

    /// Carries out commands until none is left.
    pub(super) fn advance(&mut self, outside: &mut Outside) {
        self.root.advance(&self.run, outside);
    }

    pub(super) fn continues(&mut self, outside: &mut Outside, node: &NodeOfRun, how: Continue) {
        if let Some(scope) = self.root.inside(&node.place) {
            scope.continues(&self.run, outside, node.node, how);
        }
    }

    /// Records the end of a call of a workflow.
    pub(super) fn answered(
        &mut self,
        outside: &mut Outside,
        node: &NodeOfRun,
        result: &common::CallResult,
    ) {
        if let Some(scope) = self.root.inside(&node.place) {
            scope.call_ended(&self.run, outside, node.node, result);
        }
    }

    /// Records events of the log of a run below, each once.
    pub(super) fn record_below(&mut self, outside: &mut Outside, events: Vec<common::RunEvent>) {
        for event in events {
            if let Some(event) = self.below.unrecorded(event) {
                self.below.note(&event);
                outside.submit_event(event);
            }
        }
        if outside.random.bool() {
            outside.commit();
        }
    }

    /// Wakes the node that waits for a signal.
    pub(super) fn signal(&mut self, outside: &mut Outside, name: &str) {
        self.root.signal(&self.run, outside, name);
    }

    /// Cancels the run, once.
    pub(super) fn cancel(&mut self, outside: &mut Outside, reason: &str) {
        if self.stopping.is_none() {
            self.run.is_cancelled = true;
            self.stopping = Some(Self::stop(&self.run, &self.root, outside, reason));
        }
    }

    /// Returns the reason for cancelling the run, if it was cancelled.
    pub(super) fn reason_of_cancel(&self) -> Option<&str> {
        self.stopping.as_ref().map(|stopping| &*stopping.reason)
    }

    /// Gives up the calls that have not followed the cancel of the run.
    pub(super) fn grace_is_over(&mut self) {
        if let Some(stopping) = &mut self.stopping {
            stopping.grace_is_over = true;
        }
    }

    /// Returns the outcome of the run, if it has ended.
    pub(super) fn outcome(&self, outside: &Outside) -> Option<common::RunOutcome> {
        let Some(stopping) = &self.stopping else {
            let ended = self.root.engine.outcome()?;
            return Some(outcome_to_proto(&self.root.engine, ended, Vec::new()));
        };
        let left = stopping.left(&self.run, &self.root, outside);
        let reason = CancelReason::Requested(stopping.reason.clone());
        (left.is_empty() || stopping.grace_is_over).then(|| outcome::stopped(&reason, left))
    }
}

impl Scope {
    /// Continues where the recorded events end.
    pub(super) fn of(
        run: &OfRun,
        outside: &mut Outside,
        path: String,
        place: EditTarget,
        replayed: Replayed,
    ) -> Self {
        let calls = replayed.calls.iter();
        let settled = calls.clone().filter_map(|((node, _), call)| {
            let result = call.settled.clone()?;
            Some((*node, result))
        });
        let unsettled = calls.clone().filter(|(_, call)| call.settled.is_none());
        let unsettled = unsettled.map(|((node, _), _)| *node);
        let dispatched = calls
            .clone()
            .map(|((node, _), call)| (*node, call.arguments_json.clone()));
        let mut scope = Self {
            path,
            place,
            commands: replayed.engine.outstanding(),
            dispatched: dispatched.collect(),
            calling: BTreeMap::new(),
            not_taken_up: unsettled.collect(),
            settled: settled.collect(),
            attempts: replayed.attempts,
            waiting: BTreeMap::new(),
            zones: BTreeMap::new(),
            histories: replayed.zones,
            engine: replayed.engine,
        };
        let (attempts, not_taken_up) = (&scope.attempts, &scope.not_taken_up);
        let mut paused = Vec::new();
        scope.commands.retain(|command| match command {
            Command::Execute(node) => {
                let attempt = attempts.get(node).map(|attempt| millis_of(attempt.due));
                // A call that was dispatched waits for its permit like any other.
                let waits = not_taken_up.contains(node) && outside.random.u8(0..4) == 0;
                let turn = waits.then(|| outside.now + outside.random.u64(0..MAX_TURN));
                let begins = attempt.or(turn);
                paused.extend(begins.map(|begins| (*node, begins)));
                begins.is_none()
            }
            Command::Skip { .. } => true,
        });
        for (node, due) in paused {
            let at = due.max(outside.now);
            scope.continue_at(run, outside, at, node, Continue::RetryDue);
        }
        scope
    }

    /// Returns the nodes at a place, if the zone there has not ended.
    fn inside(&mut self, place: &[(NodeIndex, u64)]) -> Option<&mut Self> {
        let mut scope = self;
        for (zone, iteration) in place {
            // A node may end its zone while others in it wait.
            let zone = scope.zones.get_mut(zone)?;
            scope = zone.running.get_mut(iteration)?;
        }
        Some(scope)
    }

    /// Carries out commands in a random order until none is left, in zones too. Nothing begins in a run that
    /// was cancelled.
    pub(super) fn advance(&mut self, run: &OfRun, outside: &mut Outside) {
        if run.is_cancelled {
            return;
        }
        loop {
            while !self.commands.is_empty() {
                let picked = outside.random.usize(..self.commands.len());
                match self.commands.swap_remove(picked) {
                    Command::Skip { node, .. } => {
                        let state = common::NodeState::Skipped;
                        self.note_finished(outside, node, state, String::new(), None);
                        self.apply(Event::Skipped(node));
                    }
                    Command::Execute(node) => self.execute(run, outside, node),
                }
            }
            let under_way: Vec<NodeIndex> = self.zones.keys().copied().collect();
            for node in under_way {
                self.advance_zone(run, outside, node);
            }
            if self.commands.is_empty() {
                return;
            }
        }
    }

    fn continues(&mut self, run: &OfRun, outside: &mut Outside, node: NodeIndex, how: Continue) {
        match how {
            Continue::ToolEnded => {
                let result = self.tool_result(run, node);
                self.call_ended(run, outside, node, &result);
            }
            Continue::ToolCancelled => {
                let result = cancelled_result(&self.effect_id(run, node));
                self.call_ended(run, outside, node, &result);
            }
            Continue::Due | Continue::RetryDue if run.is_cancelled => {}
            Continue::Due if self.waiting.contains_key(&node) => {
                self.wake(run, outside, node, common::WakeCause::Due);
            }
            Continue::Due => {}
            Continue::RetryDue => self.commands.push(Command::Execute(node)),
        }
    }

    /// Wakes the node that waits for a signal.
    fn signal(&mut self, run: &OfRun, outside: &mut Outside, name: &str) {
        let of_name =
            |(node, wait): (&NodeIndex, &common::Wait)| (wait.name == name).then_some(*node);
        if let Some(node) = self.waiting.iter().find_map(of_name) {
            return self.wake(run, outside, node, common::WakeCause::Signal);
        }
        for zone in self.zones.values_mut() {
            for scope in zone.running.values_mut() {
                scope.signal(run, outside, name);
            }
        }
    }

    fn execute(&mut self, run: &OfRun, outside: &mut Outside, node: NodeIndex) {
        match evaluate::execute(&self.engine, node) {
            Ok(Step::Done(outputs)) => {
                self.finish(outside, node, Ok(evaluate::all_present(outputs)))
            }
            Ok(Step::Branch(outputs)) => self.finish(outside, node, Ok(outputs)),
            Ok(Step::Wait(request)) => self.begin_wait(run, outside, node, *request),
            Ok(Step::Effect(Effect::CallTool { tool_id, arguments })) => {
                let arguments_json = serde_json::to_string(&arguments).unwrap();
                self.call(run, outside, node, tool_id, arguments_json);
            }
            Ok(Step::Effect(Effect::RunZone { inputs })) => {
                self.start(outside, node);
                outside.commit();
                self.begin_zone(run, outside, node, &inputs);
            }
            Ok(Step::Effect(other)) => panic!("no drawn node has the effect {other:?}"),
            Err(failure) => self.finish(outside, node, Err(failure)),
        }
    }

    pub(super) fn start(&mut self, outside: &mut Outside, node: NodeIndex) {
        if self.engine.status(node) == Status::Ready {
            outside.submit(Kind::NodeStarted(common::NodeStarted {
                node_id: self.id(node),
                ..common::NodeStarted::default()
            }));
            self.apply(Event::Started(node));
        }
    }

    fn begin_wait(
        &mut self,
        run: &OfRun,
        outside: &mut Outside,
        node: NodeIndex,
        request: WaitRequest,
    ) {
        let wait_id = self.effect_id(run, node);
        let recorded = outside.kinds().find_map(|kind| match kind {
            Kind::NodeWaiting(waiting) => {
                waiting.wait.clone().filter(|wait| wait.wait_id == wait_id)
            }
            _ => None,
        });
        let wait = recorded.unwrap_or_else(|| {
            let wait = self.wait(run, outside.now, node, request);
            outside.submit(Kind::NodeWaiting(common::NodeWaiting {
                wait: Some(wait.clone()),
            }));
            wait
        });
        outside.commit();
        let woken = outside.kinds().find_map(|kind| match kind {
            Kind::NodeWoken(woken) if woken.wait_id == wait_id => Some(woken.cause()),
            _ => None,
        });
        if let Some(cause) = woken {
            return self.settle_wait(run, outside, node, cause);
        }
        let signalled = outside
            .kinds()
            .any(|kind| matches!(kind, Kind::SignalReceived(signal) if signal.name == wait.name));
        let due = wait.due.map(|due| millis(&due));
        self.waiting.insert(node, wait);
        match due {
            _ if signalled => self.wake(run, outside, node, common::WakeCause::Signal),
            Some(due) => self.continue_at(run, outside, due, node, Continue::Due),
            None => {}
        }
    }

    fn wait(&self, run: &OfRun, now: u64, node: NodeIndex, request: WaitRequest) -> common::Wait {
        let name = match request.kind {
            WaitKind::Signal { name, .. } => name,
            _ => String::new(),
        };
        let due = match request.due {
            Due::After(duration) => Some(now + u64::try_from(duration.as_millis()).unwrap()),
            Due::At(..) => panic!("no drawn node waits for a date"),
            Due::Never => None,
        };
        common::Wait {
            wait_id: self.effect_id(run, node),
            node_id: self.id(node),
            name,
            due: due.map(time),
            ..common::Wait::default()
        }
    }

    fn wake(
        &mut self,
        run: &OfRun,
        outside: &mut Outside,
        node: NodeIndex,
        cause: common::WakeCause,
    ) {
        let wait = self.waiting.remove(&node).unwrap();
        if cause == common::WakeCause::Due {
            let due = wait.due.as_ref().map(millis).unwrap();
            assert!(outside.now >= due, "{} is woken early", wait.wait_id);
        }
        outside.submit(Kind::NodeWoken(common::NodeWoken {
            wait_id: wait.wait_id,
            node_id: wait.node_id,
            cause: cause.into(),
            ..common::NodeWoken::default()
        }));
        self.settle_wait(run, outside, node, cause);
    }

    fn settle_wait(
        &mut self,
        run: &OfRun,
        outside: &mut Outside,
        node: NodeIndex,
        cause: common::WakeCause,
    ) {
        let wake = match cause {
            common::WakeCause::Signal => Wake::Signal(Value::Null),
            _ => Wake::Due,
        };
        let due = String::new();
        self.settle(run, outside, node, Settled::Woken { wake, due });
    }

    fn settle(&mut self, run: &OfRun, outside: &mut Outside, node: NodeIndex, settled: Settled) {
        self.settle_result(run, outside, node, Ok(settled));
    }

    /// Returns the place of an iteration of a zone.
    pub(super) fn place_in(&self, zone: NodeIndex, iteration: u64) -> EditTarget {
        let mut place = self.place.clone();
        place.push((zone, iteration));
        place
    }

    /// Ends a node with the result of its effect or wait, or retries it.
    pub(super) fn settle_result(
        &mut self,
        run: &OfRun,
        outside: &mut Outside,
        node: NodeIndex,
        settled: Result<Settled, Failure>,
    ) {
        let gave = settled.and_then(|settled| {
            let inputs = self.engine.inputs_of(node)?;
            let planned = self.engine.node(node);
            planned.node.settle(planned.call(&inputs), settled)
        });
        let gave = match gave {
            Err(failure) if self.retry(run, outside, node, &failure) => return,
            gave => gave.map(evaluate::all_present),
        };
        self.finish(outside, node, gave);
    }

    fn retry(
        &mut self,
        run: &OfRun,
        outside: &mut Outside,
        node: NodeIndex,
        failure: &Failure,
    ) -> bool {
        let number = self.attempt(node);
        let execution = self.engine.node(node).execution.as_ref();
        let pause = execution
            .filter(|_| !run.is_cancelled)
            .and_then(|execution| {
                let random = outside.random.f64();
                execution.retry.pause(number, failure, random)
            });
        let Some(pause) = pause else {
            return false;
        };
        outside.submit(Kind::NodeRetrying(common::NodeRetrying {
            node_id: self.id(node),
            attempt: number,
            pause: pause.try_into().ok(),
            ..common::NodeRetrying::default()
        }));
        let at = outside.now + u64::try_from(pause.as_millis()).unwrap();
        let attempt = Attempt {
            number: number + 1,
            due: Timestamp::from_unix_nanos(i64::try_from(at).unwrap() * 1_000_000),
            pause,
        };
        self.attempts.insert(node, attempt);
        self.continue_at(run, outside, at, node, Continue::RetryDue);
        true
    }

    fn finish(&mut self, outside: &mut Outside, node: NodeIndex, gave: Result<Values, Failure>) {
        let attempts = self.attempt(node);
        let event = evaluate::finished_after(&mut self.engine, node, gave, attempts, &Map::new());
        let (state, outputs, failure) = match &event {
            Event::Succeeded(_, outputs) => (common::NodeState::Succeeded, Some(outputs), None),
            Event::Handled(_, outputs, failure) => {
                (common::NodeState::Handled, Some(outputs), Some(failure))
            }
            Event::Failed(_, failure) => (common::NodeState::Failed, None, Some(failure)),
            Event::Started(_) | Event::Skipped(_) => panic!("a node that has run has finished"),
        };
        let planned = self.engine.node(node);
        let outputs = outputs.map(|outputs| wire::outputs_to_json(planned, outputs));
        let error = failure.map(|failure| call_wire::failure_to_proto(failure));
        self.note_finished(outside, node, state, outputs.unwrap_or_default(), error);
        self.apply(event);
    }

    fn note_finished(
        &self,
        outside: &mut Outside,
        node: NodeIndex,
        state: common::NodeState,
        outputs_json: String,
        error: Option<common::CallError>,
    ) {
        outside.submit(Kind::NodeFinished(common::NodeFinished {
            node_id: self.id(node),
            state: state.into(),
            outputs_json,
            error,
            ..common::NodeFinished::default()
        }));
    }

    fn apply(&mut self, event: Event) {
        self.engine.apply(event, &mut self.commands).unwrap();
    }

    pub(super) fn continue_at(
        &self,
        run: &OfRun,
        outside: &mut Outside,
        at: u64,
        node: NodeIndex,
        how: Continue,
    ) {
        let happening = Happening::Continue {
            process: run.number,
            node: self.node_of_run(run, node),
            how,
        };
        outside.schedule(at, happening);
    }

    pub(super) fn node_of_run(&self, run: &OfRun, node: NodeIndex) -> NodeOfRun {
        NodeOfRun {
            run_id: run.run_id.clone(),
            place: self.place.clone(),
            node,
        }
    }

    pub(super) fn attempt(&self, node: NodeIndex) -> u32 {
        self.attempts.get(&node).map_or(1, |attempt| attempt.number)
    }

    pub(super) fn id(&self, node: NodeIndex) -> String {
        format!("{}{}", self.path, self.engine.node(node).id)
    }

    pub(super) fn effect_id(&self, run: &OfRun, node: NodeIndex) -> String {
        format!("{}/{}/0", run.run_id, self.id(node))
    }
}

fn millis(time: &prost_types::Timestamp) -> u64 {
    let nanos = u64::try_from(time.nanos).unwrap();
    u64::try_from(time.seconds).unwrap() * 1000 + nanos / 1_000_000
}

pub(super) fn millis_of(time: Timestamp) -> u64 {
    u64::try_from(time.unix_nanos()).unwrap() / 1_000_000
}
