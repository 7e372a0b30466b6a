//! Reads the dialects in which language models call tools.
//!
//! A message of a model goes through two stages. Stage one ([`Parser`], or [`parse`] for a whole
//! message) finds the blocks and cuts them into names and values, led by the names of the visible
//! tools ([`Catalogue`](call_catalogue::Catalogue)); it never guesses a type. Stage two types each value against the tool's
//! JSON Schema and logs every [`Tolerance`](call_catalogue::Tolerance). The result, [`Parsed`], accounts for every byte.
//!
//! Parsing never fails: any text yields segments, calls and diagnostics. The crate does no I/O,
//! reads no clock and starts no thread.

mod dialect;
mod event;
pub mod native;
mod parsed;
mod parser;
mod policy;
mod typing;

use text_scan as scan;

pub use event::{Event, ToolState};
pub use parsed::{
    Block, BlockEnd, Call, Parsed, RawArgument, Segment, SegmentKind, SourceText, StepControl,
};
pub use parser::{Parser, parse, parse_finished};
pub use policy::{FencePolicy, FinishReason, MultiBlock, NameMatch, Policy, Repair};
pub use text_scan::{Limits, thought};
pub use typing::text::decode_entities;
