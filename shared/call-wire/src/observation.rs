//! The report to a model of a call that has ended.

use call_catalogue::{Problem, ProblemCode, Rule, Span};
use call_prompt::observation::{self as words, LongOutput};
use contracts::tavern::common::v1::{CallError, CallResult, CallStatus, ErrorCategory, Violation};
use serde_json::Value;

use crate::outcome::category_from_proto;

/// The longest observation of one call, in bytes (rule G605). The rest stays in the log.
const MAX_BYTES: usize = 8 << 10;
/// The same for the tool that reads the rest, whose caller chose the length.
const MAX_READ_BYTES: usize = 64 << 10;
/// The tool that reads the rest of an output.
const READ_TOOL: &str = "system:read_stream";
/// The parts of a longer output that are shown, in bytes: two thirds and one third of the room that
/// the words around them leave.
const HEAD_BYTES: usize = 5 << 10;
const TAIL_BYTES: usize = 5 << 9;

/// Words the end of a call in the default wording: markers of the dialects neutralised, and of a
/// long output its beginning and its end. At most 8 KiB, and 64 KiB for `system:read_stream`.
pub fn observation(result: &CallResult) -> String {
    let tool = result.tool_id.as_str();
    let error = result.error.clone().unwrap_or_default();
    let text = match result.status() {
        CallStatus::Succeeded => match long_output(result) {
            Some(long) => words::long_success(tool, &long),
            None => whole(result),
        },
        CallStatus::Rejected if !error.violations.is_empty() => rejected(tool, &error),
        _ => failed(tool, &error),
    };
    bounded(text + &warnings(result), most(result))
}

/// Words the warnings that hooks added to a result, a line each.
fn warnings(result: &CallResult) -> String {
    let lines = result.warnings.iter();
    let lines = lines.map(|warning| format!("\nWarning: {}", words::neutralise(warning)));
    lines.collect()
}

/// Words a success with its whole output.
fn whole(result: &CallResult) -> String {
    let (tool, mut output) = (result.tool_id.as_str(), output(&result.output_json));
    let results = words::take_results(&mut output);
    let text = match &result.approval {
        Some(approval) if !approval.edited_arguments_json.is_empty() => {
            let (arguments, reason) = (&approval.edited_arguments_json, &approval.reason);
            words::edited_success(tool, arguments, reason, &output)
        }
        _ => words::success(tool, &output),
    };
    text + &words::neutralise(&results)
}

/// Returns whether the whole output can be shown. The length of the shown text counts: a text loses
/// the escapes of JSON, and a text like a mark grows.
fn fits(result: &CallResult) -> bool {
    /// The most bytes of JSON that become one byte of a text: `\u0000`.
    const MOST_ESCAPED: usize = 6;
    let most = most(result);
    result.output_json.len() <= most * MOST_ESCAPED && whole(result).len() <= most
}

/// Returns the limit of the observation of a call, in bytes.
fn most(result: &CallResult) -> usize {
    match result.tool_id == READ_TOOL {
        true => MAX_READ_BYTES,
        false => MAX_BYTES,
    }
}

/// Returns whether a call returned more than its observation shows, so that the rest is read by its
/// handle.
pub fn gives_handle(result: &CallResult) -> bool {
    result.status() == CallStatus::Succeeded && long_output(result).is_some()
}

/// Returns the size of a call's output, in bytes of JSON; zero if it did not succeed.
pub fn output_bytes(result: &CallResult) -> u64 {
    let long = result.long_output.as_ref();
    long.map_or(result.output_json.len() as u64, |long| long.total_bytes)
}

/// Returns the ends of an output that is too long to be shown and can be read by its handle.
fn long_output(result: &CallResult) -> Option<LongOutput<'_>> {
    let json = &result.output_json;
    let (head, tail, total_bytes) = match &result.long_output {
        // The result holds only the beginning of an output that is kept elsewhere.
        Some(long) => {
            let head = words::head_within(&long.head, HEAD_BYTES + TAIL_BYTES);
            (head, "", long.total_bytes)
        }
        None if result.effect_id.is_empty() || fits(result) => return None,
        None => (head_of(json), tail_of(json), json.len() as u64),
    };
    Some(LongOutput {
        head,
        tail,
        total_bytes,
        handle: &result.effect_id,
    })
}

/// Returns the beginning of a JSON text, up to the end of a line if one ends near.
fn head_of(json: &str) -> &str {
    let head = words::head_within(json, HEAD_BYTES);
    let line = line_ends(head).filter(|end| *end > head.len() / 2).last();
    &head[..line.unwrap_or(head.len())]
}

/// Returns the end of a JSON text, from the beginning of a line if one begins near.
fn tail_of(json: &str) -> &str {
    let tail = words::tail_within(json, TAIL_BYTES);
    let line = line_ends(tail).find(|end| *end < tail.len() / 2);
    &tail[line.unwrap_or(0)..]
}

