//! The choices of a caller about parsing.

use call_catalogue::{Dialect, TrainedFormat};
use serde::{Deserialize, Serialize};
use text_scan::Limits;

/// The blocks of a message that run (A1, T2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum MultiBlock {
    /// Only the first block.
    First,
    /// The first block and the blocks that follow it with only white space between.
    #[default]
    Adjacent,
    /// Every block up to the first fabricated tool result.
    All,
}

/// The condition under which a block inside a code fence is a call (A7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum FencePolicy {
    /// Never.
    Never,
    /// If the fence holds only the block, is closed, and no unfenced block exists.
    #[default]
    Lone,
    /// As soon as the fence holds only blocks and is closed.
    Always,
}

/// The comparison of a parameter name with the schema's (N1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameMatch {
    /// Letter by letter; a near miss is an error with a suggestion.
    Exact,
    /// Case and punctuation are ignored if exactly one parameter fits.
    Normalized,
}

/// The marks that may be supplied when a block is not complete (A10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// No mark.
    Never,
    /// A missing last wrapper tag, if every call is closed and the model stopped by itself.
    #[default]
    WrapperOnly,
}

/// The reason why the model stopped writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// Not known.
    #[default]
    Unknown,
    /// It reached its own end or a stop word.
    Stop,
    /// The token limit cut it off.
    Length,
    /// It requested native tool calls.
    ToolCalls,
    /// A filter, an error or a cancellation cut it off.
    Interrupted,
}

impl FinishReason {
    /// Reads the reason in the words of any model API; an unknown word is an interruption.
    pub fn from_words(words: &str) -> Self {
        match words {
            "" => Self::Unknown,
            "length" | "max_tokens" => Self::Length,
            "tool_calls" | "tool_use" | "function_call" => Self::ToolCalls,
            "stop" | "end_turn" | "stop_sequence" => Self::Stop,
            _ => Self::Interrupted,
        }
    }
}

/// The switches of a parse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// The only dialect to read; `None` reads all and reports which one was met.
    pub dialect: Option<Dialect>,
    /// The formats of trained models that are read in addition to the tag dialects; `None` reads
    /// all. A call in another format is a broken block.
    pub formats: Option<Vec<TrainedFormat>>,
    /// The blocks that run.
    pub multi_block: MultiBlock,
    /// The condition under which a fenced block is a call.
    pub fence: FencePolicy,
    /// Name comparison in ACTION and the tag dialects.
    pub action_names: NameMatch,
    /// Name comparison in TAM and VCP.
    pub tam_names: NameMatch,
    /// Whether every tolerance beyond *verbatim* is an error.
    pub strict: bool,
    /// The marks that may be supplied for an incomplete block.
    pub repair: Repair,
    /// Whether a visible tool's element without wrapper is a call (A12).
    pub bare_tools: bool,
    /// Whether the last of two equal keys wins in VCP instead of being an error (T17).
    pub vcp_last_wins: bool,
    /// The nonce that the mark that opens a block must hold, such as `k7m2q9xd`; a block without it
    /// is text (G1006).
    pub nonce: Option<String>,
    /// The bounds.
    pub limits: Limits,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            dialect: None,
            formats: None,
            multi_block: MultiBlock::default(),
            fence: FencePolicy::default(),
            action_names: NameMatch::Exact,
            tam_names: NameMatch::Normalized,
            strict: false,
            repair: Repair::default(),
            bare_tools: false,
            vcp_last_wins: false,
            nonce: None,
            limits: Limits::default(),
        }
    }
}

impl Policy {
    /// The default policy held to one dialect.
    pub fn fixed(dialect: Dialect) -> Self {
        Self {
            dialect: Some(dialect),
            ..Self::default()
        }
    }

    /// Whether calls in the formats of trained models are looked for: wherever the tag dialects are read.
    pub(crate) fn seeks_formats(&self) -> bool {
        self.dialect
            .is_none_or(|fixed| matches!(fixed, Dialect::ToolTag | Dialect::ToolJson))
    }

    /// Whether calls in a format are read.
    pub(crate) fn reads(&self, format: TrainedFormat) -> bool {
        let formats = self.formats.as_ref();
        self.seeks_formats() && formats.is_none_or(|formats| formats.contains(&format))
    }
}
