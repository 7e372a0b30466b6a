//! The outcome of a call, from the outcome of the run that it started.

use call_outcome::{CallOutcome, Category, Failure};
use contracts::tavern::common::v1::{CallError, Run, RunState};
use serde_json::Value;

use super::agent;
use crate::dispatch::ResolvedCall;
use tool_domain::definition::Implementation;

/// Reads the outcome of a run that has ended.
pub(super) fn read(run: &Run, resolved: &ResolvedCall) -> CallOutcome {
    let Some(outcome) = &run.outcome else {
        return CallOutcome::InDoubt(super::lost(resolved, &run.run_id));
    };
    let failure = || {
        let mut failure = failure_of(outcome.error.as_ref(), run);
        // Another attempt is another run, which would repeat the effects that this one had.
        failure.retryable &= resolved.tool.is_idempotent();
        failure
    };
    if *resolved.tool.implementation() == Implementation::Question
        && let Some(answered) = call_wire::question_ended(run)
    {
        return CallOutcome::Succeeded(answered);
    }
    match outcome.state() {
        RunState::Succeeded => match json_schema::parse_json_strict(&outcome.result_json) {
            Ok(text) if is_agent(resolved) => {
                CallOutcome::Succeeded(agent::output(run, outcome, text))
            }
            Ok(outputs) => CallOutcome::Succeeded(single(outputs)),
            Err(error) => CallOutcome::Failed(Failure::new(
                Category::Dependency,
                "workflow_result_malformed",
                format!("the result of {} is not JSON: {error}", run.run_id),
            )),
        },
        RunState::Cancelled => CallOutcome::Cancelled(failure()),
        RunState::InDoubt => CallOutcome::InDoubt(failure()),
        RunState::Failed
        | RunState::Queued
        | RunState::Running
        | RunState::Waiting
        | RunState::Paused
        | RunState::Unspecified => CallOutcome::Failed(failure()),
    }
}

fn is_agent(resolved: &ResolvedCall) -> bool {
    matches!(resolved.tool.implementation(), Implementation::Agent { .. })
}

/// A single interface output is the result itself (seed 000 §2.4); several stay an object.
fn single(outputs: Value) -> Value {
    match outputs {
        Value::Object(mut object) if object.len() == 1 => {
            let key = object.keys().next().cloned().unwrap_or_default();
            object.shift_remove(&key).unwrap_or(Value::Null)
        }
        other => other,
    }
}

fn failure_of(error: Option<&CallError>, run: &Run) -> Failure {
    let failure = match error {
        Some(error) => call_wire::failure_from_proto(error),
        None => Failure::new(
            Category::Dependency,
            "workflow_failed",
            "the workflow failed without a reason",
        ),
    };
    failure.detail("run_id", run.run_id.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_single_output_is_bare_and_several_are_a_map() {
        assert_eq!(single(json!({"summary": "s"})), json!("s"));
        assert_eq!(single(json!({"a": 1, "b": 2})), json!({"a": 1, "b": 2}));
        assert_eq!(single(json!({})), json!({}));
        assert_eq!(single(json!([1])), json!([1]));
    }
}
