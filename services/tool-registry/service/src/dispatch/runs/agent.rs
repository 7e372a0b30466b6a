//! Agents as tools: a call is a turn in a conversation of its own (rule G901).

use contracts::tavern::{
    agent::v1::{StartTurnRequest, start_turn_request::Input},
    common::v1::{CallGrant, Run, RunOutcome, StopReason},
};
use serde_json::{Value, json};

use crate::in_flight::TEXT;

/// Returns the turn that a call asks for.
pub(super) fn turn(
    profile_id: &str,
    arguments: &Value,
    grant: Option<CallGrant>,
) -> StartTurnRequest {
    let text = |key: &str| arguments[key].as_str().unwrap_or_default();
    let message = match text("context") {
        "" => text("message").to_owned(),
        context => format!("{context}\n\n{}", text("message")),
    };
    StartTurnRequest {
        profile_id: profile_id.to_owned(),
        input: Some(Input::UserMessage(message)),
        // It has an inventory of its own.
        grant: grant.map(|grant| CallGrant {
            tools: None,
            ..grant
        }),
        ..StartTurnRequest::default()
    }
}

/// Returns the output of a call whose turn succeeded.
pub(super) fn output(run: &Run, outcome: &RunOutcome, text: Value) -> Value {
    let stop_reason = StopReason::try_from(outcome.stop_reason).unwrap_or_default();
    let name = stop_reason.as_str_name();
    let name = name.strip_prefix("STOP_REASON_").unwrap_or(name);
    json!({TEXT: text, "stop_reason": name.to_lowercase(), "run_id": run.run_id})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g901_what_the_agent_should_know_comes_before_what_it_is_asked() {
        let grant = CallGrant {
            tokens: 900,
            ..CallGrant::default()
        };
        let arguments = json!({"message": "Is it safe?", "context": "It is dusk."});
        let turn = turn("elara", &arguments, Some(grant));
        let message = "It is dusk.\n\nIs it safe?".to_owned();
        assert_eq!(turn.input, Some(Input::UserMessage(message)));
        assert_eq!(turn.grant.unwrap().tokens, 900);
    }

    #[test]
    fn g901_the_result_names_the_run_and_why_it_stopped() {
        let run = Run {
            run_id: "turn_1".to_owned(),
            ..Run::default()
        };
        let outcome = RunOutcome {
            stop_reason: StopReason::Tokens.into(),
            ..RunOutcome::default()
        };
        assert_eq!(
            output(&run, &outcome, json!("No.")),
            json!({"text": "No.", "stop_reason": "tokens", "run_id": "turn_1"})
        );
    }
}