/// Returns the offsets of line ends: after line feeds, also escaped ones in a JSON string.
fn line_ends(json: &str) -> impl Iterator<Item = usize> {
    let bytes = json.as_bytes();
    (1..=bytes.len()).filter(move |end| match &bytes[..*end] {
        [.., b'\n'] => true,
        // Of several backslashes the last one is escaped itself.
        [rest @ .., b'\\', b'n'] => {
            rest.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 0
        }
        _ => false,
    })
}

/// Reads the output of a tool; text that is not valid JSON is reported unchanged.
fn output(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|_| Value::String(json.to_owned()))
}

fn rejected(tool: &str, error: &CallError) -> String {
    let of_tool = |code: ProblemCode| error.violations.iter().find(|v| v.code == code.as_str());
    let about_name = [
        ProblemCode::UnknownTool,
        ProblemCode::ToolNotAvailable,
        ProblemCode::ToolRemoved,
    ];
    if let Some(violation) = about_name.into_iter().find_map(of_tool) {
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

fn bounded(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    // The note has room within the bound.
    let end = text.floor_char_boundary(most - 40);
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

    fn succeeded(text: &str) -> CallResult {
        CallResult {
            effect_id: "call-1".into(),
            output_json: Value::String(text.to_owned()).to_string(),
            ..result(CallStatus::Succeeded)
        }
    }

    #[test]
    fn g605_a_long_output_is_shown_from_both_ends_cut_at_lines() {
        let lines: Vec<String> = (0..4_000)
            .map(|line| format!("line {line} of a log"))
            .collect();
        let output = succeeded(&lines.join("\n"));
        let total = output.output_json.len();
        let text = observation(&output);
        assert!(text.len() <= MAX_BYTES, "{}", text.len());
        let (_, shown) = text.split_once("Result: ").unwrap();
        let (head, rest) = shown.split_once("\n[").unwrap();
        let (left_out, tail) = rest.split_once("]\n").unwrap();
        assert!(
            output.output_json.starts_with(head) && head.ends_with("of a log\\n"),
            "{head}"
        );
        assert!(
            output.output_json.ends_with(tail) && tail.starts_with("line "),
            "{tail}"
        );
        assert!(head.len() > tail.len());
        let between = total - head.len() - tail.len();
        assert_eq!(left_out, format!("{between} bytes are left out here"));
        assert!(text.contains(&format!(
            "JSON text of {total} bytes, of which these are the first {} and the last {}; the rest is \
             kept under the handle call-1",
            head.len(),
            tail.len()
        )));
    }

    #[test]
    fn g605_a_text_is_measured_as_it_is_shown() {
        // In JSON each line break has two bytes.
        let many_lines = "ab\n".repeat(MAX_BYTES / 3 - 50);
        let output = succeeded(&many_lines);
        assert!(output.output_json.len() > MAX_BYTES);
        assert!(!gives_handle(&output));
        let text = observation(&output);
        assert!(
            text.len() <= MAX_BYTES && text.ends_with(&many_lines),
            "{}",
            text.len()
        );
        // Each mark grows by two bytes when it is broken.
        let many_marks = "<ACTION>".repeat(MAX_BYTES / 8 - 50);
        let output = succeeded(&many_marks);
        assert!(output.output_json.len() < MAX_BYTES);
        assert!(gives_handle(&output));
        let text = observation(&output);
        assert!(text.len() <= MAX_BYTES, "{}", text.len());
        assert!(
            !text.contains("more bytes were cut") && text.ends_with("ACTION>\""),
            "{text}"
        );
    }

    #[test]
    fn g605_what_is_read_by_a_handle_is_shown_whole() {
        let read = CallResult {
            tool_id: READ_TOOL.into(),
            ..succeeded(&"x".repeat(24 << 10))
        };
        assert!(!gives_handle(&read));
        assert!(observation(&read).len() > 24 << 10);
    }

    #[test]
    fn g605_lines_end_at_feeds_and_at_escaped_ones() {
        let ends: Vec<usize> = line_ends("a\nb\\nc\\\\nd").collect();
        assert_eq!(ends, [2, 5]);
    }

    #[test]
    fn l4_a_long_output_begins_in_the_observation_and_names_its_handle() {
        let kept = CallResult {
            effect_id: "call-1".into(),
            long_output: Some(common::LongOutput {
                head: "[1,2".into(),
                total_bytes: 65_538,
            }),
            ..result(CallStatus::Succeeded)
        };
        assert!(observation(&kept).ends_with(
            "JSON text of 65538 bytes, of which these are the first 4; the rest is kept under the handle \
             call-1. Result: [1,2"
        ));
    }

    #[test]
    fn a_long_output_without_a_handle_is_cut_and_says_so() {
        let output_json = Value::String("长".repeat(MAX_BYTES)).to_string();
        let result = observation(&CallResult {
            output_json,
            ..result(CallStatus::Succeeded)
        });
        assert!(result.len() <= MAX_BYTES);
        assert!(result.ends_with("more bytes were cut]"));
    }
}
