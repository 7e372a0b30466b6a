//! Why a node did not give its outputs.

use serde_json::{Map, Value};

use super::violation::Violation;

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// An input or a setting of the node is wrong.
    Validation,
    /// The tool said no, in its own terms.
    Domain,
    /// A policy forbids it.
    Policy,
    /// The tool's or script's program failed.
    Runtime,
    /// Another service that is needed failed.
    Dependency,
    /// Time ran out.
    Timeout,
    /// Somebody cancelled it.
    Cancelled,
    /// A limit on size, count or memory was passed.
    Limit,
    /// A failure of Tavern itself.
    Internal,
}

/// Why a node failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct NodeFailure {
    /// The kind.
    pub category: Category,
    /// A stable code.
    pub code: String,
    /// One sentence that names the place and the remedy.
    pub message: String,
    /// Says that the same may succeed later without any change.
    pub retryable: bool,
    /// Everything that was wrong with arguments, if that was it.
    pub violations: Vec<Violation>,
    /// More, depending on the code.
    pub details: Box<Map<String, Value>>,
}

impl NodeFailure {
    /// Makes a failure that needs no more than a sentence.
    pub fn new(category: Category, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            category,
            code: code.into(),
            message: message.into(),
            retryable: false,
            violations: Vec::new(),
            details: Box::default(),
        }
    }

    /// Makes the failure of a node whose inputs or settings are wrong.
    pub fn invalid(code: &str, message: impl Into<String>) -> Self {
        Self::new(Category::Validation, code, message)
    }

    /// Makes the failure of a node that passed a limit.
    pub fn limit(code: &str, message: impl Into<String>) -> Self {
        Self::new(Category::Limit, code, message)
    }

    /// Adds one detail.
    pub fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }
}
