//! The formats to which models fall back by name.

use serde::{Deserialize, Serialize};

use crate::Rule;

/// A format that models were trained to write calls in, read in addition to the dialects and never
/// taught.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrainedFormat {
    /// `<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>` (F1).
    Glm,
    /// `{"name": "x", "arguments": {}}` as the whole message (F2).
    Json,
    /// `<｜tool▁calls▁begin｜>` and its relatives (F3).
    DeepSeek,
    /// `<|channel|>commentary to=functions.x<|message|>{}<|call|>` (F4).
    Harmony,
    /// `<|tool_call_begin|>functions.x:0<|tool_call_argument_begin|>{}<|tool_call_end|>` (F5).
    Kimi,
    /// `[TOOL_CALLS][{"name": "x", "arguments": {}}]` and `[TOOL_CALLS]x[ARGS]{}` (F6).
    Mistral,
    /// Tags with a namespace before their names, such as `<minimax:tool_call>` (F7).
    Namespaced,
}

impl TrainedFormat {
    /// Every format.
    pub const ALL: &[TrainedFormat] = &[
        TrainedFormat::Glm,
        TrainedFormat::Json,
        TrainedFormat::DeepSeek,
        TrainedFormat::Harmony,
        TrainedFormat::Kimi,
        TrainedFormat::Mistral,
        TrainedFormat::Namespaced,
    ];

    /// The name in snake case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Glm => "glm",
            Self::Json => "json",
            Self::DeepSeek => "deep_seek",
            Self::Harmony => "harmony",
            Self::Kimi => "kimi",
            Self::Mistral => "mistral",
            Self::Namespaced => "namespaced",
        }
    }

    /// The format of a name in snake case.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|format| format.as_str() == word)
    }

    /// The name as a sentence holds it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Glm => "GLM",
            Self::Json => "plain JSON",
            Self::DeepSeek => "DeepSeek",
            Self::Harmony => "gpt-oss",
            Self::Kimi => "Kimi",
            Self::Mistral => "Mistral",
            Self::Namespaced => "tags with a namespace",
        }
    }

    /// Returns the format that a rule reads; none of a rule about something else.
    pub fn of_rule(rule: Rule) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|format| format.rule() == rule)
    }

    /// The rule that describes it.
    pub fn rule(self) -> Rule {
        match self {
            Self::Glm => Rule::F1,
            Self::Json => Rule::F2,
            Self::DeepSeek => Rule::F3,
            Self::Harmony => Rule::F4,
            Self::Kimi => Rule::F5,
            Self::Mistral => Rule::F6,
            Self::Namespaced => Rule::F7,
        }
    }
}

impl std::fmt::Display for TrainedFormat {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}
