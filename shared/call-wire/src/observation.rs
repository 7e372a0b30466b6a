//! The report to a model of a call that has ended.

use call_text::{
    Problem, ProblemCode, Rule, Span,
    observation::{self as words, LongOutput},
};
use contracts::tavern::common::v1::{CallError, CallResult, CallStatus, ErrorCategory, Violation};
use serde_json::Value;

use crate::outcome::category_from_proto;

/// The longest observation of one call, in bytes. What is beyond it stays in the log.
const MAX_BYTES: usize = 64 << 10;
/// The part of a longer output that is shown, in bytes; it leaves room for the words around it.
const HEAD_BYTES: usize = 60 << 10;

/// Words the end of a call in the default wording: markers of the dialects neutralised, and cut
/// after 64 KiB.
pub fn observation(result: &CallResult) -> String {
    let tool = result.tool_id.as_str();
    let error = result.error.clone().unwrap_or_default();
    let text = match result.status() {
        CallStatus::Succeeded => match (long_output(result), &result.approval) {
            (Some(long), _) => words::long_success(tool, &long),
            (None, Some(approval)) if !approval.edited_arguments_json.is_empty() => {
                let (arguments, reason) = (&approval.edited_arguments_json, &approval.reason);
                words::edited_success(tool, arguments, reason, &output(&result.output_json))
            }
            (None, _) => words::success(tool, &output(&result.output_json)),
        },
        CallStatus::Rejected if !error.violations.is_empty() => rejected(tool, &error),
        _ => failed(tool, &error),
    };
    bounded(text)
}

/// Returns whether a call gave more than its observation shows, so that the rest is read by its
/// handle.
pub fn gives_handle(result: &CallResult) -> bool {
    result.status() == CallStatus::Succeeded && long_output(result).is_some()
}

/// Returns the size of what a call gave, in bytes of JSON; zero if it did not succeed.
pub fn output_bytes(result: &CallResult) -> u64 {
    let long = result.long_output.as_ref();
    long.map_or(result.output_json.len() as u64, |long| long.total_bytes)
}

/// Returns the beginning of an output that is too long to be shown and can be read by its handle.
fn long_output(result: &CallResult) -> Option<LongOutput<'_>> {
    let json = &result.output_json;
    let (head, total_bytes) = match &result.long_output {
        Some(long) => (long.head.as_str(), long.total_bytes),
        None if json.len() <= MAX_BYTES || result.effect_id.is_empty() => return None,
        None => {
            let head = &json[..json.floor_char_boundary(HEAD_BYTES)];
            (head, json.len() as u64)
        }
    };
    Some(LongOutput {
        head,
        total_bytes,
        handle: &result.effect_id,
    })
}

/// Reads what a tool gave; text that is not valid JSON is reported as it is.
fn output(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|_| Value::String(json.to_owned()))
}

fn rejected(tool: &str, error: &CallError) -> String {
    let of_tool = |code: ProblemCode| error.violations.iter().find(|v| v.code == code.as_str());
    let unknown = of_tool(ProblemCode::UnknownTool).or(of_tool(ProblemCode::ToolNotAvailable));
    if let Some(violation) = unknown {
        let available = match violation.expected.as_str() {
            "" => String::new(),
            tools => format!(" Available tools: {tools}"),
        };
        return format!(
            "Observation: Error - {}{available}",
            words::neutralise(&violation.message)
        );
    }
    let problems: Vec<Problem> = error.violations.iter().map(problem).collect();
    words::invalid(tool, &problems, None)
}

/// Makes a problem of a violation, of which only the sentence is reported.
fn problem(violation: &Violation) -> Problem {
    Problem {
        code: ProblemCode::TypeMismatch,
        rule: Rule::C11,
        path: violation.pointer.clone(),
        expected: violation.expected.clone(),
        received: violation.received.clone(),
        suggestions: violation.suggestions.clone(),
        message: violation.message.clone(),
        span: Span::default(),
    }
}

fn failed(tool: &str, error: &CallError) -> String {
    let failure = words::Failure {
        category: category_name(error.category()),
        code: &error.code,
        message: &error.message,
        retryable: error.retryable,
    };
    words::failure(tool, &failure)
}

