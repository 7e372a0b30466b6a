//! `core:FormatPrompt`: a template with named gaps becomes a text.

use call_outcome::{Failure, Violation};
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use workflow_domain::data_flow::DataFlow;
use workflow_domain::limits::MAX_VALUE_BYTES;
use workflow_domain::node_definition::{FurtherSlots, NodeDefinition};
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};

const TEMPLATE: usize = 0;
const VARIABLES: usize = 1;

/// Fills `{name}` gaps. A template in the workflow itself adds an input per gap to the node.
#[derive(Debug)]
pub struct FormatPrompt;

/// A piece of a template.
#[derive(Debug, PartialEq)]
enum TemplatePiece<'a> {
    Text(&'a str),
    Gap(&'a str),
}

impl Node for FormatPrompt {
    fn definition(&self) -> NodeDefinition {
        let template = "The text with gaps such as `{name}`; `{{` and `}}` stand for single braces. \
                        Braces around anything but a name are left alone.";
        let inputs = vec![
            Slot::new("template", DataFlow::String, template)
                .required()
                .category("Prompt"),
            Slot::new(
                "variables",
                DataFlow::Object,
                "Values for the gaps by name.",
            ),
        ];
        let outputs = vec![
            Slot::new(
                "prompt",
                DataFlow::String,
                "The template with every gap filled.",
            )
            .category("Prompt"),
        ];
        let shape = Shape::new(inputs, outputs);
        NodeDefinition {
            description:
                "Fills the gaps of a template with values. Texts are inserted as they are, \
                          anything else as JSON."
                    .into(),
            category: "text".into(),
            further_slots: FurtherSlots::TemplateGaps,
            ..NodeDefinition::new("core:FormatPrompt", "Format prompt", shape)
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        let fixed = &context.definition.shape;
        let preset = context.presets.get("template").and_then(Value::as_str);
        let mut inputs = fixed.inputs.to_vec();
        match preset.filter(|_| !context.connected.contains(&"template")) {
            Some(template) => {
                let names: BTreeSet<&str> = gaps(template).collect();
                let known = |name: &&str| !fixed.inputs.iter().any(|slot| &*slot.key == *name);
                let describe =
                    |name: &str| Slot::new(name, DataFlow::Wildcard, "Fills the gap of this name.");
                inputs.extend(names.into_iter().filter(known).map(describe));
            }
            None => inputs.extend(context.further_inputs(&fixed.inputs)),
        }
        Ok(Shape {
            inputs: inputs.into(),
            outputs: Arc::clone(&fixed.outputs),
        })
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let template = call.text(TEMPLATE).unwrap_or("");
        let empty = Map::new();
        let variables = call
            .value(VARIABLES)
            .and_then(|value| value.as_object())
            .unwrap_or(&empty);
        let lookup = |name: &str| {
            let connected = call.shape.input(name).filter(|place| *place > VARIABLES);
            let connected = connected
                .and_then(|place| call.value(place))
                .map(AsRef::as_ref);
            connected
                .filter(|value| !value.is_null())
                .or_else(|| variables.get(name))
        };
        let missing: BTreeSet<&str> = gaps(template)
            .filter(|name| lookup(name).is_none())
            .collect();
        if !missing.is_empty() {
            let names: Vec<&str> = missing.into_iter().collect();
            let message = format!(
                "there is no value for {}; connect or preset it",
                names.join(", ")
            );
            return Err(Failure::invalid("missing_variable", message).detail("variables", names));
        }
        let mut prompt = String::with_capacity(template.len());
        for piece in pieces(template) {
            match piece {
                TemplatePiece::Text(text) => prompt.push_str(text),
                TemplatePiece::Gap(name) => match lookup(name) {
                    Some(Value::String(text)) => prompt.push_str(text),
                    Some(other) => prompt.push_str(&other.to_string()),
                    None => {}
                },
            }
            if prompt.len() > MAX_VALUE_BYTES {
                let message = format!("the filled template has more than {MAX_VALUE_BYTES} bytes");
                return Err(Failure::limit("value_too_large", message));
            }
        }
        Ok(Step::Done(vec![Arc::new(Value::String(prompt))]))
    }
}

fn gaps(template: &str) -> impl Iterator<Item = &str> {
    pieces(template)
        .into_iter()
        .filter_map(|piece| match piece {
            TemplatePiece::Gap(name) => Some(name),
            TemplatePiece::Text(_) => None,
        })
}

/// Splits a template. A brace that does not enclose a name is text, so that a template can hold
/// JSON as it is.
fn pieces(template: &str) -> Vec<TemplatePiece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        if !before.is_empty() {
            pieces.push(TemplatePiece::Text(before));
        }
        let doubled = from.starts_with("{{") || from.starts_with("}}");
        if doubled {
            pieces.push(TemplatePiece::Text(&from[..1]));
            rest = &from[2..];
            continue;
        }
        match from
            .strip_prefix('{')
            .and_then(|inner| inner.split_once('}'))
            .filter(|(name, _)| is_name(name))
        {
            Some((name, after)) => {
                pieces.push(TemplatePiece::Gap(name));
                rest = after;
            }
            None => {
                pieces.push(TemplatePiece::Text(&from[..1]));
                rest = &from[1..];
            }
        }
    }
    if !rest.is_empty() {
        pieces.push(TemplatePiece::Text(rest));
    }
    pieces
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_braces_around_a_name_are_a_gap() {
        let text = TemplatePiece::Text;
        for (template, expected) in [
            (
                "a {b} c",
                vec![text("a "), TemplatePiece::Gap("b"), text(" c")],
            ),
            ("{{b}}", vec![text("{"), text("b"), text("}")]),
            (
                r#"{"k": {v}}"#,
                vec![
                    text("{"),
                    text(r#""k": "#),
                    TemplatePiece::Gap("v"),
                    text("}"),
                ],
            ),
            ("{ b }", vec![text("{"), text(" b "), text("}")]),
            ("{名字}", vec![TemplatePiece::Gap("名字")]),
            ("{", vec![text("{")]),
            ("", vec![]),
        ] {
            assert_eq!(pieces(template), expected, "{template}");
        }
    }
}
