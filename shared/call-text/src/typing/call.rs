//! From a cut call to a typed one.

mod alternative;

use std::borrow::Cow;
use std::sync::Arc;

use call_catalogue::schema::{Schema, Types};
use call_catalogue::{Class, Dialect, Entry, Problem, ProblemCode, Rule, Span, ToolMatch};
use json_schema::pointer;
use serde_json::{Map, Value};

use self::alternative::typed_as_alternative;
use super::arguments::{self, Argument};
use super::check::check;
use super::steps::give::{asks_for_no_reply, asynchronous};
use super::value::{MOST_TRIALS, Typer, ValuePlace};
use super::{Source, refuse, text, tool_problem};
use crate::dialect::context::Context;
use crate::dialect::raw::{Content, Plain, RawCall, RawValue};
use crate::dialect::trained;
use crate::{Call, RawArgument, StepControl};

/// Types a call. `hints` are the encoding hints by written name, `fetched` the parameters whose
/// value is to be fetched from a URI.
pub(crate) fn type_call(
    mut raw: RawCall,
    hints: &Map<String, Value>,
    fetched: &Map<String, Value>,
    source: &Source<'_>,
    context: &Context<'_>,
) -> Call {
    let mut typer = Typer {
        text: source.text,
        limits: &context.policy.limits,
        notes: std::mem::take(&mut raw.notes),
        problems: std::mem::take(&mut raw.problems),
        trials: MOST_TRIALS,
    };
    let found = found(&mut raw, context);
    let entry = match found {
        ToolMatch::Visible(index, _) => Some(context.catalogue.entry(index)),
        other => {
            typer.problems.push(tool_problem(other, &raw, context));
            None
        }
    };
    let control = StepControl {
        no_reply: entry.is_some_and(|entry| takes_no_reply(&mut raw, entry, &mut typer)),
        ..StepControl::default()
    };
    let arguments = arguments::resolve(&mut raw, entry, context, &mut typer);
    let mut typed = match entry.map(Entry::schema).filter(|schema| schema.is_union()) {
        Some(schema) => {
            typed_as_alternative(&mut typer, &arguments, schema, hints, context, raw.span)
        }
        None => typed(
            &mut typer,
            &arguments,
            |argument| member(entry, argument),
            hints,
            context,
        ),
    };
    // Collecting would reuse the memory and then free the rest of it, which costs more.
    let mut raw_arguments = Vec::with_capacity(arguments.len());
    for argument in arguments {
        raw_arguments.push(raw_argument(argument, source));
    }
    if let Some(entry) = entry {
        missing(&mut typer, entry, &typed, fetched, raw.span);
        typed = check(&mut typer, entry, typed, &raw_arguments, fetched, raw.span);
        if entry.tool.strict || context.policy.strict {
            refuse(&typer.notes, &mut typer.problems);
        }
    }
    let read_only = entry.is_some_and(|entry| entry.tool.read_only);
    let repaired = typer.notes.iter().any(|note| note.class.is_repair());
    let doubted = typer.notes.iter().any(|note| note.class == Class::Doubt) || raw.ambiguous;
    Call {
        block: 0,
        dialect: raw.dialect.unwrap_or(Dialect::Native),
        tool_id: entry.map_or_else(|| raw.name.clone(), |entry| entry.tool.id.clone()),
        written_name: raw.name,
        arguments: typed,
        raw_arguments,
        span: raw.span,
        tolerances: typer.notes,
        problems: typer.problems,
        ambiguous: raw.ambiguous,
        needs_confirmation: doubted || (repaired && !read_only),
        runs: true,
        control,
        provider_id: raw.provider_id,
    }
}

/// Finds the tool of a call. A name that names no tool is tried without the marks that servers put
/// round names (F4).
fn found(raw: &mut RawCall, context: &Context<'_>) -> ToolMatch {
    let found = raw
        .found
        .unwrap_or_else(|| context.catalogue.find(&raw.name));
    let plain = trained::function_name(&raw.name);
    if found != ToolMatch::Unknown || plain.len() == raw.name.len() {
        return found;
    }
    raw.name = plain.to_owned();
    context.catalogue.find(&raw.name)
}

