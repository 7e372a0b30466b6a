//! Questions to people, by runs of a node (rule G808).

use contracts::tavern::common::v1::{Run, RunState};
use serde_json::{Value, json};

/// The code with which a question ends if its time passed before an answer.
const EXPIRED: &str = "expired";

/// Returns the result of a question whose run has ended, with an answer or without; `None` if it
/// failed or was cancelled.
pub fn question_ended(run: &Run) -> Option<Value> {
    let (id, outcome) = (&run.run_id, run.outcome.as_ref()?);
    let has_expired = || {
        outcome
            .error
            .as_ref()
            .is_some_and(|error| error.code == EXPIRED)
    };
    match outcome.state() {
        RunState::Succeeded => {
            let outputs = json_schema::parse_json_strict(&outcome.result_json).ok()?;
            let status = match outputs["expired"] == true {
                true => "defaulted",
                false => "answered",
            };
            Some(json!({"interaction_id": id, "status": status, "answer": outputs["answer"]}))
        }
        RunState::Failed if has_expired() => Some(json!({"interaction_id": id, "status": EXPIRED})),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use contracts::tavern::common::v1::{CallError, RunOutcome};

    use super::*;

    fn ended(state: RunState, result: &Value, code: &str) -> Option<Value> {
        let outcome = RunOutcome {
            state: state.into(),
            result_json: result.to_string(),
            error: Some(CallError {
                code: code.to_owned(),
                ..CallError::default()
            }),
            ..RunOutcome::default()
        };
        question_ended(&Run {
            run_id: "wf_1".to_owned(),
            outcome: Some(outcome),
            ..Run::default()
        })
    }

    #[test]
    fn g808_an_answer_a_default_no_answer_and_a_failure_differ() {
        let outputs = |expired: bool| json!({"answer": {"herb": "sage"}, "expired": expired});
        let succeeded = |expired| ended(RunState::Succeeded, &outputs(expired), "");
        assert_eq!(
            succeeded(false),
            Some(json!({
                "interaction_id": "wf_1", "status": "answered", "answer": {"herb": "sage"},
            }))
        );
        assert_eq!(succeeded(true).unwrap()["status"], "defaulted");
        let failed = |code| ended(RunState::Failed, &Value::Null, code);
        assert_eq!(failed("expired").unwrap()["status"], "expired");
        assert_eq!(failed("limit_exceeded"), None);
        assert_eq!(ended(RunState::Cancelled, &Value::Null, ""), None);
    }
}
