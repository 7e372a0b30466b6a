//! Reading the mappings of a manifest: each field by its type, and every mistake at once.
//!
//! A field that is null counts as left out, as `key:` without a value is null in YAML. A text may
//! be written as a number, such as `version: 1.0`.

use std::ops::RangeInclusive;

use call_outcome::Violation;
use json_schema::pointer::join;
use serde_json::{Map, Value};

use super::diagnostic::Diagnostic;

/// The most violations, and the most remarks, that are kept of one text.
const MAX_FINDINGS: usize = 256;

/// The mistakes and the remarks of a text that is being read.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) wrong: Vec<Violation>,
    pub(crate) remarks: Vec<Diagnostic>,
    /// Whether unknown keys and doubtful forms are mistakes.
    pub(crate) is_strict: bool,
}

impl Findings {
    pub(crate) fn wrong(
        &mut self,
        pointer: impl Into<String>,
        code: &'static str,
        message: impl Into<String>,
    ) {
        self.add(Violation::new(pointer, code, message));
    }

    pub(crate) fn add(&mut self, violation: Violation) {
        if self.wrong.len() < MAX_FINDINGS {
            self.wrong.push(violation);
        }
    }

    pub(crate) fn remark(
        &mut self,
        pointer: impl Into<String>,
        code: &'static str,
        message: impl Into<String>,
    ) {
        if self.remarks.len() < MAX_FINDINGS {
            self.remarks
                .push(Diagnostic::warning(pointer, code, message));
        }
    }

    /// Adds a finding that is a mistake in a strict text and a remark in any other.
    pub(crate) fn strictly(
        &mut self,
        pointer: impl Into<String>,
        code: &'static str,
        message: impl Into<String>,
    ) {
        match self.is_strict {
            true => self.wrong(pointer, code, message),
            false => self.remark(pointer, code, message),
        }
    }

    /// Adds a value of the wrong type.
    pub(crate) fn mismatch(&mut self, pointer: &str, name: &str, wanted: &str, found: &Value) {
        let message = format!("{name} must be {wanted}; found {}", kind_of(found));
        self.wrong(pointer, "type_mismatch", message);
    }
}

