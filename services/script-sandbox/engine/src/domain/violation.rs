//! A fault in a field of a request.

/// A fault in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field, by path.
    pub field: String,
    /// The fault and its remedy.
    pub problem: String,
}

impl Violation {
    /// A violation of a field.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        let (field, problem) = (field.into(), problem.into());
        Self { field, problem }
    }
}
