//! Why a turn ends.

use crate::budgets::Budget;

/// How a turn ends by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model wrote an answer without calls.
    Stop,
    /// A budget ended, and the model had its last word.
    Budget(Budget),
    /// The model made the same mistake again and again; what it was.
    RepeatedFailure(String),
    /// The model made the same calls with the same results again and again; the last tool.
    Repetition(String),
    /// Calls left and it is not known whether they took effect.
    InDoubt(Vec<String>),
}
