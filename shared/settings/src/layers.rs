//! The file, the environment and the command line as trees of values, and their overlay.
//!
//! This is the only module that reads figment's formats; all other modules use [`Layer`].

use std::{ffi::OsString, path::Path};

use figment::{
    providers::{Format, Toml},
    value::{Dict, Value},
};

use crate::problem::{Problem, Source};
use crate::text_file;

/// A settings file larger than this is refused unread.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Values from one source.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// The tree of values.
    pub(crate) values: Dict,
    /// The text of each variable in the environment, by key; empty for a file.
    raw: Vec<(Vec<String>, String, String)>,
    /// The source of the values; missing for the environment, where each variable is a source of
    /// its own.
    source: Option<Source>,
}

impl Layer {
    /// Reads a TOML file.
    pub(crate) fn from_file(path: &Path) -> Result<Self, Problem> {
        let problem = |what: String, remedy: &str| Problem {
            key: String::new(),
            source: Source::File(path.to_path_buf()),
            what,
            remedy: remedy.to_owned(),
        };
        let text = text_file::read(path, MAX_FILE_BYTES).map_err(|error| {
            problem(
                format!("cannot be read: {error}"),
                "name a readable TOML file, or leave the file out",
            )
        })?;
        let values: Dict = Toml::from_str(&text).map_err(|error| {
            // Only the place and the reason: the line itself may hold a secret.
            let line = error.span().map_or(1, |span| {
                1 + text
                    .bytes()
                    .take(span.start)
                    .filter(|byte| *byte == b'\n')
                    .count()
            });
            problem(
                format!("is not TOML: line {line}: {}", error.message()),
                "correct the line",
            )
        })?;
        Ok(Self {
            values,
            raw: Vec::new(),
            source: Some(Source::File(path.to_path_buf())),
        })
    }

    /// Makes a layer of the values that the command line sets, by key.
    pub(crate) fn from_command_line(flags: &[(&str, String)]) -> Self {
        let mut layer = Self {
            source: Some(Source::CommandLine),
            ..Self::default()
        };
        for (key, value) in flags {
            let path: Vec<String> = key.split('.').map(str::to_owned).collect();
            insert(&mut layer.values, &path, Value::from(value.clone()));
        }
        layer
    }

    /// Makes a layer of the variables that begin with `prefix` and two underscores.
    pub(crate) fn from_environment(
        prefix: &str,
        vars: impl IntoIterator<Item = (OsString, OsString)>,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let prefix = format!("{prefix}__");
        let mut layer = Self::default();
        let mut found: Vec<(String, OsString)> = vars
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value)))
            .filter(|(name, _)| name.starts_with(&prefix))
            .collect();
        found.sort();
        for (name, value) in found {
            let path: Vec<String> = name[prefix.len()..]
                .split("__")
                .map(str::to_ascii_lowercase)
                .collect();
            let Ok(text) = value.into_string() else {
                problems.push(Problem {
                    key: path.join("."),
                    source: Source::Environment(name),
                    what: "is not UTF-8".to_owned(),
                    remedy: "set it to plain text".to_owned(),
                });
                continue;
            };
            if path.iter().any(String::is_empty) || !insert(&mut layer.values, &path, read(&text)) {
                problems.push(Problem {
                    key: path.join("."),
                    source: Source::Environment(name),
                    what: "names no single setting".to_owned(),
                    remedy: "join the parts of the key with two underscores, and set either a \
                             table or its fields"
                        .to_owned(),
                });
                continue;
            }
            layer.raw.push((path, name, text));
        }
        layer
    }

    /// Returns the source of this layer's value at `path`.
    pub(crate) fn source(&self, path: &[&str]) -> Source {
        if let Some(source) = &self.source {
            return source.clone();
        }
        // A value inside a list comes from the variable that holds the list.
        self.raw
            .iter()
            .find(|(known, ..)| {
                known.iter().zip(path).all(|(left, right)| left == right)
                    && known.len() <= path.len()
            })
            .or_else(|| {
                self.raw
                    .iter()
                    .find(|(known, ..)| known.iter().zip(path).all(|(a, b)| a == b))
            })
            .map_or(Source::Default, |(_, name, _)| {
                Source::Environment(name.clone())
            })
    }

    /// Returns whether this layer sets `path`.
    pub(crate) fn contains(&self, path: &[String]) -> bool {
        find(&self.values, path).is_some()
    }

    /// Removes the value at `path`; inside a list, the whole list.
    pub(crate) fn remove(&mut self, path: &[String]) {
        remove(&mut self.values, path);
    }

    /// Replaces a number or truth value from the environment by its text, once: a string setting
    /// may well look like a number. Returns whether there was such a value.
    pub(crate) fn take_as_text(&mut self, path: &[String]) -> bool {
        let Some((_, _, text)) = self.raw.iter().find(|(known, ..)| known == path) else {
            return false;
        };
        if matches!(find(&self.values, path), None | Some(Value::String(..))) {
            return false;
        }
        let text = text.clone();
        remove(&mut self.values, path);
        insert(&mut self.values, path, Value::from(text))
    }
}

