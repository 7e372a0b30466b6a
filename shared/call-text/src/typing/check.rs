//! The check of typed arguments against the whole schema, as dispatch does it: ranges, lengths,
//! patterns and all else that types alone do not express.

use call_catalogue::placeholder::is_placeholder;
use call_catalogue::{Entry, Problem, ProblemCode, Rule, Span};
use json_schema::pointer;
use json_schema::{Violation, ViolationCode};
use serde_json::{Map, Value};

use super::value::Typer;
use crate::RawArgument;

/// Checks the arguments and returns them. Problems that typing reported are not reported again, nor
/// the absence of `fetched` arguments.
pub(super) fn check(
    typer: &mut Typer<'_>,
    entry: &Entry,
    typed: Map<String, Value>,
    raw: &[RawArgument],
    fetched: &Map<String, Value>,
    span: Span,
) -> Map<String, Value> {
    for (name, value) in &typed {
        if holds_placeholder(value) {
            let path = pointer::join("", name);
            let span = place(&path, raw).unwrap_or(span);
            let message = format!(
                "Parameter '{name}' holds the placeholder of an example; write the real value"
            );
            let code = ProblemCode::PlaceholderValue;
            typer.problems.retain(|problem| problem.path != path);
            typer
                .problems
                .push(Problem::new(code, Rule::T35, span, message).at(path));
        }
    }
    let Some(schema) = entry.beyond_typing(&typed) else {
        return typed;
    };
    let arguments = Value::Object(typed);
    if !schema.is_valid(&arguments) {
        let violations = schema.validate(&arguments).into_iter();
        let known = typer.problems.len();
        for violation in violations {
            let name = violation.name();
            let comes_later =
                violation.code == ViolationCode::MissingParameter && fetched.contains_key(&name);
            let reported = typer.problems[..known]
                .iter()
                .any(|problem| covers(problem, &violation, &name));
            if !comes_later && !reported {
                let place = place(&violation.pointer, raw).unwrap_or(span);
                typer.problems.push(problem(violation, place));
            }
        }
    }
    match arguments {
        Value::Object(typed) => typed,
        _ => Map::new(),
    }
}

/// Whether a text in a value was copied from an example.
fn holds_placeholder(value: &Value) -> bool {
    match value {
        Value::String(text) => is_placeholder(text),
        Value::Array(items) => items.iter().any(holds_placeholder),
        Value::Object(members) => members.values().any(holds_placeholder),
        _ => false,
    }
}

/// Whether a problem is about the same place, or a part of it, or names the missing argument.
fn covers(problem: &Problem, violation: &Violation, name: &str) -> bool {
    let within = |outer: &str, inner: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let (path, pointer) = (problem.path.as_str(), violation.pointer.as_str());
    let same = !path.is_empty() && (within(path, pointer) || within(pointer, path));
    let meant = || problem.suggestions.iter().any(|other| other == name);
    same || (violation.code == ViolationCode::MissingParameter && meant())
}

/// The place of the argument that a pointer leads into.
fn place(pointer: &str, raw: &[RawArgument]) -> Option<Span> {
    let first = pointer.strip_prefix('/')?.split('/').next()?;
    let named = |argument: &&RawArgument| *pointer::escape(&argument.name) == *first;
    let span = raw.iter().find(named)?.span;
    (!span.is_empty()).then_some(span)
}

fn problem(violation: Violation, span: Span) -> Problem {
    let code = violation.code.into();
    Problem::new(code, Rule::C11, span, violation.message)
        .at(violation.pointer)
        .expected(violation.expected)
        .received(&violation.received)
        .suggesting(violation.suggestions)
}

#[cfg(test)]
mod tests {
    use call_catalogue::{Catalogue, Tool};
    use serde_json::json;

    use crate::{Policy, parse};

    /// Typing accepts the same arguments as the schema that dispatch uses.
    #[test]
    fn a_ready_call_meets_its_schema_and_a_refused_one_says_why() {
        let schema = json!({
            "type": "object",
            "properties": {
                "count": {"type": "integer", "minimum": 1, "maximum": 10},
                "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 4},
                "step": {"type": "number", "multipleOf": 0.5},
                "list": {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "uniqueItems": true},
                "deep": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}},
                    "required": ["n"], "additionalProperties": false}
            },
            "patternProperties": {"^x_": {"type": "integer", "maximum": 5}},
            "additionalProperties": false
        });
        let compiled = json_schema::Schema::compile_parameters(&schema).unwrap();
        let tool = Tool::new("t", "", schema).read_only();
        let catalogue = Catalogue::new(vec![tool], vec![]).unwrap();
        for (arguments, problems) in [
            (
                "<count>10</count><code>abcd</code><step>1.5</step><x_a>5</x_a>",
                vec![],
            ),
            ("<count>11</count>", vec!["out_of_range:/count"]),
            ("<count>zero</count>", vec!["type_mismatch:/count"]),
            ("<code>abcde</code>", vec!["too_long:/code"]),
            ("<code>AB</code>", vec!["pattern:/code"]),
            ("<step>0.3</step>", vec!["not_multiple:/step"]),
            ("<list>[1,2,3]</list>", vec!["too_many_items:/list"]),
            ("<list>[1,1]</list>", vec!["not_unique:/list"]),
            ("<deep><n>-1</n></deep>", vec!["out_of_range:/deep/n"]),
            (
                "<deep><n>1</n><m>1</m></deep>",
                vec!["unknown_parameter:/deep/m"],
            ),
            ("<deep></deep>", vec!["missing_parameter:/deep/n"]),
            ("<x_a>6</x_a>", vec!["out_of_range:/x_a"]),
            ("<x_a>six</x_a>", vec!["type_mismatch:/x_a"]),
            ("<y_a>1</y_a>", vec!["unknown_parameter:/y_a"]),
            (
                "<count>11</count><qode>a</qode>",
                vec!["unknown_parameter:/qode", "out_of_range:/count"],
            ),
        ] {
            let message = format!("<ACTION><t>{arguments}</t></ACTION>");
            let parsed = parse(&message, &catalogue, &Policy::default());
            let call = &parsed.calls[0];
            let found: Vec<String> = call
                .problems
                .iter()
                .map(|problem| format!("{}:{}", problem.code.as_str(), problem.path))
                .collect();
            assert_eq!(found, problems, "{arguments}");
            let value = serde_json::Value::Object(call.arguments.clone());
            assert!(!call.is_ready() || compiled.is_valid(&value), "{arguments}");
            if let Some(problem) = call.problems.last() {
                let hit = problem.span.of(&message);
                assert!(!hit.is_empty(), "{arguments}");
            }
        }
    }
}
