//! A turn as a pure state machine.
//!
//! [`Turn::apply`] takes what happened, in the words of the turn's log; [`Turn::next`] says what
//! is to be done now, from the state alone. A runner that crashed applies the log to a new turn
//! and goes on with [`Turn::next`]: nothing is decided anywhere else.
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
//! What is read from one answer is recorded together with it, so that an answer in the log always
//! has its calls beside it.

mod answer;
mod finish;

use core_types::Timestamp;

use crate::domain::{
    message::{Role, TurnMessage},
    plan::{Budgets, Opening},
};

use answer::Answer;
pub use answer::{CallState, Progress, name_failure};
pub use finish::{Budget, Finish};

/// How often the same failure to call is answered before the turn is given up (rule L7).
pub const MAX_EQUAL_FAILURES: u32 = 3;

/// A call as it was read from an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadCall {
    /// Its place among the calls of the answer, from 0.
    pub index: u32,
    /// The tool.
    pub tool_id: String,
    /// The arguments as JSON text.
    pub arguments_json: String,
    /// Whether it came in the answer's structured calls and not in its text.
    pub native: bool,
    /// Whether the registry may carry it out only if the tool is read-only.
    pub needs_confirmation: bool,
    /// Whether the next call runs even if this one fails.
    pub continue_on_error: bool,
    /// What is wrong with it, a sentence each; a call with problems is never dispatched.
    pub problems: Vec<String>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStatus {
    /// The tool did it.
    Succeeded,
    /// The tool failed, refused, or was cancelled: nothing follows unless the call says so.
    Failed,
    /// The call was not started, because one before it failed.
    Skipped,
    /// Nobody knows whether it took effect.
    Unknown,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnEvent {
    /// A round of deliberation began.
    IterationStarted,
    /// The model was asked.
    ModelRequested,
    /// A piece of text was released to the reader.
    Said(String),
    /// The model's answer is complete.
    ModelAnswered(String),
    /// A call was read from the answer.
    CallRead(ReadCall),
    /// A call leaves for its tool.
    CallDispatched {
        /// The call.
        index: u32,
        /// Its effect.
        effect_id: String,
    },
    /// A call ended.
    CallSettled {
        /// The call.
        index: u32,
        /// How.
        status: CallStatus,
    },
    /// The model will be told something.
    Observed {
        /// The call that it speaks of; none if it speaks of the whole answer.
        index: Option<u32>,
        /// The text.
        text: String,
    },
    /// The opening text was read to its end. Not in the log: reading again changes nothing.
    OpeningRead,
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read the text that the caller gave.
    ReadOpening(String),
    /// Ask the model.
    Ask(Ask),
    /// Send a call to its tool, after recording that it leaves.
    Dispatch(ReadCall),
    /// Find out how a call went that has left: the runner waits for it, or asks again with the
    /// same effect id after a crash.
    Await {
        /// The call.
        call: ReadCall,
        /// Its effect.
        effect_id: String,
    },
    /// Settle a call as skipped.
    Skip {
        /// The call.
        call: ReadCall,
        /// The tool whose failure keeps it from running.
        failed_tool: String,
    },
    /// End the turn.
    Finish(Finish),
}

/// How the model is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// In a new round, whose number this is.
    Round(u32),
    /// For the last time, as this budget has ended: it is told so and its calls are not run.
    Last(Budget),
    /// Once more, as its answer got lost.
    Again,
}

/// An event that cannot follow what happened before: the log is not one of this machine.
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
    /// The model was asked and has not answered.
    Asked { last: Option<Budget> },
    /// An answer is carried out.
    Acting(Answer),
}

/// The state of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    budgets: Budgets,
    go_on: bool,
    rounds: u32,
    answers: u32,
    dispatched: u32,
    said: String,
    messages: Vec<TurnMessage>,
    equal_failures: Option<(String, u32)>,
    phase: Phase,
}

impl Turn {
    /// Begins a turn.
    pub fn new(budgets: Budgets, opening: &Opening, time: Timestamp) -> Self {
        let (go_on, role, text, phase) = match opening {
            Opening::UserMessage(text) => (true, Role::User, text, Phase::Ready),
            Opening::ModelText { text, go_on } => {
                (*go_on, Role::Assistant, text, Phase::Opening(text.clone()))
            }
        };
        let opening = TurnMessage {
            role,
            text: text.clone(),
            observation: false,
            time,
        };
        Self {
            budgets,
            go_on,
            rounds: 0,
            answers: 0,
            dispatched: 0,
            said: String::new(),
            messages: vec![opening],
            equal_failures: None,
            phase,
        }
    }

