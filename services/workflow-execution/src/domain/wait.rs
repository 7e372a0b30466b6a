//! What a node can wait for.

use std::time::Duration;

use serde_json::Value;

use super::plan::Plan;

/// The type of the nodes that wait for a signal.
pub const WAIT_SIGNAL: &str = "core:WaitSignal";

/// Something that a node waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitRequest {
    /// What wakes it.
    pub kind: WaitKind,
    /// When it is woken if nothing else has woken it by then.
    pub due: Due,
}

/// What wakes a node.
#[derive(Clone, Debug, PartialEq)]
pub enum WaitKind {
    /// The time alone.
    Timer,
    /// A signal.
    Signal {
        /// Its name.
        name: String,
        /// The JSON Schema of its payload; null accepts any.
        schema: Value,
    },
    /// The answer of a person.
    HumanInput {
        /// The question.
        title: String,
        /// The JSON Schema of the answer; null accepts any.
        form: Value,
        /// The answers that can be chosen, with their texts; empty unless the answer is one of them.
        choices: Vec<(String, String)>,
        /// Who should answer.
        assignees: Vec<String>,
        /// What the person should see.
        context: Value,
    },
}

/// When a wait is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Due {
    /// Only the end of the run ends it.
    Never,
    /// So long after it began.
    After(Duration),
    /// At this time: seconds and nanoseconds since the Unix epoch.
    At(i64, i32),
}

/// What woke a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Wake {
    /// Its time came.
    Due,
    /// The signal, with this payload.
    Signal(Value),
    /// A person.
    Answer {
        /// The answer.
        answer: Value,
        /// Who answered; empty if the request did not name them.
        by: String,
    },
}

/// Whether a node of the plan, or of a zone in it, can wait.
pub fn can_wait(plan: &Plan) -> bool {
    plan.nodes.iter().any(|node| {
        node.definition().waits || node.body.as_ref().is_some_and(|body| can_wait(body))
    })
}

/// Returns the name and the schema of each signal that a node of the plan, or of a zone in it, waits for.
pub fn signals(plan: &Plan) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for node in &plan.nodes {
        if let Some(body) = &node.body {
            found.extend(signals(body));
        }
        let name = node.config.get("name").and_then(Value::as_str);
        if let Some(name) = name.filter(|_| node.definition().full_type == WAIT_SIGNAL) {
            let schema = node.config.get("schema").cloned().unwrap_or_default();
            found.push((name.to_owned(), schema));
        }
    }
    found
}
