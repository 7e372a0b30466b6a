//! A process that runs a workflow: it carries out the engine's commands, in the order of durability
//! that the runner keeps, and loses its memory when it is killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::Timestamp;
use run_client::CallEnd;
use run_events::{CancelReason, ForwardedSequences, outcome};
use workflow_domain::engine::Engine;
use workflow_domain::interface::{bind, read_inputs};
use workflow_domain::node_type::Effect;
use workflow_domain::plan::{NodeIndex, Plan};
use workflow_runner::allowance::Allowance;
use workflow_runner::effect_end::EffectEnd;
use workflow_runner::run_loop::{
    Action, Happening as Happened, LoopRun, Moment, PermitRequest, Rest, RunLoop, StartedEffect,
};
use workflow_runner::run_state::RunState;

use super::children::cancelled_result;
use super::outside::{Continue, EditTarget, Happening, NodeOfRun, Outside};
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
    pub(super) doubts: bool,
    pub(super) is_cancelled: bool,
    pub(super) is_paused: bool,
    /// Whether the calls of a cancelled run are given up that have not ended.
    pub(super) grace_is_over: bool,
}

/// The nodes of the run, or of an iteration in it.
pub(super) struct Scope {
    place: EditTarget,
    pub(super) nodes: RunLoop,
    /// The calls of this process that have not ended, with their tools.
    pub(super) calling: BTreeMap<NodeIndex, String>,
    pub(super) waiting: BTreeMap<NodeIndex, common::Wait>,
    /// The zones under way.
    pub(super) zones: BTreeMap<NodeIndex, Zone>,
    /// The calls of an earlier process that are cancelled with the run.
    pub(super) earlier: Vec<String>,
}

impl Process {
    /// Begins a run, or continues it where its log ends. `of_run` are its id, the seed, the number of the
    /// process and whether the ends of some calls are not known.
    pub(super) fn start(
        plan: &Arc<Plan>,
        (run_id, seed, number, doubts): (&str, u64, u32, bool),
        outside: &mut Outside,
        log: &[common::RunEvent],
    ) -> Self {
        let own = log.iter().filter(|event| event.run_id == run_id);
        let own = own.filter_map(|event| event.kind.as_ref());
        let input_json = own.clone().find_map(|kind| match kind {
            Kind::RunStarted(started) => Some(started.input_json.as_str()),
            _ => None,
        });
        let given = read_inputs(input_json.unwrap()).unwrap();
        let inputs = bind(&plan.interface_inputs, &given).unwrap();
        let state = RunState::replay(Arc::clone(plan), inputs, run_id, log).unwrap();
        let mut below = ForwardedSequences::new(run_id.parse().unwrap());
        log.iter().for_each(|event| below.note(event));
        let run = OfRun {
            number,
            run_id: run_id.to_owned(),
            seed,
            doubts,
            is_cancelled: state.cancelled().is_some(),
            is_paused: outside.is_paused(run_id),
            grace_is_over: false,
        };
        let stopping = Stopping::recovered(&run, outside, &state);
        let of_run = LoopRun {
            run_id: run_id.parse().unwrap(),
            allowance: Arc::new(Allowance::of(run_id, log)),
            max_effects: outside.random.usize(1..=8),
        };
        let root = Scope::new(RunLoop::new(of_run, state), EditTarget::new());
        Self {
            run,
            root,
            below,
            stopping,
        }
    }

    pub(super) fn engine(&self) -> &Engine {
        self.root.nodes.state().engine()
    }

    /// Does all that can be done, and returns how the run has ended, if it has.
    pub(super) fn advance(&mut self, outside: &mut Outside) -> Option<common::RunOutcome> {
        let Some(stopping) = &mut self.stopping else {
            let rest = self.root.advance(&self.run, outside);
            return (rest == Rest::Over).then(|| self.root.nodes.outcome().unwrap());
        };
        let reason = CancelReason::Requested(stopping.reason.clone());
        match &mut stopping.recovered {
            Some(left) => {
                left.retain(|effect_id| !outside.registry.has_followed_cancel(effect_id));
                let is_over = left.is_empty() || self.run.grace_is_over;
                let left = || [&left[..], &stopping.in_doubt].concat();
                is_over.then(|| outcome::stopped(&reason, left()))
            }
            None => {
                let is_stopped = self.root.stop(&self.run, outside);
                is_stopped.then(|| self.root.nodes.stopped(&reason))
            }
        }
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
            scope.call_ended(outside, node.node, result);
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
        self.root.signal(outside, name);
    }

    /// Cancels the run, once: the request is durable before anything follows it.
    pub(super) fn cancel(&mut self, outside: &mut Outside, reason: &str) {
        if self.stopping.is_none() {
            self.run.is_cancelled = true;
            self.stopping = Some(Stopping::begin(&self.run, outside, reason));
            self.root.cancel(&self.run, outside, reason);
        }
    }

    /// Pauses the run, or lets it continue: the request is durable before anything follows it.
    pub(super) fn pause(&mut self, outside: &mut Outside, is_paused: bool) {
        if self.run.is_paused != is_paused && self.stopping.is_none() {
            self.run.is_paused = is_paused;
            outside.submit(match is_paused {
                true => Kind::RunPaused(common::RunPaused::default()),
                false => Kind::RunResumed(common::RunResumed::default()),
            });
            outside.commit();
        }
    }

    /// Asks the registry again for the calls that it forgot.
    pub(super) fn registry_has_died(&mut self, outside: &mut Outside) {
        let reason = self.stopping.as_ref().map(|stopping| &*stopping.reason);
        self.root.ask_again(&self.run, outside, reason);
    }

