//! Values under a schema with alternatives (C9): the choice of the alternative that a value means.
//!
//! A property that is a constant or listed distinguishes alternatives. Where none does, each is
//! tried: the first that the value meets without a tolerance, else the first that it meets.

use std::borrow::Cow;

use call_catalogue::schema::{Schema, Types};
use call_catalogue::{Class, Span, scalar};
use serde_json::{Map, Value};

use super::structure::Children;
use super::text;
use super::value::{Typer, ValuePlace};

/// The order in which a text is tried as one of several types.
const BY_TYPE: [Types; 7] = [
    Types::NULL,
    Types::INTEGER,
    Types::NUMBER,
    Types::BOOLEAN,
    Types::OBJECT,
    Types::ARRAY,
    Types::STRING,
];

/// The work of a trial without the work on its value.
const EACH_TRIAL: usize = 256;

/// The values of a text under the names of properties.
pub(super) trait Members {
    /// The value under a name, of which a schema is known; `None` where there is none.
    fn member(&self, name: &str, schema: Schema<'_>) -> Option<Cow<'_, Value>>;

    /// The work of typing the members: their bytes, or the values in them.
    fn work(&self) -> usize;
}

impl Members for Map<String, Value> {
    fn member(&self, name: &str, _: Schema<'_>) -> Option<Cow<'_, Value>> {
        self.get(name).map(Cow::Borrowed)
    }

    fn work(&self) -> usize {
        1 + self.values().map(values_in).sum::<usize>()
    }
}

/// The elements of a value, and the message that holds them.
struct Elements<'t> {
    children: &'t Children,
    text: &'t str,
}

impl Members for Elements<'_> {
    fn member(&self, name: &str, schema: Schema<'_>) -> Option<Cow<'_, Value>> {
        let mut elements = self.children.elements.iter();
        let element = elements.find(|element| element.name == name)?;
        Some(Cow::Owned(text_of(element.inner, self.text, schema)))
    }

    fn work(&self) -> usize {
        let elements = self.children.elements.iter();
        elements.map(|element| 1 + element.inner.len()).sum()
    }
}

/// The text between tags.
pub(super) fn text_of(span: Span, text: &str, schema: Schema<'_>) -> Value {
    let (text, _) = text::of_markup(span.of(text), schema);
    Value::String(text.into_owned())
}

/// The verdict of the listed properties of an alternative on a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// A property names this alternative.
    Named,
    /// No property names an alternative.
    Silent,
    /// A required property is missing.
    Lacking,
    /// A property names another alternative.
    Other,
}

