//! The state of a turn as its log gives it.
//!
//! [`TurnState::apply`] is the only way in which an event changes it: while the turn is carried out, after a
//! restart, in an export, in a fork and where later turns read it back. Its parts are private, so a part is
//! added here and nowhere else.

mod observations;
mod spending;
mod steering;
mod untrusted;

use agent_domain::{
    budgets::Used,
    compaction::Compaction,
    message::TurnMessage,
    plan::{Opening, Plan},
    turn::{Divergence, Turn, TurnEvent},
};
use contracts::tavern::common::v1::{self as common, ModelTotal, RunEvent, run_event::Kind};
use core_types::Timestamp;
use serde_json::Value;

pub use observations::Observations;
pub use steering::{Message, RequestIdReused, Steering};
pub use untrusted::of_given as untrusted_of_given;

use crate::{
    forked::Forked,
    journal::{self, Meaning},
    replay::{ReplayError, opening, time_of},
};
use spending::Spending;
use untrusted::Untrusted;

/// A turn with everything else that follows from its log.
#[derive(Clone, Debug)]
pub struct TurnState {
    turn: Turn,
    opening: Opening,
    given: Vec<TurnMessage>,
    untrusted: Untrusted,
    handle_given: bool,
    spending: Spending,
    observations: Observations,
    asked: AskedStates,
    steering: Steering,
    compaction: Option<Compaction>,
    forked: Forked,
    has_begun: bool,
}

/// The versions of the states that a model was asked with which has not answered; none of a state that the
/// agent does not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct AskedStates {
    /// The version of the private state.
    pub private: Option<u64>,
    /// The version of the world state.
    pub world: Option<u64>,
    /// The version of the goals.
    pub goals: Option<u64>,
}

impl TurnState {
    /// Begins a turn. With `native`, native calls and their results keep that form in its messages; otherwise
    /// they are text.
    pub fn begin(plan: &Plan, native: bool, opening: Opening, time: Timestamp) -> Self {
        Self {
            turn: Turn::new(plan.budgets, &opening, time).with_native_calls(native),
            given: Vec::new(),
            untrusted: Untrusted::opened(&opening),
            opening,
            handle_given: false,
            spending: Spending::default(),
            observations: Observations::default(),
            asked: AskedStates::default(),
            steering: Steering::default(),
            compaction: None,
            forked: Forked::default(),
            has_begun: false,
        }
    }

