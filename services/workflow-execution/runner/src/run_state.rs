//! The state of a run, or of an iteration of a zone in it: the fold of its recorded events.
//!
//! [`RunState::apply`] is the only function that changes it. While a run is executed its loop applies each
//! event that it records; after a restart [`RunState::replay`] applies the recorded ones. The fields are
//! private to this module, so the compiler keeps every other place from changing them.

mod calls;
mod event;
mod zone_history;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use core_types::Timestamp;

use workflow_domain::engine::{Command, Divergence, Engine, Event};
use workflow_domain::interface::RunInputs;
use workflow_domain::plan::{NodeIndex, Plan};

use super::handled::HandledFailures;

pub use calls::{Calls, RecordedCall};
pub use event::{ReplayError, StateEvent};
pub use zone_history::ZoneHistory;

/// An attempt after the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, from 2.
    pub number: u32,
    /// The start time, fixed when the attempt before it failed.
    pub due: Timestamp,
    /// The pause between the failure and the start time.
    pub pause: Duration,
}

/// The state of a run, or of an iteration in it.
#[derive(Debug)]
pub struct RunState {
    /// The zone and the iteration in front of the ids of its nodes in events; empty for the run itself.
    path: String,
    engine: Engine,
    zones: BTreeMap<NodeIndex, ZoneHistory>,
    calls: Calls,
    /// The present attempt of each node that is retried.
    attempts: HashMap<NodeIndex, Attempt>,
    /// The first start of each node with settings for its execution.
    begun: HashMap<NodeIndex, Timestamp>,
    /// The handled failures of the whole run.
    handled: HandledFailures,
    /// Calls of which it is not known whether they took effect.
    in_doubt: Vec<(String, common::CallError)>,
    cancelled: Option<String>,
    outcome: Option<common::RunOutcome>,
}

impl RunState {
    /// Applies the recorded events of a run. Events of runs below are passed over.
    ///
    /// # Errors
    /// [`ReplayError`] if the history cannot be one of this plan.
    pub fn replay(
        plan: Arc<Plan>,
        inputs: RunInputs,
        run_id: &str,
        events: &[common::RunEvent],
    ) -> Result<Self, ReplayError> {
        let engine = Engine::start(plan, inputs, &mut Vec::new()).with_seed(run_id);
        let events = events.iter().filter(|event| event.run_id == run_id);
        Self::replayed(String::new(), engine, events)
    }

    /// Applies the recorded events of an iteration. `path` stands in front of the ids of its nodes; its
    /// handled failures are listed in `handled` from then on, where the recorded ones are already.
    ///
    /// # Errors
    /// [`ReplayError`] if the history cannot be one of this plan.
    pub(super) fn replay_iteration(
        path: String,
        engine: Engine,
        events: &[common::RunEvent],
        handled: HandledFailures,
    ) -> Result<Self, ReplayError> {
        let replayed = Self::replayed(path, engine, events.iter())?;
        Ok(Self {
            handled,
            ..replayed
        })
    }

