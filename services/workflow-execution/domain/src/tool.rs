//! Tools in the form of values between nodes, and calls that a model requested.

use call_catalogue::{Catalogue, Tool};
use call_outcome::Failure;
use serde_json::{Map, Value, json};

/// The key of the name by which a workflow lists a tool, if that is not its id.
pub const WRITTEN_NAME: &str = "writtenName";

/// Writes a tool as an item of a list of tools; `written` is the requested name.
pub fn tool_to_value(tool: &Tool, written: &str) -> Value {
    let mut value = json!({
        "name": tool.id,
        "description": tool.description,
        "parameters": tool.parameters,
        "kind": tool.kind,
        "readOnly": tool.read_only,
        "parallelSafe": tool.parallel_safe,
        "idempotent": tool.idempotent,
        "strict": tool.strict,
    });
    if written != tool.id {
        value[WRITTEN_NAME] = written.into();
    }
    value
}

/// Makes a catalogue of a list of tools.
///
/// # Errors
/// An item that is not a tool, or tools that a parser cannot distinguish.
pub fn catalogue(tools: &[Value]) -> Result<Catalogue, Failure> {
    let wrong = |message: String| Failure::invalid("invalid_tools", message);
    let mut read = Vec::new();
    for (at, tool) in tools.iter().enumerate() {
        let Some(name) = tool.get("name").and_then(Value::as_str) else {
            return Err(wrong(format!("item {at} of the tools has no `name`")));
        };
        let is = |key: &str| tool.get(key).and_then(Value::as_bool).unwrap_or(false);
        let kind = tool.get("kind").cloned().unwrap_or(Value::Null);
        let description = tool.get("description").and_then(Value::as_str);
        let parameters = tool.get("parameters").cloned().unwrap_or(Value::Null);
        read.push(Tool {
            kind: serde_json::from_value(kind).unwrap_or_default(),
            read_only: is("readOnly"),
            parallel_safe: is("parallelSafe"),
            idempotent: is("idempotent"),
            strict: is("strict"),
            ..Tool::new(name, description.unwrap_or(""), parameters)
        });
    }
    Catalogue::new(read, Vec::new()).map_err(|error| wrong(error.to_string()))
}

/// A call to be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolRequest {
    /// The tool's id.
    pub tool_id: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// Whether it may be in flight alongside neighbours that may too.
    pub parallel_safe: bool,
    /// Whether the next call runs even if this one fails.
    pub continue_on_error: bool,
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutcome {
    /// In lower case: `succeeded`, `failed`, `rejected`, `cancelled` or `skipped`.
    pub status: &'static str,
    /// The output of the tool; null if it did not succeed.
    pub output: Value,
    /// The failure.
    pub failure: Option<Failure>,
    /// The observation for a model.
    pub observation: String,
}
