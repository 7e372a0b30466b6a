//! `core:LLM`: a model that calls tools until it has its answer (seed 003).

use call_outcome::{Category, Failure, Violation};

use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::{
    ConfigSlot, FurtherSlots, NodeDefinition, NodeEffects, Reuse,
};
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};
use workflow_domain::tool_choice::LLM;

use super::execute_tool::open_shape;
use super::{llm_decision_with_tools, llm_round};

/// A placeholder for the nodes `tools` and `round`, a loop round `prompt`, `ask`, `parse` and
/// `act`, which replace it before the run begins.
#[derive(Debug)]
pub struct Llm;

impl Node for Llm {
    fn definition(&self) -> NodeDefinition {
        let chat = |key: &str, description: &str| {
            Slot::new(key, DataFlow::Array, description).category(Slot::CHAT_HISTORY)
        };
        let inputs = vec![
            Slot::new(
                "prompt",
                DataFlow::String,
                "What the user says now, in the place of the setting `prompt`.",
            ),
            chat("messages", "The chat so far."),
        ];
        let outputs = vec![
            Slot::new("text", DataFlow::String, "The last answer of the model."),
            chat("messages", "The chat with all answers and reports."),
            Slot::new("usage", DataFlow::Object, "The tokens of all requests."),
            Slot::new("calls", DataFlow::Integer, "How many calls were made."),
            Slot::new(
                "stop_reason",
                DataFlow::String,
                "`answered`, or the budget that was used up: `iterations` or `calls`.",
            ),
            Slot::new(
                "text_stream",
                DataFlow::String,
                "What the model writes, while it writes it; each answer takes the place of the one before.",
            )
            .stream(),
        ];
        let prompt = "What the user says; `{name}` gaps are filled from further inputs.";
        let mut config = llm_decision_with_tools::settings();
        config.push(ConfigSlot::new("prompt", DataFlow::String, prompt));
        config.push(llm_round::config_slot());
        NodeDefinition {
            description:
                "Asks a model, carries its calls out and reports them to it, until it asks for \
                          none. Once a budget is used up it is asked a last time without tools."
                    .into(),
            category: "llm".into(),
            config,
            further_slots: FurtherSlots::NamedInputs,
            effects: NodeEffects::External,
            reuse: Reuse::Never,
            ..NodeDefinition::new(LLM, "LLM with tools", Shape::new(inputs, outputs))
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        Ok(open_shape(&context.definition.shape, context))
    }

    fn run(&self, _call: NodeCall<'_>) -> Result<Step, Failure> {
        let message = "the node is replaced by its parts before a run begins";
        Err(Failure::new(Category::Internal, "not_flattened", message))
    }
}