/// Returns the type of a value, in words of YAML.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// A mapping that is being read. Its keys that were not asked for are unknown.
pub(crate) struct Section<'a> {
    pointer: String,
    object: &'a Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    pub(crate) fn new(pointer: impl Into<String>, object: &'a Map<String, Value>) -> Self {
        Self {
            pointer: pointer.into(),
            object,
            known: Vec::new(),
        }
    }

    /// Reads a value as a mapping; `wanted` describes it, such as `a mapping with 'entry'`.
    pub(crate) fn of(
        value: &'a Value,
        pointer: &str,
        name: &str,
        wanted: &str,
        findings: &mut Findings,
    ) -> Option<Self> {
        match value {
            Value::Object(object) => Some(Self::new(pointer, object)),
            other => {
                findings.mismatch(pointer, name, wanted, other);
                None
            }
        }
    }

    /// Returns the pointer of a field, or of the mapping if `key` is empty.
    pub(crate) fn place(&self, key: &str) -> String {
        match key {
            "" => self.pointer.clone(),
            key => join(&self.pointer, key),
        }
    }

    /// Returns the value of a field; none if it is null.
    pub(crate) fn get(&mut self, key: &'static str) -> Option<&'a Value> {
        self.known.push(key);
        self.object.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&mut self, key: &'static str, findings: &mut Findings) -> Option<String> {
        let place = self.place(key);
        text_of(self.get(key)?, &place, key, findings)
    }

    /// Reads a text that must be there; `form` is an example of it.
    pub(crate) fn required_text(
        &mut self,
        key: &'static str,
        form: &str,
        findings: &mut Findings,
    ) -> Option<String> {
        let place = self.place(key);
        let Some(value) = self.get(key) else {
            let message = format!("{key} is missing; add it, such as {key}: {form}");
            findings.wrong(place, "missing_parameter", message);
            return None;
        };
        let text = text_of(value, &place, key, findings)?;
        if text.trim().is_empty() {
            let message = format!("{key} is empty; give it a value, such as {form}");
            findings.wrong(place, "too_short", message);
            return None;
        }
        Some(text)
    }

    /// Reads a whole number within a range.
    pub(crate) fn whole(
        &mut self,
        key: &'static str,
        range: RangeInclusive<i64>,
        findings: &mut Findings,
    ) -> Option<i64> {
        let place = self.place(key);
        let value = self.get(key)?;
        let Value::Number(number) = value else {
            findings.mismatch(&place, key, "a whole number", value);
            return None;
        };
        let whole = number.as_i64().filter(|whole| range.contains(whole));
        if whole.is_none() {
            let (least, most) = (range.start(), range.end());
            let message = format!("{key} is {number}; write a whole number from {least} to {most}");
            findings.wrong(place, "out_of_range", message);
        }
        whole
    }

    pub(crate) fn flag(&mut self, key: &'static str, findings: &mut Findings) -> Option<bool> {
        let place = self.place(key);
        match self.get(key)? {
            Value::Bool(flag) => Some(*flag),
            other => {
                findings.mismatch(&place, key, "true or false", other);
                None
            }
        }
    }

    /// Reads a word out of a few.
    pub(crate) fn word(
        &mut self,
        key: &'static str,
        words: &[&'static str],
        findings: &mut Findings,
    ) -> Option<&'static str> {
        let place = self.place(key);
        let text = self.text(key, findings)?;
        let found = words.iter().find(|word| **word == text);
        if found.is_none() {
            let message = format!("{key} is '{text}'; write one of {}", words.join(", "));
            let violation = Violation::new(place, "not_in_enum", message);
            findings.add(violation.nearest(&text, words.iter().copied()));
        }
        found.copied()
    }

    /// Reads a mapping.
    pub(crate) fn section(
        &mut self,
        key: &'static str,
        wanted: &str,
        findings: &mut Findings,
    ) -> Option<Self> {
        let place = self.place(key);
        Self::of(self.get(key)?, &place, key, wanted, findings)
    }

    /// Reads a list; returns each item with its pointer.
    pub(crate) fn list(
        &mut self,
        key: &'static str,
        wanted: &str,
        findings: &mut Findings,
    ) -> Vec<(String, &'a Value)> {
        let place = self.place(key);
        match self.get(key) {
            None => Vec::new(),
            Some(Value::Array(items)) => {
                let placed = items.iter().enumerate();
                placed
                    .map(|(index, item)| (format!("{place}/{index}"), item))
                    .collect()
            }
            Some(other) => {
                findings.mismatch(&place, key, wanted, other);
                Vec::new()
            }
        }
    }

    /// Reads a list of texts; returns each with its pointer.
    pub(crate) fn texts(
        &mut self,
        key: &'static str,
        wanted: &str,
        findings: &mut Findings,
    ) -> Vec<(String, String)> {
        let items = self.list(key, wanted, findings).into_iter();
        let texts = items.filter_map(|(place, item)| {
            let text = text_of(item, &place, "each entry", findings)?;
            Some((place, text))
        });
        texts.collect()
    }

    /// Returns all fields with their pointers, for a mapping whose keys are names.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&'a str, String, &'a Value)> {
        let place = self.pointer.clone();
        let object = self.object.iter();
        object.map(move |(key, value)| (key.as_str(), join(&place, key), value))
    }

    /// Ends the reading: every key that was not asked for is unknown.
    pub(crate) fn close(self, findings: &mut Findings) {
        for key in self.object.keys() {
            if self.known.contains(&key.as_str()) {
                continue;
            }
            let shown = json_schema::violation::cut(key, 80);
            let place = join(&self.pointer, key);
            let message = format!(
                "the key '{shown}' is not known and has no effect; remove it or correct it"
            );
            if findings.is_strict {
                let violation = Violation::new(place, "unknown_key", message);
                findings.add(violation.nearest(key, self.known.iter().copied()));
            } else {
                findings.remark(place, "unknown_key", message);
            }
        }
    }
}

/// Reads a text, which may be written as a number.
pub(crate) fn text_of(
    value: &Value,
    pointer: &str,
    name: &str,
    findings: &mut Findings,
) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        // `version: 1.0` is a number in YAML; the author's intention is plain.
        Value::Number(number) => Some(number.to_string()),
        other => {
            findings.mismatch(pointer, name, "text", other);
            None
        }
    }
}
