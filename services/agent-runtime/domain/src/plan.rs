//! The parameters of a turn, stored alongside its log so that it can be resumed.

use std::{borrow::Cow, collections::BTreeMap};

use call_catalogue::{Dialect, TrainedFormat};
use call_prompt::prompt::Language;
use call_text::Policy;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    budgets::Budgets, compaction::CompactionSettings, event::Hop, message::ChatMessage,
    reduction::Reduction, spelling,
};

/// The prefixes of the ids and of the aliases of tools that are agents (rule N7).
const AGENT: &str = "agent:";
const AGENT_ALIAS: &str = "agent__";

/// The form in which an agent's model is offered its tools (rule G501). Calls in its text and
/// native calls are read in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOffer {
    /// Taught in the prompt.
    #[default]
    Text,
    /// Declared to the model's API.
    Native,
    /// Both.
    Both,
}

impl ToolOffer {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Text, Self::Native, Self::Both];

    /// Returns the word for it in a profile.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Native => "native",
            Self::Both => "both",
        }
    }

    /// Whether tools are declared to the model's API.
    pub fn is_native(self) -> bool {
        self != Self::Text
    }

    /// Whether tools are taught in the prompt.
    pub fn is_text(self) -> bool {
        self != Self::Native
    }
}

/// The behaviour of a turn that asks a person (rule G808).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interaction {
    /// It waits for the answer.
    #[default]
    Wait,
    /// It continues, and the answer opens another turn.
    Continue,
}

impl Interaction {
    /// Every way.
    pub const ALL: [Self; 2] = [Self::Wait, Self::Continue];

    /// Returns the word for it in a profile.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Continue => "continue",
        }
    }
}

/// The letters and digits of a nonce: base 32 without characters that are mistaken for each other.
const NONCE_ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Makes the nonce of a turn of 40 random bits: eight characters (rule G1006).
pub fn nonce_of(random: u64) -> String {
    let digit = |at: u32| NONCE_ALPHABET[usize::try_from(random >> (5 * at) & 31).unwrap_or(0)];
    (0..8).map(|at| char::from(digit(at))).collect()
}

/// The opening of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opening {
    /// A message of the user.
    UserMessage(String),
    /// Events of the scene.
    Events(Vec<Value>),
    /// A text that the caller obtained from the model itself.
    ModelText {
        /// The text of the model.
        text: String,
        /// Whether the agent's model continues afterwards.
        go_on: bool,
    },
}

/// The settings of a turn's caller for the answers of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampling {
    /// The most tokens of one answer.
    pub max_output_tokens: Option<u32>,
    /// The sampling temperature, from 0 to 2.
    pub temperature: Option<f64>,
}

impl Sampling {
    /// Returns the most tokens of one answer, no more than the profile allows.
    pub fn max_output_tokens_within(&self, profile: Option<u32>) -> Option<u32> {
        match (self.max_output_tokens, profile) {
            (Some(asked), Some(most)) => Some(asked.min(most)),
            (asked, most) => asked.or(most),
        }
    }
}

/// The input of a turn. It is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnInput {
    /// Messages from before the turn, the oldest first, of a caller that keeps the conversation
    /// itself. They are never read for calls.
    pub history: Vec<ChatMessage>,
    /// The opening.
    pub opening: Opening,
}

impl Opening {
    /// Writes the opening as the JSON of the log.
    pub fn to_json(&self) -> String {
        match self {
            Self::UserMessage(text) | Self::ModelText { text, .. } => {
                Value::String(text.clone()).to_string()
            }
            Self::Events(events) => Value::Array(events.clone()).to_string(),
        }
    }
}

/// The place of a turn in a scene.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SceneTurn {
    /// The scene.
    pub scene_id: String,
    /// The run of the scene; of a fork, the key of its copy of the world state.
    pub run_id: String,
    /// The agent.
    pub instance_id: String,
    /// The chain of the events that the turn publishes.
    pub chain: Vec<Hop>,
    /// The agents of the scene that the inventory names as tools, with their conversations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agents: BTreeMap<String, String>,
    /// The run of the scene whose world state a fork has a copy of; missing outside of forks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<String>,
}

/// All parameters of a turn that are not in its log. Its input is in the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The budgets of the turn.
    pub budgets: Budgets,
    /// Whether the model continues after a text of the caller.
    pub go_on: bool,
    /// Whether the conversation is dropped when the turn ends.
    pub ephemeral: bool,
    /// The model; missing if the turn never calls one.
    pub model: Option<String>,
    /// The models that are called in its place, in order; the fallbacks of the settings if missing.
    #[serde(default)]
    pub fallbacks: Option<Vec<String>>,
    /// The workflow that is run in the model's place; missing for the built-in deliberation.
    #[serde(default)]
    pub deliberation: Option<String>,
    /// The revision of the agent's profile that all of this is from; zero if it is not known.
    #[serde(default)]
    pub profile_revision: u64,
    /// The tools that the agent may use.
    pub inventory: Vec<String>,
    /// Rules that the registry holds its calls against.
    #[serde(default)]
    pub approvals: Vec<Value>,
    /// The instructions before the list of tools.
    pub system_prompt: String,
    /// The dialect that a text of the caller is read in; any if missing.
    pub opening_dialect: Option<Dialect>,
    /// The dialect that the model is taught and its answers are read in; if missing, ACTION is
    /// taught and any is read.
    pub dialect: Option<Dialect>,
    /// The formats of trained models in which answers are read as well; all of them if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formats: Option<Vec<TrainedFormat>>,
    /// The language of the list of tools.
    pub language: Language,
    /// The form in which the model is offered its tools.
    #[serde(default)]
    pub tools: ToolOffer,
    /// The sampling temperature.
    pub temperature: Option<f64>,
    /// The most tokens of one answer.
    pub max_output_tokens: Option<u32>,
    /// Whether a request to the model is ended at the name of a tool that does not exist.
    #[serde(default)]
    pub stop_at_unknown_tool: bool,
    /// Whether the model's answers begin in a thought; its settings decide if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_in_thought: Option<bool>,
    /// The conditions of compacting the conversation.
    #[serde(default)]
    pub compaction: CompactionSettings,
    /// The workflows that shorten the long outputs of tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reduction: Vec<Reduction>,
    /// Whether the run only replaces earlier turns by a summary, at the request of a caller.
    #[serde(default)]
    pub compact: bool,
    /// The behaviour of the turn when it asks a person.
    #[serde(default)]
    pub interaction: Interaction,
    /// The nonce in the marks that open blocks of calls in this turn (rule G1006); missing if the
    /// profile does not request it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// The turn's place in a scene; missing outside of scenes.
    #[serde(default)]
    pub scene: Option<SceneTurn>,
}

