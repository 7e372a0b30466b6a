//! Reads and writes the dialects in which language models call tools.
//!
//! A message of a model goes through two stages. Stage one ([`Parser`], or [`parse`] for a whole
//! message) finds the blocks and cuts them into names and values, led by the names of the visible
//! tools ([`Catalogue`]); it never guesses a type. Stage two types each value against the tool's
//! JSON Schema and logs every [`Tolerance`]. The result, [`Parsed`], accounts for every byte.
//!
//! Nothing here fails: any text gives segments, calls and diagnostics. Nothing here does I/O,
//! asks the time or starts a thread. Rules are named by the [`Rule`] enum.
//!
//! The other direction is here as well: [`prompt`] writes the section that teaches a model to
//! call tools, [`grammar`] keeps it to well-formed calls, [`render`] writes a call, [`observation`] writes
//! what a model reads about one.

mod canonical;
mod catalogue;
mod diagnostic;
mod dialect;
pub mod echo;
mod event;
pub mod grammar;
pub mod lint;
mod names;
pub mod native;
pub mod observation;
mod parsed;
mod parser;
mod placeholder;
mod policy;
mod problem;
pub mod prompt;
pub mod render;
mod rule;
mod scalar;
mod scan;
mod schema;
mod span;
mod typing;

pub use catalogue::{Catalogue, CatalogueError, NameReading, Tool, ToolKind, ToolMatch, alias_of};
pub use diagnostic::{Diagnostic, Severity, Tolerance};
pub use dialect::Dialect;
pub use event::{Event, ToolState};
pub use names::squash;
pub use parsed::{
    Block, BlockEnd, Call, Parsed, RawArgument, Segment, SegmentKind, SourceText, StepControl,
};
pub use parser::{Parser, parse, parse_finished};
pub use policy::{FencePolicy, FinishReason, Limits, MultiBlock, NameMatch, Policy, Repair};
pub use problem::{Problem, ProblemCode};
pub use rule::{Class, Rule};
pub use span::Span;
