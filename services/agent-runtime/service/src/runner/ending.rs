//! The outcome of a turn, from the turn alone.

use agent_domain::{
    budgets::Budget,
    turn::{Finish, Turn},
};
use contracts::tavern::common::v1::{self as common, StopReason};
use run_events::outcome;
use serde_json::Value;

/// Returns the outcome of a turn that ends by itself.
pub(super) fn outcome(turn: &Turn, finish: &Finish) -> common::RunOutcome {
    match finish {
        Finish::Stop => succeeded(turn, StopReason::Stop),
        Finish::Budget(budget) => out_of_budget(turn, *budget),
        Finish::RepeatedFailure(failure) => {
            let message = format!("the model made the same mistake again and again: {failure}");
            let error = outcome::error(
                common::ErrorCategory::Validation,
                "repeated_failure",
                message,
            );
            failed(turn, error, StopReason::RepeatedFailure)
        }
        Finish::Repetition(tool_id) => {
            let message = format!(
                "the model made the same call with the same result five times in a row, {tool_id} last"
            );
            let error = outcome::error(common::ErrorCategory::Limit, "repetition", message);
            failed(turn, error, StopReason::Repetition)
        }
        Finish::InDoubt(effects) => {
            let message = "a call was dispatched and it is not known whether it took effect; look at its target, \
                           then continue in a new turn";
            let error = outcome::error(common::ErrorCategory::Runtime, "effect_unknown", message);
            let in_doubt = outcome::in_doubt(effects.clone(), error);
            outcome::with_stop(in_doubt, StopReason::InDoubt)
        }
    }
}

/// Returns the outcome of a turn that fails.
pub(super) fn failed(
    turn: &Turn,
    error: common::CallError,
    stop: StopReason,
) -> common::RunOutcome {
    let unsettled = turn.unsettled();
    let failed = match unsettled.is_empty() {
        true => outcome::failed(error),
        false => outcome::in_doubt(unsettled, error),
    };
    outcome::with_stop(failed, stop)
}

/// Returns the stop reason of a turn that fails: a used-up limit of its deliberation workflow, or a
/// failure.
pub(super) fn stop_reason(error: &common::CallError) -> StopReason {
    let details: Value = serde_json::from_str(&error.details_json).unwrap_or_default();
    match (error.code.as_str(), details["unit"].as_str()) {
        ("repetition", _) => StopReason::Repetition,
        ("budget_exhausted", Some("tokens")) => StopReason::Tokens,
        ("budget_exhausted", Some("money_micros")) => StopReason::Money,
        ("budget_exhausted", Some("calls")) => StopReason::Calls,
        ("budget_exhausted", Some("wall_seconds")) => StopReason::Wall,
        _ => StopReason::Error,
    }
}

/// A turn whose budget is used up succeeds only if the model wrote a text at the end.
fn out_of_budget(turn: &Turn, budget: Budget) -> common::RunOutcome {
    let stop = match budget {
        Budget::Iterations(_) => StopReason::Iterations,
        Budget::Calls(_) => StopReason::Calls,
        Budget::Bytes(_) => StopReason::Bytes,
        Budget::Tokens(_) => StopReason::Tokens,
        Budget::Money(_) => StopReason::Money,
        Budget::Wall(_) => StopReason::Wall,
    };
    if !turn.final_text().is_empty() {
        return succeeded(turn, stop);
    }
    let message = format!(
        "the turn used all of its {} and the model wrote no closing text; continue in a new \
         turn, or raise budgets.{}",
        budget.words(),
        budget.name()
    );
    let error = outcome::error(common::ErrorCategory::Limit, "budget_exhausted", message);
    failed(turn, error, stop)
}

fn succeeded(turn: &Turn, stop: StopReason) -> common::RunOutcome {
    let result = Value::String(turn.final_text().to_owned()).to_string();
    outcome::with_stop(outcome::succeeded(result), stop)
}