    /// Returns why the run was cancelled, if it was.
    pub(super) fn reason_of_cancel(&self) -> Option<&str> {
        self.stopping.as_ref().map(|stopping| &*stopping.reason)
    }

    /// Gives up the calls that have not followed the cancel of the run.
    pub(super) fn grace_is_over(&mut self) {
        self.run.grace_is_over = true;
    }
}

impl Scope {
    pub(super) fn new(nodes: RunLoop, place: EditTarget) -> Self {
        Self {
            place,
            nodes,
            calling: BTreeMap::new(),
            waiting: BTreeMap::new(),
            zones: BTreeMap::new(),
            earlier: Vec::new(),
        }
    }

    /// Returns the nodes at a place, if the zone there has not ended.
    fn inside(&mut self, place: &[(NodeIndex, u64)]) -> Option<&mut Self> {
        let mut scope = self;
        for (zone, iteration) in place {
            // A node may end its zone while others in it wait.
            scope = scope.zones.get_mut(zone)?.running.get_mut(iteration)?;
        }
        Some(scope)
    }

    /// Carries actions out until none is left, in zones too.
    pub(super) fn advance(&mut self, run: &OfRun, outside: &mut Outside) -> Rest {
        loop {
            let mut is_done = true;
            while let Some(action) = self.nodes.compute(run.is_paused) {
                self.carry_out(run, outside, action);
            }
            while let Some(action) = self.nodes.begin(!run.is_paused, outside.now()) {
                self.carry_out(run, outside, action);
                is_done = false;
            }
            if !self.advance_zones(run, outside) && is_done {
                return self.nodes.rest(!run.is_paused);
            }
        }
    }

    pub(super) fn carry_out(&mut self, run: &OfRun, outside: &mut Outside, action: Action) {
        match action {
            Action::Run(node) => {
                let ran = self.nodes.run(node);
                self.take(outside, node, Happened::Ran(ran));
            }
            Action::LookUp(node) => panic!("no drawn node reuses results, and {node} does"),
            Action::Submit(events) => outside.submit_all(events.into_kinds()),
            Action::Ask(PermitRequest { node, .. }) if outside.random.u8(0..4) == 0 => {
                let at = outside.now + outside.random.u64(0..MAX_TURN);
                self.continue_at(run, outside, at, node, Continue::Admitted);
            }
            Action::Ask(PermitRequest { node, .. }) => self.take(outside, node, Happened::Admitted),
            Action::Release(_) => {}
            Action::Start(starts) => {
                if !starts.events.is_empty() {
                    outside.submit_all(starts.events.into_kinds());
                    outside.commit();
                }
                for started in starts.effects {
                    self.start(run, outside, started);
                }
            }
            Action::Wait(wait) => self.begin_wait(run, outside, wait),
            Action::Pause(node, until) => {
                let at = millis_until(until).max(outside.now);
                self.continue_at(run, outside, at, node, Continue::PauseOver);
            }
        }
    }

    fn start(&mut self, run: &OfRun, outside: &mut Outside, started: StartedEffect) {
        let node = started.node;
        if let Some(settled) = started.settled {
            let is_tool = settled.child_run_id.is_empty();
            assert!(
                !is_tool || settled == self.tool_result(run, node),
                "{settled:?} is of another attempt"
            );
            let end = CallEnd::Settled(Box::new(settled));
            return self.take(outside, node, Happened::Ended(EffectEnd::Tool(end)));
        }
        match started.effect {
            Effect::CallTool { .. } => self.call(run, outside, node),
            Effect::RunZone { inputs } => self.begin_zone(outside, node, &inputs),
            other => panic!("no drawn node has the effect {other:?}"),
        }
    }

    /// Reports to the loop what happened to a node.
    pub(super) fn take(&mut self, outside: &mut Outside, node: NodeIndex, happened: Happened) {
        let moment = Moment {
            now: outside.now(),
            took: Duration::ZERO,
            chance: outside.random.f64(),
        };
        let reused = self.nodes.take(node, happened, &moment);
        assert!(reused.is_none(), "no drawn node reuses results");
    }

    fn continues(&mut self, run: &OfRun, outside: &mut Outside, node: NodeIndex, how: Continue) {
        match how {
            Continue::ToolEnded => {
                let result = self.tool_result(run, node);
                self.call_ended(outside, node, &result);
            }
            Continue::ToolCancelled => {
                let result = cancelled_result(&self.nodes.effect_id(node, 0));
                self.call_ended(outside, node, &result);
            }
            Continue::PauseOver => self.take(outside, node, Happened::PauseOver),
            // Nothing else begins in a run that was cancelled.
            Continue::Due | Continue::Admitted if run.is_cancelled => {}
            Continue::Admitted => self.take(outside, node, Happened::Admitted),
            Continue::Due if self.waiting.contains_key(&node) => {
                self.wake(outside, node, common::WakeCause::Due);
            }
            Continue::Due => {}
        }
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

    /// Returns the place of an iteration of a zone.
    pub(super) fn place_in(&self, zone: NodeIndex, iteration: u64) -> EditTarget {
        let mut place = self.place.clone();
        place.push((zone, iteration));
        place
    }
}

/// Returns the first millisecond that is not before a time.
pub(super) fn millis_until(time: Timestamp) -> u64 {
    u64::try_from(time.unix_nanos())
        .unwrap()
        .div_ceil(1_000_000)
}
