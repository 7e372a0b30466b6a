//! `core:TextSummarizer`: the most telling part of a text, without a model.

use call_outcome::{Failure, Violation};
use std::sync::Arc;

use serde_json::{Value, json};

use workflow_domain::data_flow::DataFlow;
use workflow_domain::node_definition::{ConfigSlot, NodeDefinition};
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};

const TEXT: usize = 0;
const MODE: &str = "mode";
const MAX_CHARS: &str = "maxChars";
const DEFAULT_CHARS: u64 = 200;
const MOST_CHARS: f64 = 100_000.0;
const MODES: [&str; 4] = ["head_tail", "head", "tail", "sentences"];
const GAP: &str = " … ";

/// Cuts a text down to a number of characters.
#[derive(Debug)]
pub struct TextSummarizer;

impl Node for TextSummarizer {
    fn definition(&self) -> NodeDefinition {
        let inputs = vec![Slot::new("text", DataFlow::String, "The text.").required()];
        let outputs = vec![Slot::new(
            "summary",
            DataFlow::String,
            "At most `maxChars` characters of the text.",
        )];
        let mode = "What is kept: the beginning and the end, the beginning, the end, or as many whole \
                    sentences from the beginning as fit.";
        NodeDefinition {
            description:
                "Shortens a text to its beginning, its end, both, or whole sentences. A text \
                          that is short enough stays as it is."
                    .into(),
            category: "text".into(),
            config: vec![
                ConfigSlot {
                    default: Some(json!(MODES[0])),
                    options: MODES.map(Into::into).to_vec(),
                    ..ConfigSlot::new(MODE, DataFlow::String, mode)
                },
                ConfigSlot {
                    default: Some(json!(DEFAULT_CHARS)),
                    bounds: Some((0.0, MOST_CHARS)),
                    ..ConfigSlot::new(
                        MAX_CHARS,
                        DataFlow::Integer,
                        "How many characters are kept.",
                    )
                },
            ],
            ..NodeDefinition::new(
                "core:TextSummarizer",
                "Summarize text",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        let mut violations = Vec::new();
        if let Some(mode) = context.config.get(MODE).filter(|mode| !mode.is_null()) {
            let name = mode.as_str().unwrap_or("");
            if !MODES.contains(&name) {
                let message = format!("there is no mode `{name}`");
                let violation = Violation::new("/configValues/mode", "unknown_mode", message);
                violations.push(violation.nearest(name, MODES));
            }
        }
        if let Some(count) = context
            .config
            .get(MAX_CHARS)
            .filter(|count| !count.is_null())
        {
            let fits = |count: u64| (1..=MOST_CHARS as u64).contains(&count);
            if !count.as_u64().is_some_and(fits) {
                let message = format!("expected a whole number from 1 to {MOST_CHARS}");
                let violation = Violation::new("/configValues/maxChars", "out_of_range", message);
                violations.push(violation);
            }
        }
        if violations.is_empty() {
            Ok(context.definition.shape.clone())
        } else {
            Err(violations)
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let text = call.text(TEXT).unwrap_or("");
        let most = call.config.get(MAX_CHARS).and_then(Value::as_u64);
        let most = usize::try_from(most.unwrap_or(DEFAULT_CHARS)).unwrap_or(usize::MAX);
        let mode = call.config.get(MODE).and_then(Value::as_str);
        let summary = summarize(text, mode.unwrap_or(MODES[0]), most);
        Ok(Step::Done(vec![Arc::new(Value::String(summary))]))
    }
}

fn summarize(text: &str, mode: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let head = |characters: usize| text.chars().take(characters).collect::<String>();
    let tail = |characters: usize| text.chars().skip(count - characters).collect::<String>();
    match mode {
        "head" => head(most),
        "tail" => tail(most),
        "sentences" => match sentences(text, most) {
            "" => head(most),
            whole => whole.to_owned(),
        },
        _ => {
            let kept = most.saturating_sub(GAP.chars().count());
            if kept < 2 {
                return head(most);
            }
            format!("{}{GAP}{}", head(kept - kept / 2), tail(kept / 2))
        }
    }
}

/// Returns the whole sentences at the beginning that have at most `most` characters together.
fn sentences(text: &str, most: usize) -> &str {
    let mut end = 0;
    let mut characters = text.char_indices().enumerate().peekable();
    while let Some((place, (at, character))) = characters.next() {
        if place >= most {
            break;
        }
        let next_is_space = characters
            .peek()
            .is_none_or(|(_, (_, next))| next.is_whitespace());
        let ends = match character {
            '。' | '！' | '？' | '\n' => true,
            '.' | '!' | '?' => next_is_space,
            _ => false,
        };
        if ends {
            end = at + character.len_utf8();
        }
    }
    text[..end].trim_end()
}
