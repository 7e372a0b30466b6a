//! A turn as a pure state machine.
//!
//! [`Turn::apply`] applies an event of the turn's log; [`Turn::next`] returns the next command,
//! from the state alone. A runner that crashed applies the log to a new turn and continues with
//! [`Turn::next`]: no decision is made anywhere else.
//!
//! ```text
//! Opening ─ user's message ──────────► Ready ─ IterationStarted ─► Begun ─ ModelRequested ─► Asked
//!    └─ model text is read ─► Acting     ▲                                                    │
//!                               │        └──────────── all calls settled, budget left ──┐     │
//!                               └── CallDispatched, CallSettled, Observed ── Acting ◄────┴─ ModelAnswered
//!                                                                             │
//!                        budget ended: Observed (the notice), ModelRequested ─┴─► Asked, for the last time
//! ```
//!
//! The calls of an answer are recorded together with it, so that an answer in the log always has
//! its calls alongside it. Only calls that change nothing may be read, leave and end while the
//! model is still writing. If that answer is lost, so are they: the model is asked again, is shown
//! nothing of them, and the calls of its next answer have other effect ids.

mod answer;
mod finish;
mod turn_event;

use call_outcome::repetition::{self, Repetition};
use core_types::Timestamp;

use crate::{
    budgets::{Budget, Budgets},
    event,
    message::{ChatMessage, Role, TurnMessage},
    plan::Opening,
};

use answer::Answer;
pub(crate) use answer::name_failure;
pub use answer::{CallState, MAX_AT_ONCE, Progress};
pub use finish::Finish;
pub use turn_event::{CallStatus, ReadCall, TurnEvent};

/// The number of times that the same failure to call is answered before the turn is ended (rule
/// L7).
pub(crate) const MAX_EQUAL_FAILURES: u32 = 3;

/// The next action of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read the text of the caller.
    ReadOpening(String),
    /// Ask the model.
    Ask(Ask),
    /// Send a call to its tool, after recording that it leaves.
    Dispatch(ReadCall),
    /// Wait for one of these calls that have left, by their places; after a crash the runner
    /// repeats their requests with the same effect ids.
    Await(Vec<u32>),
    /// Settle the calls at these places, which have left, as cancelled: the answer that held them
    /// was lost.
    GiveUp(Vec<u32>),
    /// Settle a call as skipped.
    Skip {
        /// The call.
        call: ReadCall,
        /// The tool whose failure keeps it from running.
        failed_tool: String,
    },
    /// Settle a call as skipped, as a budget is used up.
    Withhold {
        /// The call.
        call: ReadCall,
        /// The budget.
        budget: Budget,
    },
    /// End the turn.
    Finish(Finish),
}

/// The kind of request to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// In a new round, of this number.
    Round(u32),
    /// For the last time, as this budget has ended: it is informed and its calls are not run.
    Last(Budget),
    /// Once more, as its answer got lost.
    Again,
}

/// An event that cannot follow the events before it: the log is not one of this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event {event} does not follow from the turn's history, in which it is {phase}")]
pub struct Divergence {
    event: String,
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The caller's text waits to be read.
    Opening(String),
    /// The model can be asked.
    Ready,
    /// A round began.
    Begun,
    /// The model was asked and has not answered whole. Calls of its text so far may have left.
    Asked(Answer),
    /// An answer is carried out.
    Acting(Answer),
}

/// The state of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    budgets: Budgets,
    go_on: bool,
    /// Whether the model reads its native calls and their results in the form of its API.
    native: bool,
    rounds: u32,
    answers: u32,
    /// The number of times that the answer that is due was lost after calls of it had left.
    lost: u32,
    dispatched: u32,
    said: String,
    /// Whether the reader was shown a part of the newest answer.
    has_released: bool,
    messages: Vec<TurnMessage>,
    equal_failures: Option<(String, u32)>,
    repetition: Repetition,
    /// The number of messages from people during the turn.
    steered: u32,
    /// A budget that is used up and not counted here.
    spent: Option<Budget>,
    phase: Phase,
}

impl Turn {
    /// Begins a turn.
    pub fn new(budgets: Budgets, opening: &Opening, time: Timestamp) -> Self {
        let (go_on, role, text, phase) = match opening {
            Opening::UserMessage(text) => (true, Role::User, text.clone(), Phase::Ready),
            Opening::Events(events) => (true, Role::User, event::opening(events), Phase::Ready),
            Opening::ModelText { text, go_on } => {
                let reading = Phase::Opening(text.clone());
                (*go_on, Role::Assistant, text.clone(), reading)
            }
        };
        let opening = ChatMessage::new(role, text).at(time);
        Self {
            budgets,
            go_on,
            native: false,
            rounds: 0,
            answers: 0,
            lost: 0,
            dispatched: 0,
            said: String::new(),
            has_released: false,
            messages: vec![opening],
            equal_failures: None,
            repetition: Repetition::default(),
            steered: 0,
            spent: None,
            phase,
        }
    }

