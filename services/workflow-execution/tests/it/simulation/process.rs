//! A process that runs a workflow: it does what the engine commands, in the order of durability that
//! the runner keeps, and forgets everything when it is killed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use call_outcome::{Category, Failure};
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use serde_json::{Map, json};
use workflow_execution::domain::engine::{Command, Engine, Event, Status};
use workflow_execution::domain::evaluate;
use workflow_execution::domain::gather::Values;
use workflow_execution::domain::interface::bind;
use workflow_execution::domain::node_type::{Effect, Settled, Step};
use workflow_execution::domain::plan::{NodeIndex, Plan};
use workflow_execution::domain::wait::{Due, WaitKind, WaitRequest, Wake};
use workflow_execution::runner::history::replay;
use workflow_execution::wire;

use super::outside::{Continue, Happening, Outside};

pub(super) struct Process {
    number: u32,
    run_id: String,
    /// What the tools of this run depend on.
    seed: u64,
    pub(super) engine: Engine,
    commands: Vec<Command>,
    attempts: HashMap<NodeIndex, u32>,
    dispatched: HashSet<NodeIndex>,
    /// The recorded ends of calls that an earlier process did not make outputs of.
    settled: HashMap<NodeIndex, common::CallResult>,
    waiting: HashMap<NodeIndex, common::Wait>,
}

impl Process {
    /// Begins the run, or continues it where its log ends.
    pub(super) fn start(
        plan: &Arc<Plan>,
        seed: u64,
        run_id: &str,
        number: u32,
        log: &[common::RunEvent],
    ) -> Self {
        let inputs = bind(&[], &Map::new()).unwrap();
        let replayed = replay(Arc::clone(plan), inputs, run_id, log).unwrap();
        let commands = replayed.engine.outstanding();
        let settled = replayed.calls.iter().filter_map(|((node, _), call)| {
            let result = call.settled.clone()?;
            Some((*node, result))
        });
        let attempts = replayed.attempts.iter();
        let attempts = attempts.map(|(node, attempt)| (*node, attempt.number));
        Self {
            number,
            run_id: run_id.to_owned(),
            seed,
            commands,
            attempts: attempts.collect(),
            dispatched: replayed.calls.keys().map(|(node, _)| *node).collect(),
            settled: settled.collect(),
            waiting: HashMap::new(),
            engine: replayed.engine,
        }
    }

    /// Carries out commands in a random order until none is left.
    pub(super) fn advance(&mut self, outside: &mut Outside) {
        while !self.commands.is_empty() {
            let picked = outside.random.usize(..self.commands.len());
            match self.commands.swap_remove(picked) {
                Command::Skip { node, .. } => {
                    let state = common::NodeState::Skipped;
                    self.note_finished(outside, node, state, String::new(), None);
                    self.apply(Event::Skipped(node));
                }
                Command::Execute(node) => self.execute(outside, node),
            }
        }
    }

    pub(super) fn continues(&mut self, outside: &mut Outside, node: NodeIndex, how: Continue) {
        match how {
            Continue::ToolEnded => {
                let result = self.tool_result(node);
                outside.submit(Kind::CallSettled(common::CallSettled {
                    result: Some(result.clone()),
                }));
                self.take_result(outside, node, &result);
            }
            Continue::Due if self.waiting.contains_key(&node) => {
                self.wake(outside, node, common::WakeCause::Due);
            }
            Continue::Due => {}
            Continue::RetryDue => self.commands.push(Command::Execute(node)),
        }
    }

    /// Wakes the node that waits for a signal.
    pub(super) fn signal(&mut self, outside: &mut Outside, name: &str) {
        let of_name =
            |(node, wait): (&NodeIndex, &common::Wait)| (wait.name == name).then_some(*node);
        if let Some(node) = self.waiting.iter().find_map(of_name) {
            self.wake(outside, node, common::WakeCause::Signal);
        }
    }

    fn execute(&mut self, outside: &mut Outside, node: NodeIndex) {
        match evaluate::execute(&self.engine, node) {
            Ok(Step::Done(outputs)) => {
                self.finish(outside, node, Ok(evaluate::all_present(outputs)))
            }
            Ok(Step::Branch(outputs)) => self.finish(outside, node, Ok(outputs)),
            Ok(Step::Wait(request)) => self.begin_wait(outside, node, *request),
            Ok(Step::Effect(Effect::CallTool { tool_id, .. })) => self.call(outside, node, tool_id),
            Ok(Step::Effect(other)) => panic!("no drawn node has the effect {other:?}"),
            Err(failure) => self.finish(outside, node, Err(failure)),
        }
    }

