//! An option as a manifest declares it.

use serde_json::{Number, Value};

/// An option that a plugin declares.
#[derive(Clone, Debug, PartialEq)]
pub struct OptionDeclaration {
    /// The whole key, `extensions.<plugin>.<option>`.
    pub key: String,
    /// The key without its prefix, under which scripts find it.
    pub name: String,
    /// The name for people; the key's last part if none is written.
    pub display_name: String,
    /// The purpose; empty if none is written.
    pub description: String,
    /// The type with its bounds.
    pub kind: OptionKind,
    /// The value when none is set; it keeps the bounds. None if there is none.
    pub default: Option<Value>,
    /// Whether the plugin's tools are held until it has a value.
    pub required: bool,
    /// The layers that may set it.
    pub scopes: Vec<OptionScope>,
    /// The place in a form, the least first; none for the order of the manifest.
    pub order: Option<i64>,
    /// The heading in a form; empty for none.
    pub group: String,
    /// The reason not to use it any more; none if it is in use.
    pub deprecated: Option<String>,
    /// The place of the declaration in the manifest, a JSON pointer.
    pub pointer: String,
}

/// A layer that may set an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionScope {
    /// The service.
    Service,
    /// A project.
    Project,
}

impl OptionScope {
    /// Returns the word of manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Project => "project",
        }
    }
}

/// The type of an option with its bounds.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionKind {
    /// `string`: one line.
    Line(TextBounds),
    /// `text`: several lines.
    Text(TextBounds),
    /// `integer`: a whole number of 64 bits.
    Integer {
        /// The least value.
        minimum: i64,
        /// The greatest value.
        maximum: i64,
    },
    /// `number`.
    Number {
        /// The least value; none for no bound.
        minimum: Option<Number>,
        /// The greatest value; none for no bound.
        maximum: Option<Number>,
    },
    /// `boolean`.
    Boolean,
    /// `enum`.
    Enum {
        /// The values to choose from; at least one.
        choices: Vec<Choice>,
    },
    /// `string_list`: texts of one line.
    List(ListBounds),
    /// `json`.
    Json {
        /// The JSON Schema of the value; none for any value.
        schema: Option<Value>,
    },
    /// `secret`.
    Secret {
        /// The name of the secret.
        secret: String,
    },
}

impl OptionKind {
    /// Returns the word of manifests.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Line(_) => "string",
            Self::Text(_) => "text",
            Self::Integer { .. } => "integer",
            Self::Number { .. } => "number",
            Self::Boolean => "boolean",
            Self::Enum { .. } => "enum",
            Self::List(_) => "string_list",
            Self::Json { .. } => "json",
            Self::Secret { .. } => "secret",
        }
    }

    /// Whether values are never shown back.
    pub fn is_secret(&self) -> bool {
        matches!(self, Self::Secret { .. })
    }
}

/// The bounds of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextBounds {
    /// The least number of characters.
    pub min_length: u64,
    /// The greatest number of characters; none for the limit of the type alone.
    pub max_length: Option<u64>,
    /// The regular expression that a part of the text matches; none for any text.
    pub pattern: Option<String>,
}

/// The bounds of a list of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListBounds {
    /// The least number of entries.
    pub min_items: u64,
    /// The greatest number of entries; none for the limit of the type alone.
    pub max_items: Option<u64>,
    /// The bounds of each entry.
    pub item: TextBounds,
}

/// A value to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The value.
    pub value: String,
    /// The name for people; the value if none is written.
    pub label: String,
}
