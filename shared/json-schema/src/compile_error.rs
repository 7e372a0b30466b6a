//! The problems of a schema.

use std::fmt;

use crate::listed::Listed;

/// All problems that keep a schema from being compiled, found in one pass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("schema does not compile: {}", Listed(.problems))]
pub struct CompileErrors {
    /// The problems, in the order of the document; never empty.
    pub problems: Vec<CompileProblem>,
}

/// One problem of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileProblem {
    /// JSON pointer into the schema; the empty string is the schema itself.
    pub pointer: String,
    /// The kind of problem.
    pub code: CompileCode,
    /// The problem and its remedy.
    pub message: String,
}

/// The kinds of problem a schema can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CompileCode {
    /// The schema's text is longer than allowed.
    TooLarge,
    /// The schema is nested deeper than allowed.
    TooDeep,
    /// A reference leaves the document.
    RemoteReference,
    /// A reference has no target.
    BrokenReference,
    /// References lead back to themselves without consuming any part of the instance.
    EndlessReference,
    /// Validation could visit one part of an instance too many times.
    TooCostly,
    /// The schema has more patterns than allowed.
    TooManyPatterns,
    /// A pattern's text is longer than allowed.
    PatternTooLong,
    /// A pattern repeats too much or compiles to too large an automaton.
    PatternTooComplex,
    /// A pattern needs look-around or a back-reference, which cannot run in linear time.
    LookAround,
    /// A subschema sets a base address of its own.
    NestedId,
    /// A parameter schema does not describe an object.
    NotAnObject,
    /// The schema breaks the rules of its own JSON Schema draft.
    InvalidSchema,
}

impl CompileCode {
    /// Returns the code in snake case, as it crosses the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::TooDeep => "too_deep",
            Self::RemoteReference => "remote_reference",
            Self::BrokenReference => "broken_reference",
            Self::EndlessReference => "endless_reference",
            Self::TooCostly => "too_costly",
            Self::TooManyPatterns => "too_many_patterns",
            Self::PatternTooLong => "pattern_too_long",
            Self::PatternTooComplex => "pattern_too_complex",
            Self::LookAround => "look_around",
            Self::NestedId => "nested_id",
            Self::NotAnObject => "not_an_object",
            Self::InvalidSchema => "invalid_schema",
        }
    }
}

impl CompileProblem {
    pub(crate) fn new(
        pointer: impl Into<String>,
        code: CompileCode,
        message: impl Into<String>,
    ) -> Self {
        Self {
            pointer: pointer.into(),
            code,
            message: message.into(),
        }
    }
}

impl fmt::Display for CompileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.pointer.is_empty() {
            "the root"
        } else {
            &self.pointer
        };
        write!(f, "at {place}: {}", self.message)
    }
}
