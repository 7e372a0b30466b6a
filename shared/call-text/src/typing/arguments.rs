//! The parameter that a written name means (N1 to N3, N10, A16, A18).

use std::sync::Arc;

use call_catalogue::schema::Types;
use call_catalogue::{Class, Dialect, Entry, Problem, ProblemCode, Rule, Span, Tolerance, names};
use json_schema::pointer;
use serde_json::Value;

use crate::NameMatch;
use crate::dialect::context::Context;
use crate::dialect::json::of_members;
use crate::dialect::raw::{Content, RawCall, RawValue, Written};
use crate::scan::json;
use crate::typing::structure::Children;
use crate::typing::value::{Typer, peel_fence};

/// An argument under the name of its parameter.
#[derive(Debug)]
pub(crate) struct Argument {
    pub(crate) name: Arc<str>,
    /// The position of the parameter, if the tool declares it.
    pub(crate) parameter: Option<usize>,
    pub(crate) raw: RawValue,
}

impl Argument {
    /// Whether both are given for the same parameter.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self.parameter, other.parameter) {
            (None, None) => self.name == other.name,
            (own, others) => own == others,
        }
    }
}

/// The meaning of a written name.
enum Meaning {
    Parameter(usize),
    /// A parameter beyond the declared ones.
    Additional(Arc<str>),
    Ambiguous(Vec<String>),
    Unknown,
}

/// Sorts a call's values under the parameters of its tool and reports values that fit none.
pub(crate) fn resolve(
    raw: &mut RawCall,
    entry: Option<&Entry>,
    context: &Context<'_>,
    typer: &mut Typer<'_>,
) -> Vec<Argument> {
    let Some(entry) = entry else {
        let values = std::mem::take(&mut raw.arguments).into_iter();
        return values
            .map(|raw| Argument {
                name: raw.name.of(typer.text).into(),
                parameter: None,
                raw,
            })
            .collect();
    };
    let dialect = raw.dialect.unwrap_or(Dialect::Action);
    let mut values = std::mem::take(&mut raw.arguments);
    stray_as_value(raw, &mut values, entry, typer);
    values = unwrap_drift(values, entry, typer);
    values = wrap_drift(values, entry, typer);
    let mut arguments = Vec::with_capacity(values.len());
    for raw in values {
        let attribute = matches!(raw.content, Content::Attribute(_));
        let written = raw.name.of(typer.text);
        // Most names are written as the schema has them.
        if !attribute && let Some(position) = entry.position(written) {
            arguments.push(Argument {
                name: Arc::clone(&entry.parameters[position].name),
                parameter: Some(position),
                raw,
            });
            continue;
        }
        match meaning(written, entry, dialect, context) {
            Meaning::Parameter(position) => {
                let name = Arc::clone(&entry.parameters[position].name);
                note_spelling(&raw, &name, entry, typer);
                arguments.push(Argument {
                    name,
                    parameter: Some(position),
                    raw,
                });
            }
            Meaning::Additional(name) => {
                note_spelling(&raw, &name, entry, typer);
                arguments.push(Argument {
                    name,
                    parameter: None,
                    raw,
                });
            }
            // An attribute that is not a parameter has no meaning.
            _ if attribute => {
                let (rule, class) = (Rule::N10, Class::Verbatim);
                let code = "attribute_ignored";
                let note = Tolerance::new(rule, class, code, raw.name_span, written, "");
                typer.notes.push(note);
            }
            Meaning::Ambiguous(candidates) => {
                let problem = ambiguous(written, raw.name_span, candidates);
                typer.problems.push(problem);
            }
            Meaning::Unknown => {
                let problem = unknown(written, raw.name_span, entry);
                typer.problems.push(problem);
            }
        }
    }
    drop_attributes_beside_children(&mut arguments, typer);
    arguments
}

/// Logs a name that was written in another way than the schema's.
fn note_spelling(value: &RawValue, name: &str, entry: &Entry, typer: &mut Typer<'_>) {
    let span = value.name_span;
    let written = value.name.of(typer.text);
    let attribute = matches!(value.content, Content::Attribute(_));
    if written == name && !attribute {
        return;
    }
    let note = |rule, class, code| Tolerance::new(rule, class, code, span, written, name);
    let alias = name == "command" && entry.command_alias && is_command_alias(written);
    if alias {
        typer
            .notes
            .push(note(Rule::T19, Class::Verbatim, "command_alias"));
    } else if name != names::clean(written) {
        typer
            .notes
            .push(note(Rule::N1, Class::Spelling, "parameter_spelling"));
    }
    if attribute {
        typer
            .notes
            .push(note(Rule::N10, Class::Repair, "parameter_by_attribute"));
    }
}

/// Whether a name is the published spelling of a parameter named `command` (T19).
fn is_command_alias(written: &str) -> bool {
    names::squashes_to(written, "argcommand")
}

