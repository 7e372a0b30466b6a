//! The rule book's ids.
//!
//! Diagnostics, tolerances, fixtures and tests name rules from this enum (G7).

use serde::{Deserialize, Serialize};

/// One rule of the dialects' rule book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Rule {
    /// The parser never guesses types.
    G1,
    /// Every tolerance is logged.
    G2,
    /// Incomplete calls are not executed.
    G3,
    /// Names decide which brackets are tags.
    G4,
    /// Chunk boundaries do not matter.
    G5,
    /// The original text of each value is kept.
    G6,
    /// Rule ids are an enum.
    G7,
    /// A repair of a value never runs by itself.
    G8,
    /// A broken block is reported to the model.
    G9,
    /// A nonce in the mark that opens a block.
    G1006,
    /// No schema: the text stays a string.
    C1,
    /// Schema string: verbatim text.
    C2,
    /// Integer.
    C3,
    /// Number.
    C4,
    /// Boolean.
    C5,
    /// Null.
    C6,
    /// Object.
    C7,
    /// Array.
    C8,
    /// Union.
    C9,
    /// Enum and constant.
    C10,
    /// Failed coercion.
    C11,
    /// Empty value.
    C12,
    /// Schema default.
    C13,
    /// Encoding hint.
    C14,
    /// References.
    C15,
    /// Parameter spelled differently.
    N1,
    /// Parameters that collide after squashing.
    N2,
    /// Unknown parameter.
    N3,
    /// Unknown tool.
    N4,
    /// Known tool that is not available.
    N5,
    /// Letter case of a tool id.
    N6,
    /// Ids that are not XML names.
    N7,
    /// Namespaces.
    N8,
    /// Slash in an open tag.
    N9,
    /// Name given by attribute.
    N10,
    /// Reserved words.
    N11,
    /// Several blocks in one message.
    A1,
    /// Several calls in one block.
    A2,
    /// Text before and after.
    A3,
    /// Spelling of the wrapper.
    A4,
    /// Markers inside a value.
    A5,
    /// Nested wrapper.
    A6,
    /// Block in a fence.
    A7,
    /// Block in code, quote or escaped.
    A8,
    /// Block in a thought.
    A9,
    /// Unclosed at the end.
    A10,
    /// Missing opening wrapper.
    A11,
    /// Bare tool element.
    A12,
    /// Empty block.
    A13,
    /// Self-closing tool.
    A14,
    /// Comments.
    A15,
    /// Stray text between parameters.
    A16,
    /// Unknown element inside a tool.
    A17,
    /// Extra or missing parameter wrapper.
    A18,
    /// Repeated tags.
    A19,
    /// Repeated parameter.
    A20,
    /// Item children.
    A21,
    /// Lists and objects without schema.
    A22,
    /// The end of a string value.
    V1,
    /// Unescaped markup in a value.
    V2,
    /// Entities.
    V3,
    /// CDATA.
    V4,
    /// White space round CDATA.
    V5,
    /// Text and CDATA together.
    V6,
    /// CDATA end inside content.
    V7,
    /// CDATA not closed.
    V8,
    /// CDATA spelled in another way.
    V9,
    /// Plain multi-line value.
    V10,
    /// Line ends and invisible characters.
    V11,
    /// Full-width tags and smart quotes.
    V12,
    /// Limits.
    V13,
    /// Declarations and processing instructions.
    V14,
    /// Block markers.
    T1,
    /// Several blocks.
    T2,
    /// Mixed dialects.
    T3,
    /// End marker inside a value.
    T4,
    /// Nested delimiters.
    T5,
    /// Value that looks like a field.
    T6,
    /// ESCAPE form.
    T7,
    /// Delimiter families.
    T8,
    /// Missing closer.
    T9,
    /// No delimiters.
    T10,
    /// Colon spelled in another way.
    T11,
    /// Separators between fields.
    T12,
    /// Key alphabet.
    T13,
    /// Comments.
    T14,
    /// Literal backslash-n.
    T15,
    /// White space of values.
    T16,
    /// Duplicate key.
    T17,
    /// command and tool_name.
    T18,
    /// Tool with its own command parameter.
    T19,
    /// Numbered steps.
    T20,
    /// Step suffix or digits of a name.
    T21,
    /// Both readings valid.
    T22,
    /// Shared parameters of steps.
    T23,
    /// Un-numbered and numbered commands.
    T24,
    /// Step without command.
    T25,
    /// Failure in a step.
    T26,
    /// Asynchronous call.
    T27,
    /// Other VCP keys.
    T28,
    /// Repeated request id.
    T29,
    /// URI and value both given.
    T30,
    /// References passed through.
    T31,
    /// Block without command.
    T32,
    /// Unknown text between fields.
    T33,
    /// Unclosed block.
    T34,
    /// Copied placeholder.
    T35,
    /// Observation wording.
    L1,
    /// Markers in tool output.
    L2,
    /// One or many outputs.
    L3,
    /// Streaming output.
    L4,
    /// Engine error.
    L5,
    /// Budgets reached.
    L6,
    /// Repeated parse failure.
    L7,
    /// Text before native calls.
    L8,
    /// Description template.
    L9,
    /// The calls of GLM.
    F1,
    /// JSON that is the whole message.
    F2,
    /// The calls of DeepSeek.
    F3,
    /// The calls of gpt-oss.
    F4,
    /// The calls of Kimi.
    F5,
    /// The calls of Mistral.
    F6,
    /// Namespaces before the names of tags.
    F7,
    /// JSON inside a tag.
    F8,
    /// Formats that are named and not read.
    F9,
}

