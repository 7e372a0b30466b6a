//! The reason for which a call did not succeed.

use serde_json::{Map, Value};

use crate::{Category, Violation, sentences};

/// The reason for which a call did not succeed. One pointer wide, because it travels through many
/// results.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", .0.message)]
pub struct Failure(Box<FailureInner>);

/// The fields of a [`Failure`].
#[derive(Clone, Debug, PartialEq)]
pub struct FailureInner {
    /// The kind.
    pub category: Category,
    /// A stable code in snake case.
    pub code: String,
    /// One sentence that names the place and the remedy, fit for a model.
    pub message: String,
    /// Whether the same call may succeed later without any change.
    pub retryable: bool,
    /// Every violation of the arguments.
    pub violations: Vec<Violation>,
    /// Details that depend on the code; empty if there are none.
    pub details: Map<String, Value>,
}

impl From<FailureInner> for Failure {
    fn from(inner: FailureInner) -> Self {
        Self(Box::new(inner))
    }
}

impl std::ops::Deref for Failure {
    type Target = FailureInner;

    fn deref(&self) -> &FailureInner {
        &self.0
    }
}

impl std::ops::DerefMut for Failure {
    fn deref_mut(&mut self) -> &mut FailureInner {
        &mut self.0
    }
}

impl Failure {
    /// Makes a failure that a retry does not help.
    pub fn new(category: Category, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::from(FailureInner {
            category,
            code: code.into(),
            message: message.into(),
            retryable: false,
            violations: Vec::new(),
            details: Map::new(),
        })
    }

    /// Makes the failure of a call whose inputs or settings are wrong.
    pub fn invalid(code: &str, message: impl Into<String>) -> Self {
        Self::new(Category::Validation, code, message)
    }

    /// Makes the failure of a call that exceeded a limit.
    pub fn limit(code: &str, message: impl Into<String>) -> Self {
        Self::new(Category::Limit, code, message)
    }

    /// Makes the failure of arguments that break their schema.
    pub fn invalid_arguments(tool: &str, violations: Vec<Violation>) -> Self {
        let sentence = sentences(&violations);
        let message = format!("invalid parameters for {tool}: {sentence}");
        let mut failure = Self::invalid("invalid_arguments", message);
        failure.violations = violations;
        failure
    }

    /// Marks the failure as worth another attempt.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// Adds one detail.
    #[must_use]
    pub fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    /// Adds the node of a workflow in which the call failed. A failure from a workflow below names
    /// its own node already; the two become one path, and the message names it once.
    #[must_use]
    pub fn in_node(mut self, node_id: &str, node_type: &str) -> Self {
        let text = |key: &str| self.details.get(key).and_then(Value::as_str);
        let inner = text("node_id").zip(text("node_type"));
        let inner = inner.and_then(|(id, full_type)| {
            let message = self.message.strip_prefix(&place(id, full_type))?;
            Some((format!("{node_id}/{id}"), full_type.to_owned(), message))
        });
        let (path, full_type, message) =
            inner.unwrap_or_else(|| (node_id.to_owned(), node_type.to_owned(), &self.message));
        self.message = format!("{}{message}", place(&path, &full_type));
        self.detail("node_id", path).detail("node_type", full_type)
    }
}

fn place(node_id: &str, node_type: &str) -> String {
    format!("node `{node_id}` ({node_type}): ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_nested_failure_names_its_path_once() {
        let failure = Failure::new(Category::Runtime, "script_exited", "it broke")
            .in_node("script", "core:Script")
            .detail("run_id", "flow_1")
            .in_node("call", "core:ExecuteTool")
            .in_node("outer", "core:ExecuteTool");
        assert_eq!(
            failure.message,
            "node `outer/call/script` (core:Script): it broke"
        );
        assert_eq!(failure.details["node_id"], "outer/call/script");
        assert_eq!(failure.details["node_type"], "core:Script");
    }

    #[test]
    fn details_that_a_tool_made_up_change_no_path() {
        let failure = Failure::new(Category::Domain, "no", "it refused")
            .detail("node_id", "x")
            .detail("node_type", json!(3))
            .in_node("call", "core:ExecuteTool");
        assert_eq!(
            failure.message,
            "node `call` (core:ExecuteTool): it refused"
        );
        assert_eq!(failure.details["node_id"], "call");
    }
}
