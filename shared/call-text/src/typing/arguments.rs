//! Which parameter a written name means (N1 to N3, N10, A16, A18).

use crate::catalogue::Entry;
use crate::dialect::element::Context;
use crate::dialect::raw::{Content, RawCall, RawValue};
use crate::typing::schema::Schema;
use crate::typing::structure::Children;
use crate::typing::value::{Typer, escape_pointer};
use crate::{Class, Dialect, NameMatch, Problem, ProblemCode, Rule, Span, Tolerance, names};

/// An argument under the name of its parameter.
#[derive(Debug)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) raw: RawValue,
}

/// What a written name means.
enum Meaning {
    Parameter(String),
    Ambiguous(Vec<String>),
    Unknown,
}

/// Sorts a call's values under the parameters of its tool and reports those that fit none.
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
                name: raw.name.clone(),
                raw,
            })
            .collect();
    };
    let schema = Schema::root(&entry.tool.parameters);
    let dialect = raw.dialect.unwrap_or(Dialect::Action);
    let mut values = std::mem::take(&mut raw.arguments);
    stray_as_value(raw, &mut values, schema, typer);
    values = unwrap_drift(values, entry, schema, typer);
    values = wrap_drift(values, entry, schema, typer);
    let mut arguments = Vec::with_capacity(values.len());
    for value in values {
        let attribute = matches!(value.content, Content::Attribute(_));
        match meaning(&value.name, entry, schema, dialect, context) {
            Meaning::Parameter(name) => {
                note_spelling(&value, &name, entry, typer);
                arguments.push(Argument { name, raw: value });
            }
            // An attribute that is no parameter says nothing.
            _ if attribute => {
                let span = value.name_span;
                typer.notes.push(Tolerance::new(
                    Rule::N10,
                    Class::Verbatim,
                    "attribute_ignored",
                    span,
                    &value.name,
                    "",
                ));
            }
            Meaning::Ambiguous(candidates) => {
                let message = format!(
                    "Parameter '{}' fits several parameters: {}",
                    value.name,
                    candidates.join(", ")
                );
                typer.problems.push(
                    Problem::new(
                        ProblemCode::AmbiguousParameter,
                        Rule::N2,
                        value.name_span,
                        message,
                    )
                    .at(format!("/{}", escape_pointer(&value.name)))
                    .received(&value.name)
                    .suggesting(candidates.into_iter().take(3).collect()),
                );
            }
            Meaning::Unknown => typer
                .problems
                .push(unknown(&value.name, value.name_span, entry)),
        }
    }
    drop_attributes_beside_children(&mut arguments, typer);
    arguments
}

/// Logs a name that was written in another way than the schema's.
fn note_spelling(value: &RawValue, name: &str, entry: &Entry, typer: &mut Typer<'_>) {
    let span = value.name_span;
    let mut note = |rule, class, code| {
        let note = Tolerance::new(rule, class, code, span, &value.name, name);
        typer.notes.push(note);
    };
    let alias =
        name == "command" && entry.command_alias && names::squash(&value.name) == "argcommand";
    if alias {
        note(Rule::T19, Class::Verbatim, "command_alias");
    } else if name != names::clean(&value.name) {
        note(Rule::N1, Class::Spelling, "parameter_spelling");
    }
    if matches!(value.content, Content::Attribute(_)) {
        note(Rule::N10, Class::Repair, "parameter_by_attribute");
    }
}

/// The problem of a name that no parameter has, with the nearest ones.
pub(crate) fn unknown(written: &str, span: Span, entry: &Entry) -> Problem {
    let nearest = names::nearest(
        &names::clean(written),
        entry.parameters.iter().map(String::as_str),
    );
    let mut message = format!("Unknown parameter '{}'", crate::diagnostic::cut(written));
    if let Some(first) = nearest.first() {
        message.push_str(&format!(", did you mean '{first}'?"));
    }
    let squashed = nearest
        .first()
        .is_some_and(|first| names::squash(first) == names::squash(written));
    Problem::new(
        ProblemCode::UnknownParameter,
        if squashed { Rule::N1 } else { Rule::N3 },
        span,
        message,
    )
    .at(format!("/{}", escape_pointer(written)))
    .expected(entry.parameters.join(", "))
    .received(written)
    .suggesting(nearest)
}

fn meaning(
    written: &str,
    entry: &Entry,
    schema: Schema<'_>,
    dialect: Dialect,
    context: &Context<'_>,
) -> Meaning {
    let cleaned = names::clean(written);
    if entry
        .parameters
        .iter()
        .any(|parameter| *parameter == cleaned)
    {
        return Meaning::Parameter(cleaned.into_owned());
    }
    let fields = dialect.is_field_based();
    if fields && entry.command_alias && names::squash(&cleaned) == "argcommand" {
        return Meaning::Parameter("command".to_owned());
    }
    let matching = if fields {
        context.policy.tam_names
    } else {
        context.policy.action_names
    };
    if matching == NameMatch::Normalized {
        let found = names::squashed_matches(&cleaned, entry.parameters.iter().map(String::as_str));
        match found.as_slice() {
            [] => {}
            [one] => return Meaning::Parameter((*one).to_owned()),
            several => {
                return Meaning::Ambiguous(several.iter().map(|name| (*name).to_owned()).collect());
            }
        }
    }
    if schema.is_open() {
        return Meaning::Parameter(cleaned.into_owned());
    }
    Meaning::Unknown
}

