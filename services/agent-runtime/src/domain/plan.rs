//! What a turn was started with, kept beside its log so that it can be resumed.

use call_text::{Dialect, Policy, prompt::Language};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    budgets::Budgets, compaction::CompactionSettings, event::Hop, message::ChatMessage,
    reduction::Reduction,
};

/// How an agent's model is offered its tools (rule G501). Calls in its text and native calls are read
/// in any case.
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

/// What becomes of a turn that asks a person (rule G808).
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

/// What a turn begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opening {
    /// The user says something.
    UserMessage(String),
    /// Events happened.
    Events(Vec<Value>),
    /// The caller asked the model itself and gives what it wrote.
    ModelText {
        /// What the model wrote.
        text: String,
        /// Whether the agent's model is asked to continue afterwards.
        go_on: bool,
    },
}

/// What a turn is given at its start. It is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnInput {
    /// Messages from before the turn, the oldest first, of a caller that keeps the conversation
    /// itself. They are never read for calls.
    pub history: Vec<ChatMessage>,
    /// What the turn begins with.
    pub opening: Opening,
}

impl Opening {
    /// Writes what the turn begins with as the JSON of the log.
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
    /// The run of the scene; of a fork, what its copy of the world state is kept under.
    pub run_id: String,
    /// The agent.
    pub instance_id: String,
    /// How what the turn publishes came about.
    pub chain: Vec<Hop>,
    /// The run of the scene whose world state a fork has a copy of; missing outside of forks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<String>,
}

/// Everything of a turn that its log does not say. Its input is in the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// How much the turn may use.
    pub budgets: Budgets,
    /// Whether the model continues after a text that the caller gave.
    pub go_on: bool,
    /// Whether the conversation is dropped when the turn ends.
    pub ephemeral: bool,
    /// The model; missing if the turn never asks one.
    pub model: Option<String>,
    /// The models that are asked in its place, in order; those of the settings if missing.
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
    /// The language of the list of tools.
    pub language: Language,
    /// How the model is offered its tools.
    #[serde(default)]
    pub tools: ToolOffer,
    /// The sampling temperature.
    pub temperature: Option<f64>,
    /// The most tokens of one answer.
    pub max_output_tokens: Option<u32>,
    /// Whether a request to the model is ended at the name of a tool that is not there.
    #[serde(default)]
    pub stop_at_unknown_tool: bool,
    /// When the conversation is compacted.
    #[serde(default)]
    pub compaction: CompactionSettings,
    /// What shortens the long outputs of tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reduction: Vec<Reduction>,
    /// Whether the run does nothing but replace earlier turns by a summary, as a caller asked.
    #[serde(default)]
    pub compact: bool,
    /// What becomes of the turn where it asks a person.
    #[serde(default)]
    pub interaction: Interaction,
    /// The turn's place in a scene; missing outside of scenes.
    #[serde(default)]
    pub scene: Option<SceneTurn>,
}

impl Plan {
    /// Returns the dialect that the model is taught.
    pub fn taught_dialect(&self) -> Dialect {
        self.dialect.unwrap_or(Dialect::Action)
    }

    /// Returns the rules by which answers are read.
    pub fn policy(&self) -> Policy {
        self.dialect.map_or_else(Policy::default, Policy::fixed)
    }

    /// Returns the rules by which a text of the caller is read.
    pub fn opening_policy(&self) -> Policy {
        self.opening_dialect
            .map_or_else(Policy::default, Policy::fixed)
    }
}
