//! Printing the settings that are in force.

use figment::value::{Empty, Num, Value};
use serde::Serialize;

use crate::{layers, problem::Source};

/// Returns `settings` as TOML, one line per value with its source as a comment.
pub(crate) fn print<T: Serialize>(settings: &T, source_of: impl Fn(&[&str]) -> Source) -> String {
    let Ok(Value::Dict(_, values)) = Value::serialize(settings) else {
        return String::new();
    };
    let mut lines = String::new();
    layers::each_leaf(&values, &mut |path, value| {
        let key: Vec<String> = path.iter().map(|part| key(part)).collect();
        let key = key.join(".");
        let source = source_of(path);
        match text(value) {
            Some(text) => lines.push_str(&format!("{key} = {text}  # {source}\n")),
            None => lines.push_str(&format!("# {key} is not set\n")),
        }
    });
    lines
}

fn key(part: &str) -> String {
    let bare = !part.is_empty()
        && part
            .chars()
            .all(|character| character.is_ascii_alphanumeric() || "_-".contains(character));
    if bare { part.to_owned() } else { quoted(part) }
}

fn text(value: &Value) -> Option<String> {
    Some(match value {
        Value::String(_, text) => quoted(text),
        Value::Char(_, character) => quoted(&character.to_string()),
        Value::Bool(_, truth) => truth.to_string(),
        Value::Num(_, Num::F32(number)) => format!("{number:?}"),
        Value::Num(_, Num::F64(number)) => format!("{number:?}"),
        Value::Num(_, number) => number
            .to_u128()
            .map(|number| number.to_string())
            .or_else(|| value.to_i128().map(|number| number.to_string()))
            .unwrap_or_default(),
        Value::Empty(_, Empty::None | Empty::Unit) => return None,
        Value::Dict(_, entries) => {
            let entries: Vec<String> = entries
                .iter()
                .filter_map(|(name, value)| Some(format!("{} = {}", key(name), text(value)?)))
                .collect();
            if entries.is_empty() {
                "{}".to_owned()
            } else {
                format!("{{ {} }}", entries.join(", "))
            }
        }
        Value::Array(_, entries) => {
            let entries: Vec<String> = entries.iter().filter_map(text).collect();
            format!("[{}]", entries.join(", "))
        }
    })
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            character if character.is_control() => {
                out.push_str(&format!("\\u{:04X}", u32::from(character)));
            }
            character => out.push(character),
        }
    }
    out.push('"');
    out
}
