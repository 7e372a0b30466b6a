//! Printing the settings that are in force.

use figment::value::{Empty, Num, Value};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{layers, meanings::Meanings, problem::Source};

/// Returns the values of `settings` whose keys are `shown` as TOML: each with its meaning above, its
/// source behind it, and its default where another value is in force; a table's meaning is above
/// its first value.
pub(crate) fn print<T: Default + Serialize + JsonSchema>(
    settings: &T,
    source_of: impl Fn(&[&str]) -> Source,
    shown: impl Fn(&str) -> bool,
) -> String {
    let (Ok(Value::Dict(_, values)), Ok(Value::Dict(_, defaults))) =
        (Value::serialize(settings), Value::serialize(T::default()))
    else {
        return String::new();
    };
    let meanings = Meanings::of::<T>();
    let mut lines = String::new();
    let mut tables: Vec<String> = Vec::new();
    layers::each_leaf(&values, &mut |path, value| {
        let parts: Vec<String> = path.iter().map(|part| key(part)).collect();
        let key = parts.join(".");
        if !shown(&key) {
            return;
        }
        for depth in 1..path.len() {
            let table = parts[..depth].join(".");
            if let Some(meaning) = meanings.find(&path[..depth])
                && !tables.contains(&table)
            {
                lines.push_str(&format!("# {table}: {meaning}\n"));
                tables.push(table);
            }
        }
        if let Some(meaning) = meanings.find(path) {
            lines.push_str(&format!("# {meaning}\n"));
        }
        let source = source_of(path);
        let default = layers::find(&defaults, path).and_then(text);
        let source = match default.filter(|_| source != Source::Default) {
            Some(default) => format!("{source}, default {default}"),
            None => source.to_string(),
        };
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