    /// Replays a turn's own events.
    ///
    /// # Errors
    /// [`ReplayError`] for a log that this machine did not write.
    pub fn replay<'a>(
        plan: &Plan,
        native: bool,
        mut own: impl Iterator<Item = &'a RunEvent>,
    ) -> Result<Self, ReplayError> {
        let first = own.next().ok_or(ReplayError::NoBeginning)?;
        let Some(Kind::RunStarted(started)) = &first.kind else {
            return Err(ReplayError::NoBeginning);
        };
        let opening = opening(plan, started).map_err(ReplayError::Plan)?;
        let mut state = Self::begin(plan, native, opening, time_of(first));
        for event in own {
            let sequence = event.sequence;
            let applied = state.apply(event);
            applied.map_err(|source| ReplayError::Diverged { sequence, source })?;
        }
        Ok(state)
    }

    /// Applies an event of the turn's own log. An event that is not recorded yet has the sequence zero; steering
    /// and edits of budgets are applied once they are recorded, as their answer is their sequence.
    ///
    /// # Errors
    /// [`Divergence`] when it cannot have happened now; only [`Self::turn`] is then unchanged.
    pub fn apply(&mut self, event: &RunEvent) -> Result<(), Divergence> {
        let (Some(kind), time) = (&event.kind, time_of(event)) else {
            return Ok(());
        };
        self.forked.take(event);
        if let Some(message) = journal::given_message(kind) {
            self.untrusted.take_given(&message);
            self.given.push(message.at(time));
        }
        let change = match journal::read(kind) {
            Meaning::Outside => return Ok(()),
            Meaning::Remark => None,
            Meaning::Change(event) => Some(event),
        };
        self.has_begun = true;
        self.untrusted.take(kind);
        self.handle_given |= journal::gives_handle(kind);
        self.observations.take(kind);
        self.spending.take(kind, time);
        self.asked.take(kind);
        self.steering.take(event);
        if let Some(compaction) = journal::compaction(kind) {
            self.compaction = Some(compaction);
        }
        change.map_or(Ok(()), |change| self.turn.apply(change, time))
    }

    /// Notes that the text of the caller was read to its end. The log does not have that, as reading the text again
    /// changes nothing.
    ///
    /// # Errors
    /// [`Divergence`] when there is no such text.
    pub fn read_opening(&mut self, time: Timestamp) -> Result<(), Divergence> {
        self.turn.apply(TurnEvent::OpeningRead, time)
    }

    /// Continues after a time in which nothing was under way, as this process had not begun.
    pub fn resume_at(&mut self, now: Timestamp) {
        self.spending.resume_at(now);
    }

    /// Returns the turn.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }

    /// Returns the events that opened the turn; none if something else did.
    pub fn opening_events(&self) -> &[Value] {
        match &self.opening {
            Opening::Events(events) => events,
            Opening::UserMessage(_) | Opening::ModelText { .. } => &[],
        }
    }

    /// Returns the messages from before the turn, as its caller gave them.
    pub fn given(&self) -> &[TurnMessage] {
        &self.given
    }

    /// Returns the texts that the model was shown and that are not trusted, the oldest first.
    pub fn untrusted(&self) -> &[String] {
        self.untrusted.texts()
    }

    /// Whether a call of the turn gave a handle.
    pub fn handle_given(&self) -> bool {
        self.handle_given
    }

    /// Returns the use of the turn's budgets up to now.
    pub fn used(&self, now: Timestamp) -> Used {
        self.spending.used(&self.turn, now)
    }

    /// Returns the use of each model.
    pub fn model_totals(&self) -> Vec<ModelTotal> {
        self.spending.totals()
    }

    /// Whether it was reported that a budget is nearly used up.
    pub fn is_reported(&self, unit: common::BudgetUnit) -> bool {
        self.spending.is_reported(unit.into())
    }

    /// Returns the results of the calls of the newest answer.
    pub fn observations(&self) -> &Observations {
        &self.observations
    }

    /// Returns the versions of the states that a model was asked with which has not answered.
    pub fn asked(&self) -> AskedStates {
        self.asked
    }

    /// Returns the requests of people to the turn.
    pub fn steering(&self) -> &Steering {
        &self.steering
    }

    /// Returns the last compaction of turns before this one by the turn; none if it compacted none.
    pub fn compaction(&self) -> Option<&Compaction> {
        self.compaction.as_ref()
    }

    /// Whether an event was taken over from the turn that this one is a fork of.
    pub fn is_taken_over(&self, sequence: u64) -> bool {
        self.forked.covers(sequence)
    }

    /// Returns the answer that replaces the model's, if it is due.
    pub fn answer_taken(&self) -> Option<&common::ForkedAnswer> {
        self.forked.answer_due(&self.turn)
    }

    /// Returns the result of a call of the answer at hand in the original turn; none if the call is to be
    /// dispatched.
    pub fn result_taken(&self, index: u32) -> Option<&common::ResultTaken> {
        self.forked.result_of(&self.turn, index)
    }

    /// Whether anything has happened in the turn since it was started.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }
}

impl AskedStates {
    /// Takes an event. A message of a person is read with the states of its time, so it voids the versions.
    fn take(&mut self, kind: &Kind) {
        let version = |version: u64| (version > 0).then_some(version);
        match kind {
            Kind::ModelRequested(asked) => {
                *self = Self {
                    private: version(asked.state_version),
                    world: version(asked.world_version),
                    goals: version(asked.goals_version),
                };
            }
            Kind::ModelAnswered(_) | Kind::Steered(_) => *self = Self::default(),
            _ => {}
        }
    }
}
