//! The inputs of a deliberation workflow, and the output that is its answer (rules G201 and G202).

use call_catalogue::names::squash;
use serde_json::{Map, Value, json};

/// The names of an output that is the answer, squashed; the first that exists.
const ANSWERS: [&str; 4] = ["fulltext", "llmtextoutput", "text", "response"];

/// The situation that an agent deliberates about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Situation {
    /// The agent's private state; none if it has none.
    pub private_state: Option<Value>,
    /// The scene's world state; none outside of scenes.
    pub world_state: Option<Value>,
    /// The events that opened the turn.
    pub events: Vec<Value>,
    /// The agent's goals, each with `goal_id`, `description`, `priority` and `status`.
    pub goals: Vec<Value>,
    /// The text that opened the turn.
    pub user_query: String,
    /// The messages so far, each with `role` and `content`.
    pub conversation: Vec<Value>,
    /// The results of the calls of the previous answer, each with `tool_id`, `status`, `text` and
    /// `output`.
    pub observations: Vec<Value>,
    /// The list of tools as a prompt teaches them; empty where none may be called.
    pub manifest: String,
    /// The same tools, each with `name`, `description` and `parameters`.
    pub tools: Vec<Value>,
    /// The instructions of the agent.
    pub system_prompt: String,
    /// The agent that deliberates.
    pub agent: Value,
    /// The cause of the turn.
    pub trigger: Value,
    /// The number of the round, from 1.
    pub iteration: u32,
    /// The number of calls left.
    pub calls_remaining: u32,
}

impl Situation {
    /// Returns the values of the inputs that the interface of a workflow declares.
    pub fn inputs(&self, interface: &Map<String, Value>) -> Map<String, Value> {
        let mut inputs = Map::new();
        for (key, slot) in interface {
            let is_text = slot.get("dataFlowType").and_then(Value::as_str) == Some("STRING");
            let value = match self.value(&squash(key), is_text) {
                Some(value @ Value::String(_)) => value,
                Some(structure) if is_text => structure.to_string().into(),
                Some(structure) => structure,
                None => continue,
            };
            inputs.insert(key.clone(), value);
        }
        inputs
    }

    /// Returns the value of an input by its squashed name; none if it has no meaning here.
    fn value(&self, squashed: &str, is_text: bool) -> Option<Value> {
        Some(match squashed {
            "userquery" | "userinput" | "message" => self.user_query.clone().into(),
            "conversation" | "chathistory" | "messages" | "interactionhistory" => {
                self.conversation.clone().into()
            }
            "observations" | "observation" if is_text => {
                let texts = self.observations.iter();
                let texts = texts.filter_map(|observation| observation["text"].as_str());
                texts.collect::<Vec<_>>().join("\n").into()
            }
            "observations" | "observation" => self.observations.clone().into(),
            "tools" | "availabletools" | "availablecapabilities" if is_text => {
                self.manifest.clone().into()
            }
            "tools" | "availabletools" | "availablecapabilities" => self.tools.clone().into(),
            "systemprompt" => self.system_prompt.clone().into(),
            "agent" => self.agent.clone(),
            "trigger" => self.trigger.clone(),
            "iteration" => self.iteration.into(),
            "callsremaining" => self.calls_remaining.into(),
            "goals" | "activegoals" => self.goals.clone().into(),
            "events" | "incomingevents" => self.events.clone().into(),
            "privatestate" => self.private_state.clone().unwrap_or_else(|| json!({})),
            "worldstate" => self.world_state.clone().unwrap_or_else(|| json!({})),
            _ => return None,
        })
    }
}

/// Returns the reasons for which a workflow with this definition cannot deliberate: each required
/// input without a default that is no input of a turn, and a missing output for the answer.
pub fn problems(definition: &Value) -> Vec<String> {
    let side = |key: &str| definition.get(key).and_then(Value::as_object);
    let given = Situation::default();
    let mut problems = Vec::new();
    for (key, slot) in side("interfaceInputs").into_iter().flatten() {
        let has_default = slot["config"]
            .get("default")
            .is_some_and(|default| !default.is_null());
        let is_needed = slot["required"] == true && !has_default;
        if is_needed && given.value(&squash(key), false).is_none() {
            problems.push(format!(
                "its input `{key}` is required and no turn gives it; give it a default, or make it optional"
            ));
        }
    }
    let outputs = side("interfaceOutputs").cloned().unwrap_or_default();
    if answer_output(&outputs).is_none() {
        problems
            .push("it has no output for the answer; call one of its outputs full_text".to_owned());
    }
    problems
}

/// Returns the output that is the answer: the first with a name of an answer, else the only text.
pub fn answer_output(interface: &Map<String, Value>) -> Option<&str> {
    let named = ANSWERS.iter().find_map(|answer| {
        let mut keys = interface.keys();
        keys.find(|key| squash(key) == *answer)
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
