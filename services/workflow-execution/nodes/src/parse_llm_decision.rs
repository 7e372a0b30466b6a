//! `core:ParseLlmDecision`: reads the calls of a model's answer.

use call_catalogue::{Catalogue, Dialect};
use call_outcome::{Failure, Violation};
use call_prompt::echo::Echo;
use call_prompt::observation;
use call_text::{Call, FinishReason, Parsed, Policy, native};

use serde_json::{Value, json};

use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::node_definition::NodeDefinition;
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};
use workflow_domain::tool;

use super::decision_prompt::said;
use super::{chat, dialect, messages};

const RESPONSE: usize = 0;
const TOOLS: usize = 1;
const MESSAGES: usize = 2;

/// The description of the output `has_calls`.
pub(super) const HAS_CALLS: &str = "Whether a call was read. A block of which none could be read is no call; `feedback` reports it.";

/// Reads calls of the text first, native ones as their supplement (rules W33 and L8).
#[derive(Debug)]
pub struct ParseLlmDecision;

impl Node for ParseLlmDecision {
    fn definition(&self) -> NodeDefinition {
        let inputs = vec![
            Slot::new("response", DataFlow::Object, "The standard response of a model.").required(),
            Slot::new(
                "tools",
                DataFlow::Array,
                "The tools that may be called, as AvailableTools lists them.",
            )
            .excluded_from_bypass(),
            Slot::new(
                "messages",
                DataFlow::Array,
                "The chat. A call that repeats its text does not run; without the chat only read-only \
                 tools run.",
            )
            .category(Slot::CHAT_HISTORY)
            .excluded_from_bypass(),
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
                "The calls for ExecuteTool; what cannot run is among them, with its problems. A block of \
                 which no call could be read is the last one, without a `toolName`.",
            )
            .excluded_from_bypass(),
            Slot::new(
                "reply_text",
                DataFlow::String,
                "The text before the first call.",
            ),
            Slot::new("has_calls", DataFlow::Boolean, HAS_CALLS).excluded_from_bypass(),
            Slot::new(
                "feedback",
                DataFlow::String,
                "What the model reads about everything that cannot run; empty if all can.",
            )
            .excluded_from_bypass(),
        ];
        let read_as = "The only dialect that is read; missing for all.";
        NodeDefinition {
            description:
                "Reads the tool calls of a model's answer: those of its text first, native \
                          ones as their supplement."
                    .into(),
            category: "llm".into(),
            config: vec![dialect::config_slot(read_as)],
            ..NodeDefinition::new(
                "core:ParseLlmDecision",
                "Parse LLM decision",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        dialect::read(context.config)?;
        Ok(context.definition.shape.clone())
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let tools = call.value(TOOLS).and_then(|value| value.as_array());
        let catalogue = tool::catalogue(tools.map_or(&[], Vec::as_slice))?;
        let only = dialect::read(call.config).ok().flatten();
        let policy = only.map_or_else(Policy::default, Policy::fixed);
        let response = call.value(RESPONSE).unwrap_or(&NULL);
        let text = chat::text_of(response);
        let finish_reason = FinishReason::from_words(chat::finish_reason_of(response));
        let mut parsed = call_text::parse_finished(text, &catalogue, &policy, finish_reason);
        let given = chat::tool_calls_of(response)
            .map(native::read)
            .unwrap_or_default();
        if !given.calls.is_empty() {
            native::supplement(
                &mut parsed,
                native::typed(&given.calls, &catalogue, &policy),
            );
        }
        let taught = only.unwrap_or(Dialect::Action);
        let of_blocks = |text: &str| {
            let parsed = call_text::parse(text, &catalogue, &policy);
            observation::for_blocks(&parsed, taught, &catalogue)
        };
        let shown = call.value(MESSAGES);
        let shown = shown.map(|value| untrusted(value, &of_blocks));
        let mut requests = requests(&parsed, taught, &catalogue, shown.as_deref());
        let left_out = observation::not_run(&parsed);
        let observed = requests
            .iter()
            .filter_map(|request| request.get("observation")?.as_str());
        let feedback: Vec<&str> = observed.chain(left_out.as_deref()).collect();
        let feedback = feedback.join("\n");
        if let (Some(last), Some(left_out)) = (requests.last_mut(), left_out) {
            last["leftOut"] = left_out.into();
        }
        let outputs = [
            text.into(),
            json!(requests),
            parsed.response_text.clone().into(),
            json!(parsed.runnable().next().is_some()),
            feedback.into(),
        ];
        Ok(Step::Done(chat::outputs(outputs)))
    }
}

/// Returns the texts from outside that the model was shown. The observation of blocks in the
/// previous answer is left out: its examples hold values of the model.
fn untrusted(given: &Value, read: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let mut texts = Vec::new();
    let mut own = None;
    for message in messages::read(given) {
        let role = message
            .get("role")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let text = said(&message).unwrap_or_default();
        match role {
            "assistant" => own = read(text),
            "system" => {}
            _ => texts.push(match own.take() {
                Some(own) => text.replacen(&own, "", 1),
                None => text.to_owned(),
            }),
        }
    }
    texts
}

/// Lists the calls in their order, and after them the block without a readable call: no call runs
/// behind it.
fn requests(
    parsed: &Parsed,
    taught: Dialect,
    catalogue: &Catalogue,
    shown: Option<&[String]>,
) -> Vec<Value> {
    let echo = shown.map(|texts| Echo::new(texts.iter().map(String::as_str)));
    let mut requests = Vec::new();
    for call in parsed.runnable() {
        let index = requests.len();
        let echoed = echo.as_ref().is_some_and(|echo| echo.contains(call));
        requests.push(request(call, index, catalogue, echoed, echo.is_some()));
    }
    if let Some(broken) = observation::for_blocks(parsed, taught, catalogue) {
        let index = requests.len();
        requests.push(json!({
            "id": format!("call_{index}"),
            "index": index,
            "source": "text",
            "problems": [broken],
            "observation": broken,
        }));
    }
    requests
}

fn request(call: &Call, index: usize, catalogue: &Catalogue, echoed: bool, checked: bool) -> Value {
    let tool = catalogue.tool(&call.tool_id);
    let read_only = tool.is_some_and(|tool| tool.read_only);
    let mut problems: Vec<String> = call
        .problems
        .iter()
        .map(|problem| problem.message.clone())
        .collect();
    let mut observed = observation::for_call(call, catalogue);
    if problems.is_empty() && echoed {
        problems.push("the call repeats text from outside".to_owned());
        observed = Some(observation::untrusted_echo(&call.tool_id));
    } else if problems.is_empty() && !checked && !read_only {
        let message = "the call was not compared with the chat, so only a read-only tool runs";
        problems.push(message.to_owned());
        observed = Some(format!(
            "Observation: Error - Tool {} was not run: {message}.",
            call.tool_id
        ));
    }
    let id = match call.provider_id.as_str() {
        "" => format!("call_{index}"),
        id => id.to_owned(),
    };
    let mut request = json!({
        "id": id,
        "index": index,
        "toolName": call.tool_id,
        "arguments": call.arguments,
        "source": if call.dialect == Dialect::Native { "native" } else { "text" },
        "needsConfirmation": call.needs_confirmation,
        "parallelSafe": tool.is_some_and(|tool| tool.parallel_safe),
        "continueOnError": call.control.continue_on_error,
        "problems": problems,
    });
    if let (Some(observed), Some(fields)) = (observed, request.as_object_mut()) {
        fields.insert("observation".to_owned(), observed.into());
    }
    request
}
