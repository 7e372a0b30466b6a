//! The results of the calls of the newest answer, as an input of a deliberation workflow.

use contracts::tavern::common::v1::{CallResult, run_event::Kind};
use serde_json::{Value, json};

/// The results of the calls of the newest answer, and the texts that the model reads about them.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    results: Vec<CallResult>,
    texts: Vec<(Option<u32>, String)>,
}

impl Observations {
    /// Takes an event of the turn.
    pub(super) fn take(&mut self, kind: &Kind) {
        match kind {
            Kind::ModelAnswered(_) => *self = Self::default(),
            Kind::CallSettled(settled) => self.results.extend(settled.result.clone()),
            Kind::Observation(observed) => {
                self.texts.push((observed.index, observed.text.clone()));
            }
            _ => {}
        }
    }

    /// Returns an item for each call, then one for each remark about the answer as a whole.
    pub fn items(&self) -> Vec<Value> {
        let calls = self.results.iter().map(|result| {
            let of_call = self
                .texts
                .iter()
                .filter(|(index, _)| *index == Some(result.index));
            let text: Vec<&str> = of_call.map(|(_, text)| text.as_str()).collect();
            let status = result.status().as_str_name();
            let status = status.trim_start_matches("CALL_STATUS_").to_lowercase();
            let output: Value = serde_json::from_str(&result.output_json).unwrap_or_default();
            json!({"tool_id": result.tool_id, "status": status, "text": text.join("\n"),
                   "output": output})
        });
        let whole = self.texts.iter().filter(|(index, _)| index.is_none());
        let remarks = whole.map(
            |(_, text)| json!({"tool_id": "", "status": "rejected", "text": text, "output": null}),
        );
        calls.chain(remarks).collect()
    }
}
