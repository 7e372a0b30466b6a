//! The output of stage one, for stage two: names and values with places, without types (G1).

use call_catalogue::{Dialect, Problem, ProblemCode, Rule, Span, Tolerance, ToolMatch};
use serde_json::{Map, Value};

use super::command::CommandKey;
use crate::BlockEnd;

/// A block as cut by a scanner.
#[derive(Debug, Clone, Default)]
pub(crate) struct RawBlock {
    pub(crate) calls: Vec<RawCall>,
    /// Fields of TAM and VCP blocks, made into calls by stage two.
    pub(crate) fields: Vec<RawField>,
    pub(crate) notes: Vec<Tolerance>,
    pub(crate) problems: Vec<Problem>,
    /// Stray text, outside of calls and values.
    pub(crate) stray: Vec<Span>,
}

/// A closed or given-up block with its place.
#[derive(Debug, Clone)]
pub(crate) struct ScannedBlock {
    pub(crate) dialect: Dialect,
    pub(crate) span: Span,
    pub(crate) end: BlockEnd,
    pub(crate) raw: RawBlock,
}

/// A name of a value: its place in the message, or its text where the message spells it otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Written {
    At(Span),
    Other(String),
}

impl Written {
    /// The name at a place, without the marks that may surround it (N7, V11).
    pub(crate) fn cleaned(span: Span, text: &str) -> Self {
        let whole = span.of(text);
        let cleaned = call_catalogue::names::clean(whole);
        match cleaned.len() == whole.len() {
            true => Self::At(span),
            false => Self::Other(cleaned.into_owned()),
        }
    }

    /// The first bytes of the name.
    pub(crate) fn prefix(&self, bytes: usize) -> Self {
        match self {
            Self::At(span) => Self::At(Span::new(span.start, span.end.min(span.start + bytes))),
            Self::Other(name) => Self::Other(name.get(..bytes).unwrap_or(name).to_owned()),
        }
    }

    pub(crate) fn of<'n>(&'n self, text: &'n str) -> &'n str {
        match self {
            Self::At(span) => span.of(text),
            Self::Other(name) => name,
        }
    }
}

impl RawBlock {
    /// Ends the block where the text ends inside it.
    pub(crate) fn cut_off(&mut self, rule: Rule, span: Span, message: String) -> Progress {
        let problem = Problem::new(ProblemCode::TruncatedBlock, rule, span, message);
        self.problems.push(problem);
        Progress::Closed {
            at: span.end,
            end: BlockEnd::Truncated,
        }
    }

    /// Ends the block where it reaches a limit.
    pub(crate) fn limited(&mut self, what: &str, limit: usize, span: Span) -> Progress {
        self.stray.retain(|stray| stray.start < span.end);
        if let Some(last) = self.stray.last_mut() {
            last.end = last.end.min(span.end);
        }
        let message = format!("the limit of {limit} for {what} was reached");
        let problem = Problem::new(ProblemCode::LimitExceeded, Rule::V13, span, message);
        self.problems.push(problem);
        Progress::Closed {
            at: span.end,
            end: BlockEnd::Limited,
        }
    }
}

/// A call with its values.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RawCall {
    pub(crate) name: String,
    /// The tool of the name, where it was looked up already.
    pub(crate) found: Option<ToolMatch>,
    pub(crate) span: Span,
    pub(crate) name_span: Span,
    pub(crate) arguments: Vec<RawValue>,
    pub(crate) stray: Vec<Span>,
    pub(crate) notes: Vec<Tolerance>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) ambiguous: bool,
    /// The dialect if it differs from the block's.
    pub(crate) dialect: Option<Dialect>,
    pub(crate) provider_id: String,
}

impl RawCall {
    /// Adds a value. Room for a usual number of them is made at once.
    pub(crate) fn add(&mut self, value: RawValue) {
        const USUAL: usize = 8;
        if self.arguments.capacity() == 0 {
            self.arguments.reserve_exact(USUAL);
        }
        self.arguments.push(value);
    }
}

/// A named value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RawValue {
    pub(crate) name: Written,
    pub(crate) name_span: Span,
    pub(crate) content: Content,
}

/// The spelling of a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Content {
    /// Between tags: text, markup, CDATA.
    Markup(Span),
    /// Between delimiters: text only.
    Plain(Plain),
    /// In an attribute.
    Attribute(Span),
    /// Already typed.
    Json(Box<Value>),
}

/// A delimited value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plain {
    pub(crate) span: Span,
    /// Whether protocol words are spelled with ESCAPE (T7).
    pub(crate) escaped: bool,
    /// Whether it is from a `key: value` line without delimiters (T10).
    pub(crate) bare: bool,
}

/// `key:「始」value「末」`.
#[derive(Debug, Clone)]
pub(crate) struct RawField {
    pub(crate) key: Written,
    pub(crate) reading: CommandKey,
    pub(crate) key_span: Span,
    pub(crate) value: Plain,
    pub(crate) notes: Vec<Tolerance>,
    /// Texts inside the value that look like the key of a field.
    pub(crate) inner_keys: Vec<Span>,
}

/// Block-wide control values, kept as they were written.
pub(crate) type Controls = Map<String, Value>;

/// The result of one step of a scanner on the text that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More text is needed.
    More,
    /// The block ends here.
    Closed { at: usize, end: BlockEnd },
    /// The text was not a block after all; text continues at this position.
    NotABlock { resume: usize },
}

/// A fact that becomes known before a block is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Early {
    Call {
        call: usize,
        name: String,
        span: Span,
    },
    Delta {
        call: usize,
        argument: usize,
        name: String,
        span: Span,
    },
}
