//! `core:ApplyRegex`: rules that search and replace.

mod replacement;
mod rule;

use call_outcome::Failure;
use std::sync::Arc;

use serde_json::Value;

use workflow_domain::data_flow::DataFlow;
use workflow_domain::limits::MAX_VALUE_BYTES;
use workflow_domain::node_definition::NodeDefinition;
use workflow_domain::node_type::{Node, NodeCall, Step};
use workflow_domain::slot::{Shape, Slot};

use rule::Rule;

const INPUT_TEXT: usize = 0;
const INLINE_RULES: usize = 1;
const RULES: usize = 2;

/// The category of slots that carry rules.
pub(super) const RULE_ARRAY: &str = "RegexRuleArray";

/// Applies rules to a text one after the other.
#[derive(Debug)]
pub struct ApplyRegex;

impl Node for ApplyRegex {
    fn definition(&self) -> NodeDefinition {
        let rules = |key, description| {
            Slot::new(key, DataFlow::Array, description)
                .category(RULE_ARRAY)
                .excluded_from_bypass()
        };
        let inline = "Rules of this node: objects with name, pattern, replacement, flags (`gims`) and \
                      enabled.";
        let loaded =
            "Rules from elsewhere. One with the name of a rule of this node does not count.";
        let inputs = vec![
            Slot::new("inputText", DataFlow::String, "The text.").required(),
            rules("inlineRegexRules", inline),
            rules("regexRules", loaded),
        ];
        let outputs = vec![Slot::new(
            "outputText",
            DataFlow::String,
            "The text after all rules.",
        )];
        NodeDefinition {
            description:
                "Searches and replaces by regular expressions, which take time in proportion \
                          to the text: look-around and back-references are refused."
                    .into(),
            category: "text".into(),
            ..NodeDefinition::new(
                "core:ApplyRegex",
                "Apply regex",
                Shape::new(inputs, outputs),
            )
        }
    }

    fn run(&self, call: NodeCall<'_>) -> Result<Step, Failure> {
        let inline = rule::read_all(call.value(INLINE_RULES).map(AsRef::as_ref))?;
        let loaded = rule::read_all(call.value(RULES).map(AsRef::as_ref))?;
        let overridden = |rule: &Rule| {
            let same = |own: &Rule| !own.name.is_empty() && own.name == rule.name;
            inline.iter().any(same)
        };
        let mut text = call.text(INPUT_TEXT).unwrap_or("").to_owned();
        let rules = loaded
            .iter()
            .filter(|rule| !overridden(rule))
            .chain(&inline);
        for rule in rules.filter(|rule| rule.enabled) {
            text = rule.apply(&text, MAX_VALUE_BYTES)?;
        }
        Ok(Step::Done(vec![Arc::new(Value::String(text))]))
    }
}

/// Checks loaded rules.
///
/// # Errors
/// The first rule that is not usable.
pub(super) fn check_rules(rules: &Value) -> Result<(), Failure> {
    rule::read_all(Some(rules)).map(drop)
}