impl Plan {
    /// Returns the id of the tool that the profile names. An agent of the scene is the tool of its
    /// conversation (rule G901).
    pub fn tool_id<'a>(&self, written: &'a str) -> Cow<'a, str> {
        let scene = self.scene.as_ref().zip(agent_of(written));
        match scene.and_then(|(scene, agent)| scene.agents.get(agent)) {
            Some(conversation) => Cow::Owned(format!("{AGENT}{conversation}")),
            None => Cow::Borrowed(spelling::tool_id(written)),
        }
    }

    /// Returns the tools of the inventory, by the ids of [`Self::tool_id`] and in its order.
    pub fn inventory_ids(&self) -> Vec<String> {
        let ids = self.inventory.iter().map(|name| self.tool_id(name));
        ids.map(Cow::into_owned).collect()
    }

    /// Names the agents of the turn's scene, with their conversations. Calls of agents in the
    /// inventory use these conversations, as do the agent's rules on these tools.
    pub fn know_agents(&mut self, agents: impl Iterator<Item = (String, String)>) {
        let Some(scene) = &mut self.scene else {
            return;
        };
        let inventory = &self.inventory;
        let is_named = |(agent, _): &(String, String)| {
            inventory.iter().any(|name| agent_of(name) == Some(agent))
        };
        scene.agents = agents.filter(is_named).collect();
        let mut approvals = std::mem::take(&mut self.approvals);
        let tools = approvals
            .iter_mut()
            .filter_map(|rule| rule["tools"].as_array_mut());
        for tool in tools.flatten() {
            if let Some(id) = tool
                .as_str()
                .map(|written| self.tool_id(written).into_owned())
            {
                *tool = id.into();
            }
        }
        self.approvals = approvals;
    }

    /// Returns the dialect that the model is taught.
    pub fn taught_dialect(&self) -> Dialect {
        self.dialect.unwrap_or(Dialect::Action)
    }

    /// Returns the rules by which answers are read.
    pub fn policy(&self) -> Policy {
        Policy {
            dialect: self.dialect,
            formats: self.formats.clone(),
            nonce: self.nonce.clone(),
            ..Policy::default()
        }
    }

    /// Returns the rules by which a text of the caller is read.
    pub fn opening_policy(&self) -> Policy {
        self.opening_dialect
            .map_or_else(Policy::default, Policy::fixed)
    }
}

/// Returns the agent that a name of a tool means, if it is one.
fn agent_of(written: &str) -> Option<&str> {
    let prefixes = [AGENT, AGENT_ALIAS].iter();
    prefixes
        .filter_map(|prefix| written.strip_prefix(prefix))
        .next()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan() -> Plan {
        let plan = json!({
            "budgets": Budgets::default(), "go_on": true, "ephemeral": false, "model": null,
            "inventory": ["agent:scout", "agent__owl", "agent:elara", "core:Sleep"],
            "approvals": [{"id": "ask", "effect": "ask", "tools": ["agent:scout", "Note"]}],
            "system_prompt": "", "opening_dialect": null, "dialect": null, "language": "en",
            "temperature": null, "max_output_tokens": null,
            "scene": {"scene_id": "wood", "run_id": "scene_1", "instance_id": "guide", "chain": []},
        });
        serde_json::from_value(plan).unwrap()
    }

    #[test]
    fn g1006_a_nonce_is_eight_characters_of_random_bits() {
        assert_eq!(nonce_of(0), "00000000");
        assert_eq!(nonce_of(u64::MAX), "zzzzzzzz");
        assert_eq!(nonce_of(1 | 31 << 35), "1000000z");
    }

    #[test]
    fn g901_an_agent_of_the_scene_is_the_tool_of_its_conversation_in_rules_too() {
        let mut plan = plan();
        let agents = ["scout", "owl", "guide"].map(|id| (id.to_owned(), format!("scene_1.{id}")));
        plan.know_agents(agents.into_iter());
        assert_eq!(plan.tool_id("agent:scout"), "agent:scene_1.scout");
        assert_eq!(
            plan.tool_id("agent:guide"),
            "agent:guide",
            "not in the inventory"
        );
        assert_eq!(
            plan.inventory_ids(),
            [
                "agent:scene_1.scout",
                "agent:scene_1.owl",
                // A profile.
                "agent:elara",
                "SleepTool",
            ]
        );
        assert_eq!(
            plan.approvals[0]["tools"],
            json!(["agent:scene_1.scout", "Note"])
        );
    }
}
