//! One history: a run with the runs below it, in processes that are killed, until all of them have
//! ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{RunEvent, RunFinished, RunStarted, SignalReceived};
use fastrand::Rng;
use serde_json::Value;
use workflow_domain::engine::{Engine, Status};
use workflow_domain::plan::Plan;
use workflow_runner::needed::needed;

use super::children::Started;
use super::graph::Workflows;
use super::outside::{Happening, Outside};
use super::process::Process;

/// The time within which kills and cancels happen and signals arrive, in milliseconds.
pub(super) const DISTURBED: u64 = 120_000;

/// The status of each node, with its main output. The other outputs may depend on the order of
/// events.
pub(super) type State = Vec<(Status, Option<Arc<Value>>)>;

/// The disturbances of a run from outside, apart from signals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Disturbances {
    /// The number of kills of the process.
    pub(super) kills: u32,
    /// The number of kills of the registry alone.
    pub(super) registry_kills: u32,
    /// The number of pauses of one of the runs.
    pub(super) pauses: u32,
    /// The number of cancels of one of the runs.
    pub(super) cancels: u32,
    /// Whether it is not known of some calls whether they took effect.
    pub(super) doubts: bool,
}

/// The remains of a history.
pub(super) struct Played {
    /// The run at the top.
    pub(super) top: String,
    /// The logs by run.
    pub(super) logs: BTreeMap<String, Vec<RunEvent>>,
    /// The state in which each run ended.
    pub(super) states: BTreeMap<String, State>,
    /// The runs below others.
    pub(super) started: Vec<Started>,
}

pub(super) struct World<'w> {
    pub(super) workflows: &'w Workflows,
    pub(super) outside: Outside,
    /// The processes of open runs, by run.
    pub(super) processes: BTreeMap<String, Process>,
    /// The number of kills so far.
    pub(super) number: u32,
    seed: u64,
    doubts: bool,
    top: String,
    states: BTreeMap<String, State>,
}

impl<'w> World<'w> {
    /// Plays a history to its end.
    pub(super) fn play(workflows: &'w Workflows, seed: u64, disturbances: Disturbances) -> Played {
        let mut world = Self {
            workflows,
            outside: Outside::new(Rng::with_seed(seed)),
            processes: BTreeMap::new(),
            number: 0,
            seed,
            doubts: disturbances.doubts,
            top: format!("flow_{seed:032x}"),
            states: BTreeMap::new(),
        };
        world.begin(disturbances);
        world.reach_end();
        Played {
            top: world.top,
            started: world.outside.registry.started.values().cloned().collect(),
            logs: world.outside.into_logs(),
            states: world.states,
        }
    }

    fn begin(&mut self, disturbances: Disturbances) {
        for node in &self.workflows.top.nodes {
            let at = self.outside.random.u64(0..DISTURBED);
            let (run_id, name) = (self.top.clone(), node.id.to_string());
            self.outside
                .schedule(at, Happening::Signal { run_id, name });
        }
        for (times, happening) in [
            (disturbances.kills, Happening::Kill),
            (disturbances.registry_kills, Happening::KillRegistry),
            (disturbances.pauses, Happening::Pause),
            (disturbances.cancels, Happening::Cancel),
        ] {
            for _ in 0..times {
                let at = self.outside.random.u64(0..DISTURBED);
                self.outside.schedule(at, happening.clone());
            }
        }
        let top = self.top.clone();
        self.outside
            .begin_log(&top, Vec::new(), RunStarted::default());
        self.take_over(&top, false);
    }