    fn replayed<'a>(
        path: String,
        engine: Engine,
        events: impl Iterator<Item = &'a common::RunEvent>,
    ) -> Result<Self, ReplayError> {
        let mut state = Self {
            path,
            engine,
            zones: BTreeMap::new(),
            calls: Calls::default(),
            attempts: HashMap::new(),
            begun: HashMap::new(),
            handled: HandledFailures::default(),
            in_doubt: Vec::new(),
            cancelled: None,
            outcome: None,
        };
        // Commands that the history does not answer are outstanding at its end.
        let mut answered = Vec::new();
        for recorded in events {
            let sequence = recorded.sequence;
            if let Some(event) = state.read(recorded)? {
                let applied = state.apply(event, &mut answered);
                applied.map_err(|source| ReplayError::Diverged { sequence, source })?;
            }
        }
        state.calls.leave_to_next_process();
        Ok(state)
    }

    /// Changes the state by an event, and adds the commands that follow from it to `commands`.
    ///
    /// # Errors
    /// [`Divergence`] if the event cannot have happened.
    pub(super) fn apply(
        &mut self,
        event: StateEvent<'_>,
        commands: &mut Vec<Command>,
    ) -> Result<(), Divergence> {
        match event {
            StateEvent::Started { node, at } => {
                if self.engine.node(node).execution.is_some() {
                    self.begun.insert(node, at);
                }
                self.engine.apply(Event::Started(node), commands)?;
            }
            StateEvent::Ended { event, recorded } => {
                let node = event.node();
                self.handled.note(recorded);
                self.zones.remove(&node);
                self.calls.forget_settled(node);
                self.engine.apply(event, commands)?;
            }
            StateEvent::Retrying { node, recorded, at } => {
                let pause = recorded.pause.and_then(|pause| pause.try_into().ok());
                let pause = pause.unwrap_or_default();
                let attempt = Attempt {
                    number: recorded.attempt.saturating_add(1),
                    due: at.plus(pause),
                    pause,
                };
                self.attempts.insert(node, attempt);
                self.calls.forget_failed(node);
            }
            StateEvent::IterationEnded { zone, index, gave } => {
                self.zones.entry(zone).or_default().end(index, gave);
            }
            StateEvent::Inside {
                zone,
                iteration,
                event,
            } => {
                if let Some(Kind::NodeFinished(finished)) = &event.kind {
                    self.handled.note(finished);
                }
                self.zones.entry(zone).or_default().keep(iteration, event);
            }
            StateEvent::Dispatched { node, index, call } => self.calls.insert(node, index, *call),
            StateEvent::Settled(result) => {
                if result.status() == common::CallStatus::InDoubt {
                    let error = result.error.clone().unwrap_or_default();
                    self.in_doubt.push((result.effect_id.clone(), error));
                }
                self.calls.settle(result);
            }
            StateEvent::Wrote(kind) => self.calls.write(kind),
            StateEvent::CancelRequested(reason) => {
                self.cancelled.get_or_insert_with(|| reason.to_owned());
            }
            StateEvent::RunFinished(outcome) => self.outcome = outcome.cloned(),
        }
        Ok(())
    }

    /// Returns the state of the nodes.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the calls of nodes that have not ended, and those of ended ones that are not settled.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Returns why the run was to be cancelled, if it was.
    pub fn cancelled(&self) -> Option<&str> {
        self.cancelled.as_deref()
    }

    /// Returns how the run ended, if it did.
    pub fn outcome(&self) -> Option<&common::RunOutcome> {
        self.outcome.as_ref()
    }

    /// Returns the ids of the calls of which it was not recorded how they ended, with their nodes.
    pub fn unsettled(&self) -> impl Iterator<Item = (NodeIndex, &str)> {
        let inside = self.zones.iter();
        let inside =
            inside.flat_map(|(node, zone)| zone.effects(None).map(|effect| (*node, effect)));
        self.calls.unsettled().chain(inside)
    }

    /// Returns the ids of the calls of which it is not known whether they took effect, in zones too.
    pub fn in_doubt(&self) -> impl Iterator<Item = &str> {
        let doubtful = Some(common::CallStatus::InDoubt);
        let zones = self.zones.values();
        let inside = zones.flat_map(move |zone| zone.effects(doubtful));
        let own = self.in_doubt.iter();
        own.map(|(effect_id, _)| effect_id.as_str()).chain(inside)
    }

    /// Returns the id of a node with the iterations around it.
    pub fn path_of(&self, node: NodeIndex) -> String {
        format!("{}{}", self.path, self.engine.node(node).id)
    }

    /// Returns the present attempt of a node, if it is tried again.
    pub(super) fn attempt(&self, node: NodeIndex) -> Option<&Attempt> {
        self.attempts.get(&node)
    }

    /// Returns when a node with settings for its execution was started first.
    pub(super) fn begun(&self, node: NodeIndex) -> Option<Timestamp> {
        self.begun.get(&node).copied()
    }

    /// Returns the handled failures of the whole run.
    pub(super) fn handled(&self) -> &HandledFailures {
        &self.handled
    }

    /// Returns the calls outside of zones of which it is not known whether they took effect, with why.
    pub(super) fn doubts(&self) -> &[(String, common::CallError)] {
        &self.in_doubt
    }

    /// Hands the history of a zone over to its iterations, which fold it from then on.
    pub(super) fn take_zone(&mut self, node: NodeIndex) -> ZoneHistory {
        self.zones.remove(&node).unwrap_or_default()
    }

    /// Returns the state of the nodes at the end, and the calls of which it is not known whether they took
    /// effect.
    pub(super) fn into_end(mut self) -> (Engine, Vec<(String, common::CallError)>) {
        // Those inside a zone that was not taken up were recorded by an earlier process.
        let all: Vec<String> = self.in_doubt().map(str::to_owned).collect();
        let inside = all.into_iter().skip(self.in_doubt.len());
        let inside = inside.map(|effect_id| (effect_id, common::CallError::default()));
        self.in_doubt.extend(inside);
        (self.engine, self.in_doubt)
    }
}
