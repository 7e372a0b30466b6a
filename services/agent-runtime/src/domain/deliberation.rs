//! What a deliberation workflow is given, and which of its outputs is the answer (rules G201 and G202).

use serde_json::{Map, Value, json};

/// The inputs that a workflow may declare, each with its other names.
const INPUTS: [(&str, &[&str]); 13] = [
    ("user_query", &["user_input", "message"]),
    (
        "conversation",
        &["chat_history", "messages", "interaction_history"],
    ),
    ("observations", &["observation"]),
    ("private_state", &[]),
    ("world_state", &[]),
    ("events", &["incoming_events"]),
    ("goals", &["active_goals"]),
    ("tools", &["available_tools", "available_capabilities"]),
    ("system_prompt", &[]),
    ("agent", &[]),
    ("trigger", &[]),
    ("iteration", &[]),
    ("calls_remaining", &[]),
];
/// The outputs that are the answer, the first that is there.
const ANSWERS: [&str; 4] = ["full_text", "llm_text_output", "text", "response"];

/// What there is to deliberate about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Situation {
    /// What opened the turn.
    pub user_query: String,
    /// The messages so far, each with `role` and `content`.
    pub conversation: Vec<Value>,
    /// What the calls of the answer before came to, each with `tool_id`, `status`, `text` and `output`.
    pub observations: Vec<Value>,
    /// The list of tools as a prompt teaches them; empty where none may be called.
    pub manifest: String,
    /// The same tools, each with `name`, `description` and `parameters`.
    pub tools: Vec<Value>,
    /// The instructions of the agent.
    pub system_prompt: String,
    /// Who deliberates.
    pub agent: Value,
    /// What began the turn.
    pub trigger: Value,
    /// The number of the round, from 1.
    pub iteration: u32,
    /// How many calls are left.
    pub calls_remaining: u32,
}

impl Situation {
    /// Returns the values of the inputs that the interface of a workflow declares.
    pub fn inputs(&self, interface: &Map<String, Value>) -> Map<String, Value> {
        let mut inputs = Map::new();
        for (key, slot) in interface {
            let written = squashed(key);
            let named = |(name, others): &(&'static str, &[&str])| {
                let mut all = std::iter::once(name).chain(*others);
                all.any(|name| squashed(name) == written).then_some(*name)
            };
            let Some(name) = INPUTS.iter().find_map(named) else {
                continue;
            };
            let is_text = slot.get("dataFlowType").and_then(Value::as_str) == Some("STRING");
            let value = match self.value(name, is_text) {
                value @ Value::String(_) => value,
                structure if is_text => structure.to_string().into(),
                structure => structure,
            };
            inputs.insert(key.clone(), value);
        }
        inputs
    }

    fn value(&self, name: &str, is_text: bool) -> Value {
        match name {
            "user_query" => self.user_query.clone().into(),
            "conversation" => self.conversation.clone().into(),
            "observations" if is_text => {
                let texts = self.observations.iter();
                let texts = texts.filter_map(|observation| observation["text"].as_str());
                texts.collect::<Vec<_>>().join("\n").into()
            }
            "observations" => self.observations.clone().into(),
            "tools" if is_text => self.manifest.clone().into(),
            "tools" => self.tools.clone().into(),
            "system_prompt" => self.system_prompt.clone().into(),
            "agent" => self.agent.clone(),
            "trigger" => self.trigger.clone(),
            "iteration" => self.iteration.into(),
            "calls_remaining" => self.calls_remaining.into(),
            "events" | "goals" => json!([]),
            _ => json!({}),
        }
    }
}

/// Returns the output that is the answer: the first with a name that says so, else the only text.
pub fn answer_output(interface: &Map<String, Value>) -> Option<&str> {
    let named = ANSWERS.iter().find_map(|answer| {
        let mut keys = interface.keys();
        keys.find(|key| squashed(key) == squashed(answer))
    });
    let mut texts = interface
        .iter()
        .filter(|(_, slot)| slot["dataFlowType"] == "STRING")
        .map(|(key, _)| key);
    let only = match (texts.next(), texts.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    };
    named.or(only).map(String::as_str)
}

/// Returns a name without the ways in which spellings differ.
fn squashed(name: &str) -> String {
    let kept = name.chars().filter(|c| c.is_alphanumeric());
    kept.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(slots: &[(&str, &str)]) -> Map<String, Value> {
        let slot = |(key, kind): &(&str, &str)| (String::from(*key), json!({"dataFlowType": kind}));
        slots.iter().map(slot).collect()
    }

    fn situation() -> Situation {
        Situation {
            user_query: "Is it open?".to_owned(),
            observations: vec![
                json!({"tool_id": "look", "status": "succeeded", "text": "Observation: open", "output": "open"}),
                json!({"tool_id": "ask", "status": "failed", "text": "Observation: Error", "output": null}),
            ],
            manifest: "You have access to".to_owned(),
            tools: vec![json!({"name": "look"})],
            calls_remaining: 3,
            ..Situation::default()
        }
    }

    #[test]
    fn g201_an_input_is_found_by_any_spelling_and_has_the_type_of_its_slot() {
        let declared = interface(&[
            ("userQuery", "STRING"),
            ("Observation", "STRING"),
            ("observations", "ARRAY"),
            ("available_tools", "STRING"),
            ("tools", "ARRAY"),
            ("goals", "STRING"),
            ("callsRemaining", "INTEGER"),
            ("temperature", "FLOAT"),
        ]);
        let situation = situation();
        let inputs = situation.inputs(&declared);
        assert_eq!(inputs["userQuery"], "Is it open?");
        assert_eq!(
            inputs["Observation"],
            "Observation: open\nObservation: Error"
        );
        assert_eq!(inputs["observations"], Value::Array(situation.observations));
        assert_eq!(inputs["available_tools"], "You have access to");
        assert_eq!(inputs["tools"], json!([{"name": "look"}]));
        assert_eq!(
            (&inputs["goals"], &inputs["callsRemaining"]),
            (&json!("[]"), &json!(3))
        );
        assert!(!inputs.contains_key("temperature"));
    }

    #[test]
    fn g202_the_answer_is_the_first_output_that_is_called_so_or_the_only_text() {
        for (declared, expected) in [
            (
                &[("text", "STRING"), ("fullText", "STRING")][..],
                Some("fullText"),
            ),
            (&[("said", "STRING"), ("usage", "OBJECT")], Some("said")),
            (&[("a", "STRING"), ("b", "STRING")], None),
            (&[("usage", "OBJECT")], None),
        ] {
            assert_eq!(
                answer_output(&interface(declared)),
                expected,
                "{declared:?}"
            );
        }
    }
}
