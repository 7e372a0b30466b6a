//! The text of a manifest as JSON, with the bounds of a text from outside.

use call_outcome::Violation;
use json_schema::pointer::join;
use serde_json::{Map, Value};
use serde_yaml_ng::Value as Yaml;

use super::MAX_MANIFEST_BYTES;

/// The most repetitions of parts by YAML aliases in a manifest. The parts multiply when aliases
/// nest, so the number is small.
const MAX_ALIASES: usize = 8;
const MAX_DEPTH: usize = 16;

/// Reads YAML text whose root is a mapping, without tags, repeated keys and deep nesting.
pub(super) fn mapping(text: &str) -> Result<Map<String, Value>, Vec<Violation>> {
    let fail = |code: &'static str, message: String| vec![Violation::new("", code, message)];
    if text.len() > MAX_MANIFEST_BYTES {
        let message = format!(
            "plugin.yaml has {} bytes; at most {MAX_MANIFEST_BYTES}: shorten it",
            text.len()
        );
        return Err(fail("too_large", message));
    }
    if count_opening(text, '!') > 0 {
        let message =
            "plugin.yaml has a YAML tag; remove it, or put text that begins with '!' into quotes";
        return Err(fail("tag", message.to_owned()));
    }
    let aliases = count_opening(text, '*');
    if aliases > MAX_ALIASES {
        let message = format!(
            "plugin.yaml repeats parts {aliases} times by YAML aliases; at most {MAX_ALIASES}: write \
             the parts out"
        );
        return Err(fail("limit_exceeded", message));
    }
    let yaml: Yaml = serde_yaml_ng::from_str(text).map_err(|error| {
        fail(
            "malformed_yaml",
            format!("plugin.yaml is not YAML: {error}"),
        )
    })?;
    let mut wrong = Vec::new();
    let root = to_json(&yaml, "", 0, &mut wrong);
    match root {
        _ if !wrong.is_empty() => Err(wrong),
        Value::Object(root) => Ok(root),
        _ => Err(fail(
            "type_mismatch",
            "plugin.yaml must be a mapping with at least 'name'".to_owned(),
        )),
    }
}

/// Counts the places where a value begins with `mark`: `*` for YAML aliases, `!` for tags. It may
/// count text that is none, such as a line of a long text; never the other way round.
fn count_opening(text: &str, mark: char) -> usize {
    let mut count = 0;
    for line in text.lines() {
        let mut before = None;
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            let opens = before.is_none_or(|before| "[{,:-?".contains(before));
            let named = characters.peek().is_some_and(|next| !next.is_whitespace());
            count += usize::from(character == mark && opens && named);
            if !character.is_whitespace() {
                before = Some(character);
            }
        }
    }
    count
}

fn to_json(yaml: &Yaml, pointer: &str, depth: usize, wrong: &mut Vec<Violation>) -> Value {
    if depth > MAX_DEPTH {
        let message = format!("is nested more than {MAX_DEPTH} deep; flatten it");
        wrong.push(Violation::new(pointer, "too_deep", message));
        return Value::Null;
    }
    match yaml {
        Yaml::Null => Value::Null,
        Yaml::Bool(flag) => Value::Bool(*flag),
        Yaml::Number(number) => number_to_json(number),
        Yaml::String(text) => Value::String(text.clone()),
        Yaml::Sequence(items) => items
            .iter()
            .enumerate()
            .map(|(index, item)| to_json(item, &format!("{pointer}/{index}"), depth + 1, wrong))
            .collect(),
        Yaml::Mapping(mapping) => {
            let mut object = Map::new();
            for (key, value) in mapping {
                let Yaml::String(key) = key else {
                    let message = "has a key that is not text; write keys as plain words";
                    wrong.push(Violation::new(pointer, "type_mismatch", message));
                    continue;
                };
                let place = join(pointer, key);
                object.insert(key.clone(), to_json(value, &place, depth + 1, wrong));
            }
            Value::Object(object)
        }
        Yaml::Tagged(tagged) => {
            let message = format!("has the YAML tag {}; remove it", tagged.tag);
            wrong.push(Violation::new(pointer, "tag", message));
            Value::Null
        }
    }
}

fn number_to_json(number: &serde_yaml_ng::Number) -> Value {
    if let Some(whole) = number.as_i64() {
        return Value::from(whole);
    }
    number
        .as_u64()
        .map_or_else(|| Value::from(number.as_f64()), Value::from)
}