    fn reach_end(&mut self) {
        loop {
            for run_id in self.outside.run_ids() {
                self.advance(&run_id);
            }
            if self.processes.is_empty() {
                return;
            }
            self.show_more();
            self.check_wakers();
            let happening = self.outside.next().unwrap();
            self.happen(happening);
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Continue { process, node, how } if process == self.number => {
                if let Some(process) = self.processes.get_mut(&node.run_id) {
                    self.outside.turn_to(&node.run_id);
                    process.continues(&mut self.outside, &node, how);
                }
            }
            Happening::Call {
                process,
                effect_id,
                step,
            } if process == self.number => self.call(&effect_id, step),
            Happening::GraceOver { process, run_id } if process == self.number => {
                if let Some(process) = self.processes.get_mut(&run_id) {
                    process.grace_is_over();
                }
            }
            // A killed process does not notice.
            Happening::Continue { .. } | Happening::Call { .. } | Happening::GraceOver { .. } => {}
            Happening::Signal { run_id, name } => self.signal(&run_id, name),
            Happening::Cancel => self.cancel_any(),
            Happening::Pause => self.pause_any(),
            Happening::Resume { run_ids } => self.pause(&run_ids, false),
            Happening::Kill => self.kill(),
            Happening::KillRegistry => {
                self.outside.lose_calls();
                for (run_id, process) in &mut self.processes {
                    self.outside.turn_to(run_id);
                    process.registry_has_died(&mut self.outside);
                }
            }
        }
    }

    /// Lets a run continue as far as it can, and ends it if that was all.
    fn advance(&mut self, run_id: &str) {
        let Some(process) = self.processes.get_mut(run_id) else {
            return;
        };
        self.outside.turn_to(run_id);
        let Some(outcome) = process.advance(&mut self.outside) else {
            return;
        };
        let state = state_of(process.engine());
        for started in self.outside.registry.started.values() {
            let is_below = started.asked.caller.run_id == run_id;
            let effect_id = &started.asked.effect_id;
            assert!(
                !is_below
                    || !self.processes.contains_key(&started.run_id)
                    || outcome.unsettled_effect_ids.contains(effect_id),
                "seed {}: {run_id} ends, and {effect_id} continues",
                self.seed
            );
        }
        self.outside.submit(Kind::RunFinished(RunFinished {
            outcome: Some(outcome),
        }));
        self.outside.commit();
        self.processes.remove(run_id);
        self.states.insert(run_id.to_owned(), state);
        self.run_has_ended(run_id);
    }

    /// Checks that every open run, and every call in flight, waits for an event that will happen.
    fn check_wakers(&self) {
        let number = self.number;
        for run_id in self.processes.keys() {
            let has_waker = |happening: &Happening| match happening {
                Happening::Continue { process, node, .. } => {
                    *process == number && node.run_id == *run_id
                }
                Happening::Call {
                    process, effect_id, ..
                } => *process == number && effect_id.split('/').next() == Some(run_id),
                Happening::GraceOver {
                    process,
                    run_id: of,
                } => *process == number && of == run_id,
                Happening::Signal { run_id: of, .. } => of == run_id,
                Happening::Resume { run_ids } => run_ids.contains(run_id),
                Happening::Cancel
                | Happening::Pause
                | Happening::Kill
                | Happening::KillRegistry => false,
            };
            assert!(
                self.outside.registry.is_called_by(run_id) || self.outside.any_scheduled(has_waker),
                "seed {}: nothing would wake {run_id}",
                self.seed
            );
        }
        for (effect_id, run_id) in self.outside.registry.in_flight() {
            let gets_further = |happening: &Happening| {
                matches!(happening, Happening::Call { process, effect_id: of, .. }
                    if *process == number && of == effect_id)
            };
            assert!(
                run_id.is_some_and(|run_id| self.processes.contains_key(run_id))
                    || self.outside.any_scheduled(gets_further),
                "seed {}: nothing would end {effect_id}",
                self.seed
            );
        }
    }

    fn signal(&mut self, run_id: &str, name: String) {
        let Some(process) = self.processes.get_mut(run_id) else {
            return;
        };
        if process.reason_of_cancel().is_some() {
            return;
        }
        self.outside.turn_to(run_id);
        self.outside.submit(Kind::SignalReceived(SignalReceived {
            name: name.clone(),
            ..SignalReceived::default()
        }));
        self.outside.commit();
        process.signal(&mut self.outside, &name);
    }

