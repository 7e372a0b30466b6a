//! The reasons why a call or block cannot run, as typed feedback for the model and the caller.

use json_schema::ViolationCode;
use serde::{Deserialize, Serialize};

use crate::{Rule, Span};

/// The kind of problem of a call or block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// No tool of that name exists (N4).
    UnknownTool,
    /// The tool exists and is not available here (N5).
    ToolNotAvailable,
    /// The plugin that brought the tool was removed, or does not bring it any more (N5).
    ToolRemoved,
    /// The tool has no such parameter (N3).
    UnknownParameter,
    /// A parameter name fits two parameters or readings (N2, T22).
    AmbiguousParameter,
    /// A required parameter is absent.
    MissingParameter,
    /// A parameter was given twice with different values (A20, T17).
    DuplicateParameter,
    /// The value is not of the declared type (C11).
    TypeMismatch,
    /// The value is none of the allowed ones (C10).
    NotInEnum,
    /// A number does not fit the declared range or cannot be represented (C3).
    OutOfRange,
    /// A hint contradicts the schema (C14).
    HintConflict,
    /// The block was not closed (A10, T34).
    TruncatedBlock,
    /// The block is not well-formed.
    MalformedBlock,
    /// The block holds no call (A13).
    EmptyAction,
    /// The block names no command (T32).
    MissingCommand,
    /// Both un-numbered and numbered commands (T24).
    MixedNumbering,
    /// Two definitions of one step (T20).
    DuplicateStep,
    /// Parameters of a step without command (T25).
    OrphanStepParameters,
    /// A value without its closing delimiter (T9).
    UnterminatedValue,
    /// Both `uri_x` and `x` (T30).
    UriConflict,
    /// JSON that does not parse, or has a duplicate key (X5).
    InvalidJson,
    /// A limit of the policy was reached (V13).
    LimitExceeded,
    /// A tolerance was needed and the policy is strict.
    StrictViolation,
    /// A placeholder of an example was copied (T35).
    PlaceholderValue,
    /// A call in a format that is not read (G9).
    UnsupportedFormat,
    /// The value breaks its schema in a way that has no other code here.
    #[serde(untagged)]
    Schema(ViolationCode),
}

impl From<ViolationCode> for ProblemCode {
    fn from(code: ViolationCode) -> Self {
        match code {
            ViolationCode::UnknownParameter => Self::UnknownParameter,
            ViolationCode::MissingParameter => Self::MissingParameter,
            ViolationCode::TypeMismatch => Self::TypeMismatch,
            ViolationCode::NotInEnum => Self::NotInEnum,
            ViolationCode::OutOfRange => Self::OutOfRange,
            other => Self::Schema(other),
        }
    }
}

impl ProblemCode {
    /// The code in snake case, for instance `unknown_tool`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownTool => "unknown_tool",
            Self::ToolNotAvailable => "tool_not_available",
            Self::ToolRemoved => "tool_removed",
            Self::UnknownParameter => "unknown_parameter",
            Self::AmbiguousParameter => "ambiguous_parameter",
            Self::MissingParameter => "missing_parameter",
            Self::DuplicateParameter => "duplicate_parameter",
            Self::TypeMismatch => "type_mismatch",
            Self::NotInEnum => "not_in_enum",
            Self::OutOfRange => "out_of_range",
            Self::HintConflict => "hint_conflict",
            Self::TruncatedBlock => "truncated_block",
            Self::MalformedBlock => "malformed_block",
            Self::EmptyAction => "empty_action",
            Self::MissingCommand => "missing_command",
            Self::MixedNumbering => "mixed_numbering",
            Self::DuplicateStep => "duplicate_step",
            Self::OrphanStepParameters => "orphan_step_parameters",
            Self::UnterminatedValue => "unterminated_value",
            Self::UriConflict => "uri_conflict",
            Self::InvalidJson => "invalid_json",
            Self::LimitExceeded => "limit_exceeded",
            Self::StrictViolation => "strict_violation",
            Self::PlaceholderValue => "placeholder_value",
            Self::UnsupportedFormat => "unsupported_format",
            Self::Schema(code) => code.as_str(),
        }
    }
}

/// One thing that is wrong, complete enough to fix it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The kind of problem.
    pub code: ProblemCode,
    /// The rule that decided.
    pub rule: Rule,
    /// JSON pointer into the arguments; empty for the call or block as a whole.
    pub path: String,
    /// The expected value; empty if there is none to name.
    pub expected: String,
    /// The received value (cut to 200 bytes); empty if none was.
    pub received: String,
    /// Up to three nearest names.
    pub suggestions: Vec<String>,
    /// One sentence for the model, for instance
    /// `Unknown parameter 'playerId', did you mean 'player_id'?`.
    pub message: String,
    /// The place in the message.
    pub span: Span,
}

impl Problem {
    /// Creates a problem of the call or block as a whole, without advice.
    pub fn new(code: ProblemCode, rule: Rule, span: Span, message: impl Into<String>) -> Self {
        Self {
            code,
            rule,
            path: String::new(),
            expected: String::new(),
            received: String::new(),
            suggestions: Vec::new(),
            message: message.into(),
            span,
        }
    }

    /// The same problem at a JSON pointer into the arguments.
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// The same problem with the expected value.
    pub fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = expected.into();
        self
    }

    /// The same problem with the received value, cut to 200 bytes.
    pub fn received(mut self, received: &str) -> Self {
        self.received = crate::diagnostic::cut(received);
        self
    }

    /// The same problem with the nearest names.
    pub fn suggesting(mut self, suggestions: Vec<String>) -> Self {
        self.suggestions = suggestions;
        self
    }
}
