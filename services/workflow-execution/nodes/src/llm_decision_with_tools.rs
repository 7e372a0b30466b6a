//! `core:LLMDecisionWithTools`: one decision of a model about its next calls.

use call_outcome::{Category, Failure};
use serde_json::json;

use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::{ConfigSlot, NodeDefinition, NodeEffects, Reuse};
use workflow_domain::node_type::{Node, NodeCall, Step};
use workflow_domain::slot::{Shape, Slot};
use workflow_domain::tool_choice::LLM_DECISION;

use super::dialect;
use super::parse_llm_decision::HAS_CALLS;

/// A placeholder for the nodes `tools`, `prompt`, `ask` and `parse`, which replace it before the
/// run begins.
#[derive(Debug)]
pub struct LlmDecisionWithTools;

impl Node for LlmDecisionWithTools {
    fn definition(&self) -> NodeDefinition {
        let chat = |key: &str, description: &str| {
            Slot::new(key, DataFlow::Array, description).category(Slot::CHAT_HISTORY)
        };
        let inputs = vec![
            Slot::new(
                "user_query",
                DataFlow::String,
                "What the user says now; empty for nothing.",
            ),
            chat("history", "The chat so far."),
            Slot::new(
                "observation",
                DataFlow::String,
                "The report of the last calls.",
            ),
            Slot::new(
                "tools",
                DataFlow::Array,
                "The tools that may be called, in the place of those of the settings.",
            ),
        ];
        let outputs = vec![
            Slot::new(
                "llm_text_output",
                DataFlow::String,
                "The whole text of the answer.",
            ),
            Slot::new(
                "tool_call_requests",
                DataFlow::Array,
                "The calls for ExecuteTool.",
            ),
            Slot::new(
                "reply_text",
                DataFlow::String,
                "The text before the first call.",
            ),
            Slot::new("has_calls", DataFlow::Boolean, HAS_CALLS),
            Slot::new(
                "feedback",
                DataFlow::String,
                "What the model reads about everything that cannot run; empty if all can.",
            ),
            Slot::new("response", DataFlow::Object, "The standard response."),
            chat("messages", "The chat with the answer."),
            Slot::new(
                "text_stream",
                DataFlow::String,
                "What the model writes, while it writes it.",
            )
            .stream(),
        ];
        NodeDefinition {
            description:
                "Asks a model with a chat and tools, and reads its calls. Its parts are the \
                          nodes AvailableTools, DecisionPrompt, LlmApiRequest and ParseLlmDecision."
                    .into(),
            category: "llm".into(),
            config: settings(),
            effects: NodeEffects::ReadOnly,
            reuse: Reuse::Never,
            ..NodeDefinition::new(
                LLM_DECISION,
                "LLM decision with tools",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn run(&self, _call: NodeCall<'_>) -> Result<Step, Failure> {
        let message = "the node is replaced by its parts before a run begins";
        Err(Failure::new(Category::Internal, "not_flattened", message))
    }
}

/// The settings of nodes that call a model with tools.
pub(super) fn settings() -> Vec<ConfigSlot> {
    let setting = |key, data_flow, description| ConfigSlot::new(key, data_flow, description);
    let ids =
        "The ids of the tools; missing or empty for `availableTools.initial` of the workflow.";
    let dynamic = "Tools for this node only: `toolIds`, and `descriptionTemplate` with \
                       `{toolName}` and `{toolDescription}`.";
    let dialect_means = "The dialect in which calls are taught and read; missing for `action` taught \
                             and all read.";
    vec![
        setting(
            "profileId",
            DataFlow::String,
            "The name of the model in the settings.",
        ),
        setting(
            "parameters",
            DataFlow::Object,
            "`max_tokens`, `temperature`, `top_p` and `seed`.",
        ),
        ConfigSlot {
            default: Some(json!([])),
            ..setting("toolIds", DataFlow::Array, ids)
        },
        setting("dynamicTools", DataFlow::Object, dynamic),
        dialect::config_slot(dialect_means),
    ]
}
