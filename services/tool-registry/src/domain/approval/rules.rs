//! The rules that say which calls leave, which are refused and which wait for people (rule G801).

use std::{collections::BTreeSet, time::Duration};

use serde::Deserialize;
use serde_json::Value;

use super::{EffectClass, Reason};

/// The variables of a condition.
const VARIABLES: &[&str] = &["args", "tool_id", "conversation_id"];
/// The most rules.
const MAX_RULES: usize = 1_000;
/// How long an approval waits if its rule does not say, and at most (rule G807).
const EXPIRES: Duration = Duration::from_secs(60 * 60);
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The most people that a rule may ask.
const MAX_COUNT: u32 = 16;
/// The rule that stands without any file: what cannot be brought back is asked for.
const BUILT_IN: &str = "destructive";

/// What a rule does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It leaves.
    Allow,
    /// It waits for people.
    Ask,
    /// It is refused.
    Deny,
}

/// A rule as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleFile {
    id: String,
    #[serde(default)]
    tools: Vec<String>,
    effect: Option<EffectClass>,
    condition: Option<String>,
    action: Action,
    #[serde(default)]
    approvers: ApproversFile,
    expires_seconds: Option<u64>,
    #[serde(default)]
    reason_required: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApproversFile {
    #[serde(default)]
    role: String,
    count: Option<u32>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    id: String,
    /// Tools by id, or by its beginning before a `*`; all if there is none.
    tools: Vec<String>,
    effect: Option<EffectClass>,
    condition: Option<String>,
    action: Action,
    role: String,
    count: u32,
    expires: Duration,
    reason_required: bool,
}

/// What is judged.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    /// The tool's id.
    pub tool: &'a str,
    /// What the tool declares.
    pub effect: EffectClass,
    /// The arguments, defaults filled in.
    pub arguments: &'a Value,
    /// The conversation; empty if none.
    pub conversation: &'a str,
}

/// What the rules say about a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// It leaves.
    Allow,
    /// It is refused.
    Deny(Reason),
    /// It waits for people.
    Ask(Ask),
}

/// Who is asked, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Every rule that asks.
    pub reasons: Vec<Reason>,
    /// The role that approvers need, by the first of them; empty if any may decide.
    pub role: String,
    /// How many people must approve: the most that any of them wants.
    pub needed: u32,
    /// How long the call waits, by the first of them.
    pub expires: Duration,
    /// Whether one of them wants a reason.
    pub reason_required: bool,
}

/// All rules, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules(Vec<Rule>);

