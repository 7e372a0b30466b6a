//! The rules that allow calls, refuse them or require the approval of people (rule G801).
//!
//! The rules of the operator decide; the rules of the agents above a call can only make the
//! decision stricter.

use std::{collections::BTreeSet, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The variables of a condition.
const VARIABLES: &[&str] = &["args", "tool_id", "conversation_id"];
/// The most rules.
const MAX_RULES: usize = 1_000;
/// The default time that an approval waits (rule G807), at most [`LONGEST`].
const EXPIRES: Duration = Duration::from_secs(60 * 60);
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The most approvers that a rule may require.
const MAX_COUNT: u32 = 16;
/// The rule that applies without any file: destructive calls need approval.
const BUILT_IN: &str = "destructive";

/// The effects that a tool declares, the weakest promise last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// It changes nothing.
    ReadOnly,
    /// Repeating a call has no further effect.
    Idempotent,
    /// It has effects.
    SideEffecting,
    /// It destroys data or objects that cannot be restored.
    Destructive,
}

/// The reason for which a call needs approval, or is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The rule; behind the agent and a slash if it is a rule of an agent.
    pub rule_id: String,
    /// Its condition, or a sentence.
    pub text: String,
}

/// The action of a rule on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The call may be dispatched.
    Allow,
    /// The call waits for the approval of people.
    Ask,
    /// The call is refused.
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
    /// Tools by id, or by its beginning before a `*`; all tools if empty.
    tools: Vec<String>,
    effect: Option<EffectClass>,
    condition: Option<String>,
    action: Action,
    role: String,
    count: u32,
    expires: Duration,
    reason_required: bool,
}

/// The call that is judged.
#[derive(Clone, Copy, Debug)]
pub struct Judged<'a> {
    /// The tool's id.
    pub tool: &'a str,
    /// Other names by which rules mean the tool: an agent of a scene has the name of its profile.
    pub aliases: &'a [String],
    /// The effects that the tool declares.
    pub effect: EffectClass,
    /// The arguments, defaults filled in.
    pub arguments: &'a Value,
    /// The conversation; empty if none.
    pub conversation: &'a str,
}

/// The decision of the rules about a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// The call may be dispatched.
    Allow,
    /// The call is refused.
    Deny(Reason),
    /// The call waits for the approval of people.
    Ask(Ask),
}

/// The approval that a call needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Every rule that requires approval.
    pub reasons: Vec<Reason>,
    /// The role that approvers need, by the first rule that names one; empty if any may decide.
    pub role: String,
    /// The number of people who must approve: the largest number of any rule.
    pub needed: u32,
    /// The time that the call waits, by the first rule.
    pub expires: Duration,
    /// Whether a rule requires a reason.
    pub reason_required: bool,
}

/// All rules, in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules(Vec<Rule>);

/// The rules of an agent, which can only make a decision stricter.
#[derive(Clone, Copy, Debug)]
pub struct Stricter<'a> {
    /// The agent's profile.
    pub agent: &'a str,
    /// Its rules.
    pub rules: &'a Rules,
}

/// A problem of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The position of the rule among all, from 0.
    pub rule: usize,
    /// The path of the field in the rule.
    pub field: &'static str,
    /// The fault.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rule,
            field,
            message,
        } = self;
        write!(formatter, "rules[{rule}].{field}: {message}")
    }
}

