//! A parsed text as a message.

use call_catalogue::{Catalogue, Class, Diagnostic, Dialect, Severity, Span, Tolerance};
use call_prompt::echo::Echo;
use call_prompt::{lint, observation};
use call_text::StepControl;
use call_text::{Call, Parsed, RawArgument};
use contracts::tavern::common::v1 as common;
use serde_json::{Map, Value};

use crate::dialect::dialect_to_proto;
use crate::problem::problem_to_proto;

/// Writes a parsed text: the calls that shall run, and every remark.
///
/// A call that appears in the untrusted texts of `echo` gets the problem `untrusted_echo`. The
/// observation names every block that no call could be made from, also alongside blocks that run;
/// the problems of single calls are in the calls and are reported when they are refused.
pub fn parsed_to_proto(parsed: &Parsed, catalogue: &Catalogue, echo: &Echo) -> common::ParsedText {
    let calls: Vec<_> = parsed.runnable().collect();
    let mut observation =
        observation::for_blocks(parsed, Dialect::Action, catalogue).unwrap_or_default();
    let mut left_out = observation::not_run(parsed).unwrap_or_default();
    if calls.is_empty() && !left_out.is_empty() {
        observation.push('\n');
        observation.push_str(&std::mem::take(&mut left_out));
    }
    let calls = calls.into_iter().zip(0..);
    let calls = calls
        .map(|(call, index)| call_with_diagnostics_to_proto(index, call, catalogue, echo))
        .collect();
    let tolerances = parsed.calls.iter().flat_map(|call| &call.tolerances);
    let lints = parsed.calls.iter().filter(|call| call.runs);
    let lints = lints.flat_map(|call| lint::placeholders(call, catalogue));
    let mut diagnostics: Vec<_> = parsed
        .diagnostics
        .iter()
        .cloned()
        .chain(tolerances.map(Tolerance::to_diagnostic))
        .chain(lints)
        .collect();
    diagnostics.sort_by_key(|diagnostic| diagnostic.span.start);
    diagnostics.dedup();
    common::ParsedText {
        response_text: parsed.response_text.clone(),
        trailing_text: parsed.trailing_text.clone(),
        calls,
        diagnostics: diagnostics.iter().map(diagnostic_to_proto).collect(),
        dialect: parsed
            .dialect
            .map_or(0, |dialect| dialect_to_proto(dialect).into()),
        observation,
        left_out,
    }
}

/// Writes a call with the text for the model if it does not run.
pub fn call_with_diagnostics_to_proto(
    index: u32,
    call: &Call,
    catalogue: &Catalogue,
    echo: &Echo,
) -> common::ToolCall {
    let mut written = call_to_proto(index, call);
    written.parallel_safe = catalogue
        .tool(&call.tool_id)
        .is_some_and(|tool| tool.parallel_safe);
    if call.problems.is_empty() && echo.contains(call) {
        let message = format!(
            "{} was not run, because the same call appears in untrusted text, which is not obeyed",
            call.tool_id
        );
        let code = "untrusted_echo".to_owned();
        written.problems.push(common::Violation {
            code,
            message,
            ..common::Violation::default()
        });
        written.feedback = observation::untrusted_echo(&call.tool_id);
    } else {
        written.feedback = observation::for_call(call, catalogue).unwrap_or_default();
    }
    written
}

/// Writes the call at `index` among the calls of its text. The declarations of its tool are not
/// known here.
pub fn call_to_proto(index: u32, call: &Call) -> common::ToolCall {
    common::ToolCall {
        index,
        tool_id: call.tool_id.clone(),
        arguments_json: object(&call.arguments),
        dialect: dialect_to_proto(call.dialect).into(),
        span: Some(span_to_proto(call.span)),
        needs_confirmation: call.needs_confirmation,
        problems: call.problems.iter().map(problem_to_proto).collect(),
        continue_on_error: call.control.continue_on_error,
        tolerances: call.tolerances.iter().map(tolerance_to_proto).collect(),
        raw_arguments: call
            .raw_arguments
            .iter()
            .map(raw_argument_to_proto)
            .collect(),
        feedback: String::new(),
        control: control_to_proto(&call.control),
        parallel_safe: false,
    }
}

fn tolerance_to_proto(tolerance: &Tolerance) -> common::Tolerance {
    common::Tolerance {
        rule: tolerance.rule.to_string(),
        code: tolerance.code.clone(),
        tolerance_class: class_to_proto(Some(tolerance.class)).into(),
        span: Some(span_to_proto(tolerance.span)),
        before: tolerance.before.clone(),
        after: tolerance.after.clone(),
    }
}

fn raw_argument_to_proto(raw: &RawArgument) -> common::RawArgument {
    common::RawArgument {
        name: raw.name.to_string(),
        written_name: raw.written_name.to_string(),
        text: raw.text.to_string(),
        span: (raw.span != Span::default()).then(|| span_to_proto(raw.span)),
    }
}

fn control_to_proto(control: &StepControl) -> Option<common::CallControl> {
    let asks = common::CallControl {
        step: control.step.unwrap_or(0),
        retries: control.retries,
        uris_json: if control.uris.is_empty() {
            String::new()
        } else {
            object(&control.uris)
        },
        no_reply: control.no_reply,
        metadata_json: match control.metadata.is_empty() {
            true => String::new(),
            false => object(&control.metadata),
        },
    };
    (asks != common::CallControl::default()).then_some(asks)
}

