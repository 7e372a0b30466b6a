//! Workflows that shorten long outputs of calls before the model reads them (rule G605).

use call_catalogue::names::squash;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::spelling;

/// The longest text of a workflow that the model reads in the place of an output, in bytes.
pub const MAX_REDUCED_BYTES: usize = 6 << 10;

/// A workflow that shortens the outputs of some tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reduction {
    /// The tools, by the names of the inventory; `*` for all.
    pub tools: Vec<String>,
    /// The workflow.
    pub workflow: String,
}

/// Returns the workflow that shortens the outputs of a tool: the first that names it.
pub fn workflow_for<'a>(reductions: &'a [Reduction], tool_id: &str) -> Option<&'a str> {
    let id = spelling::tool_id(tool_id);
    let names = |name: &String| name == "*" || spelling::tool_id(name) == id;
    let first = reductions
        .iter()
        .find(|reduction| reduction.tools.iter().any(names));
    first.map(|reduction| reduction.workflow.as_str())
}

/// Returns the declared inputs of a workflow that shortens an output.
pub fn inputs(
    interface: &Map<String, Value>,
    tool_id: &str,
    arguments_json: &str,
    output: &str,
) -> Map<String, Value> {
    let mut inputs = Map::new();
    for key in interface.keys() {
        let value = match squash(key).as_str() {
            "text" | "output" | "content" | "input" | "texttosummarize" => output.into(),
            "tool" | "toolid" | "toolname" => tool_id.into(),
            "arguments" => arguments_json.into(),
            "maxbytes" => MAX_REDUCED_BYTES.into(),
            _ => continue,
        };
        inputs.insert(key.clone(), value);
    }
    inputs
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn g605_the_first_reduction_that_names_a_tool_by_any_spelling_is_taken() {
        let of = |tools: &[&str], workflow: &str| Reduction {
            tools: tools.iter().map(|name| (*name).to_owned()).collect(),
            workflow: workflow.to_owned(),
        };
        let reductions = [of(&["core:ReadPrivateState"], "state"), of(&["*"], "any")];
        assert_eq!(
            workflow_for(&reductions, "ReadPrivateStateTool"),
            Some("state")
        );
        assert_eq!(workflow_for(&reductions, "clock"), Some("any"));
        assert_eq!(workflow_for(&reductions[..1], "clock"), None);
    }

    #[test]
    fn g605_a_reduction_is_given_what_its_interface_declares() {
        let interface = json!({"text_to_summarize": {}, "toolId": {}, "temperature": {}});
        let inputs = inputs(interface.as_object().unwrap(), "look", "{}", "mist");
        let expected = json!({"text_to_summarize": "mist", "toolId": "look"});
        assert_eq!(Value::Object(inputs), expected);
    }
}
