//! The ends of a turn.

use crate::budgets::Budget;

/// The reason for which a turn ends by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model wrote an answer without calls.
    Stop,
    /// A budget ended, and the model had its last word.
    Budget(Budget),
    /// The model made the same mistake repeatedly; its name.
    RepeatedFailure(String),
    /// The model made the same calls with the same results repeatedly; the last tool.
    Repetition(String),
    /// Calls left and it is not known whether they took effect.
    InDoubt(Vec<String>),
}
