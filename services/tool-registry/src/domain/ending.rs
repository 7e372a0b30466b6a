//! How a call ended.

use serde_json::Value;

use super::violation::Violation;

pub use call_outcome::Category;

/// Why a call did not succeed. It is one pointer wide, as it travels through many results.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure(Box<Reason>);

/// What a [`Failure`] says.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// The kind.
    pub category: Category,
    /// A stable code in snake case.
    pub code: String,
    /// One sentence that names the place and the remedy, fit for a model.
    pub message: String,
    /// The same call may succeed later without any change.
    pub retryable: bool,
    /// Everything that was wrong with the arguments.
    pub violations: Vec<Violation>,
    /// More, depending on the code.
    pub details: Option<Value>,
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        Self(Box::new(reason))
    }
}

impl std::ops::Deref for Failure {
    type Target = Reason;

    fn deref(&self) -> &Reason {
        &self.0
    }
}

impl std::ops::DerefMut for Failure {
    fn deref_mut(&mut self) -> &mut Reason {
        &mut self.0
    }
}

impl Failure {
    /// Makes a failure that a retry does not help.
    pub fn new(category: Category, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::from(Reason {
            category,
            code: code.into(),
            message: message.into(),
            retryable: false,
            violations: Vec::new(),
            details: None,
        })
    }

    /// The same failure, said to be worth another try.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// The same failure with details.
    #[must_use]
    pub fn details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Makes the failure of arguments that break their schema.
    pub fn invalid_arguments(tool: &str, violations: Vec<Violation>) -> Self {
        let sentence = super::violation::sentences(&violations);
        let mut failure = Self::new(
            Category::Validation,
            "invalid_arguments",
            format!("invalid parameters for {tool}: {sentence}"),
        );
        failure.violations = violations;
        failure
    }
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// The tool did it and gave this.
    Succeeded(Value),
    /// The tool was started and failed.
    Failed(Failure),
    /// The call was refused before the tool was started.
    Rejected(Failure),
    /// Somebody cancelled the call; the message says whether the tool had been started.
    Cancelled(Failure),
    /// The tool was started and it is not known whether it took effect.
    InDoubt(Failure),
}

impl Ending {
    /// Returns why the call did not succeed.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Succeeded(_) => None,
            Self::Failed(failure)
            | Self::Rejected(failure)
            | Self::Cancelled(failure)
            | Self::InDoubt(failure) => Some(failure),
        }
    }

    /// Makes the ending of a cancelled call whose tool had been started.
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

    /// Makes the ending of a call that was cancelled before its tool was started.
    pub fn cancelled_before_start(tool: &str) -> Self {
        Self::Cancelled(Failure::new(
            Category::Cancelled,
            "cancelled",
            format!(
                "the call of {tool} was cancelled before its tool was started; nothing happened"
            ),
        ))
    }

    /// Makes the ending of a call that a crash left unsettled and that must not be repeated.
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
