//! The outcome of a call.

use serde_json::Value;

use crate::{Category, Failure};

/// The beginning and the size of an output that is too long for a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongOutput {
    /// The beginning of its JSON text, cut between characters.
    pub head: String,
    /// The size of the whole output, in bytes of JSON text.
    pub total_bytes: u64,
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallOutcome {
    /// The tool succeeded and returned this value.
    Succeeded(Value),
    /// The tool succeeded, and its output is kept elsewhere.
    SucceededLong(LongOutput),
    /// The tool was started and failed.
    Failed(Failure),
    /// The call was rejected before the tool was started.
    Rejected(Failure),
    /// The call was cancelled; the message states whether the tool had been started.
    Cancelled(Failure),
    /// The tool was started and it is not known whether it took effect.
    InDoubt(Failure),
}

impl CallOutcome {
    /// Returns the reason for which the call did not succeed.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Succeeded(_) | Self::SucceededLong(_) => None,
            Self::Failed(failure)
            | Self::Rejected(failure)
            | Self::Cancelled(failure)
            | Self::InDoubt(failure) => Some(failure),
        }
    }

    /// Makes the outcome of a cancelled call whose tool had been started.
    pub fn cancelled_after_start(tool: &str, reason: &str) -> Self {
        let because = if reason.is_empty() {
            String::new()
        } else {
            format!(" ({reason})")
        };
        Self::Cancelled(Failure::new(
            Category::Cancelled,
            "cancelled",
            format!(
                "the call of {tool} was cancelled after its tool had been started{because}; \
                 it may have taken effect in part"
            ),
        ))
    }

    /// Makes the outcome of a call that was cancelled before its tool was started.
    pub fn cancelled_before_start(tool: &str) -> Self {
        Self::Cancelled(Failure::new(
            Category::Cancelled,
            "cancelled",
            format!(
                "the call of {tool} was cancelled before its tool was started; nothing happened"
            ),
        ))
    }

    /// Makes the outcome of a call that a crash left unsettled and that must not be repeated.
    pub fn unsettled(tool: &str) -> Self {
        Self::InDoubt(Failure::new(
            Category::Internal,
            "unsettled_after_crash",
            format!(
                "{tool} was dispatched before the service went down and never answered; whether it \
                 took effect is unknown and it was not repeated, because it is not declared \
                 idempotent: look at what it did, then decide"
            ),
        ))
    }
}
