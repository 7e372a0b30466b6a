//! The dialects by name.

use serde::{Deserialize, Serialize};

/// A way in which models write calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// `<ACTION><Tool><parameter>value</parameter></Tool></ACTION>`.
    Action,
    /// `<|[REQUEST_TOOL]|>` with `key:「始」value「末」`.
    TamV1,
    /// `<|[REQUEST_TOOL]|>` with `key:»»»value«««` and control keys.
    TamV2,
    /// `<<<[TOOL_REQUEST]>>>` with `tool_name` and the ESCAPE form.
    Vcp,
    /// `<tool_call name="x">`, `<invoke name="x">`, `<function=x>`.
    ToolTag,
    /// `<tool_call>{"name": "x", "arguments": {}}</tool_call>`.
    ToolJson,
    /// The structured calls of a model API.
    Native,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: &[Dialect] = &[
        Dialect::Action,
        Dialect::TamV1,
        Dialect::TamV2,
        Dialect::Vcp,
        Dialect::ToolTag,
        Dialect::ToolJson,
        Dialect::Native,
    ];

    /// The dialects that models write as text: all but the last.
    pub const IN_TEXT: &[Dialect] = match Self::ALL.split_last() {
        Some((_native, in_text)) => in_text,
        None => &[],
    };

    /// The name in snake case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::TamV1 => "tam_v1",
            Self::TamV2 => "tam_v2",
            Self::Vcp => "vcp",
            Self::ToolTag => "tool_tag",
            Self::ToolJson => "tool_json",
            Self::Native => "native",
        }
    }

    /// Returns the mark that opens a block, with the nonce that the policy requires (G1006).
    pub fn opening_mark(self, nonce: Option<&str>) -> String {
        let (head, tail) = match self {
            Self::Action => ("<ACTION", ">"),
            Self::TamV1 | Self::TamV2 => ("<|[REQUEST_TOOL", "]|>"),
            Self::Vcp => ("<<<[TOOL_REQUEST", "]>>>"),
            Self::ToolTag | Self::ToolJson | Self::Native => ("<tool_call", ">"),
        };
        match nonce {
            None => format!("{head}{tail}"),
            Some(nonce) if self.is_field_based() => format!("{head} {nonce}{tail}"),
            Some(nonce) => format!("{head} n=\"{nonce}\"{tail}"),
        }
    }

    /// Whether the block is made of `key:「始」value「末」` fields.
    pub fn is_field_based(self) -> bool {
        matches!(self, Self::TamV1 | Self::TamV2 | Self::Vcp)
    }
}

impl std::fmt::Display for Dialect {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}
