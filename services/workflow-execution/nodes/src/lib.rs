//! The built-in node types, one file each.
//!
//! [`builtin`] returns them all. Each has a definition (a `NodeDefinition` of [`workflow_domain`])
//! and an implementation: a pure node computes its outputs, any other names the effect that it
//! requests and makes outputs of the result. No node carries an effect out.
//!
//! Slots have places: a node reads its inputs by the constants next to its definition and returns
//! its outputs in the order of the definition.

use call_outcome::{Category, Failure};
use std::sync::Arc;

use workflow_domain::node_definition::NodeDefinition;
use workflow_domain::node_type::{Catalogue, Node};

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
        Arc::new(apply_regex::ApplyRegex::default()) as Arc<dyn Node>,
        Arc::new(available_tools::AvailableTools::default()),
        Arc::new(condition::Condition::default()),
        Arc::new(create_message::CreateMessage::default()),
        Arc::new(decision_prompt::DecisionPrompt::default()),
        Arc::new(execute_tool::ExecuteTool::default()),
        Arc::new(first_value::FirstValue::default()),
        Arc::new(format_prompt::FormatPrompt::default()),
        Arc::new(generic_llm_request::GenericLlmRequest::default()),
        Arc::new(group_input::GroupInput::default()),
        Arc::new(group_output::GroupOutput::default()),
        Arc::new(history_load::HistoryLoad::default()),
        Arc::new(history_save::HistorySave::default()),
        Arc::new(human_input::HumanInput::default()),
        Arc::new(json_selector::JsonSelector::default()),
        Arc::new(llm::Llm::default()),
        Arc::new(llm_api_request::LlmApiRequest::default()),
        Arc::new(llm_call_count::LlmCallCount::default()),
        Arc::new(llm_decision_with_tools::LlmDecisionWithTools::default()),
        Arc::new(llm_round::LlmRound::default()),
        Arc::new(loop_zone::LoopZone::default()),
        Arc::new(map_list::MapList::default()),
        Arc::new(math_operation::MathOperation::default()),
        Arc::new(matrix_operation::MatrixOperation::default()),
        Arc::new(merge_messages::MergeMessages::default()),
        Arc::new(node_group::NodeGroup::default()),
        Arc::new(parse_llm_decision::ParseLlmDecision::default()),
        Arc::new(random_number::RandomNumber::default()),
        Arc::new(regex_rule_loader::RegexRuleLoader::default()),
        Arc::new(run_workflow::RunWorkflow::default()),
        Arc::new(script::Script::default()),
        Arc::new(state_check::StateCheck::default()),
        Arc::new(stream_suffix_relay::StreamSuffixRelay::default()),
        Arc::new(stream_to_string::StreamToString::default()),
        Arc::new(switch::Switch::default()),
        Arc::new(text_merge::TextMerge::default()),
        Arc::new(text_summarizer::TextSummarizer::default()),
        Arc::new(timer::Timer::default()),
        Arc::new(wait_signal::WaitSignal::default()),
        Arc::new(zone_input::ZoneInput::default()),
        Arc::new(zone_output::ZoneOutput::default()),
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