/// The problem of a name that fits several parameters (N2).
fn ambiguous(written: &str, span: Span, candidates: Vec<String>) -> Problem {
    let message = format!(
        "Parameter '{written}' fits several parameters: {}",
        candidates.join(", ")
    );
    Problem::new(ProblemCode::AmbiguousParameter, Rule::N2, span, message)
        .at(pointer::join("", written))
        .received(written)
        .suggesting(candidates.into_iter().take(3).collect())
}

/// The problem of a name that no parameter has, with the nearest ones.
pub(crate) fn unknown(written: &str, span: Span, entry: &Entry) -> Problem {
    let nearest = json_schema::nearest_names(&names::clean(written), entry.parameter_names());
    let mut message = format!("Unknown parameter '{}'", call_catalogue::cut(written));
    if let Some(first) = nearest.first() {
        message.push_str(&format!(", did you mean '{first}'?"));
    }
    let squashed = nearest
        .first()
        .is_some_and(|first| names::squash(first) == names::squash(written));
    let expected: Vec<&str> = entry.parameter_names().collect();
    Problem::new(
        ProblemCode::UnknownParameter,
        if squashed { Rule::N1 } else { Rule::N3 },
        span,
        message,
    )
    .at(pointer::join("", written))
    .expected(expected.join(", "))
    .received(written)
    .suggesting(nearest)
}

fn meaning(written: &str, entry: &Entry, dialect: Dialect, context: &Context<'_>) -> Meaning {
    if let Some(position) = entry.position(written) {
        return Meaning::Parameter(position);
    }
    let cleaned = names::clean(written);
    if let Some(position) = entry.position(&cleaned) {
        return Meaning::Parameter(position);
    }
    let fields = dialect.is_field_based();
    if fields && entry.command_alias && is_command_alias(&cleaned) {
        let position = entry.position("command");
        return position.map_or(Meaning::Unknown, Meaning::Parameter);
    }
    let matching = if fields {
        context.policy.tam_names
    } else {
        context.policy.action_names
    };
    if matching == NameMatch::Normalized {
        let found: Vec<usize> = entry.squashed_matches(&cleaned).collect();
        match found.as_slice() {
            [] => {}
            [one] => return Meaning::Parameter(*one),
            several => {
                let name = |position: &usize| entry.parameters[*position].name.to_string();
                return Meaning::Ambiguous(several.iter().map(name).collect());
            }
        }
    }
    let schema = entry.schema();
    if schema.is_open() || schema.by_pattern(&cleaned).is_some() {
        return Meaning::Additional(cleaned.as_ref().into());
    }
    Meaning::Unknown
}

/// Text in an element without children: the arguments as a JSON object, or the tool's only required
/// string (A16).
fn stray_as_value(
    raw: &mut RawCall,
    values: &mut Vec<RawValue>,
    entry: &Entry,
    typer: &mut Typer<'_>,
) {
    let stray = raw
        .stray
        .iter()
        .filter(|span| !span.of(typer.text).trim().is_empty());
    let Some(span) = stray.copied().reduce(|a, b| Span::new(a.start, b.end)) else {
        return;
    };
    let text = span.of(typer.text);
    if values.is_empty()
        && let Some(arguments) = text_as_arguments(text, span, entry, typer)
    {
        *values = arguments;
        return;
    }
    let note =
        |class, code, after: &str| Tolerance::new(Rule::A16, class, code, span, text.trim(), after);
    if let ([only], true) = (entry.required.as_slice(), values.is_empty())
        && entry.schema().member(only).types().has(Types::STRING)
    {
        // Remains of the parameter's own tags show that it was cut wrong.
        let class = match text.contains('<') {
            true => Class::Doubt,
            false => Class::Repair,
        };
        typer.notes.push(note(class, "text_as_parameter", only));
        let content = Content::Markup(span);
        values.push(RawValue {
            name: Written::Other(only.clone()),
            name_span: span,
            content,
        });
        return;
    }
    typer.notes.push(note(Class::Doubt, "stray_text", ""));
}

/// The arguments in a text that is a JSON object of the tool's parameters, alone, in CDATA or in a
/// fence; `None` where it is none.
fn text_as_arguments(
    text: &str,
    span: Span,
    entry: &Entry,
    typer: &mut Typer<'_>,
) -> Option<Vec<RawValue>> {
    let body = text.trim();
    let body = body
        .strip_prefix("<![CDATA[")
        .map_or(body, |body| body.trim_end_matches("]]>").trim());
    let body = peel_fence(body).unwrap_or(body);
    if !body.starts_with('{') || !body.ends_with('}') {
        return None;
    }
    match json::parse(body) {
        Ok(Value::Object(members)) => {
            let known = |name: &String| entry.declares(name) || WRAPPERS.contains(&name.as_str());
            let fits = members.is_empty() || members.keys().any(known) || entry.schema().is_open();
            // A text for the only parameter, which happens to be JSON.
            let meant = entry.required.len() == 1 && !fits;
            (!meant).then(|| {
                let (rule, class) = (Rule::A16, Class::Spelling);
                let note = Tolerance::new(rule, class, "json_arguments", span, body, "arguments");
                typer.notes.push(note);
                of_members(members, span)
            })
        }
        Ok(_) => None,
        Err(error) => {
            let begun = |name: &str| body.contains(&format!("\"{name}\""));
            entry.parameter_names().any(begun).then(|| {
                let message = format!("the arguments are not valid JSON: {error}");
                let problem = Problem::new(ProblemCode::InvalidJson, Rule::A16, span, message);
                typer
                    .problems
                    .push(problem.expected("object").received(body));
                Vec::new()
            })
        }
    }
}

