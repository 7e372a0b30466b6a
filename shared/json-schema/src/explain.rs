//! Turns the validator's errors into violations a model can act on.

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::{Map, Value};

use crate::graph::Graph;
use crate::names::nearest_names;
use crate::violation::{Violation, ViolationCode, cut, join_pointer, unescape_segment};

mod variants;

/// Characters of a received value that are repeated.
const LONGEST_RECEIVED: usize = 120;

/// Characters of a list of allowed values that are repeated.
const LONGEST_EXPECTED: usize = 300;

/// Characters of a name that are repeated.
const LONGEST_NAME: usize = 128;

/// Alternatives within alternatives that are looked into.
const DEEPEST_VARIANT: usize = 8;

/// Explains the errors of one instance.
pub(crate) struct Explainer<'a> {
    source: &'a Value,
    graph: &'a Graph,
    instance: &'a Value,
    most: usize,
}

impl<'a> Explainer<'a> {
    pub(crate) fn new(
        source: &'a Value,
        graph: &'a Graph,
        instance: &'a Value,
        most: usize,
    ) -> Self {
        Self {
            source,
            graph,
            instance,
            most,
        }
    }

    /// Explains errors until the report is full; equal violations of several branches are one.
    pub(crate) fn explain_all<'e>(
        &self,
        errors: impl Iterator<Item = ValidationError<'e>>,
    ) -> Vec<Violation> {
        let mut violations: Vec<Violation> = Vec::new();
        for error in errors {
            for violation in self.explain(&error) {
                if !violations.contains(&violation) {
                    violations.push(violation);
                }
            }
            if violations.len() >= self.most {
                break;
            }
        }
        violations
    }

    pub(crate) fn explain(&self, error: &ValidationError<'_>) -> Vec<Violation> {
        self.explain_at(error, 0)
    }

    fn explain_at(&self, error: &ValidationError<'_>, depth: usize) -> Vec<Violation> {
        let pointer = error.instance_path().as_str();
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                self.unknown(error, unexpected)
            }
            ValidationErrorKind::AnyOf { context }
            | ValidationErrorKind::OneOfNotValid { context }
                if depth < DEEPEST_VARIANT =>
            {
                self.no_variant(error, context, depth)
            }
            // Without named properties the validator reports the object, not its keys.
            ValidationErrorKind::FalseSchema if self.closed_object(error).is_some() => {
                let keys = self
                    .closed_object(error)
                    .into_iter()
                    .flat_map(|object| object.keys().cloned());
                self.unknown(error, &keys.take(self.most).collect::<Vec<String>>())
            }
            ValidationErrorKind::Required { property } => {
                vec![self.missing(error, property.as_str().unwrap_or_default())]
            }
            ValidationErrorKind::PropertyNames { error: inner } => {
                let name = inner.instance().as_str().unwrap_or_default().to_owned();
                let why = self
                    .explain_at(inner, depth + 1)
                    .into_iter()
                    .next()
                    .map(|first| first.expected)
                    .unwrap_or_default();
                vec![Violation {
                    pointer: join_pointer(pointer, &name),
                    code: ViolationCode::PropertyName,
                    keyword: "propertyNames".to_owned(),
                    message: format!(
                        "The name '{}' is not allowed here: expected {why}.",
                        cut(&name, LONGEST_NAME)
                    ),
                    expected: why,
                    received: received(inner.instance()),
                    suggestions: Vec::new(),
                }]
            }
            _ => vec![self.simple(error)],
        }
    }

    /// Returns the object that `"additionalProperties": false` keeps empty, if the error is about one.
    fn closed_object(&self, error: &ValidationError<'_>) -> Option<&'a Map<String, Value>> {
        let schema = error
            .schema_path()
            .as_str()
            .strip_suffix("/additionalProperties")?;
        self.graph.at(schema)?;
        self.instance
            .pointer(error.instance_path().as_str())?
            .as_object()
    }

    fn unknown(&self, error: &ValidationError<'_>, unexpected: &[String]) -> Vec<Violation> {
        let parent = error.instance_path().as_str();
        let object = self.instance.pointer(parent);
        let known = self.known_names(error);
        let absent: Vec<&str> = known
            .iter()
            .map(String::as_str)
            .filter(|name| object.is_some_and(|object| object.get(name).is_none()))
            .collect();
        unexpected
            .iter()
            .take(self.most)
            .map(|name| {
                let suggestions = nearest_names(name, absent.iter().copied());
                let value = object.and_then(|object| object.get(name));
                unknown_parameter(
                    parent,
                    name,
                    value,
                    suggestions,
                    &known,
                    error.kind().keyword(),
                )
            })
            .collect()
    }

    /// Returns the names that the schema of the failed keyword knows.
    fn known_names(&self, error: &ValidationError<'_>) -> Vec<String> {
        let place = error.schema_path().as_str();
        let schema = place.rsplit_once('/').map_or("", |(schema, _)| schema);
        self.graph
            .at(schema)
            .map(|id| self.graph.known_names(id))
            .unwrap_or_default()
    }

    fn missing(&self, error: &ValidationError<'_>, name: &str) -> Violation {
        let parent = error.instance_path().as_str();
        let pointer = join_pointer(parent, name);
        let schema = error
            .schema_path()
            .as_str()
            .rsplit_once('/')
            .map_or("", |(schema, _)| schema);
        let property = self
            .source
            .pointer(schema)
            .and_then(|schema| schema.get("properties")?.get(name));
        let expected =
            property.map_or_else(|| "a value".to_owned(), |property| self.describe(property));
        Violation {
            message: format!("Missing parameter {} ({expected}).", quoted(&pointer)),
            pointer,
            code: ViolationCode::MissingParameter,
            keyword: "required".to_owned(),
            expected,
            received: String::new(),
            suggestions: Vec::new(),
        }
    }

    /// Describes in a few words the values that a property's schema allows.
    fn describe(&self, property: &Value) -> String {
        if let Some(options) = property.get("enum").and_then(Value::as_array) {
            return one_of(options);
        }
        match property.get("type") {
            Some(Value::String(name)) => name.clone(),
            Some(Value::Array(names)) => alternatives(names.iter().filter_map(Value::as_str)),
            _ => "a value".to_owned(),
        }
    }

    /// Explains an error that is about one value and one keyword.
    fn simple(&self, error: &ValidationError<'_>) -> Violation {
        let pointer = error.instance_path().as_str();
        let (code, expected) = requirement(error);
        let shown = received(error.instance());
        let suggestions = match (error.kind(), error.instance().as_ref()) {
            (ValidationErrorKind::Enum { options }, Value::String(given)) => nearest_names(
                given,
                options
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str),
            ),
            (ValidationErrorKind::Constant { expected_value }, Value::String(given)) => {
                nearest_names(given, expected_value.as_str())
            }
            _ => Vec::new(),
        };
        let meant = suggestions
            .first()
            .map(|first| format!(" Did you mean '{first}'?"))
            .unwrap_or_default();
        Violation {
            message: format!(
                "Invalid value for {}: expected {expected}, received {shown}.{meant}",
                quoted(pointer)
            ),
            pointer: pointer.to_owned(),
            code,
            keyword: error.kind().keyword().to_owned(),
            expected,
            received: shown,
            suggestions,
        }
    }
}