impl Rule {
    /// Every rule, in the order of the rule book.
    pub const ALL: &[Rule] = &[
        Rule::G1,
        Rule::G2,
        Rule::G3,
        Rule::G4,
        Rule::G5,
        Rule::G6,
        Rule::G7,
        Rule::G8,
        Rule::G9,
        Rule::G1006,
        Rule::C1,
        Rule::C2,
        Rule::C3,
        Rule::C4,
        Rule::C5,
        Rule::C6,
        Rule::C7,
        Rule::C8,
        Rule::C9,
        Rule::C10,
        Rule::C11,
        Rule::C12,
        Rule::C13,
        Rule::C14,
        Rule::C15,
        Rule::N1,
        Rule::N2,
        Rule::N3,
        Rule::N4,
        Rule::N5,
        Rule::N6,
        Rule::N7,
        Rule::N8,
        Rule::N9,
        Rule::N10,
        Rule::N11,
        Rule::A1,
        Rule::A2,
        Rule::A3,
        Rule::A4,
        Rule::A5,
        Rule::A6,
        Rule::A7,
        Rule::A8,
        Rule::A9,
        Rule::A10,
        Rule::A11,
        Rule::A12,
        Rule::A13,
        Rule::A14,
        Rule::A15,
        Rule::A16,
        Rule::A17,
        Rule::A18,
        Rule::A19,
        Rule::A20,
        Rule::A21,
        Rule::A22,
        Rule::V1,
        Rule::V2,
        Rule::V3,
        Rule::V4,
        Rule::V5,
        Rule::V6,
        Rule::V7,
        Rule::V8,
        Rule::V9,
        Rule::V10,
        Rule::V11,
        Rule::V12,
        Rule::V13,
        Rule::V14,
        Rule::T1,
        Rule::T2,
        Rule::T3,
        Rule::T4,
        Rule::T5,
        Rule::T6,
        Rule::T7,
        Rule::T8,
        Rule::T9,
        Rule::T10,
        Rule::T11,
        Rule::T12,
        Rule::T13,
        Rule::T14,
        Rule::T15,
        Rule::T16,
        Rule::T17,
        Rule::T18,
        Rule::T19,
        Rule::T20,
        Rule::T21,
        Rule::T22,
        Rule::T23,
        Rule::T24,
        Rule::T25,
        Rule::T26,
        Rule::T27,
        Rule::T28,
        Rule::T29,
        Rule::T30,
        Rule::T31,
        Rule::T32,
        Rule::T33,
        Rule::T34,
        Rule::T35,
        Rule::L1,
        Rule::L2,
        Rule::L3,
        Rule::L4,
        Rule::L5,
        Rule::L6,
        Rule::L7,
        Rule::L8,
        Rule::L9,
        Rule::F1,
        Rule::F2,
        Rule::F3,
        Rule::F4,
        Rule::F5,
        Rule::F6,
        Rule::F7,
        Rule::F8,
        Rule::F9,
    ];

    /// The id as it is written, for instance `A10`.
    pub fn id(self) -> String {
        format!("{self:?}")
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{self:?}")
    }
}

/// The extent of a tolerance (G2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A way of reading a value, which was not changed.
    Verbatim,
    /// Another spelling whose meaning cannot change.
    Spelling,
    /// Structure or a value was supplied: the call runs by itself only if its tool is read-only.
    Repair,
    /// A repair after which a value may not be the intended value, or which left a parameter
    /// out: the call never runs by itself (G8).
    Doubt,
}

impl Class {
    /// Whether a call that was read so runs by itself only if its tool is read-only, or never.
    pub fn is_repair(self) -> bool {
        matches!(self, Self::Repair | Self::Doubt)
    }
}