/// Lays the layers over the defaults, the last one on top.
pub(crate) fn overlay(defaults: &Dict, layers: &[Layer]) -> Value {
    let mut merged = defaults.clone();
    for layer in layers {
        merge(&mut merged, &layer.values);
    }
    Value::from(merged)
}

/// Calls `visit` with the path of every value that is not a table, and of every empty table.
pub(crate) fn each_leaf(values: &Dict, visit: &mut impl FnMut(&[&str], &Value)) {
    fn walk<'a>(
        values: &'a Dict,
        path: &mut Vec<&'a str>,
        visit: &mut impl FnMut(&[&str], &Value),
    ) {
        for (key, value) in values {
            path.push(key);
            match value {
                Value::Dict(_, inner) if !inner.is_empty() => walk(inner, path, visit),
                leaf => visit(path, leaf),
            }
            path.pop();
        }
    }
    walk(values, &mut Vec::new(), visit);
}

fn read(text: &str) -> Value {
    if text.starts_with('[') || text.starts_with('{') {
        match text.parse::<Value>() {
            Ok(value) => return value,
            Err(never) => match never {},
        }
    }
    if let Ok(truth) = text.parse::<bool>() {
        return Value::from(truth);
    }
    if let Ok(number) = text.parse::<u64>() {
        return Value::from(number);
    }
    if let Ok(number) = text.parse::<i64>() {
        return Value::from(number);
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Value::from(number),
        _ => Value::from(text.to_owned()),
    }
}

fn merge(below: &mut Dict, above: &Dict) {
    for (key, value) in above {
        match (below.get_mut(key), value) {
            (Some(Value::Dict(_, inner)), Value::Dict(_, over)) => merge(inner, over),
            _ => {
                below.insert(key.clone(), value.clone());
            }
        }
    }
}

pub(crate) fn find<'a, P: AsRef<str>>(values: &'a Dict, path: &[P]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    match (values.get(first.as_ref())?, rest.is_empty()) {
        (value, true) => Some(value),
        (Value::Dict(_, inner), false) => find(inner, rest),
        (list @ Value::Array(..), false) => Some(list),
        _ => None,
    }
}

fn insert(values: &mut Dict, path: &[String], value: Value) -> bool {
    match path {
        [] => false,
        [last] => values.insert(last.clone(), value).is_none(),
        [first, rest @ ..] => {
            let entry = values
                .entry(first.clone())
                .or_insert_with(|| Value::from(Dict::new()));
            match entry {
                Value::Dict(_, inner) => insert(inner, rest, value),
                _ => false,
            }
        }
    }
}

fn remove(values: &mut Dict, path: &[String]) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    match values.get_mut(first) {
        Some(Value::Dict(_, inner)) if !rest.is_empty() => remove(inner, rest),
        Some(_) => {
            values.remove(first);
        }
        None => {}
    }
}
