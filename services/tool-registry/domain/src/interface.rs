//! Tools that are derived from workflows and from node types.
//!
//! A workflow's interface becomes a JSON Schema by the rules of seed 000 §2.3, and where the seed
//! is silent by the practice of existing files: descriptions fall back to `customDescription` and
//! then to `displayName`, binary values are base64 text, wildcards have no type, a slot that
//! accepts several values is an array. Keys keep their order, so that the result is the same text
//! each time.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use call_outcome::Violation;
use core_types::ToolId;
use serde_json::{Map, Value, json};

use super::{
    definition::{Definition, Flags, Implementation},
    node_interface::NodeInterface,
    parameters::{Input, parameters_of},
};

/// The most interface inputs that a workflow tool may have.
pub const MAX_PARAMETERS: usize = 256;

/// Derives the tool of a workflow from the text of its file.
///
/// # Errors
/// All problems that keep the interface from becoming a schema.
pub fn workflow_tool(
    workflow_id: &str,
    name: &str,
    file: &Value,
) -> Result<Definition, Vec<Violation>> {
    let inputs = interface_inputs(file)?;
    let description = text_at(file, "description").unwrap_or(name);
    let id = format!("workflow:{workflow_id}");
    let implementation = Implementation::Workflow {
        workflow_id: workflow_id.to_owned(),
    };
    derived(
        &id,
        name,
        description,
        parameters_of(&inputs),
        implementation,
    )
}

/// Derives the tool of a single node from the interface of its type.
///
/// # Errors
/// The problems of its id.
pub fn node_tool(
    full_type: &str,
    display_name: &str,
    description: &str,
    interface: NodeInterface,
    pure: bool,
) -> Result<Definition, Vec<Violation>> {
    let config = Map::new();
    let parameters = interface.parameters(&config);
    let implementation = Implementation::Node {
        full_type: full_type.to_owned(),
        config,
        interface: Some(Arc::new(interface)),
    };
    let id = format!("node:{full_type}");
    let mut tool = derived(&id, display_name, description, parameters, implementation)?;
    tool.flags = Flags {
        read_only: pure,
        idempotent: pure,
        parallel_safe: pure,
        ..Flags::default()
    };
    Ok(tool)
}

/// Derives the tool of an agent from its profile (rule G901).
///
/// # Errors
/// The problems of its id.
pub fn agent_tool(
    asked: &str,
    profile_id: &str,
    name: &str,
    description: &str,
) -> Result<Definition, Vec<Violation>> {
    let input = |key: &str, description: &str, required: bool| Input {
        key: key.to_owned(),
        data_flow_type: "STRING".to_owned(),
        description: description.to_owned(),
        required,
        ..Input::default()
    };
    let inputs = [
        input("message", "What to say to the agent.", true),
        input("context", "What the agent should know first.", false),
    ];
    let implementation = Implementation::Agent {
        profile_id: profile_id.to_owned(),
        conversation_id: (asked != profile_id).then(|| asked.to_owned()),
    };
    let description = match description {
        "" => name,
        description => description,
    };
    let id = format!("agent:{asked}");
    derived(
        &id,
        name,
        description,
        parameters_of(&inputs),
        implementation,
    )
}

/// Returns the schema for a model: name, description and parameters.
pub fn published_schema(definition: &Definition) -> Value {
    json!({
        "name": definition.id.as_str(),
        "description": definition.description,
        "parameters": definition.parameters,
    })
}

fn derived(
    id: &str,
    name: &str,
    description: &str,
    parameters: Value,
    implementation: Implementation,
) -> Result<Definition, Vec<Violation>> {
    let id = ToolId::new(id)
        .map_err(|error| vec![Violation::new("", "invalid_id", error.to_string())])?;
    let mut definition = Definition {
        display_name: if name.is_empty() {
            id.to_string()
        } else {
            name.to_owned()
        },
        id,
        description: description.to_owned(),
        parameters: Some(parameters),
        implementation,
        flags: Flags::default(),
        timeout: None,
        source: Box::default(),
        package: None,
        diagnostics: Vec::new(),
    };
    definition.source = canonical_json::to_string(&published_schema(&definition)).into();
    Ok(definition)
}

/// Reads `interfaceInputs` in the order of the file.
fn interface_inputs(file: &Value) -> Result<Vec<Input>, Vec<Violation>> {
    let slots = match file.get("interfaceInputs") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(slots)) => slots,
        Some(_) => {
            let message = "interfaceInputs must be an object of slots by key";
            return Err(vec![Violation::new(
                "/interfaceInputs",
                "type_mismatch",
                message,
            )]);
        }
    };
    if slots.len() > MAX_PARAMETERS {
        let message = format!(
            "the interface has {} inputs; a tool has at most {MAX_PARAMETERS} parameters",
            slots.len()
        );
        return Err(vec![Violation::new(
            "/interfaceInputs",
            "limit_exceeded",
            message,
        )]);
    }
    Ok(slots
        .iter()
        .map(|(key, slot)| interface_input(key, slot))
        .collect())
}

fn interface_input(key: &str, slot: &Value) -> Input {
    let description = ["description", "customDescription", "displayName"]
        .into_iter()
        .find_map(|name| text_at(slot, name))
        .unwrap_or_default();
    let config = slot.get("config").unwrap_or(&Value::Null);
    Input {
        key: key.to_owned(),
        data_flow_type: text_at(slot, "dataFlowType").unwrap_or_default().to_owned(),
        description: description.to_owned(),
        required: is_true(slot, "required"),
        multi: is_true(slot, "multi")
            || is_true(slot, "isStream")
                && text_at(slot, "dataFlowType").is_some_and(streams_values),
        choices: choices_of(slot, config),
        minimum: number_at(config, "min"),
        maximum: number_at(config, "max"),
    }
}

/// Whether the whole of a stream of this type is the array of its values. A text is joined, and a stream of
/// any type may be either.
pub fn streams_values(data_flow: &str) -> bool {
    !["STRING", "WILDCARD", "CONVERTIBLE_ANY"].contains(&data_flow)
}

/// Returns the suggestions if the slot accepts no other values.
fn choices_of(slot: &Value, config: &Value) -> Vec<Value> {
    let categories = slot.get("matchCategories").and_then(Value::as_array);
    let is_combo = categories.is_some_and(|all| all.iter().any(|each| each == "ComboOption"));
    let suggestions = config.get("suggestions").and_then(Value::as_array);
    let mut choices: Vec<Value> = Vec::new();
    for suggestion in suggestions.into_iter().flatten().filter(|_| is_combo) {
        let value = match suggestion {
            Value::Object(object) => object.get("value"),
            bare => Some(bare),
        };
        if let Some(value) = value.filter(|value| !choices.contains(value)) {
            choices.push(value.clone());
        }
    }
    choices
}

fn text_at<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value
        .get(key)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

fn is_true(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn number_at(value: &Value, key: &str) -> Option<Value> {
    value.get(key).filter(|number| number.is_number()).cloned()
}
