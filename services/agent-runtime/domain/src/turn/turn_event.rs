//! Events of a turn, which are read back from the log.

use crate::budgets::{Budget, Budgets};

/// A call as it was read from an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadCall {
    /// Its place among the calls of the answer, from 0.
    pub index: u32,
    /// The tool.
    pub tool_id: String,
    /// The arguments as JSON text.
    pub arguments_json: String,
    /// Whether it is one of the answer's structured calls and not in its text.
    pub native: bool,
    /// Whether the registry may carry it out only if the tool is read-only.
    pub needs_confirmation: bool,
    /// Whether the next call runs even if this one fails.
    pub continue_on_error: bool,
    /// The number of attempts after the first, for a call that fails without effect.
    pub retries: u32,
    /// Whether it may be in flight together with neighbours that may too.
    pub parallel_safe: bool,
    /// Whether it is started and not waited for (rule T27).
    pub no_reply: bool,
    /// The problems of its arguments, a sentence each; a call with problems is never dispatched.
    pub problems: Vec<String>,
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStatus {
    /// The tool succeeded.
    Succeeded,
    /// The tool failed, refused, or was cancelled: the remaining calls are skipped unless the call
    /// continues on errors.
    Failed,
    /// The call was not started, because one before it failed.
    Skipped,
    /// It is not known whether it took effect.
    InDoubt,
}

/// An event of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnEvent {
    /// A round of deliberation began.
    IterationStarted,
    /// The model was asked.
    ModelRequested,
    /// A piece of text was released to the reader.
    Said(String),
    /// A piece of thought was released to the reader.
    Thought,
    /// The text and thought of the answer at hand are void, as the model writes it again.
    AnswerVoided,
    /// The model's answer is complete.
    ModelAnswered {
        /// The text.
        text: String,
        /// The thought that is sent back with its native calls; none if the model did not think.
        reasoning: Option<serde_json::Value>,
    },
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
        /// The outcome.
        status: CallStatus,
        /// The number of calls that the run below it made.
        below: u32,
    },
    /// A deliberation workflow made calls; their number.
    CalledBelow(u32),
    /// The model will read an observation.
    Observed {
        /// The call that it is about; none if it is about the whole answer.
        index: Option<u32>,
        /// The text.
        text: String,
    },
    /// A budget is used up that the turn does not count itself.
    BudgetSpent(Budget),
    /// A person sent a message to the turn while it ran.
    Steered(String),
    /// The budgets were changed.
    BudgetsEdited(Budgets),
    /// The opening text was read to its end. Not in the log: reading again changes nothing.
    OpeningRead,
}
