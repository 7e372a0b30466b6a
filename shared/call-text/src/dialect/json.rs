//! Calls written as JSON objects: Hermes, and JSON inside ACTION (A13).

use call_catalogue::{Class, Dialect, Problem, ProblemCode, Rule, Span, Tolerance};
use serde_json::{Map, Value};

use super::raw::{Content, RawBlock, RawCall, RawValue, Written};
use crate::scan::json::{self, Slip};

/// Reads the JSON value at `span` as one call or a list of calls.
pub(crate) fn read_calls(text: &str, span: Span, in_action: bool, block: &mut RawBlock) {
    let value = match json::parse_spelled(span.of(text)) {
        Ok((value, slips)) => {
            block
                .notes
                .extend(slips.into_iter().map(|slip| spelling(slip, span)));
            value
        }
        Err(error) => {
            block.problems.push(
                Problem::new(
                    ProblemCode::InvalidJson,
                    Rule::A13,
                    span,
                    format!("the JSON of the call is not valid: {error}"),
                )
                .received(span.of(text)),
            );
            return;
        }
    };
    let items = match value {
        Value::Array(items) => items,
        other => vec![other],
    };
    for item in items {
        match call_of(item, span) {
            Some(mut call) => {
                if in_action {
                    call.notes.push(Tolerance::new(
                        Rule::A13,
                        Class::Spelling,
                        "json_in_action",
                        span,
                        span.of(text),
                        &call.name,
                    ));
                } else {
                    call.dialect = Some(Dialect::ToolJson);
                }
                block.calls.push(call);
            }
            None => block.problems.push(
                Problem::new(
                    ProblemCode::EmptyAction,
                    Rule::A13,
                    span,
                    "the JSON names no tool",
                )
                .expected("{\"name\": ..., \"arguments\": {...}}")
                .received(span.of(text)),
            ),
        }
    }
}

/// The note on a slip of spelling in JSON.
fn spelling(slip: Slip, span: Span) -> Tolerance {
    Tolerance::new(
        Rule::F8,
        Class::Spelling,
        slip.code,
        span,
        slip.before,
        slip.after,
    )
}

/// The members of the arguments object at `span`.
pub(crate) fn arguments_at(text: &str, span: Span, call: &mut RawCall) -> Vec<RawValue> {
    match json::parse_spelled(span.of(text)) {
        Ok((value, slips)) => {
            call.notes
                .extend(slips.into_iter().map(|slip| spelling(slip, span)));
            arguments_of(Some(value), span, &mut call.problems)
        }
        Err(_) => arguments_of(
            Some(Value::String(span.of(text).to_owned())),
            span,
            &mut call.problems,
        ),
    }
}

/// The call in `{"name": …, "arguments": {…}}` and its common variants.
fn call_of(value: Value, span: Span) -> Option<RawCall> {
    let Value::Object(map) = value else {
        return None;
    };
    let (name, arguments) = name_and_arguments(&map)?;
    let (name, arguments) = (name.to_owned(), arguments.cloned());
    let mut problems = Vec::new();
    let arguments = arguments_of(arguments, span, &mut problems);
    Some(RawCall {
        name,
        span,
        name_span: span,
        arguments,
        problems,
        ..RawCall::default()
    })
}

/// The keys that hold the name of a tool.
const NAMES: &[&str] = &[
    "name",
    "toolName",
    "tool",
    "tool_name",
    "function",
    "command",
];
/// The keys that hold the arguments.
const ARGUMENTS: &[&str] = &["arguments", "parameters", "args", "params", "input"];

/// Whether a key may hold the name of a tool.
pub(crate) fn is_name_key(key: &str) -> bool {
    NAMES.contains(&key)
}

/// Whether a key may hold the arguments.
pub(crate) fn is_argument_key(key: &str) -> bool {
    ARGUMENTS.contains(&key)
}

/// The tool's name and the arguments in an object that is a call, whichever names its members have.
pub(crate) fn name_and_arguments(call: &Map<String, Value>) -> Option<(&str, Option<&Value>)> {
    let call = call
        .get("function")
        .and_then(Value::as_object)
        .unwrap_or(call);
    let name = NAMES.iter().find_map(|key| call.get(*key)?.as_str())?;
    let arguments = ARGUMENTS.iter().find_map(|key| call.get(*key));
    Some((name, arguments))
}

/// The members of an arguments object, which may itself be JSON text.
pub(crate) fn arguments_of(
    arguments: Option<Value>,
    span: Span,
    problems: &mut Vec<Problem>,
) -> Vec<RawValue> {
    let map = match arguments {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(map)) => map,
        Some(Value::String(text)) if text.trim().is_empty() => Map::new(),
        Some(Value::String(text)) => match json::parse(&text) {
            Ok(Value::Object(map)) => map,
            Ok(_) => {
                problems.push(
                    Problem::new(
                        ProblemCode::InvalidJson,
                        Rule::C7,
                        span,
                        "the arguments are not an object",
                    )
                    .expected("object")
                    .received(&text),
                );
                Map::new()
            }
            Err(error) => {
                problems.push(
                    Problem::new(
                        ProblemCode::InvalidJson,
                        Rule::C7,
                        span,
                        format!("the arguments are not valid JSON: {error}"),
                    )
                    .expected("object")
                    .received(&text),
                );
                Map::new()
            }
        },
        Some(other) => {
            problems.push(
                Problem::new(
                    ProblemCode::InvalidJson,
                    Rule::C7,
                    span,
                    "the arguments are not an object",
                )
                .expected("object")
                .received(&other.to_string()),
            );
            Map::new()
        }
    };
    of_members(map, span)
}

/// The values that the members of an object are, all at one place.
pub(crate) fn of_members(members: Map<String, Value>, span: Span) -> Vec<RawValue> {
    members
        .into_iter()
        .map(|(name, value)| RawValue {
            name: Written::Other(name),
            name_span: span,
            content: Content::Json(Box::new(value)),
        })
        .collect()
}
