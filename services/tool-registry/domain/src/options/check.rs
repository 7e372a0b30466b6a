//! One value against the type and the bounds of its option.

use call_outcome::Violation;
use json_schema::{Schema, text_bytes};
use serde_json::{Number, Value, json};

use super::{
    MAX_LINE_BYTES, MAX_LIST_ITEMS, MAX_TEXT_BYTES,
    kind::{Choice, ListBounds, OptionKind, TextBounds},
};
use crate::section::kind_of;

/// Returns all reasons for which an option cannot have a value, each with its place, which begins
/// with `pointer`. The value of a secret is in none of them.
pub(super) fn problems(kind: &OptionKind, value: &Value, pointer: &str) -> Vec<Violation> {
    let mut check = Check { wrong: Vec::new() };
    match kind {
        OptionKind::Line(bounds) => check.text(value, pointer, bounds, true),
        OptionKind::Text(bounds) => check.text(value, pointer, bounds, false),
        OptionKind::Integer { minimum, maximum } => {
            check.integer(value, pointer, *minimum, *maximum);
        }
        OptionKind::Number { minimum, maximum } => {
            check.number(value, pointer, minimum.as_ref(), maximum.as_ref());
        }
        OptionKind::Boolean if value.is_boolean() => {}
        OptionKind::Boolean => check.mismatch(value, pointer, "true or false"),
        OptionKind::Enum { choices } => check.choice(value, pointer, choices),
        OptionKind::List(bounds) => check.list(value, pointer, bounds),
        OptionKind::Json { schema } => check.json(value, pointer, schema.as_ref()),
        OptionKind::Secret { .. } => check.secret(value, pointer),
    }
    check.wrong
}

/// Compiles a regular expression as the pattern of a text.
pub(super) fn compile_pattern(pattern: &str) -> Result<Schema, String> {
    let schema = json!({"type": "string", "pattern": pattern});
    Schema::compile(&schema).map_err(|errors| {
        let problems = errors.problems.into_iter().map(|problem| problem.message);
        problems.collect::<Vec<_>>().join("; ")
    })
}

struct Check {
    wrong: Vec<Violation>,
}

impl Check {
    fn add(&mut self, pointer: &str, code: &'static str, message: String) {
        self.wrong.push(Violation::new(pointer, code, message));
    }

    fn mismatch(&mut self, value: &Value, pointer: &str, wanted: &str) {
        let message = format!("must be {wanted}; found {}", kind_of(value));
        self.add(pointer, "type_mismatch", message);
    }

    fn text(&mut self, value: &Value, pointer: &str, bounds: &TextBounds, is_line: bool) {
        let Value::String(text) = value else {
            let quotes = match value {
                Value::Number(_) | Value::Bool(_) => ", in quotes",
                _ => "",
            };
            return self.mismatch(value, pointer, &format!("text{quotes}"));
        };
        self.size(text, pointer, is_line);
        let length = text.chars().count() as u64;
        if length < bounds.min_length {
            let least = bounds.min_length;
            let message = format!("has {length} characters; write at least {least}");
            self.add(pointer, "too_short", message);
        }
        if let Some(most) = bounds.max_length.filter(|most| length > *most) {
            let message = format!("has {length} characters; write at most {most}");
            self.add(pointer, "too_long", message);
        }
        if let Some(pattern) = &bounds.pattern {
            let matches = compile_pattern(pattern).is_ok_and(|schema| schema.is_valid(value));
            if !matches {
                let message = format!("does not match the pattern {pattern}; correct it");
                self.add(pointer, "pattern_mismatch", message);
            }
        }
    }

    /// Checks the number of bytes, and that a line has no others beneath it.
    fn size(&mut self, text: &str, pointer: &str, is_line: bool) {
        let most = if is_line {
            MAX_LINE_BYTES
        } else {
            MAX_TEXT_BYTES
        };
        if text.len() > most {
            let message = format!("has {} bytes; write at most {most}", text.len());
            self.add(pointer, "too_long", message);
        }
        let control = |c: char| c.is_control() && (is_line || !matches!(c, '\n' | '\r' | '\t'));
        if text.chars().any(control) {
            let message = match is_line {
                true => "has a line break or another control character; write one line",
                false => "has a control character; remove it",
            };
            self.add(pointer, "control_character", message.to_owned());
        }
    }

