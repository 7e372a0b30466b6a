//! A process that runs a workflow: it does what the engine commands, in the order of durability that
//! the runner keeps, and forgets everything when it is killed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use call_outcome::{Category, Failure};
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::Timestamp;
use serde_json::{Map, json};
use workflow_domain::data_flow::Values;
use workflow_domain::engine::{Command, Engine, Event, Status};
use workflow_domain::evaluate;
use workflow_domain::interface::bind;
use workflow_domain::node_type::{Effect, Settled, Step};
use workflow_domain::plan::{NodeIndex, Plan};
use workflow_domain::wait::{Due, WaitKind, WaitRequest, Wake};
use workflow_runner::history::{Attempt, Attempts, Replayed, Zones, replay};
use workflow_runner::wire;

use super::outside::{Continue, Happening, Outside, Place, time};
use super::zone::Zone;

/// A process that executes a run.
pub(super) struct Process {
    run: OfRun,
    root: Scope,
}

/// What a process knows of the run.
pub(super) struct OfRun {
    number: u32,
    run_id: String,
    /// What the tools of this run depend on.
    seed: u64,
}

/// The nodes of the run, or of an iteration in it.
pub(super) struct Scope {
    /// What stands in front of the ids of its nodes.
    path: String,
    place: Place,
    pub(super) engine: Engine,
    commands: Vec<Command>,
    attempts: Attempts,
    dispatched: HashSet<NodeIndex>,
    /// The recorded ends of calls that an earlier process did not make outputs of.
    settled: HashMap<NodeIndex, common::CallResult>,
    waiting: BTreeMap<NodeIndex, common::Wait>,
    /// The zones under way.
    pub(super) zones: BTreeMap<NodeIndex, Zone>,
    /// What was recorded of zones that an earlier process began.
    pub(super) histories: Zones,
}

impl Process {
    /// Begins the run, or continues it where its log ends.
    pub(super) fn start(
        plan: &Arc<Plan>,
        seed: u64,
        number: u32,
        outside: &mut Outside,
        log: &[common::RunEvent],
    ) -> Self {
        let inputs = bind(&[], &Map::new()).unwrap();
        let run_id = outside.run_id.clone();
        let replayed = replay(Arc::clone(plan), inputs, &run_id, log).unwrap();
        let run = OfRun {
            number,
            run_id,
            seed,
        };
        let root = Scope::of(&run, outside, String::new(), Place::new(), replayed);
        Self { run, root }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.root.engine
    }

    /// Carries out commands until none is left.
    pub(super) fn advance(&mut self, outside: &mut Outside) {
        self.root.advance(&self.run, outside);
    }

    pub(super) fn continues(
        &mut self,
        outside: &mut Outside,
        place: &[(NodeIndex, u64)],
        node: NodeIndex,
        how: Continue,
    ) {
        let mut scope = &mut self.root;
        for (zone, iteration) in place {
            let zone = scope.zones.get_mut(zone);
            match zone.and_then(|zone| zone.running.get_mut(iteration)) {
                Some(inside) => scope = inside,
                // A node may end its zone while others in it wait.
                None => return,
            }
        }
        scope.continues(&self.run, outside, node, how);
    }

    /// Wakes the node that waits for a signal.
    pub(super) fn signal(&mut self, outside: &mut Outside, name: &str) {
        self.root.signal(&self.run, outside, name);
    }
}

impl Scope {
    /// Continues where the recorded events end.
    pub(super) fn of(
        run: &OfRun,
        outside: &mut Outside,
        path: String,
        place: Place,
        replayed: Replayed,
    ) -> Self {
        let settled = replayed.calls.iter().filter_map(|((node, _), call)| {
            let result = call.settled.clone()?;
            Some((*node, result))
        });
        let mut scope = Self {
            path,
            place,
            commands: replayed.engine.outstanding(),
            dispatched: replayed.calls.keys().map(|(node, _)| *node).collect(),
            settled: settled.collect(),
            attempts: replayed.attempts,
            waiting: BTreeMap::new(),
            zones: BTreeMap::new(),
            histories: replayed.zones,
            engine: replayed.engine,
        };
        let attempts = &scope.attempts;
        let mut paused = Vec::new();
        scope.commands.retain(|command| match command {
            Command::Execute(node) => {
                let attempt = attempts.get(node);
                paused.extend(attempt.map(|attempt| (*node, millis_of(attempt.due))));
                attempt.is_none()
            }
            Command::Skip { .. } => true,
        });
        for (node, due) in paused {
            let at = due.max(outside.now);
            scope.continue_at(run, outside, at, node, Continue::RetryDue);
        }
        scope
    }

