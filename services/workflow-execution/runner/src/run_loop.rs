//! The loop of the nodes of a run, or of an iteration of a zone in it: a state machine without I/O.
//!
//! It reads no clock, draws no random number and records nothing. Happenings go in with
//! [`RunLoop::take`]; [`RunLoop::compute`] and [`RunLoop::begin`] return the actions that are due, until
//! there are none, and [`RunLoop::rest`] returns the happenings to wait for. The driver records the events of
//! an action before its effect begins, so a node never starts before its inputs are safe.
//!
//! - `event_batch`: events that happened and are not handed to the log.
//! - `admission`: effects that wait for their permits; `starts`: their starts; `waits`: waits.
//! - `ends`: how effects end; `attempts`: other attempts; `finish`: how nodes end; `outcome`: how the run
//!   ends.

mod admission;
mod attempts;
mod ends;
mod event_batch;
mod finish;
mod outcome;
mod starts;
mod waits;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use call_outcome::Failure;
use contracts::tavern::common::v1 as common;
use core_types::{RunId, Timestamp};
use run_events::Woken;

use workflow_domain::data_flow::Values;
use workflow_domain::engine::{Command, Status};
use workflow_domain::evaluate;
use workflow_domain::node_type::Step;
use workflow_domain::plan::NodeIndex;
use workflow_domain::wait::WaitRequest;

use super::allowance::Allowance;
use super::effect_end::{EffectEnd, Unsettled};
use super::interface_stream::InterfaceStreams;
use super::run_state::{RecordedCall, RunState, StateEvent};
use super::settle::check_effect;
use super::slot_stream::SlotStream;
use admission::Admissions;

pub use admission::PermitRequest;
pub use event_batch::EventBatch;
pub use finish::NodeEnd;
pub use starts::{StartedEffect, Starts};
pub use waits::NodeWait;

/// The loop of the nodes of a run, or of an iteration in it.
#[derive(Debug)]
pub struct RunLoop {
    of_run: LoopRun,
    state: RunState,
    commands: VecDeque<Command>,
    /// The commands of one event of the engine; empty in between.
    released: Vec<Command>,
    events: EventBatch,
    admissions: Admissions,
    /// Waits that are to begin.
    waits: VecDeque<(NodeIndex, WaitRequest)>,
    /// Short pauses before other attempts that are to begin, with their ends.
    pauses: Vec<(NodeIndex, Timestamp)>,
    under_way: UnderWay,
    written: NodeWrites,
    /// The calls of an earlier process that have not settled and that this one has not continued.
    earlier_calls: Vec<(NodeIndex, String)>,
    /// The nodes that were looked up and have not ended, with the notes on the cache.
    looked_up: HashMap<NodeIndex, Option<common::NodeCache>>,
    /// The failures that were handled inside zones whose ends are not recorded yet.
    handled_inside: HashMap<NodeIndex, Vec<common::NodeFailure>>,
    unsettled: Unsettled,
    is_cancelled: bool,
}

/// The run that a loop belongs to.
#[derive(Clone, Debug)]
pub struct LoopRun {
    /// The run by its id.
    pub run_id: RunId,
    /// The grant and the usage of the run.
    pub allowance: Arc<Allowance>,
    /// No zone starts while so many effects of its loop are under way.
    pub max_effects: usize,
}

/// The circumstances under which something happens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// The time.
    pub now: Timestamp,
    /// The time that the node took.
    pub took: Duration,
    /// A random number from 0 up to 1, for the pause before another attempt.
    pub chance: f64,
}

/// Something that happens to a node.
#[derive(Debug)]
pub enum Happening {
    /// The node ran, or its first half did.
    Ran(Result<Step, Failure>),
    /// The cache was asked for a result of the node, which is noted, and may have had one.
    LookedUp(Option<common::NodeCache>, Option<Values>),
    /// The effect of the node has its permits.
    Admitted,
    /// The time of the node was over before its effect had its permits.
    Overdue,
    /// The effect of the node ended.
    Ended(EffectEnd),
    /// The short pause before the next attempt is over.
    PauseOver,
    /// The wait before the next attempt is over.
    RetryDue,
    /// The node was woken, or the person cannot be asked.
    Woken(Result<Woken, Failure>),
}

/// Something that is to be done.
#[derive(Debug)]
pub enum Action {
    /// Run the node with [`RunLoop::run`] and report its result.
    Run(NodeIndex),
    /// Ask the cache for a result of the node.
    LookUp(NodeIndex),
    /// Hand events to the log, without waiting for the disk.
    Submit(EventBatch),
    /// Ask for the permits of an effect.
    Ask(PermitRequest),
    /// Give the permits of an effect back.
    Release(NodeIndex),
    /// Record events durably, then start effects.
    Start(Starts),
    /// Begin a wait.
    Wait(NodeWait),
    /// Pause the node until a time.
    Pause(NodeIndex, Timestamp),
}

