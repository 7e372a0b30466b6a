//! `approvals` of a profile: rules that the registry holds the agent's calls against, in addition
//! to those of the operator (rule G801).

use approval_rules::{RuleFile, read_rules};
use serde_json::Value;

use crate::{document::Section, spelling};

/// The setting.
pub(super) const APPROVALS: &str = "approvals";
/// The most rules of a profile.
const MAX_RULES: usize = 50;

/// Reads the rules, and returns them in the registry's form: tools by their ids.
pub(super) fn read(section: &mut Section<'_>) -> Vec<Value> {
    let written = section.list(APPROVALS);
    if written.len() > MAX_RULES {
        let problem = format!(
            "it has {} rules, but at most {MAX_RULES} are allowed",
            written.len()
        );
        section.problem(APPROVALS, problem);
        return Vec::new();
    }
    let mut rules: Vec<RuleFile> = Vec::with_capacity(written.len());
    for (place, rule) in written.iter().enumerate() {
        match serde_json::from_value(rule.clone()) {
            Ok(rule) => rules.push(rule),
            Err(error) => section.problem(&format!("{APPROVALS}/{place}"), error),
        }
    }
    if rules.len() < written.len() {
        return Vec::new();
    }
    for wrong in read_rules(rules).err().unwrap_or_default() {
        let field = wrong.field.replace('.', "/");
        let path = format!("{APPROVALS}/{}/{field}", wrong.rule);
        section.problem(&path, wrong.message);
    }
    written.iter().cloned().map(with_known_tools).collect()
}

fn with_known_tools(mut rule: Value) -> Value {
    let tools = rule.get_mut("tools").and_then(Value::as_array_mut);
    for tool in tools.into_iter().flatten() {
        if let Some(name) = tool.as_str() {
            *tool = spelling::tool_id(name).into();
        }
    }
    rule
}