/// Removes `archery` from the elements and attributes of a call whose tool has no such parameter,
/// and returns whether it requests not to wait for the result (T27).
fn takes_no_reply(raw: &mut RawCall, entry: &Entry, typer: &mut Typer<'_>) -> bool {
    const KEY: &str = "archery";
    let text = typer.text;
    let is_control = |value: &RawValue| value.name.of(text).eq_ignore_ascii_case(KEY);
    if entry.declares(KEY) || !raw.arguments.iter().any(is_control) {
        return false;
    }
    let mut no_reply = false;
    raw.arguments.retain(|value| match value.content {
        Content::Markup(span) | Content::Attribute(span) if is_control(value) => {
            let written = span.of(text).trim();
            no_reply = asks_for_no_reply(written);
            typer.notes.push(asynchronous(value.name_span, written));
            false
        }
        _ => true,
    });
    no_reply
}

/// The values of the arguments, each under its schema, in the order of their first mention.
fn typed<'s>(
    typer: &mut Typer<'_>,
    arguments: &[Argument],
    schema: impl Fn(&Argument) -> Schema<'s>,
    hints: &Map<String, Value>,
    context: &Context<'_>,
) -> Map<String, Value> {
    let mut typed = Map::with_capacity(arguments.len());
    for (at, argument) in arguments.iter().enumerate() {
        let same = |other: &&Argument| other.is_same(argument);
        if arguments[..at].iter().any(|other| same(&other)) {
            continue;
        }
        let schema = schema(argument);
        let value = if arguments[at + 1..].iter().any(|other| same(&other)) {
            repeated_parameter(typer, &arguments[at..], schema, hints, context)
        } else {
            only_one(typer, argument, schema, hints)
        };
        if let Some(value) = value {
            // `to_string` would go through the formatter.
            typed.insert(String::from(&*argument.name), value);
        }
    }
    typed
}

/// The schema of an argument.
fn member<'e>(entry: Option<&'e Entry>, argument: &Argument) -> Schema<'e> {
    match (entry, argument.parameter) {
        (Some(entry), Some(position)) => entry.parameter_schema(position),
        (Some(entry), None) => entry.schema().member(&argument.name),
        (None, _) => Schema::unknown(),
    }
}

fn raw_argument(argument: Argument, source: &Source<'_>) -> RawArgument {
    let (text, span) = match &argument.raw.content {
        Content::Markup(span) | Content::Attribute(span) => (source.piece(*span), *span),
        Content::Plain(plain) => (source.piece(plain.span), plain.span),
        Content::Json(value) => (value.to_string().as_str().into(), Span::default()),
    };
    let written = argument.raw.name.of(source.text);
    RawArgument {
        written_name: match written == &*argument.name {
            true => Arc::clone(&argument.name),
            false => written.into(),
        },
        name: argument.name,
        text,
        span,
    }
}

/// The value of a parameter that is given once, as most are.
fn only_one(
    typer: &mut Typer<'_>,
    argument: &Argument,
    schema: Schema<'_>,
    hints: &Map<String, Value>,
) -> Option<Value> {
    let name: &str = &argument.name;
    if let Content::Markup(span) = argument.raw.content {
        return typer.repeated(&[span], schema, &ValuePlace::argument(span, name));
    }
    let place = ValuePlace::argument(argument.raw.name_span, name);
    let hint = hints.get(name).and_then(Value::as_str);
    one_value(typer, &argument.raw.content, hint, schema, &place)
}

