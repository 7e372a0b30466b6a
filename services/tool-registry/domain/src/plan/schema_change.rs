//! The change of a schema of parameters: wider if that can be proved, else narrower.

use serde_json::{Map, Value};

/// The difference of two schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaChange {
    /// They are equal.
    Same,
    /// They differ in texts for the reader only.
    Words,
    /// Every call that was valid still is.
    Wider,
    /// A call that was valid may not be any more.
    Narrower,
}

/// Keywords that change no value and refuse none.
const WORDS: [&str; 4] = ["title", "description", "examples", "$comment"];
/// Keywords whose members are schemas by name.
const NAMED: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
/// Keywords whose value is a schema.
const SINGLE: [&str; 3] = ["items", "additionalProperties", "not"];
/// Keywords whose value is a list of schemas.
const LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Compares two schemas of parameters, whose root refuses unknown names unless it allows them.
pub(super) fn compare(before: &Value, after: &Value) -> SchemaChange {
    if before == after {
        return SchemaChange::Same;
    }
    let (before, after) = (without_words(before), without_words(after));
    match before == after {
        true => SchemaChange::Words,
        false if is_wider(&before, &after, true) => SchemaChange::Wider,
        false => SchemaChange::Narrower,
    }
}

/// Returns a schema without the texts for its reader.
fn without_words(schema: &Value) -> Value {
    let Value::Object(object) = schema else {
        return schema.clone();
    };
    let kept = object
        .iter()
        .filter(|(key, _)| !WORDS.contains(&key.as_str()));
    let members = kept.map(|(key, value)| {
        let value = match (key.as_str(), value) {
            (key, Value::Object(named)) if NAMED.contains(&key) => named
                .iter()
                .map(|(name, schema)| (name.clone(), without_words(schema)))
                .collect::<Map<_, _>>()
                .into(),
            (key, schema) if SINGLE.contains(&key) => without_words(schema),
            (key, Value::Array(schemas)) if LISTS.contains(&key) => {
                schemas.iter().map(without_words).collect()
            }
            (_, other) => other.clone(),
        };
        (key.clone(), value)
    });
    Value::Object(members.collect())
}

/// Whether each value that meets `before` provably meets `after`.
fn is_wider(before: &Value, after: &Value, is_root: bool) -> bool {
    if before == after {
        return true;
    }
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return *after == Value::Bool(true) || *before == Value::Bool(false);
    };
    let keys = before
        .keys()
        .chain(after.keys().filter(|key| !before.contains_key(*key)));
    let is_closed = match before.get("additionalProperties") {
        Some(additional) => *additional == Value::Bool(false),
        // A root without names is open.
        None => is_root && before.contains_key("properties"),
    };
    let mut keys = keys.filter(|key| before.get(*key) != after.get(*key));
    keys.all(|key| keyword_is_wider(key, before.get(key), after.get(key), is_closed))
}

fn keyword_is_wider(
    key: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    is_closed: bool,
) -> bool {
    match (key, before, after) {
        (
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties",
            Some(before),
            after,
        ) => after.is_none_or(|after| is_less(after, before)),
        (
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties",
            Some(before),
            after,
        ) => after.is_none_or(|after| is_less(before, after)),
        ("required", before, after) => has_all(before, after),
        ("enum", Some(_), None) | ("pattern" | "uniqueItems" | "items", Some(_), None) => true,
        ("enum", Some(before), Some(after)) => has_all(Some(after), Some(before)),
        ("type", Some(before), after) => after.is_none_or(|after| is_wider_type(before, after)),
        ("items", Some(before), Some(after)) => is_wider(before, after, false),
        ("additionalProperties", Some(Value::Bool(false)), Some(_)) => true,
        ("properties", before, Some(Value::Object(after))) => {
            let empty = Map::new();
            let before = before.and_then(Value::as_object).unwrap_or(&empty);
            let kept = before.iter().all(|(name, schema)| {
                after
                    .get(name)
                    .is_some_and(|after| is_wider(schema, after, false))
            });
            kept && (is_closed || after.len() == before.len())
        }
        _ => false,
    }
}

fn is_less(first: &Value, second: &Value) -> bool {
    first
        .as_f64()
        .zip(second.as_f64())
        .is_some_and(|(first, second)| first < second)
}

/// Whether the list `all` has each entry of the list `some`; a list that is not there is empty.
fn has_all(all: Option<&Value>, some: Option<&Value>) -> bool {
    let entries =
        |list: Option<&Value>| list.and_then(Value::as_array).cloned().unwrap_or_default();
    let all = entries(all);
    entries(some).iter().all(|entry| all.contains(entry))
}

/// Whether a type, or a list of them, has each type of `before`.
fn is_wider_type(before: &Value, after: &Value) -> bool {
    let names = |types: &Value| match types {
        Value::Array(names) => names.clone(),
        name => vec![name.clone()],
    };
    let after = names(after);
    names(before)
        .iter()
        .all(|name| after.contains(name) || (name == "integer" && after.contains(&"number".into())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_wider_only_if_every_valid_call_stays_valid() {
        let base = json!({"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "A city.", "maxLength": 80},
            "days": {"type": "integer", "minimum": 1, "maximum": 7},
            "units": {"enum": ["metric", "imperial"]}
        }});
        let changed = |pointer: &str, value: Value| {
            let mut changed = base.clone();
            match pointer.rsplit_once('/') {
                Some((parent, key)) => changed.pointer_mut(parent).unwrap()[key] = value,
                None => changed = value,
            }
            changed
        };
        for (pointer, value, expected) in [
            (
                "/properties/city/description",
                json!("Name."),
                SchemaChange::Words,
            ),
            ("/properties/days/maximum", json!(14), SchemaChange::Wider),
            ("/properties/days/maximum", json!(3), SchemaChange::Narrower),
            ("/properties/days/minimum", json!(0), SchemaChange::Wider),
            (
                "/properties/days/type",
                json!("number"),
                SchemaChange::Wider,
            ),
            (
                "/properties/days/type",
                json!("string"),
                SchemaChange::Narrower,
            ),
            (
                "/properties/days/type",
                json!(["integer", "null"]),
                SchemaChange::Wider,
            ),
            (
                "/properties/units/enum",
                json!(["metric", "imperial", "si"]),
                SchemaChange::Wider,
            ),
            (
                "/properties/units/enum",
                json!(["metric"]),
                SchemaChange::Narrower,
            ),
            (
                "/properties/hours",
                json!({"type": "integer"}),
                SchemaChange::Wider,
            ),
            (
                "/properties/city/pattern",
                json!("^x"),
                SchemaChange::Narrower,
            ),
            ("/properties/days/default", json!(2), SchemaChange::Narrower),
            ("/required", json!([]), SchemaChange::Wider),
            ("/required", json!(["city", "days"]), SchemaChange::Narrower),
            (
                "/properties",
                json!({"city": {"type": "string"}}),
                SchemaChange::Narrower,
            ),
        ] {
            assert_eq!(
                compare(&base, &changed(pointer, value.clone())),
                expected,
                "{pointer} {value}"
            );
        }
        assert_eq!(compare(&base, &base.clone()), SchemaChange::Same);
        let open = changed("/additionalProperties", json!(true));
        let more = {
            let mut more = open.clone();
            more["properties"]["hours"] = json!({"type": "integer"});
            more
        };
        assert_eq!(compare(&open, &more), SchemaChange::Narrower);
    }
}
