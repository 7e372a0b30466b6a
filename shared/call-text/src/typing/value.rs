//! One value under one schema: the coercion table C1 to C12.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use call_catalogue::scalar::{self, Choice};
use call_catalogue::schema::{Schema, Types};
use call_catalogue::{Class, Problem, ProblemCode, Rule, Span, Tolerance};
use json_schema::pointer;
use serde_json::Value;

use crate::Limits;
use crate::scan::json;

/// Types values and collects tolerances and problems.
pub(crate) struct Typer<'t> {
    pub(crate) text: &'t str,
    pub(crate) limits: &'t Limits,
    pub(crate) notes: Vec<Tolerance>,
    pub(crate) problems: Vec<Problem>,
    /// The work that may still be done to find out which alternative a value means (C9).
    pub(crate) trials: usize,
}

/// The work of trying alternatives in one call, in bytes of values.
pub(crate) const MOST_TRIALS: usize = 2 * 1024 * 1024;

/// The place of a value. Its path is only written out for a problem.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValuePlace<'p> {
    pub(crate) span: Span,
    /// The place of the containing value; `None` for an argument.
    pub(super) parent: Option<&'p ValuePlace<'p>>,
    pub(super) key: Key<'p>,
    /// Whether it is an element that may be repeated, so that a single one is a list of one (A19).
    pub(super) element: bool,
}

/// The key of a value in its containing value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Key<'p> {
    Name(&'p str),
    Index(usize),
    /// The arguments as a whole.
    Whole,
}

impl<'p> ValuePlace<'p> {
    pub(crate) fn argument(span: Span, name: &'p str) -> Self {
        Self {
            span,
            parent: None,
            key: Key::Name(name),
            element: false,
        }
    }

    /// The place of all arguments together.
    pub(crate) fn whole(span: Span) -> Self {
        Self {
            span,
            parent: None,
            key: Key::Whole,
            element: false,
        }
    }

    /// The place of a member.
    pub(crate) fn under<'q>(&'q self, name: &'q str) -> ValuePlace<'q> {
        ValuePlace {
            span: self.span,
            parent: Some(self),
            key: Key::Name(name),
            element: false,
        }
    }

    /// The place of an item.
    pub(crate) fn item(&self, index: usize) -> ValuePlace<'_> {
        ValuePlace {
            span: self.span,
            parent: Some(self),
            key: Key::Index(index),
            element: false,
        }
    }

    /// JSON pointer into the arguments.
    pub(crate) fn path(&self) -> String {
        let mut path = self.parent.map(ValuePlace::path).unwrap_or_default();
        match self.key {
            Key::Name(name) => path.extend(["/", &pointer::escape(name)]),
            Key::Index(index) => path.extend(["/", &index.to_string()]),
            Key::Whole => {}
        }
        path
    }

    /// The path as messages name it.
    pub(crate) fn name(&self) -> String {
        self.path().trim_start_matches('/').to_owned()
    }

    pub(crate) fn depth(&self) -> usize {
        1 + self.parent.map_or(0, ValuePlace::depth)
    }
}

