//! Inputs of workflows and nodes as the JSON Schema of arguments.

use serde_json::{Map, Value, json};

/// An input of a workflow's interface, or of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    /// The key by which values name it.
    pub key: String,
    /// The type, such as `STRING`.
    pub data_flow_type: String,
    /// The purpose; empty if none is stated.
    pub description: String,
    /// Whether a value is needed.
    pub required: bool,
    /// Whether it accepts an array of values.
    pub multi: bool,
    /// The values that it offers, if it accepts no others.
    pub choices: Vec<Value>,
    /// The least number.
    pub minimum: Option<Value>,
    /// The largest number.
    pub maximum: Option<Value>,
}

/// Makes the schema of the arguments.
pub fn parameters_of(inputs: &[Input]) -> Value {
    let mut properties = Map::new();
    for input in inputs {
        properties.insert(input.key.clone(), property_of(input));
    }
    let required: Vec<&str> = inputs
        .iter()
        .filter(|input| input.required)
        .map(|input| input.key.as_str())
        .collect();
    json!({"type": "object", "properties": properties, "required": required})
}

fn property_of(input: &Input) -> Value {
    let mut item = Map::new();
    let kind = match input.data_flow_type.as_str() {
        "STRING" => Some("string"),
        "INTEGER" => Some("integer"),
        "FLOAT" => Some("number"),
        "BOOLEAN" => Some("boolean"),
        "OBJECT" => Some("object"),
        "ARRAY" => Some("array"),
        "BINARY" => Some("string"),
        _ => None,
    };
    let mut property = Map::new();
    if let Some(kind) = kind {
        item.insert("type".to_owned(), json!(kind));
    }
    if input.multi {
        property.insert("type".to_owned(), json!("array"));
    } else {
        property.append(&mut item);
    }
    if !input.description.is_empty() {
        property.insert("description".to_owned(), json!(input.description));
    }
    let narrowed = if input.multi {
        &mut item
    } else {
        &mut property
    };
    if input.data_flow_type == "BINARY" {
        narrowed.insert("contentEncoding".to_owned(), json!("base64"));
    }
    if matches!(kind, Some("integer" | "number")) {
        let bounds = [("minimum", &input.minimum), ("maximum", &input.maximum)];
        for (keyword, bound) in bounds {
            if let Some(bound) = bound {
                narrowed.insert(keyword.to_owned(), bound.clone());
            }
        }
    }
    if !input.choices.is_empty() {
        narrowed.insert("enum".to_owned(), json!(input.choices));
    }
    if input.multi {
        property.insert("items".to_owned(), Value::Object(item));
    }
    Value::Object(property)
}
