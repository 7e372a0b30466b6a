//! The violations of an instance.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One way in which an instance breaks its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer into the instance; for an unknown or missing parameter, that parameter's own
    /// pointer. The empty string is the whole instance.
    pub pointer: String,
    /// The kind of violation.
    pub code: ViolationCode,
    /// The schema keyword that was not met; empty where a bound of the validator was.
    pub keyword: String,
    /// A sentence for the model that wrote the instance.
    pub message: String,
    /// The allowed values, in words.
    pub expected: String,
    /// The value as JSON text, cut where it is long; empty for a missing parameter.
    pub received: String,
    /// Up to three names or values that may have been meant, nearest first.
    pub suggestions: Vec<String>,
}

/// The kinds of violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ViolationCode {
    /// A parameter that the schema does not name.
    UnknownParameter,
    /// A required parameter that is absent.
    MissingParameter,
    /// A value of another JSON type.
    TypeMismatch,
    /// A value that is not in the list.
    NotInEnum,
    /// A number beyond its bounds.
    OutOfRange,
    /// A string with too many characters.
    TooLong,
    /// A string with too few characters.
    TooShort,
    /// An array or object with too many members.
    TooManyItems,
    /// An array or object with too few members.
    TooFewItems,
    /// A string that does not match its pattern.
    Pattern,
    /// A string that is not of its format.
    Format,
    /// A number that is not a multiple.
    NotMultiple,
    /// An array with equal members.
    NotUnique,
    /// A value that fits none of the alternatives.
    NoVariant,
    /// A value that fits several alternatives where one is allowed.
    ManyVariants,
    /// A value that the schema forbids.
    Forbidden,
    /// A key that the schema does not allow as a name.
    PropertyName,
    /// Nested deeper than the validator goes.
    TooDeep,
    /// More work than the validator does for one instance.
    TooLarge,
    /// Any other keyword; the message names it.
    Other,
}

impl ViolationCode {
    /// Returns the code in snake case, as it crosses the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownParameter => "unknown_parameter",
            Self::MissingParameter => "missing_parameter",
            Self::TypeMismatch => "type_mismatch",
            Self::NotInEnum => "not_in_enum",
            Self::OutOfRange => "out_of_range",
            Self::TooLong => "too_long",
            Self::TooShort => "too_short",
            Self::TooManyItems => "too_many_items",
            Self::TooFewItems => "too_few_items",
            Self::Pattern => "pattern",
            Self::Format => "format",
            Self::NotMultiple => "not_multiple",
            Self::NotUnique => "not_unique",
            Self::NoVariant => "no_variant",
            Self::ManyVariants => "many_variants",
            Self::Forbidden => "forbidden",
            Self::PropertyName => "property_name",
            Self::TooDeep => "too_deep",
            Self::TooLarge => "too_large",
            Self::Other => "other",
        }
    }
}

impl Violation {
    /// Returns the last segment of the pointer as it was written: the parameter's name.
    pub fn name(&self) -> String {
        unescape_segment(self.pointer.rsplit_once('/').map_or("", |(_, last)| last))
    }

    /// Returns the pointer of the object or array that holds the place.
    pub(crate) fn parent(&self) -> &str {
        self.pointer
            .rsplit_once('/')
            .map_or("", |(parent, _)| parent)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Appends one unescaped name to a JSON pointer.
pub(crate) fn join_pointer(parent: &str, name: &str) -> String {
    let mut pointer = String::with_capacity(parent.len() + name.len() + 1);
    pointer.push_str(parent);
    pointer.push('/');
    for c in name.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
    pointer
}

/// Undoes the escapes of one segment of a JSON pointer.
pub(crate) fn unescape_segment(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

/// Returns at most `longest` characters of the text, marked where it was cut.
pub fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