/// The value of a parameter that is given several times: by the first of the arguments, and by
/// others after it.
fn repeated_parameter(
    typer: &mut Typer<'_>,
    arguments: &[Argument],
    schema: Schema<'_>,
    hints: &Map<String, Value>,
    context: &Context<'_>,
) -> Option<Value> {
    let first = arguments.first()?;
    let group = arguments.iter().filter(|other| other.is_same(first));
    let name: &str = &first.name;
    let place = ValuePlace::argument(first.raw.name_span, name);
    let markup = |argument: &Argument| match argument.raw.content {
        Content::Markup(span) => Some(span),
        _ => None,
    };
    if let Some(spans) = group.clone().map(markup).collect::<Option<Vec<_>>>() {
        return typer.repeated(
            &spans,
            schema,
            &ValuePlace {
                span: spans[0],
                ..place
            },
        );
    }
    let hint = hints.get(name).and_then(Value::as_str);
    let mut values: Vec<Option<Value>> = group
        .clone()
        .map(|argument| one_value(typer, &argument.raw.content, hint, schema, &place))
        .collect();
    if values.len() > 1 && values.iter().any(|value| *value != values[0]) {
        if context.policy.vcp_last_wins
            && group
                .clone()
                .all(|argument| matches!(argument.raw.content, Content::Plain(_)))
        {
            typer.note(Rule::T17, Class::Doubt, "last_value_wins", &place, "", "");
            return values.pop().flatten();
        }
        let message = format!(
            "Parameter '{name}' is given {} times with different values",
            values.len()
        );
        typer.problems.push(
            Problem::new(
                ProblemCode::DuplicateParameter,
                Rule::T17,
                place.span,
                message,
            )
            .at(place.path())
            .expected("one value"),
        );
    } else if values.len() > 1 {
        typer.note(
            Rule::T17,
            Class::Spelling,
            "repeated_parameter",
            &place,
            name,
            name,
        );
    }
    values.into_iter().next().flatten()
}

fn one_value(
    typer: &mut Typer<'_>,
    content: &Content,
    hint: Option<&str>,
    schema: Schema<'_>,
    place: &ValuePlace<'_>,
) -> Option<Value> {
    match content {
        Content::Markup(span) => typer.markup(*span, schema, place),
        Content::Attribute(span) => {
            let decoded = text::decode_entities(span.of(typer.text));
            typer.scalar(decoded.into(), schema, place)
        }
        Content::Json(value) => typer.json(Value::clone(value), schema, place),
        Content::Plain(plain) => {
            let place = ValuePlace {
                span: plain.span,
                ..*place
            };
            plain_value(typer, plain, hint, schema, &place)
        }
    }
}

fn plain_value(
    typer: &mut Typer<'_>,
    plain: &Plain,
    hint: Option<&str>,
    schema: Schema<'_>,
    place: &ValuePlace<'_>,
) -> Option<Value> {
    let source = text::of_plain(plain.span.of(typer.text), schema, plain.bare);
    let value = match plain.escaped {
        true => Cow::Owned(text::unescape_words(source)),
        false => Cow::Borrowed(source),
    };
    if let Some(hint) = hint {
        return typer.hinted(&value, hint, schema, place);
    }
    let types = schema.types();
    if value.is_empty() && !types.has(Types::STRING) && schema.allowed().is_none() {
        return typer.empty(types, place);
    }
    typer.scalar(value, schema, place)
}

/// Reports required parameters that are absent, unless a near miss was reported already.
fn missing(
    typer: &mut Typer<'_>,
    entry: &Entry,
    typed: &Map<String, Value>,
    fetched: &Map<String, Value>,
    span: Span,
) {
    for name in &entry.required {
        if typed.contains_key(name) || fetched.contains_key(name) {
            continue;
        }
        let reported = typer.problems.iter().any(|problem| {
            let near = problem
                .suggestions
                .iter()
                .any(|suggestion| suggestion == name);
            let same = problem.path.trim_start_matches('/') == pointer::escape(name);
            (near
                && matches!(
                    problem.code,
                    ProblemCode::UnknownParameter | ProblemCode::AmbiguousParameter
                ))
                || same
        });
        if reported {
            continue;
        }
        let expected = entry.schema().member(name).types().describe();
        typer.problems.push(
            Problem::new(
                ProblemCode::MissingParameter,
                Rule::C12,
                span,
                format!("Missing required parameter '{name}'"),
            )
            .at(pointer::join("", name))
            .expected(expected),
        );
    }
}
