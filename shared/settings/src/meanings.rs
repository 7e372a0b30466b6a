//! The meaning of each key: the doc comment of its field.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

/// The doc comments of a settings struct and the structs below it.
pub(crate) struct Meanings(Value);

impl Meanings {
    pub(crate) fn of<T: JsonSchema>() -> Self {
        let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
        Self(
            settings
                .into_generator()
                .into_root_schema_for::<T>()
                .to_value(),
        )
    }

    /// Returns the meaning of a key, on one line.
    pub(crate) fn find(&self, path: &[&str]) -> Option<String> {
        let mut schema = &self.0;
        for part in path {
            schema = schema.get("properties")?.get(part)?;
        }
        let text = schema.get("description")?.as_str()?;
        Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}
