//! The tools that a text may call, and the types of remarks about the text.
//!
//! A [`Catalogue`] holds the visible tools with the values derived from them once: the names by
//! which each may be written, and the types, properties and items of its JSON [`schema`]. Readers
//! and writers of calls compare [`names`] and read a [`scalar`] in the one way that is defined
//! here.
//!
//! A deviation in a text is a [`Diagnostic`], a [`Tolerance`] or a [`Problem`], each with the
//! [`Rule`] that decided and its [`Span`].
//!
//! The crate reads and writes no messages, does no I/O, reads no clock and starts no thread.

pub mod canonical;
mod catalogue;
mod diagnostic;
mod dialect;
mod format;
pub mod names;
pub mod placeholder;
mod problem;
mod rule;
pub mod scalar;
pub mod schema;
mod span;

pub use catalogue::{
    Absent, Catalogue, CatalogueError, Entry, NameReading, Parameter, RemovedTool, Tool, ToolKind,
    ToolMatch, alias_of,
};
pub use diagnostic::{
    COLON_MISSING, Diagnostic, FENCE_NOT_CLOSED, LONE_CLOSE, MARK_INSIDE_VALUE, NEAR_MISS,
    Severity, TRAINED_FORMAT, Tolerance, cut,
};
pub use dialect::Dialect;
pub use format::TrainedFormat;
pub use problem::{Problem, ProblemCode};
pub use rule::{Class, Rule};
pub use span::Span;
