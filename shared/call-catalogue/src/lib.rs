//! What a text may call, and how remarks about it look.
//!
//! A [`Catalogue`] holds the visible tools with what is derived from them once: the names by which
//! each may be written, and what its JSON [`schema`] says about types, properties and items. Where calls
//! are read and where they are written, [`names`] are compared and a [`scalar`] is read in the one way
//! that stands here.
//!
//! What is odd about a text is a [`Diagnostic`], a [`Tolerance`] or a [`Problem`], each with the
//! [`Rule`] that decided and the [`Span`] where it stands.
//!
//! Nothing here reads a message or writes one, does I/O, asks the time or starts a thread.

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
    Catalogue, CatalogueError, Entry, NameReading, Parameter, Tool, ToolKind, ToolMatch, alias_of,
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