    /// Writes native calls and their results in the form of the model's API from now on; otherwise
    /// they are text.
    pub fn with_native_calls(self, native: bool) -> Self {
        Self { native, ..self }
    }

    /// Applies an event.
    ///
    /// # Errors
    /// [`Divergence`] if it cannot follow the events so far; the state is unchanged.
    pub fn apply(&mut self, event: TurnEvent, time: Timestamp) -> Result<(), Divergence> {
        match (&mut self.phase, event) {
            (Phase::Ready, TurnEvent::IterationStarted) => self.begin_round(),
            (Phase::Acting(answer), TurnEvent::IterationStarted) if answer.is_settled() => {
                self.close_answer();
                self.begin_round();
            }
            (_, TurnEvent::ModelRequested) => return self.be_requested(),
            (Phase::Asked(_) | Phase::Acting(_), TurnEvent::Said(text)) => self.release(&text),
            (_, TurnEvent::Thought) => self.has_released = true,
            (_, TurnEvent::AnswerVoided) => self.void_released(),
            (Phase::Asked(answer), TurnEvent::ModelAnswered { text, reasoning }) => {
                let answer = std::mem::replace(answer, Answer::new(None));
                self.answers += 1;
                let mut message = ChatMessage::new(Role::Assistant, text);
                message.reasoning = reasoning;
                self.messages.push(message.at(time));
                self.phase = Phase::Acting(answer);
            }
            (Phase::Asked(answer) | Phase::Acting(answer), TurnEvent::CallRead(call))
                if answer.can_take(&call) =>
            {
                answer.take(call)
            }
            (
                Phase::Asked(answer) | Phase::Acting(answer),
                TurnEvent::CallDispatched { index, effect_id },
            ) => {
                if !answer.dispatch(index, effect_id) {
                    return Err(self.divergence("CallDispatched"));
                }
                self.dispatched += 1;
            }
            (
                Phase::Asked(answer) | Phase::Acting(answer),
                TurnEvent::CallSettled {
                    index,
                    status,
                    below,
                },
            ) => {
                if !answer.settle(index, status) {
                    return Err(self.divergence("CallSettled"));
                }
                self.dispatched = self.dispatched.saturating_add(below);
            }
            (_, TurnEvent::CalledBelow(calls)) => {
                self.dispatched = self.dispatched.saturating_add(calls)
            }
            (_, TurnEvent::BudgetSpent(budget)) => self.spent = Some(budget),
            (_, TurnEvent::BudgetsEdited(budgets)) => {
                (self.budgets, self.spent) = (budgets, None);
            }
            (Phase::Acting(answer), TurnEvent::Steered(text)) if answer.is_settled() => {
                answer.steer(text, time);
                self.be_steered();
            }
            (Phase::Ready | Phase::Begun | Phase::Asked(_), TurnEvent::Steered(text)) => {
                let message = ChatMessage::new(Role::User, text);
                self.messages.push(message.at(time));
                self.be_steered();
            }
            (Phase::Acting(answer), TurnEvent::Observed { index, text }) => {
                answer.observe(index, text, time)
            }
            (Phase::Opening(_), TurnEvent::OpeningRead) => {
                self.phase = Phase::Acting(Answer::new(None))
            }
            (Phase::Acting(_), TurnEvent::OpeningRead) => {}
            // The calls of the opening were recorded together: the first of them proves all.
            (
                Phase::Opening(_),
                event @ (TurnEvent::Said(_) | TurnEvent::CallRead(_) | TurnEvent::Observed { .. }),
            ) => {
                let before = std::mem::replace(&mut self.phase, Phase::Acting(Answer::new(None)));
                return self.apply(event, time).inspect_err(|_| self.phase = before);
            }
            (_, event) => return Err(self.divergence(&format!("{event:?}"))),
        }
        Ok(())
    }

