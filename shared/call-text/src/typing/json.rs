//! Values that are JSON already: checked against the schema, with the same tolerances as text.

use call_catalogue::schema::{Schema, Types};
use call_catalogue::{Class, Problem, ProblemCode, Rule, canonical, scalar};
use serde_json::{Map, Value};

use super::value::{Typer, ValuePlace};

impl Typer<'_> {
    /// Types a JSON value. `None` means that it counts as absent.
    pub(crate) fn json(
        &mut self,
        value: Value,
        schema: Schema<'_>,
        place: &ValuePlace<'_>,
    ) -> Option<Value> {
        if place.depth() > self.limits.depth {
            let message = format!("a value is nested deeper than {}", self.limits.depth);
            self.problems.push(
                Problem::new(ProblemCode::LimitExceeded, Rule::V13, place.span, message)
                    .at(place.path()),
            );
            return Some(Value::Null);
        }
        match schema.is_union() {
            true => self.json_as_alternative(value, schema, place),
            false => self.json_by_type(value, schema, place),
        }
    }

    /// Types a JSON value by the types that the schema admits.
    pub(super) fn json_by_type(
        &mut self,
        value: Value,
        schema: Schema<'_>,
        place: &ValuePlace<'_>,
    ) -> Option<Value> {
        let types = schema.types();
        if let Some(allowed) = schema.allowed() {
            if allowed
                .iter()
                .any(|wanted| canonical::value(wanted) == canonical::value(&value))
            {
                return Some(value);
            }
            if value.is_null() {
                return self.left_out(place);
            }
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            return self.choice(&text, &allowed, schema, place);
        }
        match value {
            Value::Object(map) if types.has(Types::OBJECT) => {
                Some(Value::Object(self.json_object(map, schema, place)))
            }
            Value::Object(map) if types.has(Types::ARRAY) => {
                Some(self.wrapped(Value::Object(map), schema, place))
            }
            Value::Array(items) if types.has(Types::ARRAY) => {
                let item_schema = schema.items();
                let items = items.into_iter().enumerate();
                Some(Value::Array(
                    items
                        .map(|(index, item)| {
                            self.json(item, item_schema, &place.item(index))
                                .unwrap_or(Value::Null)
                        })
                        .collect(),
                ))
            }
            Value::String(text) if types.has(Types::STRING) => Some(Value::String(text)),
            Value::String(text) => self.scalar(text.into(), schema, place),
            Value::Null if types.has(Types::NULL) => Some(Value::Null),
            Value::Null => self.left_out(place),
            Value::Bool(value) if types.has(Types::BOOLEAN) => Some(Value::Bool(value)),
            Value::Number(number) => self.json_number(number, schema, types, place),
            other if types.has(Types::STRING) && other.is_boolean() => {
                self.note(
                    Rule::C2,
                    Class::Spelling,
                    "scalar_as_string",
                    place,
                    &other.to_string(),
                    &other.to_string(),
                );
                Some(Value::String(other.to_string()))
            }
            other => {
                self.refuse(schema, place, &other.to_string());
                Some(other)
            }
        }
    }

    /// Null for a value that may not be null means left out (C6); where it is required, it is
    /// missing then.
    fn left_out(&mut self, place: &ValuePlace<'_>) -> Option<Value> {
        let (rule, class) = (Rule::C6, Class::Spelling);
        self.note(rule, class, "null_as_absent", place, "null", "absent");
        None
    }

    fn json_number(
        &mut self,
        number: serde_json::Number,
        schema: Schema<'_>,
        types: Types,
        place: &ValuePlace<'_>,
    ) -> Option<Value> {
        let text = number.to_string();
        if types.is_any() {
            return Some(Value::Number(number));
        }
        if types.has(Types::NUMBER) && scalar::number(&text).is_some() {
            return Some(Value::Number(number));
        }
        if types.has(Types::INTEGER)
            && let Some((value, tolerated)) = scalar::integer(&text)
        {
            if tolerated {
                // The same number, and as valid: a strict tool does not refuse it.
                self.note(
                    Rule::C3,
                    Class::Verbatim,
                    "integer_spelling",
                    place,
                    &text,
                    &value.to_string(),
                );
            }
            return Some(value);
        }
        if types.has(Types::STRING) {
            self.note(
                Rule::C2,
                Class::Spelling,
                "scalar_as_string",
                place,
                &text,
                &text,
            );
            return Some(Value::String(text));
        }
        let scalar = self.scalar(text.into(), schema, place);
        Some(scalar.unwrap_or(Value::Number(number)))
    }

    fn json_object(
        &mut self,
        map: Map<String, Value>,
        schema: Schema<'_>,
        place: &ValuePlace<'_>,
    ) -> Map<String, Value> {
        let schema = schema.located();
        let mut typed = Map::new();
        for (key, value) in map {
            if let Some(value) = self.json(value, schema.member(&key), &place.under(&key)) {
                typed.insert(key, value);
            }
        }
        typed
    }
}