fn object(members: &Map<String, Value>) -> String {
    Value::Object(members.clone()).to_string()
}

fn class_to_proto(class: Option<Class>) -> common::ToleranceClass {
    match class {
        None => common::ToleranceClass::Unspecified,
        Some(Class::Verbatim) => common::ToleranceClass::Verbatim,
        Some(Class::Spelling) => common::ToleranceClass::Spelling,
        Some(Class::Repair | Class::Doubt) => common::ToleranceClass::Repair,
    }
}

/// Writes a remark of the parser.
pub fn diagnostic_to_proto(diagnostic: &Diagnostic) -> common::Diagnostic {
    let severity = match diagnostic.severity {
        Severity::Hint => common::Severity::Note,
        Severity::Warning => common::Severity::Warning,
        Severity::Error => common::Severity::Error,
    };
    common::Diagnostic {
        rule: diagnostic.rule.to_string(),
        code: diagnostic.code.clone(),
        severity: severity.into(),
        tolerance_class: class_to_proto(diagnostic.class).into(),
        span: Some(span_to_proto(diagnostic.span)),
        message: diagnostic.message.clone(),
        hint: diagnostic.hint.clone(),
    }
}

/// Writes a place in a text.
pub fn span_to_proto(span: Span) -> common::TextSpan {
    // A message is at most 1 MiB long, so its offsets fit; larger ones are held at the end.
    let offset = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    common::TextSpan {
        start: offset(span.start),
        end: offset(span.end),
    }
}

#[cfg(test)]
mod tests {
    use call_catalogue::Tool;
    use call_text::{FinishReason, Policy, parse, parse_finished};
    use serde_json::json;

    use super::*;

    #[test]
    fn every_block_that_no_call_was_made_from_is_reported_also_beside_a_good_one() {
        let schema = json!({"properties": {"q": {"type": "string"}}});
        let catalogue = Catalogue::new(vec![Tool::new("Say", "", schema)], Vec::new()).unwrap();
        let good = "<ACTION><Say><q>x</q></Say></ACTION>";
        let large = "x".repeat(400 << 10);
        for refused in [
            "<ACTION><Say><q>1</Say></ACTION>".to_owned(),
            "<ACTION><Say><q>cut".to_owned(),
            format!("<ACTION><Say><q>{large}</q></Say></ACTION>"),
        ] {
            for (text, calls) in [(format!("{good}\n{refused}"), 1), (refused, 0)] {
                let parsed = parse(&text, &catalogue, &Policy::default());
                let written = parsed_to_proto(&parsed, &catalogue, &Echo::new([]));
                let shown = &text[..text.len().min(80)];
                assert_eq!(written.calls.len(), calls, "{shown}");
                assert!(
                    written.observation.starts_with("Observation: Error - "),
                    "{shown}: {}",
                    written.observation
                );
            }
        }
    }

    fn written(text: &str) -> common::ParsedText {
        let parameters = json!({"properties": {"city": {"type": "string", "maxLength": 5}}});
        let tools = ["weather", "mail"].map(|id| Tool::new(id, "", parameters.clone()));
        let catalogue = Catalogue::new(tools.into(), vec![]).unwrap();
        let parsed = parse_finished(text, &catalogue, &Policy::default(), FinishReason::Stop);
        parsed_to_proto(&parsed, &catalogue, &Echo::default())
    }

    const CALL: &str = "<ACTION><weather><city>Oslo</city></weather></ACTION>";

    #[test]
    fn later_blocks_are_named_beside_the_calls_that_run() {
        let later = "<ACTION><mail/><weather/></ACTION>";
        let parsed = written(&format!("{CALL} It rains, so: {later}"));
        assert_eq!(parsed.calls.len(), 1);
        assert_eq!(parsed.observation, "");
        assert_eq!(
            parsed.left_out,
            "Observation: 2 calls of later blocks (mail, weather) were not run. They may be sent again now."
        );
        assert_eq!(written(CALL).left_out, "");
    }

    #[test]
    fn behind_a_broken_block_the_later_ones_stand_in_the_same_observation() {
        let parsed = written(&format!("<ACTION><weather></ACTION>\n{CALL}"));
        assert!(parsed.calls.is_empty());
        let lines: Vec<&str> = parsed.observation.lines().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("weather> is not closed"), "{lines:?}");
        assert!(
            lines[1].contains("1 call of later blocks (weather) was not run"),
            "{lines:?}"
        );
        assert_eq!(parsed.left_out, "");
    }

    #[test]
    fn a_value_that_dispatch_refuses_is_refused_here_with_the_same_code() {
        let parsed = written("<ACTION><weather><city>Reykjavik</city></weather></ACTION>");
        let problems = &parsed.calls[0].problems;
        assert_eq!(
            (problems[0].code.as_str(), problems[0].pointer.as_str()),
            ("too_long", "/city")
        );
        assert!(
            parsed.calls[0].feedback.contains("at most 5 characters"),
            "{}",
            parsed.calls[0].feedback
        );
    }
}
