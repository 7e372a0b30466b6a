//! Patterns of the tools that a principal may call.

use std::iter;

use approval_rules::names_tool;
use serde::{Deserialize, Serialize};

/// The tools that a principal may call, as patterns of their ids: an id, or its beginning before a `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRights {
    /// The tools that it may call; empty for every tool.
    pub allowed: Vec<String>,
    /// The tools that it may not call, whatever `allowed` says.
    pub denied: Vec<String>,
}

/// The verdict about a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolVerdict {
    /// It may be called, by this pattern; `None` where no pattern bounds the principal.
    Allowed(Option<String>),
    /// This pattern denies it.
    Denied(String),
    /// No pattern allows it.
    NotListed,
}

impl ToolRights {
    /// Judges a tool by its id and the other names by which patterns mean it
    /// ([`names_in_rules`](crate::tool::Tool::names_in_rules)).
    pub fn judge(&self, id: &str, aliases: &[String]) -> ToolVerdict {
        let names = || iter::once(id).chain(aliases.iter().map(String::as_str));
        let naming = |patterns: &[String]| {
            let is_meant = |pattern: &&String| names().any(|name| names_tool(pattern, name));
            patterns.iter().find(is_meant).cloned()
        };
        if let Some(pattern) = naming(&self.denied) {
            return ToolVerdict::Denied(pattern);
        }
        match naming(&self.allowed) {
            None if !self.allowed.is_empty() => ToolVerdict::NotListed,
            allowed => ToolVerdict::Allowed(allowed),
        }
    }
}

/// Returns the fault of a pattern; `None` if it is well formed.
pub fn fault_of_pattern(pattern: &str) -> Option<String> {
    let beginning = pattern.strip_suffix('*').unwrap_or(pattern);
    if pattern.is_empty() {
        return Some("is empty; give the id of a tool, or its beginning and a `*`".to_owned());
    }
    if pattern.chars().any(char::is_control) {
        return Some("has a character that is not visible".to_owned());
    }
    let (before, _) = beginning.split_once('*')?;
    Some(format!(
        "has a `*` before its end; did you mean `{before}*`?"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(verdict: &ToolVerdict) -> bool {
        matches!(verdict, ToolVerdict::Allowed(_))
    }

    fn rights(allowed: &[&str], denied: &[&str]) -> ToolRights {
        let texts = |patterns: &[&str]| patterns.iter().map(|it| (*it).to_owned()).collect();
        ToolRights {
            allowed: texts(allowed),
            denied: texts(denied),
        }
    }

    #[test]
    fn s606_a_denied_tool_stays_denied_and_without_allowed_ones_all_others_pass() {
        for (allowed, denied, tool, passes) in [
            (&[][..], &[][..], "kb:Query", true),
            (&["kb:*"], &[], "kb:Query", true),
            (&["kb:*"], &[], "give", false),
            (&["kb:*"], &["kb:Query"], "kb:Query", false),
            (&["kb:Query"], &["*"], "kb:Query", false),
            (&[], &["kb:*"], "give", true),
            (&["give"], &[], "give_all", false),
            (&["*"], &[], "give", true),
        ] {
            let verdict = rights(allowed, denied).judge(tool, &[]);
            assert_eq!(is_allowed(&verdict), passes, "{tool}: {verdict:?}");
        }
    }

    #[test]
    fn a_verdict_names_the_pattern() {
        let rights = rights(&["g*"], &["give_all"]);
        let denied = ToolVerdict::Denied("give_all".to_owned());
        assert_eq!(rights.judge("give_all", &[]), denied);
        let allowed = ToolVerdict::Allowed(Some("g*".to_owned()));
        assert_eq!(rights.judge("give", &[]), allowed);
        assert_eq!(rights.judge("take", &[]), ToolVerdict::NotListed);
    }

    #[test]
    fn an_agent_of_a_scene_is_meant_by_its_other_names() {
        let aliases = ["agent:scout".to_owned()];
        let id = "agent:scene_1.a";
        assert!(!is_allowed(
            &rights(&[], &["agent:scout"]).judge(id, &aliases)
        ));
        assert!(is_allowed(
            &rights(&["agent:scout"], &[]).judge(id, &aliases)
        ));
    }

    #[test]
    fn a_star_stands_at_the_end() {
        for pattern in ["kb:*", "*", "kb:Query"] {
            assert_eq!(fault_of_pattern(pattern), None, "{pattern}");
        }
        for (pattern, hint) in [
            ("", "empty"),
            ("kb*:a", "`kb*`"),
            ("a\u{7}", "visible"),
            ("**", "`*`"),
        ] {
            let fault = fault_of_pattern(pattern).unwrap();
            assert!(fault.contains(hint), "{pattern}: {fault}");
        }
    }
}