    /// Carries out commands in a random order until none is left, in zones too.
    pub(super) fn advance(&mut self, run: &OfRun, outside: &mut Outside) {
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
                outside.submit(Kind::CallSettled(common::CallSettled {
                    result: Some(result.clone()),
                }));
                self.take_result(run, outside, node, &result);
            }
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
            Ok(Step::Effect(Effect::CallTool { tool_id, .. })) => {
                self.call(run, outside, node, tool_id);
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

    fn start(&mut self, outside: &mut Outside, node: NodeIndex) {
        if self.engine.status(node) == Status::Ready {
            outside.submit(Kind::NodeStarted(common::NodeStarted {
                node_id: self.id(node),
                ..common::NodeStarted::default()
            }));
            self.apply(Event::Started(node));
        }
    }

    fn call(&mut self, run: &OfRun, outside: &mut Outside, node: NodeIndex, tool_id: String) {
        let effect_id = self.effect_id(run, node);
        self.start(outside, node);
        if self.dispatched.insert(node) {
            outside.submit(Kind::CallDispatched(common::CallDispatched {
                effect_id: effect_id.clone(),
                tool_id,
                node_id: self.id(node),
                ..common::CallDispatched::default()
            }));
        }
        outside.commit();
        if let Some(result) = self.settled.remove(&node) {
            return self.take_result(run, outside, node, &result);
        }
        let due = self
            .attempts
            .get(&node)
            .map(|attempt| millis_of(attempt.due));
        assert!(
            due.is_none_or(|due| outside.now >= due),
            "{effect_id} is tried early"
        );
        let attempt = self.attempt(node);
        let last = outside.last_attempt(&effect_id);
        assert!(attempt <= last + 1, "{effect_id}: no attempt is left out");
        let ends = outside.call_tool(&effect_id, attempt);
        self.continue_at(run, outside, ends, node, Continue::ToolEnded);
    }

    fn take_result(
        &mut self,
        run: &OfRun,
        outside: &mut Outside,
        node: NodeIndex,
        result: &common::CallResult,
    ) {
        let settled = match &result.error {
            None => Settled::Tool {
                output: wire::read_value(&result.output_json).unwrap(),
                child_run_id: String::new(),
            },
            Some(error) => Settled::ToolFailed {
                status: "failed",
                failure: call_wire::failure_from_proto(error),
            },
        };
        self.settle(run, outside, node, settled);
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
            common::WakeCause::Signal => Wake::Signal(json!(null)),
            _ => Wake::Due,
        };
        let due = String::new();
        self.settle(run, outside, node, Settled::Woken { wake, due });
    }

    fn settle(&mut self, run: &OfRun, outside: &mut Outside, node: NodeIndex, settled: Settled) {
        self.settle_result(run, outside, node, Ok(settled));
    }

    /// Returns the place of an iteration of a zone.
    pub(super) fn place_in(&self, zone: NodeIndex, iteration: u64) -> Place {
        let mut place = self.place.clone();
        place.push((zone, iteration));
        place
    }

    /// Ends a node with what it waited for, or lets it be tried again.
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
        let pause = execution.and_then(|execution| {
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

    fn continue_at(
        &self,
        run: &OfRun,
        outside: &mut Outside,
        at: u64,
        node: NodeIndex,
        how: Continue,
    ) {
        let happening = Happening::Continue {
            process: run.number,
            place: self.place.clone(),
            node,
            how,
        };
        outside.schedule(at, happening);
    }

    /// Decides how the present attempt of a call ends, which never differs.
    fn tool_result(&self, run: &OfRun, node: NodeIndex) -> common::CallResult {
        let attempt = u64::from(self.attempt(node));
        let effect_id = self.effect_id(run, node);
        let of_effect = effect_id.bytes().fold(run.seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut random = fastrand::Rng::with_seed(of_effect ^ attempt);
        let error = (random.u8(0..3) == 0).then(|| {
            let failure = Failure::new(Category::Domain, "injected", "the tool failed");
            call_wire::failure_to_proto(&failure)
        });
        let status = match &error {
            None => common::CallStatus::Succeeded,
            Some(_) => common::CallStatus::Failed,
        };
        common::CallResult {
            effect_id,
            status: status.into(),
            output_json: random.u16(..).to_string(),
            error,
            ..common::CallResult::default()
        }
    }

    fn attempt(&self, node: NodeIndex) -> u32 {
        self.attempts.get(&node).map_or(1, |attempt| attempt.number)
    }

    pub(super) fn id(&self, node: NodeIndex) -> String {
        format!("{}{}", self.path, self.engine.node(node).id)
    }

    fn effect_id(&self, run: &OfRun, node: NodeIndex) -> String {
        format!("{}/{}/0", run.run_id, self.id(node))
    }
}

fn millis(time: &prost_types::Timestamp) -> u64 {
    let nanos = u64::try_from(time.nanos).unwrap();
    u64::try_from(time.seconds).unwrap() * 1000 + nanos / 1_000_000
}

fn millis_of(time: Timestamp) -> u64 {
    u64::try_from(time.unix_nanos()).unwrap() / 1_000_000
}
