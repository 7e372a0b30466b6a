//! What is wrong with a field of a request.

/// One thing that is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field, by path.
    pub field: String,
    /// What is wrong and what to do.
    pub problem: String,
}

impl Violation {
    /// Something that is wrong with a field.
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        let (field, problem) = (field.into(), problem.into());
        Self { field, problem }
    }
}