    fn be_requested(&mut self) -> Result<(), Divergence> {
        match &self.phase {
            Phase::Begun => self.be_asked(None),
            Phase::Asked(answer) if answer.under_way().is_empty() => {
                let last = answer.last();
                let lost = self.lost + u32::from(!answer.is_empty());
                self.be_asked(last);
                self.lost = lost;
            }
            Phase::Acting(answer) if answer.is_settled() && self.spent_budget().is_some() => {
                let last = self.spent_budget();
                self.close_answer();
                self.be_asked(last);
            }
            _ => return Err(self.divergence("ModelRequested")),
        }
        Ok(())
    }

    /// Returns the next action.
    pub fn next(&self) -> Command {
        match &self.phase {
            Phase::Opening(text) => Command::ReadOpening(text.clone()),
            Phase::Ready => match self.spent {
                Some(budget) => Command::Finish(Finish::Budget(budget)),
                None => Command::Ask(Ask::Round(self.rounds + 1)),
            },
            Phase::Begun => Command::Ask(Ask::Again),
            Phase::Asked(answer) => match answer.under_way() {
                left if left.is_empty() => Command::Ask(Ask::Again),
                left => Command::GiveUp(left),
            },
            Phase::Acting(answer) => match (answer.next(), self.spent) {
                (Some(Command::Dispatch(call)), Some(budget)) => Command::Withhold { call, budget },
                // Runs below the calls before it have used the rest.
                (Some(Command::Dispatch(call)), None) if self.calls_left() == 0 => {
                    let budget = Budget::Calls(self.budgets.calls);
                    Command::Withhold { call, budget }
                }
                (Some(command), _) => command,
                (None, _) => self.after(answer),
            },
        }
    }

    /// Returns the command that follows when every call of an answer has settled.
    fn after(&self, answer: &Answer) -> Command {
        let unknown = answer.unknown();
        if !unknown.is_empty() {
            return Command::Finish(Finish::InDoubt(unknown));
        }
        if let Some(budget) = answer.last() {
            return Command::Finish(Finish::Budget(budget));
        }
        if !answer.is_answered() || !self.asks_model() {
            return Command::Finish(Finish::Stop);
        }
        if let Some(failure) = self
            .failure_after(answer)
            .filter(|(_, count)| *count >= MAX_EQUAL_FAILURES)
        {
            return Command::Finish(Finish::RepeatedFailure(failure.0));
        }
        let (_, times) = self.repetitions(answer);
        if let Some(last) = answer.calls().last().filter(|_| times >= repetition::ENDED) {
            return Command::Finish(Finish::Repetition(last.call.tool_id.clone()));
        }
        match self.spent_budget() {
            Some(budget) => Command::Ask(Ask::Last(budget)),
            None => Command::Ask(Ask::Round(self.rounds + 1)),
        }
    }

    /// Returns the number of times in a row that the newest calls were made, without an answer and
    /// with it.
    fn repetitions(&self, answer: &Answer) -> (usize, usize) {
        let mut after = self.repetition.clone();
        answer.repeat_in(&mut after);
        (self.repetition.count(), after.count())
    }

    /// Returns the number of times in a row that the newest calls were made, if the model is to be
    /// informed of it before it is asked again (rule G706).
    pub fn remarked_repetition(&self) -> Option<usize> {
        let Phase::Acting(answer) = &self.phase else {
            return None;
        };
        let (before, times) = self.repetitions(answer);
        (before < repetition::REMARKED && times >= repetition::REMARKED).then_some(times)
    }

    /// Whether the model is asked after the caller's text, or has been.
    pub fn asks_model(&self) -> bool {
        self.go_on || self.answers > 0
    }

    /// Whether the reader was shown a part of an answer that is lost: the model has not ended it.
    pub fn has_void_text(&self) -> bool {
        self.has_released && matches!(self.phase, Phase::Asked(_))
    }

    /// Whether the reader was shown text since the model was last asked.
    pub fn has_said(&self) -> bool {
        !self.said.is_empty()
    }

    /// Returns the text that the turn released since the model was last asked, its end trimmed.
    pub fn final_text(&self) -> &str {
        self.said.trim_end()
    }

    /// Returns the call that may leave while the model is still writing, if one may; `is_sure`
    /// returns whether the rest of the answer cannot change the call at a place.
    pub fn next_early(&self, is_sure: impl Fn(u32) -> bool) -> Option<ReadCall> {
        let Phase::Asked(answer) = &self.phase else {
            return None;
        };
        match answer.next() {
            Some(Command::Dispatch(call)) if is_sure(call.index) && self.calls_left() > 0 => {
                Some(call)
            }
            _ => None,
        }
    }

