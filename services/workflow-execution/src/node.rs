//! The built-in node types, one file each.
//!
//! Slots have places: a node reads its inputs by the constants beside its definition and gives its
//! outputs in the order of the definition.

use call_outcome::{Category, Failure};
use std::sync::Arc;

use crate::domain::node_definition::NodeDefinition;
use crate::domain::node_type::{Catalogue, Node};

pub mod execute_tool;
pub mod format_prompt;
pub mod group_input;
pub mod group_output;
pub mod json_selector;
pub mod math_operation;
pub mod script;
pub mod text_merge;

/// Returns every built-in node type.
pub fn builtin() -> Catalogue {
    Catalogue::new([
        Arc::new(execute_tool::ExecuteTool::default()) as Arc<dyn Node>,
        Arc::new(format_prompt::FormatPrompt::default()),
        Arc::new(group_input::GroupInput::default()),
        Arc::new(group_output::GroupOutput::default()),
        Arc::new(json_selector::JsonSelector::default()),
        Arc::new(math_operation::MathOperation::default()),
        Arc::new(script::Script::default()),
        Arc::new(text_merge::TextMerge::default()),
    ])
}

/// Reports an outcome that belongs to another kind of effect than the node asked for.
fn wrong_effect(definition: &NodeDefinition) -> Failure {
    let message = format!(
        "{} got the outcome of something that it did not ask for",
        definition.full_type
    );
    Failure::new(Category::Internal, "wrong_effect", message)
}

#[cfg(test)]
mod tests;