/// Builds the violation for a key that the schema does not name.
pub(crate) fn unknown_parameter(
    parent: &str,
    name: &str,
    value: Option<&Value>,
    suggestions: Vec<String>,
    known: &[String],
    keyword: &str,
) -> Violation {
    let pointer = join_pointer(parent, name);
    let shown = cut(&label(&pointer), LONGEST_NAME);
    let message = match suggestions.first() {
        Some(first) => format!("Unknown parameter '{shown}', did you mean '{first}'?"),
        None if known.is_empty() => {
            format!("Unknown parameter '{shown}'; no parameter is allowed here.")
        }
        None => format!(
            "Unknown parameter '{shown}'; known parameters: {}.",
            cut(&known.join(", "), LONGEST_EXPECTED)
        ),
    };
    Violation {
        pointer,
        code: ViolationCode::UnknownParameter,
        keyword: keyword.to_owned(),
        message,
        expected: if known.is_empty() {
            "no parameter".to_owned()
        } else {
            cut(&format!("one of {}", known.join(", ")), LONGEST_EXPECTED)
        },
        received: value.map(received).unwrap_or_default(),
        suggestions,
    }
}

/// Returns the code of an error, and the requirement of the keyword in words.
fn requirement(error: &ValidationError<'_>) -> (ViolationCode, String) {
    use ValidationErrorKind as Kind;
    let code = code_of(error.kind());
    let expected = match error.kind() {
        Kind::Type {
            kind: TypeKind::Single(single),
        } => single.as_str().to_owned(),
        Kind::Type {
            kind: TypeKind::Multiple(many),
        } => alternatives(many.iter().map(jsonschema::JsonType::as_str)),
        Kind::Enum { options } => one_of(options.as_array().map_or(&[][..], Vec::as_slice)),
        Kind::Constant { expected_value } => cut(&expected_value.to_string(), LONGEST_EXPECTED),
        Kind::Maximum { limit } => format!("at most {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("less than {limit}"),
        Kind::Minimum { limit } => format!("at least {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("more than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("a multiple of {multiple_of}"),
        Kind::MaxLength { limit } => format!("at most {limit} characters"),
        Kind::MinLength { limit } => format!("at least {limit} characters"),
        Kind::AdditionalItems { limit } => format!("at most {limit} items"),
        Kind::MaxItems { limit } => format!("at most {limit} items"),
        Kind::MinItems { limit } => format!("at least {limit} items"),
        Kind::MaxProperties { limit } => format!("at most {limit} members"),
        Kind::MinProperties { limit } => format!("at least {limit} members"),
        Kind::UnevaluatedItems { .. } => "no further items".to_owned(),
        Kind::Contains => "a matching item".to_owned(),
        Kind::UniqueItems => "items that all differ".to_owned(),
        Kind::Pattern { pattern } => {
            format!("text that matches {}", cut(pattern, LONGEST_EXPECTED))
        }
        Kind::Format { format } => format!("text of the format {format}"),
        Kind::OneOfMultipleValid { .. } => {
            "exactly one of the alternatives, not several".to_owned()
        }
        Kind::FalseSchema => "nothing, as no value is allowed here".to_owned(),
        Kind::Not { .. } => "a value that the schema does not exclude".to_owned(),
        other => format!("a value that meets `{}`", other.keyword()),
    };
    (code, expected)
}

fn code_of(kind: &ValidationErrorKind) -> ViolationCode {
    use ValidationErrorKind as Kind;
    match kind {
        Kind::Type { .. } => ViolationCode::TypeMismatch,
        Kind::Enum { .. } | Kind::Constant { .. } => ViolationCode::NotInEnum,
        Kind::Maximum { .. }
        | Kind::ExclusiveMaximum { .. }
        | Kind::Minimum { .. }
        | Kind::ExclusiveMinimum { .. } => ViolationCode::OutOfRange,
        Kind::MultipleOf { .. } => ViolationCode::NotMultiple,
        Kind::MaxLength { .. } => ViolationCode::TooLong,
        Kind::MinLength { .. } => ViolationCode::TooShort,
        Kind::AdditionalItems { .. }
        | Kind::UnevaluatedItems { .. }
        | Kind::MaxItems { .. }
        | Kind::MaxProperties { .. } => ViolationCode::TooManyItems,
        Kind::MinItems { .. } | Kind::MinProperties { .. } | Kind::Contains => {
            ViolationCode::TooFewItems
        }
        Kind::UniqueItems => ViolationCode::NotUnique,
        Kind::Pattern { .. } => ViolationCode::Pattern,
        Kind::Format { .. } => ViolationCode::Format,
        Kind::OneOfMultipleValid { .. } => ViolationCode::ManyVariants,
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => ViolationCode::NoVariant,
        Kind::FalseSchema | Kind::Not { .. } => ViolationCode::Forbidden,
        _ => ViolationCode::Other,
    }
}

/// Returns the value as JSON text, cut where it is long.
fn received(value: &Value) -> String {
    match value {
        // The whole text of a long string need not be escaped to show its beginning.
        Value::String(text) if text.len() > 4 * LONGEST_RECEIVED => cut(
            &Value::String(text.chars().take(LONGEST_RECEIVED + 1).collect()).to_string(),
            LONGEST_RECEIVED,
        ),
        other => cut(&other.to_string(), LONGEST_RECEIVED),
    }
}

fn one_of(options: &[Value]) -> String {
    let listed: Vec<String> = options.iter().map(ToString::to_string).collect();
    cut(&format!("one of {}", listed.join(", ")), LONGEST_EXPECTED)
}

fn alternatives<'t>(names: impl Iterator<Item = &'t str>) -> String {
    names.collect::<Vec<_>>().join(" or ")
}

/// Names a place for a sentence.
fn quoted(pointer: &str) -> String {
    if pointer.is_empty() {
        "the arguments".to_owned()
    } else {
        format!("'{}'", cut(&label(pointer), LONGEST_NAME))
    }
}

/// Writes a pointer the way a program would: `files[0].path`.
fn label(pointer: &str) -> String {
    let mut label = String::new();
    for segment in pointer.split('/').skip(1) {
        if !segment.is_empty()
            && segment.bytes().all(|byte| byte.is_ascii_digit())
            && !label.is_empty()
        {
            label.push_str(&format!("[{segment}]"));
        } else {
            if !label.is_empty() {
                label.push('.');
            }
            label.push_str(&unescape_segment(segment));
        }
    }
    label
}
