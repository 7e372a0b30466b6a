//! One rule, in the format of rule files.

use call_outcome::Failure;
use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::replacement::Replacement;

/// The most rules that are applied to one text.
const MAX_RULES: usize = 256;

/// The longest pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 8 * 1024;

/// The largest compiled pattern, in bytes.
const MAX_COMPILED_BYTES: usize = 1024 * 1024;

/// A rule that searches and replaces.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) enabled: bool,
    pattern: Regex,
    replacement: Replacement,
    /// Whether every match is replaced, not only the first.
    global: bool,
}

/// Reads rules; no value is no rules.
pub(super) fn read_all(rules: Option<&Value>) -> Result<Vec<Rule>, Failure> {
    let rules = match rules {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(rules)) if rules.len() <= MAX_RULES => rules,
        Some(_) => {
            let message = format!("expected an array of at most {MAX_RULES} rules");
            return Err(Failure::invalid("invalid_rule", message));
        }
    };
    rules
        .iter()
        .enumerate()
        .map(|(at, rule)| read(at, rule))
        .collect()
}

fn read(at: usize, rule: &Value) -> Result<Rule, Failure> {
    let text = |key: &str| rule.get(key).and_then(Value::as_str);
    let name = text("name").unwrap_or("").to_owned();
    let wrong = |problem: String| {
        let named = if name.is_empty() {
            String::new()
        } else {
            format!(" (`{name}`)")
        };
        Failure::invalid("invalid_rule", format!("rule {at}{named} {problem}")).detail("rule", at)
    };
    let Some(pattern) = text("pattern") else {
        return Err(wrong("has no `pattern`".to_owned()));
    };
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(wrong(format!(
            "has a pattern of {} bytes; at most {MAX_PATTERN_BYTES} are accepted",
            pattern.len()
        )));
    }
    let flags = text("flags").unwrap_or("g");
    if let Some(unknown) = flags.chars().find(|flag| !"gimsuy".contains(*flag)) {
        return Err(wrong(format!("has the unknown flag `{unknown}`")));
    }
    let compiled = RegexBuilder::new(pattern)
        .case_insensitive(flags.contains('i'))
        .multi_line(flags.contains('m'))
        .dot_matches_new_line(flags.contains('s'))
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .build();
    let compiled = compiled.map_err(|error| {
        let problem: String = error.to_string().chars().take(300).collect();
        wrong(format!("has a pattern that is not usable: {problem}"))
    })?;
    let flag = |key: &str| rule.get(key).and_then(Value::as_bool);
    Ok(Rule {
        enabled: flag("enabled").unwrap_or(true) && !flag("disabled").unwrap_or(false),
        pattern: compiled,
        replacement: Replacement::parse(text("replacement").unwrap_or("")),
        global: flags.contains('g'),
        name,
    })
}

impl Rule {
    /// Returns the text with matches replaced.
    pub(super) fn apply(&self, text: &str, most: usize) -> Result<String, Failure> {
        let mut replaced = String::with_capacity(text.len());
        let mut end = 0;
        let count = if self.global { usize::MAX } else { 1 };
        for found in self.pattern.captures_iter(text).take(count) {
            let Some(whole) = found.get(0) else { continue };
            replaced.push_str(&text[end..whole.start()]);
            self.replacement.append(&found, &mut replaced);
            end = whole.end();
            if replaced.len() > most {
                break;
            }
        }
        replaced.push_str(&text[end..]);
        if replaced.len() > most {
            let message = format!("the text grows beyond {most} bytes by rule `{}`", self.name);
            return Err(Failure::limit("value_too_large", message));
        }
        Ok(replaced)
    }
}
