//! The results of effects and runs, converted between events and the engine.

use call_outcome::{Category, Failure};
use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::run_event::Kind;
use run_events::outcome;
use serde_json::{Value, json};

use crate::wire;
use workflow_domain::engine::{Engine, Outcome};
use workflow_domain::limits::MAX_VALUE_BYTES;
use workflow_domain::node_type::{Effect, HistoryRequest, Settled};
use workflow_domain::size::weight;
use workflow_domain::tool::ToolOutcome;

/// Rejects an effect that is too large for the log.
pub(super) fn check_effect(effect: &Effect) -> Result<(), Failure> {
    let bytes: usize = match effect {
        Effect::CallTool { arguments, .. } => arguments
            .iter()
            .map(|(key, value)| key.len() + weight(value))
            .sum(),
        Effect::RunScript { code, input, .. } => code.len() + weight(input),
        Effect::AskModel(request) => request.weight(),
        Effect::CallTools(requests) => {
            let values = requests.iter().flat_map(|request| request.arguments.iter());
            values.map(|(key, value)| key.len() + weight(value)).sum()
        }
        Effect::History(HistoryRequest::Load { .. }) => 0,
        Effect::History(HistoryRequest::Save { messages, .. }) => {
            messages.iter().map(|message| message.text.len()).sum()
        }
        Effect::DescribeTools(ids) => ids.iter().map(String::len).sum(),
        // The inputs of a zone do not leave the process.
        Effect::RunZone { .. } => 0,
    };
    if bytes <= MAX_VALUE_BYTES {
        return Ok(());
    }
    let message =
        format!("the node would hand over {bytes} bytes; at most {MAX_VALUE_BYTES} are accepted");
    Err(Failure::limit("arguments_too_large", message))
}

/// Writes the end of a call. An output that is too large is left out: the node fails because of its
/// size, and the registry's ledger has it.
pub(super) fn call_settled(result: &common::CallResult) -> Kind {
    let mut result = result.clone();
    if result.output_json.len() > MAX_VALUE_BYTES {
        result.output_json.clear();
    }
    Kind::CallSettled(common::CallSettled {
        result: Some(result),
    })
}

/// Converts the results of a list of calls to the node's result.
pub(super) fn settled_batch(
    results: &[common::CallResult],
    remark: Option<&str>,
) -> Result<Settled, Failure> {
    let outcome = |result: &common::CallResult| {
        let (status, output, failure) = match settled_tool(result)? {
            Settled::ToolFailed { status, failure } => (status, Value::Null, Some(failure)),
            Settled::Tool { output, .. } => ("succeeded", output, None),
            _ => unreachable!("a call ends as a call"),
        };
        Ok(ToolOutcome {
            status,
            output,
            failure,
            observation: call_wire::observation(result),
        })
    };
    let outcomes: Result<Vec<_>, Failure> = results.iter().map(outcome).collect();
    let mut outcomes = outcomes?;
    if let (Some(remark), Some(last)) = (remark, outcomes.last_mut()) {
        last.observation = format!("{}\n{remark}", last.observation);
    }
    Ok(Settled::Calls(outcomes))
}

/// Converts the result of a call to the node's result.
///
/// # Errors
/// The output is too large, or is not JSON.
pub fn settled_tool(result: &common::CallResult) -> Result<Settled, Failure> {
    let status = match result.status() {
        common::CallStatus::Succeeded => {
            let long = result.long_output.as_ref().map(|long| long.total_bytes);
            let bytes = long.unwrap_or(result.output_json.len() as u64);
            if long.is_some() || bytes > MAX_VALUE_BYTES as u64 {
                let message = format!(
                    "the tool gave {bytes} bytes; at most {MAX_VALUE_BYTES} are passed on, and ReadOutput \
                     reads them all by the handle {}",
                    result.effect_id
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

/// Writes the outcome of a run that ended by itself, with its handled failures.
pub fn outcome_to_proto(
    engine: &Engine,
    ended: Outcome,
    handled_failures: Vec<common::NodeFailure>,
) -> common::RunOutcome {
    match ended {
        Outcome::Succeeded(result) => common::RunOutcome {
            handled_failures,
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
            let full_type = &node.definition().full_type;
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

/// Adds the interface outputs whose source has finished to the outcome of a run that did not
/// succeed.
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

/// Adds the unconsumed signals to the outcome of a run, if it succeeded.
pub(super) fn with_unconsumed_signals(
    ended: common::RunOutcome,
    unconsumed_signals: Vec<common::UnconsumedSignals>,
) -> common::RunOutcome {
    match ended.state() {
        common::RunState::Succeeded => common::RunOutcome {
            unconsumed_signals,
            ..ended
        },
        _ => ended,
    }
}
