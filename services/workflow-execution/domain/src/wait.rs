//! What a node can wait for.

use std::time::Duration;

use serde_json::Value;

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
    /// The end of the pause before another attempt of the node.
    Retry,
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
        /// The JSON Schema of an answer that is none of the choices; null accepts any where there are no
        /// choices.
        form: Value,
        /// The answers that can be chosen, with their texts.
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
