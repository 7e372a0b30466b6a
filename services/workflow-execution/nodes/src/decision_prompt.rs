//! `core:DecisionPrompt`: puts the chat for the next decision of a model together.

use call_catalogue::{Catalogue, Dialect};
use call_outcome::{Failure, Violation};
use call_prompt::prompt::{Detail, Language, render_tools};
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use json_schema::pointer::join;
use workflow_domain::data_flow::{DataFlow, NULL};
use workflow_domain::node_definition::{ConfigSlot, NodeDefinition};
use workflow_domain::node_type::{Node, NodeCall, ShapeContext, Step};
use workflow_domain::slot::{Shape, Slot};
use workflow_domain::tool;

use super::{dialect, messages};

const HISTORY: usize = 0;
const USER_QUERY: usize = 1;
const OBSERVATION: usize = 2;
const TOOLS: usize = 3;

/// The field of a message that declares tools.
const TOOLS_DIGEST: &str = "tools_digest";

/// The beginning of a declaration of tools.
const HEAD: &str = "可用工具:\n";

const TEMPLATE: &str = "descriptionTemplate";
const TEMPLATE_TOOLS: &str = "templateToolIds";
const DEFAULT_TEMPLATE: &str = "- {toolName}: {toolDescription}";

/// Adds the question and the observation to a chat, and declares the tools once (rule W30).
#[derive(Debug)]
pub struct DecisionPrompt;

