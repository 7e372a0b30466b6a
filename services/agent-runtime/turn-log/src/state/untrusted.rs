//! Texts that the model of a turn was shown and that are not trusted.

use agent_domain::{
    message::{ChatMessage, Role},
    plan::Opening,
};
use contracts::tavern::common::v1::run_event::Kind;
use serde_json::Value;

/// The texts of a turn, the oldest first.
#[derive(Clone, Debug)]
pub(super) struct Untrusted {
    texts: Vec<String>,
    /// The number of texts of messages from before the turn, which come first.
    given: usize,
}

impl Untrusted {
    /// Begins with the opening of the turn.
    pub(super) fn opened(opening: &Opening) -> Self {
        let texts = match opening {
            Opening::UserMessage(text) => vec![text.clone()],
            Opening::Events(events) => events.iter().map(Value::to_string).collect(),
            Opening::ModelText { .. } => Vec::new(),
        };
        Self { texts, given: 0 }
    }

    /// Takes a message from before the turn.
    pub(super) fn take_given(&mut self, message: &ChatMessage) {
        if let Some(text) = of_given(message) {
            self.texts.insert(self.given, text);
            self.given += 1;
        }
    }

    /// Takes the texts that an event showed the model.
    pub(super) fn take(&mut self, kind: &Kind) {
        let result = match kind {
            Kind::Steered(steered) => return self.texts.push(steered.message.clone()),
            Kind::ConversationCompacted(compacted) => {
                return self.texts.push(compacted.summary.clone());
            }
            Kind::CallSettled(settled) => settled.result.as_ref(),
            _ => None,
        };
        let Some(result) = result else { return };
        let output = Some(&result.output_json).filter(|output| !output.is_empty());
        self.texts.extend(output.cloned());
        let long = result.long_output.as_ref();
        self.texts.extend(long.map(|long| long.head.clone()));
        // The error message may be the tool's own.
        let error = result.error.as_ref();
        self.texts.extend(error.map(|error| error.message.clone()));
    }

    /// Returns the texts.
    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// Returns the text of a message from before a turn if the user or a tool is said to have written it.
pub fn of_given(message: &ChatMessage) -> Option<String> {
    matches!(message.role, Role::User | Role::Tool).then(|| message.text.clone())
}