/// The work that is left while no action is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// No node is left to run.
    Over,
    /// Something is left to start when the run is resumed.
    Held,
    /// Nothing is under way but waits.
    Waits,
    /// Something else is under way.
    Busy,
}

/// The number of nodes with work in progress outside.
#[derive(Debug, Default)]
struct UnderWay {
    /// Effects and short pauses.
    effects: usize,
    /// Effects that are zones, which `effects` counts too. Their own loops are busy or wait.
    zones: usize,
    waits: usize,
    lookups: usize,
}

/// The texts and values that effects write to the streaming outputs of nodes and of the run.
#[derive(Debug)]
struct NodeWrites {
    streams: InterfaceStreams,
    slots: HashMap<NodeIndex, Vec<SlotStream>>,
    /// The calls of lists under way.
    batches: HashMap<NodeIndex, Vec<RecordedCall>>,
}

impl RunLoop {
    /// Continues a run from its state.
    pub fn new(of_run: LoopRun, state: RunState) -> Self {
        let streams = InterfaceStreams::of_run(state.engine());
        Self::writing_to(of_run, state, streams)
    }

    /// Continues an iteration of a zone whose own streaming outputs are `zone`.
    pub(super) fn of_iteration(of_run: LoopRun, state: RunState, zone: &[SlotStream]) -> Self {
        let streams = SlotStream::of_iteration(zone, state.engine());
        Self::writing_to(of_run, state, streams)
    }

    fn writing_to(of_run: LoopRun, state: RunState, streams: InterfaceStreams) -> Self {
        let earlier_calls = state.unsettled();
        let earlier_calls = earlier_calls.map(|(node, effect_id)| (node, effect_id.to_owned()));
        let mut run_loop = Self {
            of_run,
            earlier_calls: earlier_calls.collect(),
            commands: VecDeque::new(),
            released: Vec::new(),
            events: EventBatch::default(),
            admissions: Admissions::default(),
            waits: VecDeque::new(),
            pauses: Vec::new(),
            under_way: UnderWay::default(),
            written: NodeWrites {
                streams,
                slots: HashMap::new(),
                batches: HashMap::new(),
            },
            looked_up: HashMap::new(),
            handled_inside: HashMap::new(),
            unsettled: Unsettled::default(),
            is_cancelled: false,
            state,
        };
        for command in run_loop.state.engine().outstanding() {
            match command {
                Command::Execute(node) if run_loop.state.attempt(node).is_some() => {
                    run_loop.pause(node);
                }
                command => run_loop.commands.push_back(command),
            }
        }
        run_loop
    }

    /// Returns the run that the loop belongs to.
    pub(super) fn of_run(&self) -> &LoopRun {
        &self.of_run
    }

    /// Returns the state of the run.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Ends the work: nothing starts from now on, and nothing is tried again.
    pub fn cancel(&mut self) {
        self.is_cancelled = true;
    }

    /// Runs a node, or its first half.
    ///
    /// # Errors
    /// Why the node has no outputs.
    pub fn run(&self, node: NodeIndex) -> Result<Step, Failure> {
        evaluate::execute(self.state.engine(), node)
    }

    /// Takes something that happened to a node. Returns how a node ended that the cache was asked for.
    pub fn take(
        &mut self,
        node: NodeIndex,
        happening: Happening,
        moment: &Moment,
    ) -> Option<NodeEnd> {
        match happening {
            Happening::Ran(Ok(Step::Done(outputs))) => {
                self.finish(node, Ok(evaluate::all_present(outputs)), moment)
            }
            Happening::Ran(Ok(Step::Branch(outputs))) => self.finish(node, Ok(outputs), moment),
            Happening::Ran(Ok(Step::Wait(request))) => self.enqueue_wait(node, *request, moment),
            Happening::Ran(Ok(Step::Effect(effect))) => {
                let checked = check_effect(&effect).and_then(|()| self.take_calls(node, &effect));
                match checked.and_then(|()| self.key_of(node)) {
                    Ok(key) => self.enqueue(node, effect, key, moment.now),
                    Err(failure) => return self.finish(node, Err(failure), moment),
                }
                None
            }
            Happening::Ran(Err(failure)) => self.finish(node, Err(failure), moment),
            Happening::LookedUp(note, gave) => {
                self.under_way.lookups -= 1;
                self.looked_up.insert(node, note);
                match gave {
                    Some(values) => return self.finish(node, Ok(values), moment),
                    None => self.commands.push_front(Command::Execute(node)),
                }
                None
            }
            Happening::Admitted => {
                self.admissions.admit(node);
                None
            }
            Happening::Overdue => {
                self.admissions.forget(node);
                let failure = self.overdue(node);
                self.settled(node, Err(failure), moment)
            }
            Happening::Ended(end) => {
                self.under_way.effects -= 1;
                self.under_way.zones -= usize::from(self.is_zone(node));
                self.ended(node, end, moment)
            }
            Happening::PauseOver => {
                self.under_way.effects -= 1;
                self.commands.push_back(Command::Execute(node));
                None
            }
            Happening::RetryDue => {
                self.under_way.waits -= 1;
                self.commands.push_back(Command::Execute(node));
                None
            }
            Happening::Woken(woken) => {
                self.under_way.waits -= 1;
                self.settled(node, woken.and_then(waits::settled), moment)
            }
        }
    }

