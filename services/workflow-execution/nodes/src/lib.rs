//! The built-in node types, one file each.
//!
//! [`builtin`] returns them all. Each has a definition (a `NodeDefinition` of [`workflow_domain`])
//! and an implementation: a pure node computes its outputs, any other names the effect that it
//! requests and makes outputs of the result. No node carries an effect out.
//!
//! Slots have places: a node reads its inputs by the constants next to its definition and returns
//! its outputs in the order of the definition.

use call_outcome::{Category, Failure};

use workflow_domain::node_definition::NodeDefinition;
use workflow_domain::node_type::{Catalogue, NodeType};

pub mod apply_regex;
pub mod available_tools;
mod chat;
pub mod condition;
pub mod create_message;
pub mod decision_prompt;
mod dialect;
pub mod execute_tool;
pub mod first_value;
pub mod format_prompt;
pub mod generic_llm_request;
pub mod group_input;
pub mod group_output;
pub mod history_load;
pub mod history_save;
pub mod human_input;
pub mod json_selector;
pub mod llm;
pub mod llm_api_request;
pub mod llm_call_count;
pub mod llm_decision_with_tools;
pub mod llm_round;
pub mod loop_zone;
pub mod map_list;
pub mod math_operation;
pub mod matrix_operation;
pub mod merge_messages;
mod messages;
pub mod node_group;
pub mod parse_llm_decision;
pub mod random_number;
pub mod regex_rule_loader;
pub mod run_workflow;
pub mod script;
pub mod state_check;
pub mod stream_suffix_relay;
pub mod stream_to_string;
pub mod switch;
pub mod text_merge;
pub mod text_summarizer;
pub mod timer;
mod wait_settings;
pub mod wait_signal;
mod yields;
pub mod zone_input;
pub mod zone_output;

/// Returns every built-in node type.
pub fn builtin() -> Catalogue {
    Catalogue::new([
        NodeType::new(apply_regex::ApplyRegex),
        NodeType::new(available_tools::AvailableTools),
        NodeType::new(condition::Condition),
        NodeType::new(create_message::CreateMessage),
        NodeType::new(decision_prompt::DecisionPrompt),
        NodeType::new(execute_tool::ExecuteTool),
        NodeType::new(first_value::FirstValue),
        NodeType::new(format_prompt::FormatPrompt),
        NodeType::new(generic_llm_request::GenericLlmRequest),
        NodeType::new(group_input::GroupInput),
        NodeType::new(group_output::GroupOutput),
        NodeType::new(history_load::HistoryLoad),
        NodeType::new(history_save::HistorySave),
        NodeType::new(human_input::HumanInput),
        NodeType::new(json_selector::JsonSelector),
        NodeType::new(llm::Llm),
        NodeType::new(llm_api_request::LlmApiRequest),
        NodeType::new(llm_call_count::LlmCallCount),
        NodeType::new(llm_decision_with_tools::LlmDecisionWithTools),
        NodeType::new(llm_round::LlmRound),
        NodeType::new(loop_zone::LoopZone),
        NodeType::new(map_list::MapList),
        NodeType::new(math_operation::MathOperation),
        NodeType::new(matrix_operation::MatrixOperation),
        NodeType::new(merge_messages::MergeMessages),
        NodeType::new(node_group::NodeGroup),
        NodeType::new(parse_llm_decision::ParseLlmDecision),
        NodeType::new(random_number::RandomNumber),
        NodeType::new(regex_rule_loader::RegexRuleLoader),
        NodeType::new(run_workflow::RunWorkflow),
        NodeType::new(script::Script),
        NodeType::new(state_check::StateCheck),
        NodeType::new(stream_suffix_relay::StreamSuffixRelay),
        NodeType::new(stream_to_string::StreamToString),
        NodeType::new(switch::Switch),
        NodeType::new(text_merge::TextMerge),
        NodeType::new(text_summarizer::TextSummarizer),
        NodeType::new(timer::Timer),
        NodeType::new(wait_signal::WaitSignal),
        NodeType::new(zone_input::ZoneInput),
        NodeType::new(zone_output::ZoneOutput),
    ])
}

/// Reports an outcome of another kind of effect than the node requested.
fn wrong_effect(definition: &NodeDefinition) -> Failure {
    let message = format!(
        "{} got the outcome of something that it did not ask for",
        definition.full_type
    );
    Failure::new(Category::Internal, "wrong_effect", message)
}

#[cfg(test)]
mod tests;
