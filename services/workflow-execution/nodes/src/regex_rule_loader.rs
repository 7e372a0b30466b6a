//! `core:RegexRuleLoader`: rules for ApplyRegex out of a file.

use call_outcome::Failure;
use std::sync::Arc;

use serde_json::{Map, Value};

use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::{Bypass, NodeDefinition, NodeEffects, Reuse};
use workflow_domain::node_type::{Effect, Node, NodeCall, Settled, Step};
use workflow_domain::slot::{Shape, Slot};

use super::apply_regex::{RULE_ARRAY, check_rules};

const PATH: usize = 0;

/// The tool that reads files of the workspace.
const READ_FILE: &str = "FileOperator.ReadFile";

/// Reads an array of rules from a file of the run's workspace.
#[derive(Debug)]
pub struct RegexRuleLoader;

impl Node for RegexRuleLoader {
    fn definition(&self) -> NodeDefinition {
        let path = "The path of a JSON file in the workspace of the run.";
        let inputs = vec![
            Slot::new("path", DataFlow::String, path)
                .required()
                .category("FilePath"),
        ];
        let outputs =
            vec![Slot::new("regexRules", DataFlow::Array, "The rules.").category(RULE_ARRAY)];
        NodeDefinition {
            description: "Reads rules for `core:ApplyRegex` from a file and checks each of them."
                .into(),
            category: "loaders".into(),
            effects: NodeEffects::ReadOnly,
            bypass: Bypass::Mute,
            reuse: Reuse::Reads,
            ..NodeDefinition::new(
                "core:RegexRuleLoader",
                "Load regex rules",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let path = Value::from(call.text(PATH).unwrap_or(""));
        Ok(Step::Effect(Effect::CallTool {
            tool_id: READ_FILE.to_owned(),
            arguments: Map::from_iter([("filePath".to_owned(), path)]),
        }))
    }

    fn settle(&self, _call: NodeCall<'_>, settled: Settled) -> Result<Vec<Arc<Value>>, Failure> {
        let output = match settled {
            Settled::Tool { output, .. } => output,
            Settled::ToolFailed { failure, .. } => return Err(failure),
            _ => {
                return Err(super::wrong_effect(&self.definition()));
            }
        };
        let text = output
            .get("content")
            .unwrap_or(&output)
            .as_str()
            .unwrap_or("");
        let rules = json_schema::parse_json_strict(text).map_err(|error| {
            Failure::invalid("invalid_rule", format!("the file is not JSON: {error}"))
        })?;
        check_rules(&rules)?;
        Ok(vec![Arc::new(rules)])
    }
}
