//! Schemas with few keywords beyond types, as most tools have: a look at the values settles them.

use serde_json::{Map, Value};

use super::Types;

/// The checks of parameters that a look at the values can settle.
#[derive(Debug)]
pub(super) enum Simple {
    /// Typing alone meets the whole schema.
    Typed,
    /// By the names of the parameters; a parameter with further keywords is not among them.
    Looks(Vec<(String, Look)>),
    /// The schema has further keywords for the arguments as a whole.
    No,
}

/// The check of a value by a look. Where it does not settle the value, the whole schema decides.
#[derive(Debug)]
pub(super) enum Look {
    /// Typing alone meets the schema.
    Typed,
    /// A whole number between two bounds.
    Between(i64, i64),
    /// A list of texts.
    Texts,
}

/// Keywords that do not restrict a value.
const REMARKS: [&str; 4] = ["title", "description", "examples", "default"];

/// The work of checking longer lists is estimated first.
const MOST_TEXTS: usize = 256;

impl Simple {
    pub(super) fn of(parameters: &Value) -> Self {
        let words = ["$schema", "title", "description", "required"];
        let Value::Object(keywords) = parameters else {
            return match parameters {
                Value::Null => Self::Typed,
                _ => Self::No,
            };
        };
        let known = keywords.iter().all(|(key, value)| match key.as_str() {
            "type" => value == "object",
            "properties" => value.is_object(),
            "additionalProperties" => value.is_boolean(),
            key => words.contains(&key),
        });
        if !known {
            return Self::No;
        }
        let properties = keywords.get("properties").and_then(Value::as_object);
        let properties = properties.into_iter().flatten();
        let looks = properties.map(|(name, schema)| Some((name.clone(), Look::of(schema)?)));
        let looks: Vec<Option<(String, Look)>> = looks.collect();
        let typed = |look: &Option<(String, Look)>| matches!(look, Some((_, Look::Typed)));
        match looks.iter().all(typed) {
            true => Self::Typed,
            false => Self::Looks(looks.into_iter().flatten().collect()),
        }
    }

    /// Whether the whole schema cannot find more violations in typed arguments than typing did.
    pub(super) fn settles(&self, arguments: &Map<String, Value>) -> bool {
        match self {
            Self::Typed => true,
            Self::Looks(looks) => arguments.iter().all(|(name, value)| {
                let mut looks = looks.iter();
                let look = looks.find(|(known, _)| known == name);
                look.is_some_and(|(_, look)| look.settles(value))
            }),
            Self::No => false,
        }
    }
}

impl Look {
    fn of(schema: &Value) -> Option<Self> {
        let keywords = schema.as_object()?;
        let says = |more: &[&str]| {
            let mut keys = keywords.keys().map(String::as_str);
            keys.all(|key| key == "type" || more.contains(&key) || REMARKS.contains(&key))
        };
        let bound =
            |key: &str, without: i64| keywords.get(key).map_or(Some(without), Value::as_i64);
        match keywords.get("type")?.as_str()? {
            name @ ("string" | "integer" | "number" | "boolean") if says(&["enum", "const"]) => {
                let of_type = |value: &Value| Types::of_value(value).has(Types::of_name(name));
                let listed = |values: &Value| {
                    let values = values.as_array();
                    values.is_some_and(|values| values.iter().all(of_type))
                };
                let choices = keywords.get("enum").is_none_or(listed);
                let fits = choices && keywords.get("const").is_none_or(of_type);
                fits.then_some(Self::Typed)
            }
            "integer" | "number" if says(&["minimum", "maximum"]) => Some(Self::Between(
                bound("minimum", i64::MIN)?,
                bound("maximum", i64::MAX)?,
            )),
            "array" if says(&["items"]) => {
                let items = keywords.get("items")?.as_object()?;
                let mut keys = items.iter();
                let texts = items.get("type")? == "string"
                    && keys.all(|(key, _)| key == "type" || REMARKS.contains(&key.as_str()));
                texts.then_some(Self::Texts)
            }
            _ => None,
        }
    }

    fn settles(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Typed, _) => true,
            (Self::Between(least, most), value) => value
                .as_i64()
                .is_some_and(|number| (*least..=*most).contains(&number)),
            (Self::Texts, Value::Array(items)) => {
                items.len() <= MOST_TEXTS && items.iter().all(Value::is_string)
            }
            (Self::Texts, _) => false,
        }
    }
}
