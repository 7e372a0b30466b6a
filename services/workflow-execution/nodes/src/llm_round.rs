//! `core:LlmRound`: the tools that a model may still call in this round.

use call_outcome::{Failure, Violation};
use std::sync::Arc;

use serde_json::{Value, json};

use workflow_domain::composite::Budgets;
use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::{ConfigSlot, NodeDefinition};
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};

const TOOLS: usize = 0;
const INDEX: usize = 1;
const CALLS: usize = 2;
const OBSERVATION: usize = 3;

/// Withholds the tools once a budget is used up, and reports it (rules W31 and L6).
#[derive(Debug)]
pub struct LlmRound;

impl Node for LlmRound {
    fn definition(&self) -> NodeDefinition {
        let inputs = vec![
            Slot::new("tools", DataFlow::Array, "The tools of the node."),
            Slot::new(
                "index",
                DataFlow::Integer,
                "The number of the round, from 0.",
            )
            .required(),
            Slot::new("calls", DataFlow::Integer, "The calls of earlier rounds.").required(),
            Slot::new(
                "observation",
                DataFlow::String,
                "The report of the last calls.",
            ),
        ];
        let outputs = vec![
            Slot::new(
                "tools",
                DataFlow::Array,
                "The tools; none once a budget is used up.",
            ),
            Slot::new(
                "observation",
                DataFlow::String,
                "The report, with a remark once a budget is used up.",
            ),
            Slot::new(
                "stop_reason",
                DataFlow::String,
                "The budget that is used up: `iterations` or `calls`; empty for none.",
            ),
        ];
        NodeDefinition {
            description: "Withholds tools from a model that has used up its rounds or calls."
                .into(),
            category: "llm".into(),
            config: vec![config_slot()],
            ..NodeDefinition::new("core:LlmRound", "LLM round", Shape::new(inputs, outputs))
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        Budgets::read(context.config)?;
        Ok(context.definition.shape.clone())
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let budgets = Budgets::read(call.config).unwrap_or_default();
        let number = |place: usize| {
            let value = call.value(place).and_then(|value| value.as_u64());
            value.unwrap_or_default()
        };
        let used_up = if number(INDEX) >= budgets.iterations {
            Some(("iterations", format!("All {} rounds", budgets.iterations)))
        } else if number(CALLS) >= budgets.calls {
            Some(("calls", format!("All {} calls", budgets.calls)))
        } else {
            None
        };
        let observation = call.text(OBSERVATION).unwrap_or("");
        let (tools, observation, reason) = match used_up {
            None => {
                let tools = call
                    .value(TOOLS)
                    .map_or(json!([]), |tools| (**tools).clone());
                (tools, observation.to_owned(), "")
            }
            Some((reason, what)) => {
                let remark = format!("{what} are used. Answer now, without calling tools.");
                let text = [observation, &remark].join("\n\n");
                (json!([]), text.trim_start().to_owned(), reason)
            }
        };
        let outputs = [tools, Value::from(observation), Value::from(reason)];
        Ok(Step::Done(outputs.into_iter().map(Arc::new).collect()))
    }
}

/// The setting of the budgets.
pub(super) fn config_slot() -> ConfigSlot {
    let budgets = "How much the model may call: a number for rounds and calls, or an object with \
                   `iterations` (10), `callsPerResponse` (16) and `calls` (64).";
    ConfigSlot::new("maxToolCalls", DataFlow::Wildcard, budgets)
}