const WRAPPERS: &[&str] = &["args", "arguments", "parameters", "params"];

/// `<args>` round the parameters, contrary to the schema (A18).
fn unwrap_drift(values: Vec<RawValue>, entry: &Entry, typer: &mut Typer<'_>) -> Vec<RawValue> {
    let [only] = values.as_slice() else {
        return values;
    };
    let written = only.name.of(typer.text);
    let wrapper = |name: &&str| written.eq_ignore_ascii_case(name);
    if !WRAPPERS.iter().any(wrapper) || entry.schema().property(written).is_some() {
        return values;
    }
    match &only.content {
        Content::Markup(span) => {
            let Some(children) = typer
                .children(*span)
                .filter(|children| all_declared(children, entry))
            else {
                return values;
            };
            typer.notes.push(Tolerance::new(
                Rule::A18,
                Class::Repair,
                "wrapper_removed",
                only.name_span,
                written,
                "",
            ));
            let elements = children.elements.into_iter();
            elements
                .map(|child| RawValue {
                    name: Written::Other(child.name),
                    name_span: only.name_span,
                    content: Content::Markup(child.inner),
                })
                .collect()
        }
        Content::Json(value) => {
            let members = value.as_object();
            let Some(map) = members.filter(|map| map.keys().all(|key| entry.declares(key))) else {
                return values;
            };
            typer.notes.push(Tolerance::new(
                Rule::A18,
                Class::Repair,
                "wrapper_removed",
                only.name_span,
                written,
                "",
            ));
            of_members(map.clone(), only.name_span)
        }
        _ => values,
    }
}

/// Parameters without the one object that should hold them (A18).
fn wrap_drift(values: Vec<RawValue>, entry: &Entry, typer: &mut Typer<'_>) -> Vec<RawValue> {
    let [only] = entry.parameters.as_slice() else {
        return values;
    };
    let only: &str = &only.name;
    let inner = entry.schema().member(only);
    let within = |value: &RawValue| {
        let name = value.name.of(typer.text);
        match value.content {
            Content::Markup(span) if name != only && inner.property(name).is_some() => {
                Some((value.name_span, span))
            }
            _ => None,
        }
    };
    let Some(spans) = values.iter().map(within).collect::<Option<Vec<_>>>() else {
        return values;
    };
    // The elements are side by side in the message, so their common span is the object's.
    let (Some(&(first, _)), Some(&(_, last))) = (spans.first(), spans.last()) else {
        return values;
    };
    let open = typer.text[..first.start].rfind('<').unwrap_or(first.start);
    let close = typer.text[last.end..]
        .find('>')
        .map_or(last.end, |at| last.end + at + 1);
    let (rule, class) = (Rule::A18, Class::Repair);
    let note = Tolerance::new(rule, class, "wrapper_supplied", first, "", only);
    typer.notes.push(note);
    vec![RawValue {
        name: Written::Other(only.to_owned()),
        name_span: first,
        content: Content::Markup(Span::new(open, close)),
    }]
}

fn all_declared(children: &Children, entry: &Entry) -> bool {
    children.text.trim().is_empty()
        && children
            .elements
            .iter()
            .all(|child| entry.declares(&child.name))
}

/// A child element wins over an attribute of the same name (N10).
fn drop_attributes_beside_children(arguments: &mut Vec<Argument>, typer: &mut Typer<'_>) {
    let attribute = |argument: &Argument| matches!(argument.raw.content, Content::Attribute(_));
    if !arguments.iter().any(attribute) {
        return;
    }
    let children: Vec<Arc<str>> = arguments
        .iter()
        .filter(|argument| !matches!(argument.raw.content, Content::Attribute(_)))
        .map(|argument| Arc::clone(&argument.name))
        .collect();
    arguments.retain(|argument| {
        let clash = matches!(argument.raw.content, Content::Attribute(_))
            && children.contains(&argument.name);
        if clash {
            let span = argument.raw.name_span;
            typer.notes.push(Tolerance::new(
                Rule::N10,
                Class::Doubt,
                "attribute_overridden",
                span,
                &argument.name,
                "",
            ));
        }
        !clash
    });
}