    fn cancel_any(&mut self) {
        let run_id = match self.outside.random.u8(0..3) {
            0 => self.any_open(),
            _ => self.top.clone(),
        };
        self.cancel_run(&run_id, "enough");
    }

    fn any_open(&mut self) -> String {
        let open: Vec<&String> = self.processes.keys().collect();
        open[self.outside.random.usize(..open.len())].clone()
    }

    /// Pauses a run with those below it, until they are resumed.
    fn pause_any(&mut self) {
        let paused = self.any_open();
        let is_below =
            |run_id: &&String| **run_id == paused || self.outside.above(run_id).contains(&paused);
        let run_ids: Vec<String> = self.processes.keys().filter(is_below).cloned().collect();
        self.pause(&run_ids, true);
        let at = self.outside.now + self.outside.random.u64(0..DISTURBED / 2);
        self.outside.schedule(at, Happening::Resume { run_ids });
    }

    fn pause(&mut self, run_ids: &[String], is_paused: bool) {
        for run_id in run_ids {
            if let Some(process) = self.processes.get_mut(run_id) {
                self.outside.turn_to(run_id);
                process.pause(&mut self.outside, is_paused);
            }
        }
    }

    /// Cancels a run, unless it has ended.
    pub(super) fn cancel_run(&mut self, run_id: &str, reason: &str) {
        if let Some(process) = self.processes.get_mut(run_id) {
            self.outside.turn_to(run_id);
            process.cancel(&mut self.outside, reason);
        }
    }

    /// Returns the reason for cancelling a run, if it was cancelled and has not ended.
    pub(super) fn reason_of_cancel(&self, run_id: &str) -> Option<String> {
        let process = self.processes.get(run_id)?;
        process.reason_of_cancel().map(str::to_owned)
    }

    fn kill(&mut self) {
        self.number += 1;
        self.processes.clear();
        self.outside.lose_uncommitted();
        self.outside.registry.end_process();
        for run_id in self.outside.run_ids() {
            if self.outside.outcome_of(&run_id).is_none() {
                let from_checkpoint = self.outside.random.bool();
                self.take_over(&run_id, from_checkpoint);
            }
        }
    }

    /// Begins a run, or continues it where its log ends.
    pub(super) fn take_over(&mut self, run_id: &str, from_checkpoint: bool) {
        let plan = self.plan_of(run_id);
        let events = self.outside.events_of(run_id);
        let events = match from_checkpoint {
            true => what_is_needed(&plan, run_id, events),
            false => events.to_vec(),
        };
        let of_run = (run_id, self.seed, self.number, self.doubts);
        let process = Process::start(&plan, of_run, &mut self.outside, &events);
        self.processes.insert(run_id.to_owned(), process);
    }

    fn plan_of(&self, run_id: &str) -> Arc<Plan> {
        let subject = self.outside.events_of(run_id).iter().find_map(started);
        match subject.filter(|workflow| !workflow.is_empty()) {
            Some(workflow) => Arc::clone(&self.workflows.below[workflow].plan),
            None => Arc::clone(&self.workflows.top),
        }
    }
}

fn started(event: &RunEvent) -> Option<&str> {
    match &event.kind {
        Some(Kind::RunStarted(started)) => Some(&started.subject),
        _ => None,
    }
}

/// Returns the events with which a run continues that has just made a checkpoint.
fn what_is_needed(plan: &Plan, run_id: &str, log: &[RunEvent]) -> Vec<RunEvent> {
    let needed = needed(plan, run_id, log);
    let left = log.iter();
    let left = left.filter(|event| needed.binary_search(&event.sequence).is_ok());
    left.cloned().collect()
}

fn state_of(engine: &Engine) -> State {
    let nodes = 0..u32::try_from(engine.plan().nodes.len()).unwrap();
    let state = nodes.map(|node| {
        let main = engine.outputs_of(node);
        let main = main.and_then(|outputs| outputs[0].clone());
        (engine.status(node), main)
    });
    state.collect()
}