impl Typer<'_> {
    /// The value of a text as the first alternative that admits it; `None` where none does, or its
    /// type settles the choice.
    pub(super) fn text_as_alternative(
        &mut self,
        text: &str,
        schema: Schema<'_>,
        place: &ValuePlace<'_>,
    ) -> Option<Value> {
        let (types, trimmed) = (schema.types(), text.trim());
        let structure = (types.has(Types::OBJECT) && trimmed.starts_with('{'))
            || (types.has(Types::ARRAY) && trimmed.starts_with('['));
        let stays = || types.has(Types::STRING) && schema.admits(&Value::String(text.to_owned()));
        if structure || trimmed.is_empty() || stays() {
            return None;
        }
        let mut alternatives = schema.alternatives();
        alternatives.sort_by_key(|alternative| {
            let types = alternative.types();
            BY_TYPE.iter().position(|kind| types.has(*kind))
        });
        self.first_met(&alternatives, schema, text.len(), |typer, alternative| {
            typer.scalar(text.into(), alternative, place)
        })
    }

    /// The elements of a value as the alternative that they mean.
    pub(super) fn elements_as_alternative(
        &mut self,
        children: &Children,
        schema: Schema<'_>,
        place: &ValuePlace<'_>,
    ) -> Value {
        let text = self.text;
        let given = Elements { children, text };
        let value = self.members_as_alternative(schema, &given, place, |typer, alternative| {
            let types = alternative.types();
            Some(typer.elements(children.clone(), alternative, types, place))
        });
        value.unwrap_or(Value::Null)
    }

    /// A JSON value as the alternative that it means; it stays as it is where it meets the schema.
    pub(super) fn json_as_alternative(
        &mut self,
        value: Value,
        schema: Schema<'_>,
        place: &ValuePlace<'_>,
    ) -> Option<Value> {
        if schema.admits(&value) {
            return Some(value);
        }
        let read = |typer: &mut Self, alternative: Schema<'_>| {
            typer.json(value.clone(), alternative, place)
        };
        match &value {
            Value::Object(members) => self.members_as_alternative(schema, members, place, read),
            Value::String(text) => self.scalar(text.into(), schema, place),
            Value::Null => self.json_by_type(value, schema, place),
            other => {
                let alternatives = schema.alternatives();
                let met = self.first_met(&alternatives, schema, values_in(other), read);
                met.or_else(|| self.json_by_type(value, schema, place))
            }
        }
    }

    /// A value with members as the alternative that they mean.
    pub(super) fn members_as_alternative(
        &mut self,
        schema: Schema<'_>,
        given: &impl Members,
        place: &ValuePlace<'_>,
        mut read: impl FnMut(&mut Self, Schema<'_>) -> Option<Value>,
    ) -> Option<Value> {
        let mut alternatives = schema.alternatives();
        let object = |alternative: &Schema<'_>| alternative.types().has(Types::OBJECT);
        if alternatives.iter().any(object) {
            alternatives.retain(object);
        }
        let mut fits: Vec<(Fit, Schema<'_>)> = alternatives
            .iter()
            .map(|alternative| (fit(*alternative, given), *alternative))
            .collect();
        fits.retain(|(fit, _)| *fit != Fit::Other);
        fits.sort_by_key(|(fit, _)| *fit);
        let likely: Vec<Schema<'_>> = fits.iter().map(|(_, alternative)| *alternative).collect();
        match (likely.as_slice(), fits.first()) {
            ([only], _) => read(self, *only),
            (several, Some((best, _))) => {
                let met = self.first_met(several, schema, given.work(), &mut read);
                let best = fits.iter().filter(|(fit, _)| fit == best);
                let best = best.map(|(_, alternative)| *alternative);
                met.or_else(|| read(self, most_declared(best, given)))
            }
            (_, None) => {
                self.refuse_discriminator(&alternatives, given, place);
                read(self, Schema::unknown())
            }
        }
    }

    /// Types a value as each alternative in turn and keeps the first result that the schema admits:
    /// without a tolerance, else with tolerances. Returns `None` where none is admitted, or where
    /// the value is too large for another trial.
    fn first_met(
        &mut self,
        alternatives: &[Schema<'_>],
        schema: Schema<'_>,
        work: usize,
        mut read: impl FnMut(&mut Self, Schema<'_>) -> Option<Value>,
    ) -> Option<Value> {
        let (notes, problems) = (self.notes.len(), self.problems.len());
        let mut tolerated = None;
        for alternative in alternatives {
            self.trials = self.trials.checked_sub(EACH_TRIAL + work)?;
            let value = read(self, *alternative);
            let noted = self.notes.split_off(notes);
            let refused = self.problems.split_off(problems);
            let Some(value) = value.filter(|value| refused.is_empty() && schema.admits(value))
            else {
                continue;
            };
            if noted.iter().all(|note| note.class == Class::Verbatim) {
                self.notes.extend(noted);
                return Some(value);
            }
            tolerated.get_or_insert((value, noted));
        }
        let (value, noted) = tolerated?;
        self.notes.extend(noted);
        Some(value)
    }

    /// Reports the property by which a value is none of the alternatives.
    fn refuse_discriminator(
        &mut self,
        alternatives: &[Schema<'_>],
        given: &impl Members,
        place: &ValuePlace<'_>,
    ) {
        let listed = alternatives
            .iter()
            .flat_map(|alternative| listed(*alternative));
        let mut listed = listed.collect::<Vec<_>>();
        let wrong = listed.iter().find_map(|(name, property)| {
            let value = given.member(name, *property)?;
            (!names(&value, *property)).then(|| (name.clone(), value))
        });
        let Some((name, value)) = wrong else {
            return;
        };
        listed.retain(|(other, _)| *other == name);
        let mut allowed: Vec<&Value> = Vec::new();
        for value in listed
            .into_iter()
            .filter_map(|(_, property)| property.allowed())
            .flatten()
        {
            if !allowed.contains(&value) {
                allowed.push(value);
            }
        }
        let text = plain_text(&value);
        self.refuse_choice(&text, &allowed, &place.under(&name));
    }
}

/// The properties of a schema that are constants or listed.
fn listed(schema: Schema<'_>) -> impl Iterator<Item = (String, Schema<'_>)> {
    schema.property_names().into_iter().filter_map(move |name| {
        let property = schema.property(&name)?;
        property.allowed()?;
        Some((name, property))
    })
}

/// Returns the verdict of the listed properties of an alternative on a value.
fn fit(alternative: Schema<'_>, given: &impl Members) -> Fit {
    let mut fit = Fit::Silent;
    for (name, property) in listed(alternative) {
        match given.member(&name, property) {
            Some(value) if !names(&value, property) => return Fit::Other,
            Some(_) if fit == Fit::Silent => fit = Fit::Named,
            Some(_) => {}
            None if alternative.required().contains(&name.as_str()) => fit = Fit::Lacking,
            None => {}
        }
    }
    fit
}

/// Whether a property admits a value, in any spelling of it.
fn names(value: &Value, property: Schema<'_>) -> bool {
    let allowed = property.allowed().unwrap_or_default();
    allowed.contains(&value) || scalar::choose(&plain_text(value), &allowed).is_some()
}

fn plain_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// The first of the alternatives that declare most members of a value.
fn most_declared<'s>(
    alternatives: impl Iterator<Item = Schema<'s>>,
    given: &impl Members,
) -> Schema<'s> {
    let declared = |alternative: &Schema<'_>| {
        let names = alternative.property_names().into_iter();
        let held = |name: &String| given.member(name, Schema::unknown()).is_some();
        names.filter(held).count()
    };
    let alternatives: Vec<Schema<'_>> = alternatives.collect();
    // Of equals, the last one is the greatest.
    let best = alternatives
        .iter()
        .rev()
        .max_by_key(|alternative| declared(alternative));
    best.copied().unwrap_or(Schema::unknown())
}

/// Returns the number of values that a value is made of.
pub(super) fn values_in(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(values_in).sum(),
        Value::Object(members) => members.values().map(values_in).sum(),
        Value::String(text) => text.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
