//! The waits of a node.

use std::time::Duration;

use serde_json::Value;

/// The type of the nodes that wait for a signal.
pub const WAIT_SIGNAL: &str = "core:WaitSignal";

/// A wait of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitRequest {
    /// The kind of the wait.
    pub kind: WaitKind,
    /// The time at which it ends at the latest.
    pub due: Due,
}

/// The event that a node waits for.
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
        /// The JSON Schema of an answer that is none of the choices; null accepts any if there are
        /// no choices.
        form: Value,
        /// The answers that can be chosen, with their texts.
        choices: Vec<(String, String)>,
        /// The people who should answer.
        assignees: Vec<String>,
        /// The context that the person should see.
        context: Value,
    },
}

/// The due time of a wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Due {
    /// Only the end of the run ends it.
    Never,
    /// This long after it began.
    After(Duration),
    /// At this time: seconds and nanoseconds since the Unix epoch.
    At(i64, i32),
}

/// The cause of a node's waking.
#[derive(Clone, Debug, PartialEq)]
pub enum Wake {
    /// Its due time.
    Due,
    /// The signal, with this payload.
    Signal(Value),
    /// A person.
    Answer {
        /// The answer.
        answer: Value,
        /// The person who answered; empty if the request did not name them.
        by: String,
    },
}