    /// Returns the step of effect ids: the number of the answer that is at hand or due, the
    /// caller's text being 0; and, if the answer was lost after calls of it had left, the number of
    /// losses.
    pub fn step(&self) -> String {
        let answer = self.answer_number();
        match self.lost {
            0 => answer.to_string(),
            lost => format!("{answer}.{lost}"),
        }
    }

    /// Returns the number of the answer that is at hand or due, from 1; 0 for the caller's text.
    pub fn answer_number(&self) -> u32 {
        self.answers + u32::from(matches!(self.phase, Phase::Asked(_)))
    }

    /// Returns the number of messages from people while the turn ran.
    pub fn steered(&self) -> u32 {
        self.steered
    }

    /// Returns the number of complete answers of the model.
    pub fn answers(&self) -> u32 {
        self.answers
    }

    /// Returns the number of the round, from 1.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Returns the number of calls of the turn that may still leave.
    pub fn calls_left(&self) -> u32 {
        self.budgets.calls.saturating_sub(self.dispatched)
    }

    /// Returns the number of calls of the turn that have left, including the calls of runs below
    /// it.
    pub fn dispatched(&self) -> u32 {
        self.dispatched
    }

    /// Returns the budgets.
    pub fn budgets(&self) -> Budgets {
        self.budgets
    }

    /// Returns the budget because of which the calls of the answer at hand are not run.
    pub fn last(&self) -> Option<Budget> {
        match &self.phase {
            Phase::Asked(answer) | Phase::Acting(answer) => answer.last(),
            _ => None,
        }
    }

    /// Returns the number of answers that failed in the way of `failure`, this one included.
    pub fn failures_with(&self, failure: &str) -> u32 {
        match &self.equal_failures {
            Some((known, count)) if known == failure => count + 1,
            _ => 1,
        }
    }

    /// Returns the calls of the answer at hand.
    pub fn calls(&self) -> &[Progress] {
        match &self.phase {
            Phase::Asked(answer) | Phase::Acting(answer) => answer.calls(),
            _ => &[],
        }
    }

    /// Returns the messages of the turn, including calls and observations of the answer at hand.
    pub fn messages(&self) -> Vec<TurnMessage> {
        let mut messages = self.messages.clone();
        if let Phase::Acting(answer) = &self.phase {
            answer.write_messages(self.native, &mut messages);
        }
        messages
    }

    /// Returns the effects that have left and whose end is not known.
    pub fn unsettled(&self) -> Vec<String> {
        self.calls()
            .iter()
            .filter_map(Progress::unsettled_effect)
            .map(str::to_owned)
            .collect()
    }

    fn spent_budget(&self) -> Option<Budget> {
        let calls = (self.calls_left() == 0).then_some(Budget::Calls(self.budgets.calls));
        let iterations = Budget::Iterations(self.budgets.iterations);
        let has_rounds = self.rounds < self.budgets.iterations;
        let counted = calls.or((!has_rounds).then_some(iterations));
        self.spent.or(counted)
    }

    fn be_steered(&mut self) {
        self.steered += 1;
        self.repetition = Repetition::default();
    }

    fn be_asked(&mut self, last: Option<Budget>) {
        self.phase = Phase::Asked(Answer::new(last));
        self.lost = 0;
        self.void_released();
    }

    fn release(&mut self, text: &str) {
        self.has_released |= !text.is_empty();
        self.said.push_str(text);
    }

    fn void_released(&mut self) {
        self.has_released = false;
        self.said.clear();
    }

    fn begin_round(&mut self) {
        self.rounds += 1;
        self.phase = Phase::Begun;
    }

    /// Moves the answer at hand into the history.
    fn close_answer(&mut self) {
        if let Phase::Acting(answer) = std::mem::replace(&mut self.phase, Phase::Ready) {
            answer.write_messages(self.native, &mut self.messages);
            self.equal_failures = self.failure_after(&answer);
            answer.repeat_in(&mut self.repetition);
        }
    }

    fn failure_after(&self, answer: &Answer) -> Option<(String, u32)> {
        let failure = answer.failure()?;
        let count = self.failures_with(&failure);
        Some((failure, count))
    }

    fn divergence(&self, event: &str) -> Divergence {
        let phase = match &self.phase {
            Phase::Opening(_) => "about to read its opening",
            Phase::Ready => "about to ask the model",
            Phase::Begun => "at the start of a round",
            Phase::Asked(_) => "waiting for the model",
            Phase::Acting(_) => "carrying out an answer",
        };
        Divergence {
            event: event.chars().take(200).collect(),
            phase,
        }
    }
}

#[cfg(test)]
mod tests;
