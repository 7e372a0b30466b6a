//! A call that is to be approved by people before it leaves (rules G801 to G807).

mod digest;
mod rules;
mod state;

pub use digest::{digest_of, shown};
pub use rules::{Action, Ask, Judged, Judgement, Rule, RuleFile, Rules, read_rules};
pub use state::{Approval, Consent, DecideError, Decision, Reason, State};

use serde::{Deserialize, Serialize};

use super::definition::Flags;

/// What a tool declares about its effects, the weakest promise last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// It changes nothing.
    ReadOnly,
    /// Repeating a call has no further effect.
    Idempotent,
    /// It has effects.
    SideEffecting,
    /// It destroys something that cannot be brought back.
    Destructive,
}

impl EffectClass {
    /// Returns the class of a tool that declares these flags.
    pub fn of(flags: Flags) -> Self {
        match flags {
            Flags {
                destructive: true, ..
            } => Self::Destructive,
            Flags {
                read_only: true, ..
            } => Self::ReadOnly,
            Flags {
                idempotent: true, ..
            } => Self::Idempotent,
            _ => Self::SideEffecting,
        }
    }
}