/// Text in an element without children is the tool's only required string (A16).
fn stray_as_value(
    raw: &mut RawCall,
    values: &mut Vec<RawValue>,
    schema: Schema<'_>,
    typer: &mut Typer<'_>,
) {
    let stray = raw
        .stray
        .iter()
        .filter(|span| !span.of(typer.text).trim().is_empty());
    let Some(span) = stray.copied().reduce(|a, b| Span::new(a.start, b.end)) else {
        return;
    };
    let required = schema.required();
    let text = span.of(typer.text);
    if let ([only], true) = (required.as_slice(), values.is_empty())
        && schema
            .member(only)
            .types()
            .has(super::schema::Types::STRING)
    {
        typer.notes.push(Tolerance::new(
            Rule::A16,
            Class::Repair,
            "text_as_parameter",
            span,
            text.trim(),
            only,
        ));
        let content = Content::Markup(span);
        values.push(RawValue {
            name: (*only).to_owned(),
            name_span: span,
            content,
        });
        return;
    }
    typer.notes.push(Tolerance::new(
        Rule::A16,
        Class::Repair,
        "stray_text",
        span,
        text.trim(),
        "",
    ));
}

const WRAPPERS: &[&str] = &["args", "arguments", "parameters", "params"];

/// `<args>` round the parameters, contrary to the schema (A18).
fn unwrap_drift(
    values: Vec<RawValue>,
    entry: &Entry,
    schema: Schema<'_>,
    typer: &mut Typer<'_>,
) -> Vec<RawValue> {
    let [only] = values.as_slice() else {
        return values;
    };
    if schema.property(&only.name).is_some()
        || !WRAPPERS
            .iter()
            .any(|name| only.name.eq_ignore_ascii_case(name))
    {
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
                &only.name,
                "",
            ));
            let elements = children.elements.into_iter();
            elements
                .map(|child| RawValue {
                    name: child.name,
                    name_span: only.name_span,
                    content: Content::Markup(child.inner),
                })
                .collect()
        }
        Content::Json(serde_json::Value::Object(map))
            if map.keys().all(|key| entry.parameters.contains(key)) =>
        {
            typer.notes.push(Tolerance::new(
                Rule::A18,
                Class::Repair,
                "wrapper_removed",
                only.name_span,
                &only.name,
                "",
            ));
            let members = map.clone().into_iter();
            members
                .map(|(name, value)| RawValue {
                    name,
                    name_span: only.name_span,
                    content: Content::Json(value),
                })
                .collect()
        }
        _ => values,
    }
}

/// Parameters without the one object that should hold them (A18).
fn wrap_drift(
    values: Vec<RawValue>,
    entry: &Entry,
    schema: Schema<'_>,
    typer: &mut Typer<'_>,
) -> Vec<RawValue> {
    let [only] = entry.parameters.as_slice() else {
        return values;
    };
    let inner = schema.member(only);
    let spans: Vec<(String, Span, Span)> = values
        .iter()
        .filter_map(|value| match value.content {
            Content::Markup(span) => Some((value.name.clone(), value.name_span, span)),
            _ => None,
        })
        .collect();
    let matching = spans.len() == values.len()
        && !values.is_empty()
        && spans
            .iter()
            .all(|(name, _, _)| name != only && inner.property(name).is_some());
    if !matching {
        return values;
    }
    // The elements stand side by side in the message, so their common span is the object's.
    let (first, last) = (&spans[0], &spans[spans.len() - 1]);
    let open = typer.text[..first.1.start]
        .rfind('<')
        .unwrap_or(first.1.start);
    let close = typer.text[last.2.end..]
        .find('>')
        .map_or(last.2.end, |at| last.2.end + at + 1);
    typer.notes.push(Tolerance::new(
        Rule::A18,
        Class::Repair,
        "wrapper_supplied",
        first.1,
        "",
        only,
    ));
    vec![RawValue {
        name: only.clone(),
        name_span: first.1,
        content: Content::Markup(Span::new(open, close)),
    }]
}

fn all_declared(children: &Children, entry: &Entry) -> bool {
    children.text.trim().is_empty()
        && children
            .elements
            .iter()
            .all(|child| entry.parameters.contains(&child.name))
}

/// A child element wins over an attribute of the same name (N10).
fn drop_attributes_beside_children(arguments: &mut Vec<Argument>, typer: &mut Typer<'_>) {
    let attribute = |argument: &Argument| matches!(argument.raw.content, Content::Attribute(_));
    if !arguments.iter().any(attribute) {
        return;
    }
    let children: Vec<String> = arguments
        .iter()
        .filter(|argument| !matches!(argument.raw.content, Content::Attribute(_)))
        .map(|argument| argument.name.clone())
        .collect();
    arguments.retain(|argument| {
        let clash = matches!(argument.raw.content, Content::Attribute(_))
            && children.contains(&argument.name);
        if clash {
            let span = argument.raw.name_span;
            typer.notes.push(Tolerance::new(
                Rule::N10,
                Class::Repair,
                "attribute_overridden",
                span,
                &argument.name,
                "",
            ));
        }
        !clash
    });
}