    /// Takes what happened.
    ///
    /// # Errors
    /// [`Divergence`] when it cannot have happened now; the state is unchanged.
    pub fn apply(&mut self, event: TurnEvent, time: Timestamp) -> Result<(), Divergence> {
        match (&mut self.phase, event) {
            (Phase::Ready, TurnEvent::IterationStarted) => self.begin_round(),
            (Phase::Acting(answer), TurnEvent::IterationStarted) if answer.is_settled() => {
                self.close_answer();
                self.begin_round();
            }
            (Phase::Begun, TurnEvent::ModelRequested) => {
                self.phase = Phase::Asked { last: None };
                self.said.clear();
            }
            (Phase::Asked { .. }, TurnEvent::ModelRequested) => self.said.clear(),
            (Phase::Acting(answer), TurnEvent::ModelRequested) if answer.is_settled() => {
                let last = self.spent_budget();
                if last.is_none() {
                    return Err(self.divergence("ModelRequested"));
                }
                self.close_answer();
                self.phase = Phase::Asked { last };
                self.said.clear();
            }
            (Phase::Asked { .. } | Phase::Acting(_), TurnEvent::Said(text)) => {
                self.said.push_str(&text)
            }
            (Phase::Asked { last }, TurnEvent::ModelAnswered(text)) => {
                let last = *last;
                self.answers += 1;
                let message = TurnMessage {
                    role: Role::Assistant,
                    text,
                    observation: false,
                    time,
                };
                self.messages.push(message);
                self.phase = Phase::Acting(Answer::new(last));
            }
            (Phase::Acting(answer), TurnEvent::CallRead(call)) if answer.can_take(&call) => {
                answer.take(call)
            }
            (Phase::Acting(answer), TurnEvent::CallDispatched { index, effect_id }) => {
                if !answer.dispatch(index, effect_id) {
                    return Err(self.divergence("CallDispatched"));
                }
                self.dispatched += 1;
            }
            (Phase::Acting(answer), TurnEvent::CallSettled { index, status }) => {
                if !answer.settle(index, status) {
                    return Err(self.divergence("CallSettled"));
                }
            }
            (Phase::Acting(answer), TurnEvent::Observed { index, text }) => {
                answer.observe(index, text, time)
            }
            (Phase::Opening(_), TurnEvent::OpeningRead) => {
                self.phase = Phase::Acting(Answer::new(None))
            }
            (Phase::Acting(_), TurnEvent::OpeningRead) => {}
            // What was read from the opening was recorded together: the first of it proves all.
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

    /// Says what is to be done now.
    pub fn next(&self) -> Command {
        match &self.phase {
            Phase::Opening(text) => Command::ReadOpening(text.clone()),
            Phase::Ready => Command::Ask(Ask::Round(self.rounds + 1)),
            Phase::Begun | Phase::Asked { .. } => Command::Ask(Ask::Again),
            Phase::Acting(answer) => answer.next().unwrap_or_else(|| self.after(answer)),
        }
    }

    /// What follows when every call of an answer has settled.
    fn after(&self, answer: &Answer) -> Command {
        let unknown = answer.unknown();
        if !unknown.is_empty() {
            return Command::Finish(Finish::Unknown(unknown));
        }
        if let Some(budget) = answer.last() {
            return Command::Finish(Finish::Budget(budget));
        }
        if !answer.has_observations() || (self.answers == 0 && !self.go_on) {
            return Command::Finish(Finish::Stop);
        }
        if let Some(failure) = self
            .failure_after(answer)
            .filter(|(_, count)| *count >= MAX_EQUAL_FAILURES)
        {
            return Command::Finish(Finish::RepeatedFailure(failure.0));
        }
        match self.spent_budget() {
            Some(budget) => Command::Ask(Ask::Last(budget)),
            None => Command::Ask(Ask::Round(self.rounds + 1)),
        }
    }

    /// Returns what the turn has said since the model was last asked, its end trimmed.
    pub fn final_text(&self) -> &str {
        self.said.trim_end()
    }

    /// Returns how many answers were read, the caller's text not counted: the step of effect ids.
    pub fn step(&self) -> u32 {
        self.answers
    }

    /// Returns how many calls of the turn may still leave.
    pub fn calls_left(&self) -> u32 {
        self.budgets.calls.saturating_sub(self.dispatched)
    }

    /// Returns the budgets.
    pub fn budgets(&self) -> Budgets {
        self.budgets
    }

    /// Returns the budget because of which the calls of the answer at hand are not run.
    pub fn last(&self) -> Option<Budget> {
        match &self.phase {
            Phase::Asked { last } => *last,
            Phase::Acting(answer) => answer.last(),
            _ => None,
        }
    }

    /// Returns how often an answer has failed in the way of `failure` if it does so now.
    pub fn failures_with(&self, failure: &str) -> u32 {
        match &self.equal_failures {
            Some((known, count)) if known == failure => count + 1,
            _ => 1,
        }
    }

    /// Returns the calls of the answer at hand.
    pub fn calls(&self) -> &[Progress] {
        match &self.phase {
            Phase::Acting(answer) => answer.calls(),
            _ => &[],
        }
    }

    /// Returns the messages of the turn, what waits to be observed included.
    pub fn messages(&self) -> Vec<TurnMessage> {
        let mut messages = self.messages.clone();
        if let Phase::Acting(answer) = &self.phase {
            answer.write_messages(&mut messages);
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
        if self.calls_left() == 0 {
            Some(Budget::Calls(self.budgets.calls))
        } else if self.rounds >= self.budgets.iterations {
            Some(Budget::Iterations(self.budgets.iterations))
        } else {
            None
        }
    }

    fn begin_round(&mut self) {
        self.rounds += 1;
        self.phase = Phase::Begun;
    }

    /// Moves the answer at hand into the history.
    fn close_answer(&mut self) {
        if let Phase::Acting(answer) = std::mem::replace(&mut self.phase, Phase::Ready) {
            answer.write_messages(&mut self.messages);
            self.equal_failures = self.failure_after(&answer);
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
            Phase::Asked { .. } => "waiting for the model",
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