    fn integer(&mut self, value: &Value, pointer: &str, minimum: i64, maximum: i64) {
        let Value::Number(number) = value else {
            return self.mismatch(value, pointer, "a whole number");
        };
        match number.as_i64() {
            Some(whole) if (minimum..=maximum).contains(&whole) => {}
            _ => {
                let message =
                    format!("is {number}; write a whole number from {minimum} to {maximum}");
                self.add(pointer, "out_of_range", message);
            }
        }
    }

    fn number(
        &mut self,
        value: &Value,
        pointer: &str,
        minimum: Option<&Number>,
        maximum: Option<&Number>,
    ) {
        let Value::Number(number) = value else {
            return self.mismatch(value, pointer, "a number");
        };
        let Some(size) = number.as_f64().filter(|size| size.is_finite()) else {
            let message = format!("is {number}, which is too large; write a smaller number");
            return self.add(pointer, "out_of_range", message);
        };
        let bound = |bound: Option<&Number>| bound.and_then(Number::as_f64);
        if let Some(least) = bound(minimum).filter(|least| size < *least) {
            let message = format!("is {number}; write a number from {least}");
            self.add(pointer, "out_of_range", message);
        }
        if let Some(most) = bound(maximum).filter(|most| size > *most) {
            let message = format!("is {number}; write a number up to {most}");
            self.add(pointer, "out_of_range", message);
        }
    }

    fn choice(&mut self, value: &Value, pointer: &str, choices: &[Choice]) {
        let values = || choices.iter().map(|choice| choice.value.as_str());
        let Value::String(text) = value else {
            let wanted = format!("one of {}", values().collect::<Vec<_>>().join(", "));
            return self.mismatch(value, pointer, &wanted);
        };
        if !values().any(|choice| choice == text) {
            let shown = json_schema::violation::cut(text, 80);
            let all = values().collect::<Vec<_>>().join(", ");
            let message = format!("is '{shown}'; take one of {all}");
            let violation = Violation::new(pointer, "not_in_enum", message);
            self.wrong.push(violation.nearest(text, values()));
        }
    }

    fn list(&mut self, value: &Value, pointer: &str, bounds: &ListBounds) {
        let Value::Array(items) = value else {
            return self.mismatch(value, pointer, "a list of texts");
        };
        let count = items.len() as u64;
        if count < bounds.min_items {
            let message = format!("has {count} entries; give at least {}", bounds.min_items);
            self.add(pointer, "too_few", message);
        }
        let most = bounds
            .max_items
            .unwrap_or(u64::MAX)
            .min(MAX_LIST_ITEMS as u64);
        if count > most {
            let message = format!("has {count} entries; give at most {most}");
            return self.add(pointer, "too_many", message);
        }
        for (index, item) in items.iter().enumerate() {
            self.text(item, &format!("{pointer}/{index}"), &bounds.item, true);
        }
    }

    fn json(&mut self, value: &Value, pointer: &str, schema: Option<&Value>) {
        let bytes = text_bytes(value);
        if bytes > MAX_TEXT_BYTES {
            let message = format!("has {bytes} bytes as JSON; give at most {MAX_TEXT_BYTES}");
            return self.add(pointer, "too_long", message);
        }
        // A schema that does not compile refuses its declaration, so that no value is checked by it.
        let Some(Ok(schema)) = schema.map(Schema::compile) else {
            return;
        };
        for found in schema.validate(value) {
            let mut violation = Violation::from(found);
            violation.pointer.insert_str(0, pointer);
            self.wrong.push(violation);
        }
    }

    fn secret(&mut self, value: &Value, pointer: &str) {
        let Value::String(text) = value else {
            return self.mismatch(value, pointer, "text");
        };
        if text.is_empty() {
            self.add(pointer, "too_short", "is empty; give the secret".to_owned());
        }
        self.size(text, pointer, true);
    }
}