impl Node for DecisionPrompt {
    fn definition(&self) -> NodeDefinition {
        let inputs = vec![
            Slot::new("history", DataFlow::Array, "The chat so far.").category(Slot::CHAT_HISTORY),
            Slot::new(
                "user_query",
                DataFlow::String,
                "What the user says now; empty for nothing.",
            ),
            Slot::new(
                "observation",
                DataFlow::String,
                "The report of the last calls; empty for none.",
            ),
            Slot::new(
                "tools",
                DataFlow::Array,
                "The tools that may be called, as AvailableTools lists them.",
            )
            .excluded_from_bypass(),
        ];
        let outputs = vec![
            Slot::new("messages", DataFlow::Array, "The chat for the model.")
                .category(Slot::CHAT_HISTORY),
        ];
        let taught =
            "The dialect in which calls are taught; `native` for no manual, missing for `action`.";
        let template = "How a tool is described. `{toolName}` and `{toolDescription}` are replaced \
                        wherever they stand.";
        let described = "The names of the tools that the template is for; missing for all of them.";
        NodeDefinition {
            description: "Puts the chat for the next decision of a model together. The tools are \
                          declared at the end of the user's message, unless the newest declaration \
                          of the chat is the same."
                .into(),
            category: "llm".into(),
            config: vec![
                dialect::config_slot(taught),
                ConfigSlot {
                    default: Some(json!(DEFAULT_TEMPLATE)),
                    ..ConfigSlot::new(TEMPLATE, DataFlow::String, template)
                },
                ConfigSlot::new(TEMPLATE_TOOLS, DataFlow::Array, described),
            ],
            ..NodeDefinition::new(
                "core:DecisionPrompt",
                "Decision prompt",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn shape(&self, context: &ShapeContext<'_>) -> Result<Shape, Vec<Violation>> {
        dialect::read(context.config)?;
        let wrong = |key: &str, expected: &str| {
            let place = join("/configValues", key);
            Err(vec![Violation::new(place, "type_mismatch", expected)])
        };
        let given = |key: &str| context.config.get(key).unwrap_or(&Value::Null);
        match (given(TEMPLATE), given(TEMPLATE_TOOLS)) {
            (Value::Null | Value::String(_), Value::Null | Value::Array(_)) => {
                Ok(context.definition.shape.clone())
            }
            (Value::Null | Value::String(_), _) => {
                wrong(TEMPLATE_TOOLS, "expected an array of the names of tools")
            }
            _ => wrong(TEMPLATE, "expected a text"),
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let mut chat = messages::read(call.value(HISTORY).unwrap_or(&NULL));
        for place in [USER_QUERY, OBSERVATION] {
            if let Some(text) = call.text(place).filter(|text| !text.is_empty()) {
                chat.push(messages::message("user", text));
            }
        }
        let tools = call.value(TOOLS).and_then(|value| value.as_array());
        let catalogue = tool::catalogue(tools.map_or(&[], Vec::as_slice))?;
        if !catalogue.is_empty() {
            let taught = dialect::read(call.config).ok().flatten();
            let template = call.config.get(TEMPLATE).and_then(Value::as_str);
            let template = template.unwrap_or(DEFAULT_TEMPLATE);
            let only = call.config.get(TEMPLATE_TOOLS).and_then(Value::as_array);
            let is_for = |tool: &Value| {
                let names = ["name", tool::WRITTEN_NAME].map(|key| tool.get(key));
                let among =
                    |only: &Vec<Value>| names.into_iter().flatten().any(|name| only.contains(name));
                only.is_none_or(among)
            };
            let list = tools.into_iter().flatten();
            let list = list.map(|tool| match is_for(tool) {
                true => describe(tool, template),
                false => describe(tool, DEFAULT_TEMPLATE),
            });
            let list: Vec<String> = list.collect();
            declare(
                &mut chat,
                &list,
                &catalogue,
                taught.unwrap_or(Dialect::Action),
            );
        }
        Ok(Step::Done(vec![Arc::new(Value::Array(chat))]))
    }
}

/// Returns the text of a message without the declaration of tools in it.
pub(super) fn said(message: &Value) -> Option<&str> {
    let text = message.get("content")?.as_str()?;
    let declaration = message.get(TOOLS_DIGEST).and_then(|_| text.rfind(HEAD));
    Some(declaration.map_or(text, |at| text[..at].trim_end_matches("\n\n")))
}

/// Fills a template in one pass, so that a description that holds a gap stays as it is (rule L9).
fn describe(tool: &Value, template: &str) -> String {
    let field = |key: &str| tool.get(key).and_then(Value::as_str).unwrap_or("");
    let (mut text, mut rest) = (String::new(), template);
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        let gaps = [("{toolName}", "name"), ("{toolDescription}", "description")];
        let gap = gaps.iter().find(|(gap, _)| from.starts_with(gap));
        let (value, length) = gap.map_or(("{", 1), |(gap, key)| (field(key), gap.len()));
        text.push_str(value);
        rest = &from[length..];
    }
    text.push_str(rest);
    text
}

/// Declares the tools in the last message of the user, unless the chat's newest declaration is the
/// same.
fn declare(chat: &mut Vec<Value>, list: &[String], catalogue: &Catalogue, dialect: Dialect) {
    let mut declaration = format!("\n\n{HEAD}{}", list.join("\n"));
    if dialect != Dialect::Native {
        let manual = render_tools(catalogue, dialect, Language::En, Detail::Full);
        declaration = format!("{declaration}\n\n{}", manual.text.trim_end());
    }
    let digest = hex::encode(Sha256::digest(declaration.as_bytes()));
    let newest = chat
        .iter()
        .rev()
        .find_map(|message| message.get(TOOLS_DIGEST));
    if newest.and_then(Value::as_str) == Some(digest.as_str()) {
        return;
    }
    let is_user = |message: &Value| {
        let text = message.get("content").is_some_and(Value::is_string);
        text && message.get("role").and_then(Value::as_str) == Some("user")
    };
    if !chat.last().is_some_and(is_user) {
        chat.push(messages::message("user", ""));
    }
    let Some(Value::Object(last)) = chat.last_mut() else {
        return;
    };
    let said = last.get("content").and_then(Value::as_str).unwrap_or("");
    let content = match said {
        "" => declaration.trim_start().to_owned(),
        said => format!("{said}{declaration}"),
    };
    last.insert("content".to_owned(), content.into());
    last.insert(TOOLS_DIGEST.to_owned(), digest.into());
}