/// Reads rules.
///
/// # Errors
/// Everything that is wrong, each with its place.
pub fn read_rules(files: Vec<RuleFile>) -> Result<Rules, Vec<String>> {
    let mut problems = Vec::new();
    if files.len() > MAX_RULES {
        problems.push(format!(
            "rules: has {} entries; at most {MAX_RULES} are accepted",
            files.len()
        ));
    }
    let mut ids = BTreeSet::new();
    for (place, rule) in files.iter().enumerate() {
        let mut add = |field: &str, problem: String| {
            problems.push(format!("rules[{place}].{field}: {problem}"));
        };
        if rule.id.is_empty() || rule.id.len() > 128 {
            add("id", "is empty or has more than 128 bytes".to_owned());
        }
        if !ids.insert(&rule.id) {
            add("id", format!("'{}' is used by a rule above", rule.id));
        }
        if let Some(condition) = &rule.condition
            && let Err(problem) = cel_guard::check(condition, VARIABLES)
        {
            add("condition", problem);
        }
        if !(1..=MAX_COUNT).contains(&rule.approvers.count.unwrap_or(1)) {
            add(
                "approvers.count",
                format!("give a number from 1 to {MAX_COUNT}"),
            );
        }
        if !(1..=LONGEST.as_secs()).contains(&rule.expires_seconds.unwrap_or(1)) {
            let most = LONGEST.as_secs();
            add("expires_seconds", format!("give a number from 1 to {most}"));
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let rules = files.into_iter().map(|rule| Rule {
        id: rule.id,
        tools: rule.tools,
        effect: rule.effect,
        condition: rule.condition,
        action: rule.action,
        role: rule.approvers.role,
        count: rule.approvers.count.unwrap_or(1),
        expires: rule.expires_seconds.map_or(EXPIRES, Duration::from_secs),
        reason_required: rule.reason_required,
    });
    Ok(Rules(rules.collect()))
}

impl Rules {
    /// Returns the roles that rules name, with the ids of those rules.
    pub fn roles(&self) -> impl Iterator<Item = (&str, &str, u32)> {
        let asking = self.0.iter().filter(|rule| rule.action == Action::Ask);
        asking.map(|rule| (&*rule.id, &*rule.role, rule.count))
    }

    /// Judges a call: deny beats ask, ask beats allow. Where no rule matches, a destructive call asks
    /// and any other leaves.
    pub fn judge(&self, call: Judged<'_>) -> Judgement {
        let matching: Vec<_> = self.0.iter().filter(|rule| rule.matches(call)).collect();
        if let Some(rule) = matching.iter().find(|rule| rule.action == Action::Deny) {
            return Judgement::Deny(rule.reason());
        }
        let asking = matching.iter().filter(|rule| rule.action == Action::Ask);
        let asking: Vec<_> = asking.collect();
        if let Some(first) = asking.first() {
            return Judgement::Ask(Ask {
                reasons: asking.iter().map(|rule| rule.reason()).collect(),
                role: first.role.clone(),
                needed: asking.iter().map(|rule| rule.count).max().unwrap_or(1),
                expires: first.expires,
                reason_required: asking.iter().any(|rule| rule.reason_required),
            });
        }
        match matching.is_empty() && call.effect == EffectClass::Destructive {
            true => Judgement::Ask(Ask {
                reasons: vec![Reason {
                    rule_id: BUILT_IN.to_owned(),
                    text: "the tool is declared destructive, and no rule allows it".to_owned(),
                }],
                role: String::new(),
                needed: 1,
                expires: EXPIRES,
                reason_required: false,
            }),
            false => Judgement::Allow,
        }
    }
}

impl Rule {
    fn reason(&self) -> Reason {
        Reason {
            rule_id: self.id.clone(),
            text: self.condition.clone().unwrap_or_default(),
        }
    }

    fn matches(&self, call: Judged<'_>) -> bool {
        self.names(call.tool)
            && self.effect.is_none_or(|effect| effect == call.effect)
            && self.condition.as_ref().is_none_or(|condition| {
                let conversation = Value::from(call.conversation);
                let tool = Value::from(call.tool);
                let bindings = [
                    ("args", call.arguments),
                    ("tool_id", &tool),
                    ("conversation_id", &conversation),
                ];
                // A condition that cannot be judged stops a call rather than lets it leave.
                cel_guard::holds(condition, &bindings).unwrap_or(self.action != Action::Allow)
            })
    }

    fn names(&self, tool: &str) -> bool {
        self.tools.is_empty()
            || self.tools.iter().any(|name| match name.strip_suffix('*') {
                Some(beginning) => tool.starts_with(beginning),
                None => tool == name,
            })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(written: Value) -> Rules {
        read_rules(serde_json::from_value(written).unwrap()).unwrap()
    }

    fn judged<'a>(tool: &'a str, effect: EffectClass, arguments: &'a Value) -> Judged<'a> {
        Judged {
            tool,
            effect,
            arguments,
            conversation: "c1",
        }
    }

    #[test]
    fn g801_deny_beats_ask_and_ask_beats_allow() {
        let rules = rules(json!([
            {"id": "all", "action": "allow"},
            {"id": "large", "tools": ["give*"], "condition": "args.value > 50", "action": "ask",
             "approvers": {"role": "keeper", "count": 2}, "expires_seconds": 60, "reason_required": true},
            {"id": "late", "tools": ["give"], "condition": "args.value > 60", "action": "ask"},
            {"id": "never", "condition": "args.value > 90 && conversation_id == 'c1'", "action": "deny"}
        ]));
        let value = |value: u32| json!({ "value": value });
        let class = EffectClass::SideEffecting;
        assert_eq!(
            rules.judge(judged("give", class, &value(50))),
            Judgement::Allow
        );
        let Judgement::Ask(ask) = rules.judge(judged("give_item", class, &value(70))) else {
            panic!("it asks");
        };
        assert_eq!(
            (ask.role.as_str(), ask.needed, ask.expires.as_secs()),
            ("keeper", 2, 60)
        );
        assert!(ask.reason_required);
        let Judgement::Ask(both) = rules.judge(judged("give", class, &value(70))) else {
            panic!("it asks");
        };
        assert_eq!(both.reasons.len(), 2);
        let Judgement::Deny(reason) = rules.judge(judged("give", class, &value(91))) else {
            panic!("it is refused");
        };
        assert_eq!(reason.rule_id, "never");
    }

    #[test]
    fn g801_without_a_match_destructive_calls_ask() {
        let rules = Rules::default();
        let arguments = json!({});
        for (effect, asks) in [
            (EffectClass::ReadOnly, false),
            (EffectClass::Idempotent, false),
            (EffectClass::SideEffecting, false),
            (EffectClass::Destructive, true),
        ] {
            let judgement = rules.judge(judged("t", effect, &arguments));
            assert_eq!(matches!(judgement, Judgement::Ask(_)), asks, "{effect:?}");
        }
    }

    #[test]
    fn a_condition_that_cannot_be_judged_stops_the_call() {
        let arguments = json!({});
        for (action, allowed) in [("allow", false), ("ask", false), ("deny", false)] {
            let rules =
                rules(json!([{"id": "r", "condition": "args.missing == 1", "action": action}]));
            let judgement = rules.judge(judged("t", EffectClass::Destructive, &arguments));
            assert_eq!(judgement == Judgement::Allow, allowed, "{action}");
        }
    }

    #[test]
    fn every_problem_of_the_rules_is_named_at_its_place() {
        let written = json!([
            {"id": "a", "action": "ask", "approvers": {"count": 0}, "expires_seconds": 0},
            {"id": "a", "action": "deny", "condition": "other > 1"}
        ]);
        let problems = read_rules(serde_json::from_value(written).unwrap()).unwrap_err();
        let places: Vec<_> = problems
            .iter()
            .map(|problem| problem.split_once(": ").unwrap().0)
            .collect();
        let expected = [
            "rules[0].approvers.count",
            "rules[0].expires_seconds",
            "rules[1].id",
            "rules[1].condition",
        ];
        assert_eq!(places, expected);
    }
}
