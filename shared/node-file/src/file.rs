//! The content of a file.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value, json};

/// A node type as its file declares it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFile {
    /// The type within the plugin, such as `QrCode`.
    #[serde(rename = "type")]
    pub name: String,
    /// The display name.
    pub display_name: String,
    /// The purpose.
    pub description: String,
    /// The group in which an editor lists the type.
    pub category: String,
    /// The inputs by key, in the order of the file.
    #[serde(deserialize_with = "in_order")]
    pub inputs: Vec<(String, Slot)>,
    /// The outputs by key, in the order of the file.
    #[serde(deserialize_with = "in_order")]
    pub outputs: Vec<(String, Slot)>,
    /// The settings by key, in the order of the file.
    #[serde(rename = "configSchema", deserialize_with = "in_order")]
    pub settings: Vec<(String, Setting)>,
    /// The setting that selects a mode; empty for a type without modes.
    #[serde(rename = "modeConfigKey")]
    pub mode_key: String,
    /// The modes by id, in the order of the file.
    #[serde(deserialize_with = "in_order")]
    pub modes: Vec<(String, Mode)>,
    /// The handler of its nodes.
    pub handler: Handler,
    /// The declared effects.
    pub effects: Effects,
}

/// A slot.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Slot {
    /// The type of its values, such as `STRING`.
    pub data_flow_type: String,
    /// The display name, which stands for a missing description.
    pub display_name: String,
    /// The purpose.
    pub description: String,
    /// Whether an input needs a value.
    pub required: bool,
    /// Whether an input accepts several values.
    pub multi: bool,
    /// Whether an output is written piece by piece, while its handler runs.
    pub is_stream: bool,
    /// Words; slots that share one may be connected whatever their types.
    pub match_categories: Vec<String>,
    /// The details.
    pub config: SlotConfig,
}

/// The details of a slot.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SlotConfig {
    /// The value of an input without one.
    pub default: Option<Value>,
    /// Values that an editor offers.
    pub suggestions: Vec<String>,
}

/// A setting.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Setting {
    /// The type of its value, such as `STRING`.
    pub data_flow_type: String,
    /// The display name, which stands for a missing description.
    pub display_name: String,
    /// The purpose.
    pub description: String,
    /// The details.
    pub config: SettingConfig,
}

/// The details of a setting.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SettingConfig {
    /// The value of a missing setting.
    pub default: Option<Value>,
    /// The accepted values; empty for all of the type.
    pub options: Vec<String>,
    /// The bound above which a number must be.
    pub above: Option<f64>,
    /// The largest number.
    pub maximum: Option<f64>,
}

/// A mode.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Mode {
    /// The inputs.
    #[serde(deserialize_with = "in_order")]
    pub inputs: Vec<(String, Slot)>,
    /// The outputs.
    #[serde(deserialize_with = "in_order")]
    pub outputs: Vec<(String, Slot)>,
}

/// The handler of the nodes of a type: a script, or a tool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Handler {
    /// The command of a script of the plugin, such as `python scripts/code.py`.
    pub script: Option<String>,
    /// The package set that the script imports; empty for none.
    pub packages: String,
    /// The time limit of the script: milliseconds, or a text such as `5s`.
    pub timeout: Option<Value>,
    /// The id of a tool of the plugin.
    pub tool: Option<String>,
}

/// The effects that a type declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Effects {
    /// It changes nothing.
    pub read_only: bool,
    /// Repeating it has no further effect.
    pub idempotent: bool,
    /// It destroys data that cannot be restored.
    pub destructive: bool,
    /// Its runs may be alongside each other.
    pub parallel_safe: bool,
}

impl NodeFile {
    /// Returns the output that its handler writes piece by piece, without a mode or in one.
    pub fn streamed(&self) -> Option<&(String, Slot)> {
        let of_modes = self.modes.iter().flat_map(|(_, mode)| &mode.outputs);
        let mut outputs = self.outputs.iter().chain(of_modes);
        outputs.find(|(_, slot)| slot.is_stream)
    }

    /// Returns all slots, each with the JSON pointer of it and whether it is an input.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (String, bool, &Slot)> {
        let own = [("", &self.inputs, true), ("", &self.outputs, false)];
        let own = own.map(|(place, slots, is_input)| (place.to_owned(), slots, is_input));
        let of_modes = self.modes.iter().flat_map(|(id, mode)| {
            let place = json_schema::pointer::join("/modes", id);
            [
                (place.clone(), &mode.inputs, true),
                (place, &mode.outputs, false),
            ]
        });
        let all = own.into_iter().chain(of_modes);
        all.flat_map(|(place, slots, is_input)| {
            let side = if is_input { "inputs" } else { "outputs" };
            let each = slots.iter();
            each.map(move |(key, slot)| (format!("{place}/{side}/{key}"), is_input, slot))
        })
    }
}

impl Slot {
    /// Returns the purpose, or the display name where none is stated.
    pub fn purpose(&self) -> &str {
        purpose(&self.description, &self.display_name)
    }
}

impl Setting {
    /// Returns the purpose, or the display name where none is stated.
    pub fn purpose(&self) -> &str {
        purpose(&self.description, &self.display_name)
    }

    /// Returns the JSON Schema of its value.
    pub fn schema(&self) -> Value {
        let config = &self.config;
        let bounds = config.above.zip(config.maximum);
        let options = config.options.iter().map(String::as_str);
        setting_schema(
            self.purpose(),
            &self.data_flow_type,
            options,
            bounds,
            config.default.as_ref(),
        )
    }
}

fn purpose<'a>(description: &'a str, display_name: &'a str) -> &'a str {
    match description {
        "" => display_name,
        stated => stated,
    }
}

/// Writes the JSON Schema of a setting: its purpose, the type of its values, the accepted values, the bound above which
/// a number must be with the largest, and the default.
pub fn setting_schema<'a>(
    description: &str,
    data_flow_type: &str,
    options: impl Iterator<Item = &'a str>,
    bounds: Option<(f64, f64)>,
    default: Option<&Value>,
) -> Value {
    let mut schema = Map::new();
    let mut put = |keyword: &str, value: Value| schema.insert(keyword.to_owned(), value);
    put("description", json!(description));
    if let Some(name) = json_type(data_flow_type) {
        put("type", json!(name));
    }
    let options: Vec<&str> = options.collect();
    if !options.is_empty() {
        put("enum", json!(options));
    }
    if let Some((above, maximum)) = bounds {
        put("exclusiveMinimum", json!(above));
        put("maximum", json!(maximum));
    }
    if let Some(default) = default {
        put("default", default.clone());
    }
    Value::Object(schema)
}

/// Returns the type of JSON of a type of values; none if any fits.
pub(crate) fn json_type(data_flow_type: &str) -> Option<&'static str> {
    match data_flow_type {
        "STRING" | "BINARY" => Some("string"),
        "INTEGER" => Some("integer"),
        "FLOAT" => Some("number"),
        "BOOLEAN" => Some("boolean"),
        "OBJECT" => Some("object"),
        "ARRAY" => Some("array"),
        _ => None,
    }
}

/// Reads an object as its members, in the order of the text.
fn in_order<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Vec<(String, T)>, D::Error> {
    let members = Map::deserialize(deserializer)?.into_iter();
    let read = members.map(|(key, value)| Ok((key, serde_json::from_value(value)?)));
    let read: serde_json::Result<Vec<_>> = read.collect();
    read.map_err(serde::de::Error::custom)
}
