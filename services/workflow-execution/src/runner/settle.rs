//! What effects and runs came to, in the words of the other side.

use call_outcome::{Category, Failure};
use contracts::tavern::common::v1 as common;
use run_events::outcome;
use serde_json::{Value, json};

use crate::domain::engine::{Engine, Outcome};
use crate::domain::limits::MAX_VALUE_BYTES;
use crate::domain::node_type::{Effect, Settled};
use crate::domain::size::weight;
use crate::wire;

/// The most handled failures that an outcome lists.
const MAX_HANDLED: usize = 100;

/// Refuses an effect that is too large for the log.
pub(super) fn check_effect(effect: &Effect) -> Result<(), Failure> {
    let bytes: usize = match effect {
        Effect::CallTool { arguments, .. } => arguments
            .iter()
            .map(|(key, value)| key.len() + weight(value))
            .sum(),
        Effect::RunScript { code, input, .. } => code.len() + weight(input),
        Effect::AskModel(request) => request.weight(),
    };
    if bytes <= MAX_VALUE_BYTES {
        return Ok(());
    }
    let message =
        format!("the node would hand over {bytes} bytes; at most {MAX_VALUE_BYTES} are accepted");
    Err(Failure::limit("arguments_too_large", message))
}

/// Makes of a call's result what the node gets.
pub(super) fn settled_tool(result: &common::CallResult) -> Result<Settled, Failure> {
    let status = match result.status() {
        common::CallStatus::Succeeded => {
            if result.output_json.len() > MAX_VALUE_BYTES {
                let message = format!(
                    "the tool gave {} bytes; at most {MAX_VALUE_BYTES} are kept",
                    result.output_json.len()
                );
                return Err(Failure::limit("value_too_large", message));
            }
            let output = wire::read_value(&result.output_json).map_err(|problem| {
                let message = format!("the tool's output is not usable: {problem}");
                Failure::new(Category::Runtime, "output_malformed", message)
            })?;
            return Ok(Settled::Tool {
                output,
                child_run_id: result.child_run_id.clone(),
            });
        }
        common::CallStatus::Rejected => "rejected",
        common::CallStatus::Skipped => "skipped",
        common::CallStatus::Cancelled => "cancelled",
        _ => "failed",
    };
    let failure = result.error.as_ref().map(call_wire::failure_from_proto);
    let unnamed = || {
        Failure::new(
            Category::Runtime,
            status,
            format!("the call of `{}` {status}", result.tool_id),
        )
    };
    Ok(Settled::ToolFailed {
        status,
        failure: failure.unwrap_or_else(unnamed),
    })
}

/// Writes how a run ended.
pub(super) fn outcome_to_proto(engine: &Engine, ended: Outcome) -> common::RunOutcome {
    match ended {
        Outcome::Succeeded(result) => common::RunOutcome {
            handled_failures: handled_failures(engine),
            ..outcome::succeeded(Value::Object(result).to_string())
        },
        Outcome::TooLarge { bytes } => {
            let message = format!(
                "the outputs of the workflow have {bytes} bytes; at most {MAX_VALUE_BYTES} are kept"
            );
            outcome::failed(outcome::error(
                common::ErrorCategory::Limit,
                "result_too_large",
                message,
            ))
        }
        Outcome::Failed {
            first,
            failure,
            all,
        } => {
            let node = engine.node(first);
            let full_type = node.definition().full_type;
            let mut failure = failure.as_ref().clone().in_node(&node.id, full_type);
            if all.len() > 1 {
                let ids: Vec<&str> = all.iter().map(|node| &*engine.node(*node).id).collect();
                failure
                    .details
                    .insert("failed_nodes".to_owned(), json!(ids));
            }
            let failed = outcome::failed(call_wire::failure_to_proto(&failure));
            with_partial_result(engine, failed)
        }
    }
}

/// Adds the interface outputs whose source has finished to the outcome of a run that did not succeed.
pub(super) fn with_partial_result(
    engine: &Engine,
    ended: common::RunOutcome,
) -> common::RunOutcome {
    let (values, missing_outputs) = engine.partial_result();
    let partial_result_json = match values.is_empty() {
        true => String::new(),
        false => Value::Object(values).to_string(),
    };
    common::RunOutcome {
        partial_result_json,
        missing_outputs,
        ..ended
    }
}

fn handled_failures(engine: &Engine) -> Vec<common::NodeFailure> {
    let handled = engine.handled().iter().take(MAX_HANDLED);
    let failures = handled.map(|(node, failure)| common::NodeFailure {
        node_id: engine.node(*node).id.to_string(),
        error: Some(call_wire::failure_to_proto(failure)),
    });
    failures.collect()
}
