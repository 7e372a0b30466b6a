//! What is wrong with a field of a request.

/// One thing that is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field, by path.
    pub field: String,
    /// What is wrong and what to do.
    pub problem: String,
}