    /// Returns the next action that starts nothing outside; nothing once those are done. A paused run
    /// computes nothing either.
    pub fn compute(&mut self, is_paused: bool) -> Option<Action> {
        loop {
            if self.events.is_full() {
                return self.submit();
            }
            self.forget_what_may_not_start();
            if is_paused || self.is_cancelled {
                return None;
            }
            match self.commands.pop_front()? {
                Command::Skip {
                    node,
                    because,
                    reason,
                } => self.skip(node, because, reason),
                Command::Execute(node) if self.may_reuse(node) => {
                    self.under_way.lookups += 1;
                    return Some(Action::LookUp(node));
                }
                Command::Execute(node) => return Some(Action::Run(node)),
            }
        }
    }

    /// Returns the next action that lets something begin outside; nothing once all that may begin has.
    /// Effects and waits begin only if the run is neither paused nor cancelled (`may_start`), which must not
    /// change before the action is done.
    pub fn begin(&mut self, may_start: bool, now: Timestamp) -> Option<Action> {
        if let Some((node, until)) = self.pauses.pop().filter(|_| !self.is_cancelled) {
            self.under_way.effects += 1;
            return Some(Action::Pause(node, until));
        }
        self.forget_what_may_not_start();
        if let Some(node) = self.admissions.released() {
            return Some(Action::Release(node));
        }
        if !may_start {
            let released = self.admissions.put_back().map(Action::Release);
            return released.or_else(|| self.submit());
        }
        if let Some(request) = self.ask() {
            return Some(Action::Ask(request));
        }
        let starts = self.start(now).map(Action::Start);
        let action = starts.or_else(|| self.submit());
        action.or_else(|| self.begin_wait(now).map(Action::Wait))
    }

    /// Returns the work that is left when neither [`RunLoop::compute`] nor [`RunLoop::begin`] has an action.
    pub fn rest(&self, may_start: bool) -> Rest {
        let UnderWay {
            effects,
            zones,
            waits,
            lookups,
        } = self.under_way;
        let left_to_start = !self.admissions.is_empty() || !self.waits.is_empty();
        if !self.commands.is_empty() || !may_start && left_to_start {
            return Rest::Held;
        }
        // Nodes that are woken in a run in doubt would start something.
        let waits = if self.is_in_doubt() { 0 } else { waits };
        if effects + lookups + waits == 0 && !self.admissions.is_asking() {
            return Rest::Over;
        }
        match effects == zones && lookups == 0 && self.admissions.is_empty() {
            true => Rest::Waits,
            false => Rest::Busy,
        }
    }

    /// Whether nothing that was started is under way, so that a cancelled run can end.
    pub fn is_stopped(&self) -> bool {
        self.under_way.effects == 0
    }

    fn submit(&mut self) -> Option<Action> {
        let events = std::mem::take(&mut self.events);
        (!events.is_empty()).then_some(Action::Submit(events))
    }

    fn apply(&mut self, event: StateEvent<'_>) {
        self.state
            .apply(event, &mut self.released)
            .expect("every event answers a command of the engine");
        self.commands.extend(self.released.drain(..));
    }

    /// Forgets the nodes that are to start once a call is in doubt: nothing starts behind it. Calls of an
    /// earlier process were in progress at the same time and are taken up.
    fn forget_what_may_not_start(&mut self) {
        if !self.is_in_doubt() {
            return;
        }
        let (earlier, state) = (&self.earlier_calls, &self.state);
        let is_under_way = |node: NodeIndex| {
            state.attempt(node).is_none() && earlier.iter().any(|(of, _)| *of == node)
        };
        self.commands
            .retain(|command| matches!(command, Command::Execute(node) if is_under_way(*node)));
        self.admissions.retain(is_under_way);
        self.waits.clear();
    }

    /// Whether the cache may have a result of a node. A node that has begun is not looked up: its effect may
    /// have left.
    fn may_reuse(&self, node: NodeIndex) -> bool {
        let planned = self.state.engine().node(node);
        let execution = planned.execution.as_ref();
        execution.is_some_and(|given| given.cache.is_some())
            && !planned.bypassed
            && self.state.engine().status(node) == Status::Ready
            && !self.looked_up.contains_key(&node)
    }

    fn is_zone(&self, node: NodeIndex) -> bool {
        self.state.engine().node(node).repeats_effects()
    }

    fn is_in_doubt(&self) -> bool {
        !self.state.doubts().is_empty() || !self.unsettled.is_empty()
    }
}
