//! `core:LlmCallCount`: counts the calls of a round and holds them to the budgets.

use call_outcome::{Failure, Violation};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use workflow_domain::composite::Budgets;
use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::NodeDefinition;
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};

use super::llm_round::config_slot;

const REQUESTS: usize = 0;
const CALLS: usize = 1;
const USAGE: usize = 2;
const USED: usize = 3;
const STOP_REASON: usize = 4;

/// Refuses the calls of an answer that are beyond a budget (rule W31), and outputs whether the
/// model is done.
#[derive(Debug)]
pub struct LlmCallCount;

impl Node for LlmCallCount {
    fn definition(&self) -> NodeDefinition {
        let inputs = vec![
            Slot::new(
                "requests",
                DataFlow::Array,
                "The calls of the answer, as ParseLlmDecision makes them.",
            ),
            Slot::new("calls", DataFlow::Integer, "The calls of earlier rounds.").required(),
            Slot::new("usage", DataFlow::Object, "The tokens of earlier rounds."),
            Slot::new("used", DataFlow::Object, "The tokens of this round."),
            Slot::new(
                "stop_reason",
                DataFlow::String,
                "The budget that was used up before this round.",
            ),
        ];
        let outputs = vec![
            Slot::new(
                "requests",
                DataFlow::Array,
                "The calls for ExecuteTool; those beyond a budget have a problem.",
            ),
            Slot::new(
                "calls",
                DataFlow::Integer,
                "The calls of all rounds so far.",
            ),
            Slot::new(
                "usage",
                DataFlow::Object,
                "The tokens of all rounds so far.",
            ),
            Slot::new(
                "over",
                DataFlow::Boolean,
                "Whether the answer is the last one.",
            ),
            Slot::new(
                "stop_reason",
                DataFlow::String,
                "Why it is: `answered`, `iterations` or `calls`.",
            ),
        ];
        NodeDefinition {
            description:
                "Counts the calls and tokens of a model's rounds and refuses calls beyond the \
                          budgets."
                    .into(),
            category: "llm".into(),
            config: vec![config_slot()],
            ..NodeDefinition::new(
                "core:LlmCallCount",
                "LLM call count",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        Budgets::read(context.config)?;
        Ok(context.definition.shape.clone())
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let budgets = Budgets::read(call.config).unwrap_or_default();
        let before = call.value(CALLS).and_then(|calls| calls.as_u64());
        let before = before.unwrap_or_default();
        let asked = call.value(REQUESTS).and_then(|asked| asked.as_array());
        let used_up = call.text(STOP_REASON).unwrap_or("");
        // A block without a readable call is no answer either.
        let is_answer = asked.is_none_or(|asked| asked.is_empty());
        let over = is_answer || !used_up.is_empty();
        let (mut requests, mut calls) = (Vec::new(), 0);
        for request in asked.into_iter().flatten().filter(|_| !over) {
            let mut request = request.clone();
            let problems = request.get("problems").and_then(Value::as_array);
            if problems.is_none_or(Vec::is_empty) {
                if calls >= budgets.calls_per_response || before + calls >= budgets.calls {
                    refuse(&mut request, &budgets);
                } else {
                    calls += 1;
                }
            }
            requests.push(request);
        }
        let object = |place: usize| call.value(place).and_then(|usage| usage.as_object());
        let reason = match (over, used_up) {
            (false, _) => "",
            (true, "") => "answered",
            (true, used_up) => used_up,
        };
        let outputs = [
            Value::Array(requests),
            Value::from(before + calls),
            sum(object(USAGE), object(USED)),
            Value::from(over),
            Value::from(reason),
        ];
        Ok(Step::Done(outputs.into_iter().map(Arc::new).collect()))
    }
}

fn refuse(request: &mut Value, budgets: &Budgets) {
    let tool = request.get("toolName").and_then(Value::as_str);
    let problem = format!(
        "not executed: at most {} calls of one answer and {} in all are carried out",
        budgets.calls_per_response, budgets.calls
    );
    let observation = format!(
        "Observation: Tool {} was {problem}.",
        tool.unwrap_or_default()
    );
    if let Some(fields) = request.as_object_mut() {
        fields.insert("problems".to_owned(), json!([problem]));
        fields.insert("observation".to_owned(), observation.into());
    }
}

/// Adds the numbers of two objects by key.
fn sum(first: Option<&Map<String, Value>>, second: Option<&Map<String, Value>>) -> Value {
    let mut total = first.cloned().unwrap_or_default();
    for (key, value) in second.into_iter().flatten() {
        let before = total.get(key).and_then(Value::as_u64).unwrap_or_default();
        let added = value.as_u64().unwrap_or_default();
        total.insert(key.clone(), before.saturating_add(added).into());
    }
    Value::Object(total)
}
