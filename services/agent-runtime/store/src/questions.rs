//! Questions to people whose answer opens a turn (rule G808).
//!
//! A question is a run of the workflow service. A question whose call waits for the answer is not
//! stored here. If its call ended before, the question is stored until its answer has opened a
//! turn, whose request id is the run's, so that a crash loses no answer and opens no second turn.

use std::sync::Arc;

use contracts::tavern::common::v1::CallResult;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::store::{OpenQuestion, QuestionStore, StoreError};

/// The store of open questions. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Questions {
    store: Arc<dyn QuestionStore>,
    opened: mpsc::UnboundedSender<OpenQuestion>,
}

impl Questions {
    /// Makes the questions of a store. The receiver yields each question that is opened.
    pub fn new(store: Arc<dyn QuestionStore>) -> (Self, mpsc::UnboundedReceiver<OpenQuestion>) {
        // Its reader takes each at once; the questions themselves are bounded by the calls of
        // turns.
        let (opened, receiver) = mpsc::unbounded_channel();
        (Self { store, opened }, receiver)
    }

    /// Stores a question whose answer shall open a turn. Storing it again changes nothing.
    pub async fn keep(&self, question: OpenQuestion) -> Result<(), StoreError> {
        if self.store.open_question(&question).await? {
            // Without a receiver the service ends, and its next start reads the store.
            self.opened.send(question).unwrap_or_default();
        }
        Ok(())
    }
}

/// Returns the arguments of a question whose answer opens a turn unless they state `wait`.
pub fn without_wait(arguments_json: &str) -> Option<String> {
    let mut arguments: Value = serde_json::from_str(arguments_json).ok()?;
    let fields = arguments.as_object_mut()?;
    fields.entry("wait").or_insert(Value::Bool(false));
    Some(arguments.to_string())
}

/// Returns the run of an unanswered question.
pub fn pending(result: &CallResult) -> Option<String> {
    let output: Value = serde_json::from_str(&result.output_json).ok()?;
    let is_pending = output["status"] == "pending";
    let id = output["interaction_id"].as_str().filter(|_| is_pending)?;
    Some(id.to_owned())
}

/// Returns the prompt of a question.
pub fn prompt(arguments_json: &str) -> String {
    let arguments: Option<Value> = serde_json::from_str(arguments_json).ok();
    let prompt = arguments
        .as_ref()
        .and_then(|given| given["prompt"].as_str());
    prompt.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g808_a_question_continues_unless_the_model_asks_to_wait() {
        let arguments = |text: &str| without_wait(text).unwrap();
        assert_eq!(
            arguments(r#"{"prompt":"?"}"#),
            r#"{"prompt":"?","wait":false}"#
        );
        assert_eq!(arguments(r#"{"wait":true}"#), r#"{"wait":true}"#);
    }

    #[test]
    fn g808_only_a_pending_question_opens_a_turn() {
        let result = |output: &str| CallResult {
            output_json: output.to_owned(),
            ..CallResult::default()
        };
        let pending_run = pending(&result(r#"{"interaction_id":"wf_1","status":"pending"}"#));
        assert_eq!(pending_run.as_deref(), Some("wf_1"));
        assert_eq!(
            pending(&result(r#"{"interaction_id":"wf_1","status":"answered"}"#)),
            None
        );
        assert_eq!(pending(&result("")), None);
    }
}