impl Typer<'_> {
    pub(crate) fn note(
        &mut self,
        rule: Rule,
        class: Class,
        code: &str,
        place: &ValuePlace<'_>,
        before: &str,
        after: &str,
    ) {
        self.notes
            .push(Tolerance::new(rule, class, code, place.span, before, after));
    }

    fn mismatch(&mut self, schema: Schema<'_>, place: &ValuePlace<'_>, received: &str) {
        let expected = schema.types().describe();
        let comma = received.contains(',') && schema.types().has(Types::ARRAY);
        let hint = if comma {
            "; write a JSON array or repeated elements"
        } else {
            ""
        };
        let name = place.name();
        let message = format!("Parameter '{name}' must be {expected}{hint}");
        self.problems.push(
            Problem::new(ProblemCode::TypeMismatch, Rule::C11, place.span, message)
                .at(place.path())
                .expected(expected)
                .received(received),
        );
    }

    /// Types text. `None` means that the value counts as absent (C12).
    pub(crate) fn scalar(
        &mut self,
        text: Cow<'_, str>,
        schema: Schema<'_>,
        place: &ValuePlace<'_>,
    ) -> Option<Value> {
        let types = schema.types();
        if let Some(allowed) = schema.allowed() {
            return self.choice(&text, &allowed, schema, place);
        }
        if types.is_any() {
            return Some(Value::String(text.into_owned()));
        }
        if schema.is_union()
            && let Some(value) = self.text_as_alternative(&text, schema, place)
        {
            return Some(value);
        }
        if types.has(Types::STRING) {
            return Some(self.string_or_structure(text, schema, types, place));
        }
        let trimmed = super::text::trim(&text);
        if trimmed.is_empty() {
            return self.empty(types, place);
        }
        if types.has(Types::NULL) && trimmed == "null" {
            return Some(Value::Null);
        }
        if let Some(value) = self.plain_scalar(trimmed, types, place) {
            return Some(value);
        }
        if types.has(Types::INTEGER) && scalar::is_out_of_range(trimmed) {
            let message = format!("Parameter '{}' is out of range", place.name());
            self.problems.push(
                Problem::new(ProblemCode::OutOfRange, Rule::C3, place.span, message)
                    .at(place.path())
                    .expected("a finite number")
                    .received(trimmed),
            );
            return Some(Value::String(text.into_owned()));
        }
        if types.has(Types::OBJECT) || types.has(Types::ARRAY) {
            return Some(self.structure_text(trimmed, schema, types, place));
        }
        self.mismatch(schema, place, &text);
        Some(Value::String(text.into_owned()))
    }

    /// A number, an integer or a boolean, whichever is admitted and fits first (C3 to C5, C9).
    fn plain_scalar(&mut self, text: &str, types: Types, place: &ValuePlace<'_>) -> Option<Value> {
        let admits = |kind| types.has(kind).then_some(text);
        // Where numbers are admitted, `2.0` is one and no spelling of an integer (C1).
        let (value, tolerated, rule, code) = if let Some((value, tolerated)) =
            admits(Types::NUMBER).and_then(scalar::number)
        {
            (value, tolerated, Rule::C4, "number_spelling")
        } else if let Some((value, tolerated)) = admits(Types::INTEGER).and_then(scalar::integer) {
            (value, tolerated, Rule::C3, "integer_spelling")
        } else {
            let (value, tolerated) = admits(Types::BOOLEAN).and_then(scalar::boolean)?;
            (Value::Bool(value), tolerated, Rule::C5, "boolean_spelling")
        };
        if tolerated {
            self.note(rule, Class::Spelling, code, place, text, &value.to_string());
        }
        Some(value)
    }

    /// A string is admitted: text stays text unless it plainly is an object or array that is
    /// admitted as well (C2, C6, C9).
    fn string_or_structure(
        &mut self,
        text: Cow<'_, str>,
        schema: Schema<'_>,
        types: Types,
        place: &ValuePlace<'_>,
    ) -> Value {
        if types != Types::STRING
            && let Some(value) = self.structure_beside_string(&text, schema, types, place)
        {
            return value;
        }
        if schema.unescapes() {
            return Value::String(unescape(&text));
        }
        Value::String(text.into_owned())
    }

    /// A string and other types are admitted.
    fn structure_beside_string(
        &mut self,
        text: &str,
        schema: Schema<'_>,
        types: Types,
        place: &ValuePlace<'_>,
    ) -> Option<Value> {
        let trimmed = text.trim();
        let structure = (types.has(Types::OBJECT) && trimmed.starts_with('{'))
            || (types.has(Types::ARRAY) && trimmed.starts_with('['));
        if structure && let Ok(value) = json::parse(trimmed) {
            return Some(self.json(value, schema, place).unwrap_or(Value::Null));
        }
        if types.has(Types::NULL) && trimmed == "null" {
            self.note(
                Rule::C6,
                Class::Verbatim,
                "null_like_string",
                place,
                trimmed,
                trimmed,
            );
        }
        None
    }

    /// JSON text for an object or array (C7, C8), or one scalar wrapped as an array.
    fn structure_text(
        &mut self,
        trimmed: &str,
        schema: Schema<'_>,
        types: Types,
        place: &ValuePlace<'_>,
    ) -> Value {
        let body = match peel_fence(trimmed) {
            Some(body) => {
                self.note(
                    Rule::C7,
                    Class::Spelling,
                    "fence_peeled",
                    place,
                    trimmed,
                    body,
                );
                body
            }
            None => trimmed,
        };
        if body.starts_with(['{', '[']) {
            match json::parse(body) {
                Ok(value) if types.has(Types::of_value(&value)) => {
                    return self.json(value, schema, place).unwrap_or(Value::Null);
                }
                Ok(value @ Value::Object(_)) if types.has(Types::ARRAY) => {
                    return self.wrapped(value, schema, place);
                }
                Ok(_) => {}
                Err(error) => {
                    let message =
                        format!("Parameter '{}' is not valid JSON: {error}", place.name());
                    self.problems.push(
                        Problem::new(
                            ProblemCode::InvalidJson,
                            if types.has(Types::ARRAY) {
                                Rule::C8
                            } else {
                                Rule::C7
                            },
                            place.span,
                            message,
                        )
                        .at(place.path())
                        .expected(types.describe())
                        .received(body),
                    );
                    return Value::String(trimmed.to_owned());
                }
            }
        }
        if types.has(Types::ARRAY) && !trimmed.contains(',') {
            let before = self.problems.len();
            let items = schema.items();
            if let Some(item) = self.scalar(trimmed.into(), items, &place.item(0))
                && self.problems.len() == before
            {
                self.note_wrapped(place, trimmed);
                return Value::Array(vec![item]);
            }
            self.problems.truncate(before);
        }
        self.mismatch(schema, place, trimmed);
        Value::String(trimmed.to_owned())
    }

    pub(super) fn wrapped(
        &mut self,
        value: Value,
        schema: Schema<'_>,
        place: &ValuePlace<'_>,
    ) -> Value {
        self.note_wrapped(place, &value.to_string());
        let item = self
            .json(value, schema.items(), &place.item(0))
            .unwrap_or(Value::Null);
        Value::Array(vec![item])
    }

    /// One value where a list is wanted: an element without a second one is a list of one (A19);
    /// everything else is wrapped (C8).
    fn note_wrapped(&mut self, place: &ValuePlace<'_>, before: &str) {
        let (rule, class, code) = match place.element {
            true => (Rule::A19, Class::Spelling, "single_element_list"),
            false => (Rule::C8, Class::Repair, "wrapped_as_array"),
        };
        self.note(rule, class, code, place, before, "array of one");
    }

    /// An empty value of a type that has no empty text (C12).
    pub(super) fn empty(&mut self, types: Types, place: &ValuePlace<'_>) -> Option<Value> {
        let (value, name) = if types.has(Types::ARRAY) {
            (Some(Value::Array(Vec::new())), "[]")
        } else if types.has(Types::OBJECT) {
            (Some(Value::Object(serde_json::Map::new())), "{}")
        } else {
            (None, "absent")
        };
        let class = match value {
            Some(_) => Class::Repair,
            None => Class::Doubt,
        };
        self.note(Rule::C12, class, "empty_value", place, "", name);
        value
    }

    /// One of the allowed values (C10).
    pub(super) fn choice(
        &mut self,
        text: &str,
        allowed: &[&Value],
        schema: Schema<'_>,
        place: &ValuePlace<'_>,
    ) -> Option<Value> {
        if let Some((value, how)) = scalar::choose(text, allowed) {
            if how == Choice::CaseFolded {
                self.note(
                    Rule::C10,
                    Class::Spelling,
                    "enum_letter_case",
                    place,
                    text,
                    value.as_str().unwrap_or_default(),
                );
            }
            return Some(value.clone());
        }
        if text.trim().is_empty() && !schema.types().has(Types::STRING) {
            return self.empty(schema.types(), place);
        }
        self.refuse_choice(text, allowed, place);
        Some(Value::String(text.to_owned()))
    }

    /// Reports a text that is none of the allowed values.
    pub(super) fn refuse_choice(&mut self, text: &str, allowed: &[&Value], place: &ValuePlace<'_>) {
        let listed: Vec<String> = allowed
            .iter()
            .take(20)
            .map(|value| {
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            })
            .collect();
        let nearest = json_schema::nearest_names(text.trim(), listed.iter().map(String::as_str));
        let message = format!(
            "Parameter '{}' must be one of {}",
            place.name(),
            listed.join(", ")
        );
        self.problems.push(
            Problem::new(ProblemCode::NotInEnum, Rule::C10, place.span, message)
                .at(place.path())
                .expected(listed.join(", "))
                .received(text)
                .suggesting(nearest),
        );
    }

    /// A value with an encoding hint (C14).
    pub(crate) fn hinted(
        &mut self,
        text: &str,
        hint: &str,
        schema: Schema<'_>,
        place: &ValuePlace<'_>,
    ) -> Option<Value> {
        let types = schema.types();
        let conflict = match hint.trim().to_ascii_lowercase().as_str() {
            "text" | "string" if types.has(Types::STRING) => {
                return Some(Value::String(text.to_owned()));
            }
            "text" | "string" => return self.scalar(text.into(), schema, place),
            "json" => match json::parse(text.trim()) {
                Ok(value) if types.has(Types::of_value(&value)) => {
                    return self.json(value, schema, place);
                }
                Ok(_) => format!("the hint json gives no {}", types.describe()),
                Err(error) => format!("the hint json does not fit: {error}"),
            },
            "base64" => {
                let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
                match STANDARD
                    .decode(compact)
                    .ok()
                    .and_then(|bytes| String::from_utf8(bytes).ok())
                {
                    Some(decoded) if types.has(Types::STRING) => {
                        return Some(Value::String(decoded));
                    }
                    Some(_) => format!("the hint base64 gives no {}", types.describe()),
                    None => "the hint base64 does not fit: the value is not base64 of UTF-8 text"
                        .to_owned(),
                }
            }
            other => format!(
                "the hint '{}' is not known; use text, json or base64",
                call_catalogue::cut(other)
            ),
        };
        let message = format!("Parameter '{}': {conflict}", place.name());
        self.problems.push(
            Problem::new(ProblemCode::HintConflict, Rule::C14, place.span, message)
                .at(place.path())
                .expected(types.describe())
                .received(text),
        );
        Some(Value::String(text.to_owned()))
    }

    /// Reports a value for which the schema admits no structure.
    pub(super) fn refuse(&mut self, schema: Schema<'_>, place: &ValuePlace<'_>, received: &str) {
        self.mismatch(schema, place, received);
    }
}

/// The body of a single fence round the whole text.
pub(super) fn peel_fence(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("```")?;
    let (_, body) = rest.split_once('\n')?;
    let body = body.trim_end().strip_suffix("```")?;
    (!body.contains("```")).then(|| body.trim())
}

/// Turns `\n`, `\r`, `\t` and `\\` into the characters that they name (T15, only where the schema
/// requests it).
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('\\') => out.push('\\'),
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    out
}