    fn call(&mut self, outside: &mut Outside, node: NodeIndex, tool_id: String) {
        let effect_id = self.effect_id(node);
        if self.engine.status(node) == Status::Ready {
            outside.submit(Kind::NodeStarted(common::NodeStarted {
                node_id: self.id(node),
                ..common::NodeStarted::default()
            }));
            self.apply(Event::Started(node));
        }
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
            return self.take_result(outside, node, &result);
        }
        let attempt = self.attempt(node);
        let last = outside.last_attempt(&effect_id);
        assert!(attempt <= last + 1, "{effect_id}: no attempt is left out");
        let ends = outside.call_tool(&effect_id, attempt);
        self.continue_at(outside, ends, node, Continue::ToolEnded);
    }

    fn take_result(&mut self, outside: &mut Outside, node: NodeIndex, result: &common::CallResult) {
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
        self.settle(outside, node, settled);
    }

    fn begin_wait(&mut self, outside: &mut Outside, node: NodeIndex, request: WaitRequest) {
        let wait_id = self.effect_id(node);
        let recorded = outside.kinds().find_map(|kind| match kind {
            Kind::NodeWaiting(waiting) => {
                waiting.wait.clone().filter(|wait| wait.wait_id == wait_id)
            }
            _ => None,
        });
        let wait = recorded.unwrap_or_else(|| {
            let wait = self.wait(outside.now, node, request);
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
            return self.settle_wait(outside, node, cause);
        }
        let signalled = outside
            .kinds()
            .any(|kind| matches!(kind, Kind::SignalReceived(signal) if signal.name == wait.name));
        let due = wait.due.map(|due| millis(&due));
        self.waiting.insert(node, wait);
        match due {
            _ if signalled => self.wake(outside, node, common::WakeCause::Signal),
            Some(due) => self.continue_at(outside, due, node, Continue::Due),
            None => {}
        }
    }

    fn wait(&self, now: u64, node: NodeIndex, request: WaitRequest) -> common::Wait {
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
            wait_id: self.effect_id(node),
            node_id: self.id(node),
            name,
            due: due.map(|due| prost_types::Timestamp {
                seconds: i64::try_from(due / 1000).unwrap(),
                nanos: i32::try_from(due % 1000).unwrap() * 1_000_000,
            }),
            ..common::Wait::default()
        }
    }

    fn wake(&mut self, outside: &mut Outside, node: NodeIndex, cause: common::WakeCause) {
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
        self.settle_wait(outside, node, cause);
    }

    fn settle_wait(&mut self, outside: &mut Outside, node: NodeIndex, cause: common::WakeCause) {
        let wake = match cause {
            common::WakeCause::Signal => Wake::Signal(json!(null)),
            _ => Wake::Due,
        };
        let due = String::new();
        self.settle(outside, node, Settled::Woken { wake, due });
    }

    fn settle(&mut self, outside: &mut Outside, node: NodeIndex, settled: Settled) {
        let gave = self.engine.inputs_of(node).and_then(|inputs| {
            let planned = self.engine.node(node);
            planned.node.settle(planned.call(&inputs), settled)
        });
        let gave = match gave {
            Err(failure) if self.retry(outside, node, &failure) => return,
            gave => gave.map(evaluate::all_present),
        };
        self.finish(outside, node, gave);
    }

    fn retry(&mut self, outside: &mut Outside, node: NodeIndex, failure: &Failure) -> bool {
        let attempt = self.attempt(node);
        let execution = self.engine.node(node).execution.as_ref();
        let pause = execution.and_then(|execution| {
            let random = outside.random.f64();
            execution.retry.pause(attempt, failure, random)
        });
        let Some(pause) = pause else {
            return false;
        };
        outside.submit(Kind::NodeRetrying(common::NodeRetrying {
            node_id: self.id(node),
            attempt,
            ..common::NodeRetrying::default()
        }));
        self.attempts.insert(node, attempt + 1);
        let at = outside.now + u64::try_from(pause.as_millis()).unwrap();
        self.continue_at(outside, at, node, Continue::RetryDue);
        true
    }

    fn finish(&mut self, outside: &mut Outside, node: NodeIndex, gave: Result<Values, Failure>) {
        let attempts = self.attempt(node);
        let event = evaluate::finished_after(&mut self.engine, node, gave, attempts);
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

    fn continue_at(&self, outside: &mut Outside, at: u64, node: NodeIndex, how: Continue) {
        let process = self.number;
        outside.schedule(at, Happening::Continue { process, node, how });
    }

    /// Decides how the present attempt of a call ends, which never differs.
    fn tool_result(&self, node: NodeIndex) -> common::CallResult {
        let attempt = u64::from(self.attempt(node));
        let mut random = fastrand::Rng::with_seed(self.seed ^ (u64::from(node) << 8) ^ attempt);
        let error = (random.u8(0..3) == 0).then(|| {
            let failure = Failure::new(Category::Domain, "injected", "the tool failed");
            call_wire::failure_to_proto(&failure)
        });
        let status = match &error {
            None => common::CallStatus::Succeeded,
            Some(_) => common::CallStatus::Failed,
        };
        common::CallResult {
            effect_id: self.effect_id(node),
            status: status.into(),
            output_json: random.u16(..).to_string(),
            error,
            ..common::CallResult::default()
        }
    }

    fn attempt(&self, node: NodeIndex) -> u32 {
        self.attempts.get(&node).copied().unwrap_or(1)
    }

    fn id(&self, node: NodeIndex) -> String {
        self.engine.node(node).id.to_string()
    }

    fn effect_id(&self, node: NodeIndex) -> String {
        format!("{}/{}/0", self.run_id, self.engine.node(node).id)
    }
}

fn millis(time: &prost_types::Timestamp) -> u64 {
    let nanos = u64::try_from(time.nanos).unwrap();
    u64::try_from(time.seconds).unwrap() * 1000 + nanos / 1_000_000
}