/// Returns the name of a category in lower case, as models and traces have it.
pub fn category_name(category: ErrorCategory) -> &'static str {
    match category {
        ErrorCategory::Unspecified => "unspecified",
        known => category_from_proto(known).as_str(),
    }
}

fn bounded(text: String) -> String {
    if text.len() <= MAX_BYTES {
        return text;
    }
    let end = text.floor_char_boundary(MAX_BYTES);
    format!(
        "{}\n[{} more bytes were cut]",
        &text[..end],
        text.len() - end
    )
}

#[cfg(test)]
mod tests {
    use contracts::tavern::common::v1 as common;

    use super::*;

    fn result(status: CallStatus) -> CallResult {
        CallResult {
            tool_id: "GetPlayerInfo".into(),
            status: status.into(),
            ..Default::default()
        }
    }

    #[test]
    fn g805_the_model_reads_what_a_person_changed() {
        let approval = common::CallApproval {
            edited_arguments_json: "{\"item\":\"moonmoss ring\",\"to\":\"player\",\"value\":40}"
                .into(),
            reason: "A ring of half that worth is enough.".into(),
            ..Default::default()
        };
        let result = CallResult {
            tool_id: "workflow:grant_item".into(),
            output_json: "\"granted\"".into(),
            approval: Some(approval),
            ..result(CallStatus::Succeeded)
        };
        assert_eq!(
            observation(&result),
            "Observation: Tool workflow:grant_item executed successfully with arguments that a person changed \
             to {\"item\":\"moonmoss ring\",\"to\":\"player\",\"value\":40}. Reason: A ring of half that worth is \
             enough. Result: granted"
        );
    }

    #[test]
    fn seed_002_section_5_1_a_success_is_reported() {
        let result = CallResult {
            tool_id: "ReadWorldStateTool".into(),
            output_json: "\"sunny\"".into(),
            ..result(CallStatus::Succeeded)
        };
        assert_eq!(
            observation(&result),
            "Observation: Tool ReadWorldStateTool executed successfully. Result: sunny"
        );
    }

    #[test]
    fn seed_002_section_5_5_a_wrong_parameter_is_reported_with_the_right_one() {
        let violation = Violation {
            code: "unknown_parameter".into(),
            message: "Unknown parameter 'playerId', did you mean 'player_id'?".into(),
            ..Default::default()
        };
        let error = CallError {
            violations: vec![violation],
            ..Default::default()
        };
        let result = CallResult {
            error: Some(error),
            ..result(CallStatus::Rejected)
        };
        assert_eq!(
            observation(&result),
            "Observation: Error - Invalid parameters for GetPlayerInfo: \
             Unknown parameter 'playerId', did you mean 'player_id'?"
        );
    }

    #[test]
    fn l4_a_long_output_begins_in_the_observation_and_names_its_handle() {
        let output_json = Value::String("x".repeat(MAX_BYTES)).to_string();
        let inline = CallResult {
            effect_id: "call-1".into(),
            output_json,
            ..result(CallStatus::Succeeded)
        };
        let kept = CallResult {
            effect_id: "call-1".into(),
            long_output: Some(common::LongOutput {
                head: "[1,2".into(),
                total_bytes: 65_538,
            }),
            ..result(CallStatus::Succeeded)
        };
        for (result, first) in [(&inline, 61_440), (&kept, 4)] {
            let text = observation(result);
            assert!(text.len() < MAX_BYTES, "{}", text.len());
            let says = format!(
                "JSON text of 65538 bytes, of which these are the first {first}; the rest is kept under \
                 the handle call-1. Result: "
            );
            assert!(text.contains(&says), "{}", &text[..200]);
        }
        assert!(observation(&kept).ends_with("Result: [1,2"));
    }

    #[test]
    fn a_long_output_without_a_handle_is_cut_and_says_so() {
        let output_json = Value::String("长".repeat(MAX_BYTES)).to_string();
        let result = observation(&CallResult {
            output_json,
            ..result(CallStatus::Succeeded)
        });
        assert!(result.len() < MAX_BYTES + 100);
        assert!(result.ends_with("more bytes were cut]"));
    }
}