/// Reads rules.
///
/// # Errors
/// Every problem, each with its place.
pub fn read_rules(files: Vec<RuleFile>) -> Result<Rules, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut ids = BTreeSet::new();
    for (place, rule) in files.iter().enumerate() {
        let mut add = |field, message| {
            problems.push(Problem {
                rule: place,
                field,
                message,
            });
        };
        if place == MAX_RULES {
            add("id", format!("at most {MAX_RULES} rules are accepted"));
            break;
        }
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
    /// Returns the roles that rules name, with the ids of these rules.
    pub fn roles(&self) -> impl Iterator<Item = (&str, &str, u32)> {
        let asking = self.0.iter().filter(|rule| rule.action == Action::Ask);
        asking.map(|rule| (&*rule.id, &*rule.role, rule.count))
    }

    /// Returns the tools that rules name whole, each with the id of its rule.
    pub fn named_tools(&self) -> impl Iterator<Item = (&str, &str)> {
        let whole = |tool: &&String| !tool.ends_with('*');
        self.0.iter().flat_map(move |rule| {
            let tools = rule.tools.iter().filter(whole);
            tools.map(|tool| (&*rule.id, &**tool))
        })
    }

    /// Judges a call: deny beats ask, ask beats allow. Where no rule matches, a destructive call
    /// needs approval and any other is allowed. An allowing rule of `stricter` has no effect.
    pub fn judge(&self, stricter: &[Stricter<'_>], call: Judged<'_>) -> Judgement {
        let own: Vec<_> = self.0.iter().filter(|rule| rule.matches(call)).collect();
        let of_agents = stricter.iter().flat_map(|Stricter { agent, rules }| {
            let matching = rules.0.iter().filter(|rule| rule.matches(call));
            matching.map(move |rule| (rule, rule.reason(agent)))
        });
        let all = own.iter().map(|rule| (*rule, rule.reason("")));
        let mut asks = Vec::new();
        for (rule, reason) in all.chain(of_agents) {
            match rule.action {
                Action::Allow => {}
                Action::Deny => return Judgement::Deny(reason),
                Action::Ask => asks.push((rule, reason)),
            }
        }
        let built_in = own.is_empty() && call.effect == EffectClass::Destructive;
        if asks.is_empty() && !built_in {
            return Judgement::Allow;
        }
        let rules = || asks.iter().map(|(rule, _)| *rule);
        let role = rules().map(|rule| &rule.role).find(|role| !role.is_empty());
        let mut ask = Ask {
            role: role.cloned().unwrap_or_default(),
            needed: rules().map(|rule| rule.count).max().unwrap_or(1),
            expires: rules().next().map_or(EXPIRES, |rule| rule.expires),
            reason_required: rules().any(|rule| rule.reason_required),
            reasons: Vec::new(),
        };
        ask.reasons = asks.into_iter().map(|(_, reason)| reason).collect();
        if built_in {
            ask.reasons.push(built_in_reason());
        }
        Judgement::Ask(ask)
    }

    /// Returns the possible decisions of the rules about a call of a tool with unknown arguments, a
    /// sentence for each rule, in the words of `judge`.
    pub fn outlook(
        &self,
        stricter: &[Stricter<'_>],
        (tool, aliases): (&str, &[String]),
        effect: EffectClass,
    ) -> Vec<String> {
        let concerned = |rule: &&Rule| rule.concerns(tool, aliases, effect);
        let own = self.0.iter().filter(concerned);
        let of_agents = stricter.iter().flat_map(|Stricter { agent, rules }| {
            let binding = rules.0.iter().filter(|rule| rule.action != Action::Allow);
            binding.filter(concerned).map(|rule| (rule, *agent))
        });
        let is_certain = own.clone().any(|rule| rule.condition.is_none());
        let rules = own.map(|rule| (rule, "")).chain(of_agents);
        let mut sentences: Vec<String> = rules
            .map(|(rule, agent)| {
                let Reason { rule_id, text } = rule.reason(agent);
                let does = match rule.action {
                    Action::Allow => "allows the call",
                    Action::Ask => "asks for an approval",
                    Action::Deny => "refuses the call",
                };
                match text.as_str() {
                    "" => format!("the rule '{rule_id}' {does}"),
                    condition => format!("the rule '{rule_id}' {does} where {condition}"),
                }
            })
            .collect();
        if effect == EffectClass::Destructive && !is_certain {
            let Reason { rule_id, text } = built_in_reason();
            sentences.push(format!("the rule '{rule_id}' asks for an approval: {text}"));
        }
        sentences
    }
}

/// Whether a pattern names a tool: by its id, or by its beginning before a `*` at the end.
pub fn names_tool(pattern: &str, tool: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => tool.starts_with(beginning),
        None => tool == pattern,
    }
}

/// Returns the reason for which a call needs approval that no rule of the operator matches.
fn built_in_reason() -> Reason {
    Reason {
        rule_id: BUILT_IN.to_owned(),
        text: "the tool is declared destructive, and no rule allows it".to_owned(),
    }
}

impl Rule {
    fn reason(&self, agent: &str) -> Reason {
        Reason {
            rule_id: match agent {
                "" => self.id.clone(),
                agent => format!("{agent}/{}", self.id),
            },
            text: self.condition.clone().unwrap_or_default(),
        }
    }

    fn matches(&self, call: Judged<'_>) -> bool {
        self.concerns(call.tool, call.aliases, call.effect)
            && self.condition.as_ref().is_none_or(|condition| {
                let conversation = Value::from(call.conversation);
                let tool = Value::from(call.tool);
                let bindings = [
                    ("args", call.arguments),
                    ("tool_id", &tool),
                    ("conversation_id", &conversation),
                ];
                // A condition that cannot be judged stops a call rather than allows it.
                cel_guard::holds(condition, &bindings).unwrap_or(self.action != Action::Allow)
            })
    }

    fn concerns(&self, tool: &str, aliases: &[String], effect: EffectClass) -> bool {
        let is_meant = |name: &str| self.tools.iter().any(|written| names_tool(written, name));
        (self.tools.is_empty() || is_meant(tool) || aliases.iter().any(|alias| is_meant(alias)))
            && self.effect.is_none_or(|own| own == effect)
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
            aliases: &[],
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
            rules.judge(&[], judged("give", class, &value(50))),
            Judgement::Allow
        );
        let Judgement::Ask(ask) = rules.judge(&[], judged("give_item", class, &value(70))) else {
            panic!("it asks");
        };
        assert_eq!(
            (ask.role.as_str(), ask.needed, ask.expires.as_secs()),
            ("keeper", 2, 60)
        );
        assert!(ask.reason_required);
        let Judgement::Ask(both) = rules.judge(&[], judged("give", class, &value(70))) else {
            panic!("it asks");
        };
        assert_eq!(both.reasons.len(), 2);
        let Judgement::Deny(reason) = rules.judge(&[], judged("give", class, &value(91))) else {
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
            let judgement = rules.judge(&[], judged("t", effect, &arguments));
            assert_eq!(matches!(judgement, Judgement::Ask(_)), asks, "{effect:?}");
        }
    }

    #[test]
    fn a_condition_that_cannot_be_judged_stops_the_call() {
        let arguments = json!({});
        for (action, allowed) in [("allow", false), ("ask", false), ("deny", false)] {
            let rules =
                rules(json!([{"id": "r", "condition": "args.missing == 1", "action": action}]));
            let judgement = rules.judge(&[], judged("t", EffectClass::Destructive, &arguments));
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
            .map(|problem| problem.to_string().split_once(": ").unwrap().0.to_owned())
            .collect();
        let expected = [
            "rules[0].approvers.count",
            "rules[0].expires_seconds",
            "rules[1].id",
            "rules[1].condition",
        ];
        assert_eq!(places, expected);
    }

    #[test]
    fn g801_the_rules_of_an_agent_only_make_a_decision_stricter() {
        let operator = rules(json!([
            {"id": "ring", "tools": ["give"], "condition": "args.item == 'ring'", "action": "ask"},
            {"id": "never", "tools": ["give"], "condition": "args.item == 'crown'", "action": "deny"}
        ]));
        let agent = rules(json!([
            {"id": "all", "action": "allow"},
            {"id": "large", "tools": ["give"], "condition": "args.value > 50", "action": "ask",
             "approvers": {"role": "keeper"}, "reason_required": true},
            {"id": "huge", "condition": "args.value > 90", "action": "deny"}
        ]));
        let stricter = [Stricter {
            agent: "gm",
            rules: &agent,
        }];
        let judge = |tool: &str, effect, item: &str, value: u32| {
            let arguments = json!({"item": item, "value": value});
            match operator.judge(&stricter, judged(tool, effect, &arguments)) {
                Judgement::Allow => vec!["allow".to_owned()],
                Judgement::Deny(reason) => vec!["deny".to_owned(), reason.rule_id],
                Judgement::Ask(ask) => {
                    let reasons = ask.reasons.into_iter().map(|reason| reason.rule_id);
                    [ask.role].into_iter().chain(reasons).collect()
                }
            }
        };
        let plain = EffectClass::SideEffecting;
        assert_eq!(judge("give", plain, "herb", 5), ["allow"]);
        assert_eq!(judge("give", plain, "herb", 60), ["keeper", "gm/large"]);
        assert_eq!(
            judge("give", plain, "ring", 60),
            ["keeper", "ring", "gm/large"]
        );
        assert_eq!(judge("give", plain, "herb", 95), ["deny", "gm/huge"]);
        assert_eq!(judge("give", plain, "crown", 5), ["deny", "never"]);
        let destructive = EffectClass::Destructive;
        assert_eq!(judge("burn", destructive, "herb", 5), ["", "destructive"]);
        assert_eq!(
            judge("give", destructive, "herb", 60),
            ["keeper", "gm/large", "destructive"]
        );
    }

    #[test]
    fn g801_a_rule_holds_for_every_name_of_a_tool() {
        let aliases = ["agent:scout".to_owned(), "agent:scout_1".to_owned()];
        let arguments = json!({});
        for (written, holds) in [
            ("agent:*", true),
            ("agent:scout", true),
            ("agent:scout_1", true),
            ("agent:scene_7.scout_1", true),
            ("agent:guide", false),
        ] {
            let rules = rules(json!([{"id": "never", "tools": [written], "action": "deny"}]));
            let call = Judged {
                aliases: &aliases,
                ..judged(
                    "agent:scene_7.scout_1",
                    EffectClass::SideEffecting,
                    &arguments,
                )
            };
            let is_denied = matches!(rules.judge(&[], call), Judgement::Deny(_));
            assert_eq!(is_denied, holds, "{written}");
        }
    }

    #[test]
    fn the_outlook_names_each_rule_that_may_decide_about_a_tool() {
        let operator = rules(json!([
            {"id": "large", "tools": ["give"], "condition": "args.value > 50", "action": "ask"},
            {"id": "other", "tools": ["take"], "action": "deny"}
        ]));
        let agent = rules(json!([
            {"id": "all", "action": "allow"},
            {"id": "never", "effect": "destructive", "action": "deny"}
        ]));
        let stricter = [Stricter {
            agent: "gm",
            rules: &agent,
        }];
        assert_eq!(
            operator.outlook(&stricter, ("give", &[]), EffectClass::SideEffecting),
            ["the rule 'large' asks for an approval where args.value > 50"]
        );
        assert_eq!(
            operator.outlook(&stricter, ("burn", &[]), EffectClass::Destructive),
            [
                "the rule 'gm/never' refuses the call",
                "the rule 'destructive' asks for an approval: the tool is declared destructive, and no \
                 rule allows it"
            ]
        );
    }
}
