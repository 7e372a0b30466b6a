//! Arguments that are one of several alternatives as a whole (C9).

use std::borrow::Cow;

use call_catalogue::Span;
use call_catalogue::schema::Schema;
use serde_json::{Map, Value};

use super::typed;
use crate::dialect::context::Context;
use crate::dialect::raw::{Content, Plain};
use crate::typing::arguments::Argument;
use crate::typing::union::{Members, text_of, values_in};
use crate::typing::value::{Typer, ValuePlace};

/// The values of the arguments as the alternative that they mean.
pub(super) fn typed_as_alternative(
    typer: &mut Typer<'_>,
    arguments: &[Argument],
    schema: Schema<'_>,
    hints: &Map<String, Value>,
    context: &Context<'_>,
    span: Span,
) -> Map<String, Value> {
    let as_json = |argument: &Argument| match &argument.raw.content {
        Content::Json(value) => Some((argument.name.to_string(), Value::clone(value))),
        _ => None,
    };
    if let Some(written) = arguments.iter().map(as_json).collect::<Option<Map<_, _>>>() {
        let written = Value::Object(written);
        if schema.admits(&written)
            && let Value::Object(written) = written
        {
            return written;
        }
    }
    let given = GivenArguments {
        arguments,
        text: typer.text,
    };
    let place = ValuePlace::whole(span);
    let read = |typer: &mut Typer<'_>, alternative: Schema<'_>| {
        let member = |argument: &Argument| alternative.member(&argument.name);
        Some(Value::Object(typed(
            typer, arguments, member, hints, context,
        )))
    };
    match typer.members_as_alternative(schema, &given, &place, read) {
        Some(Value::Object(typed)) => typed,
        _ => Map::new(),
    }
}

/// The arguments of a call and the message that holds them.
struct GivenArguments<'t> {
    arguments: &'t [Argument],
    text: &'t str,
}

impl Members for GivenArguments<'_> {
    fn member(&self, name: &str, schema: Schema<'_>) -> Option<Cow<'_, Value>> {
        let mut arguments = self.arguments.iter();
        let argument = arguments.find(|argument| *argument.name == *name)?;
        Some(match &argument.raw.content {
            Content::Json(value) => Cow::Borrowed(value),
            Content::Markup(span) => Cow::Owned(text_of(*span, self.text, schema)),
            Content::Attribute(span) | Content::Plain(Plain { span, .. }) => {
                Cow::Owned(Value::String(span.of(self.text).trim().to_owned()))
            }
        })
    }

    fn work(&self) -> usize {
        let work = |argument: &Argument| match &argument.raw.content {
            Content::Json(value) => values_in(value),
            Content::Markup(span) | Content::Attribute(span) => span.len(),
            Content::Plain(plain) => plain.span.len(),
        };
        1 + self.arguments.iter().map(work).sum::<usize>()
    }
}
