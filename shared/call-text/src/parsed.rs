//! The outcome of a parse.

mod source;

use std::sync::Arc;

use call_catalogue::{Diagnostic, Dialect, Problem, Span, Tolerance};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use source::SourceText;

/// The parts of a message that were understood, and all its problems.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Parsed {
    /// The dialect of the first block, if there is one.
    pub dialect: Option<Dialect>,
    /// The text before the first block, without thoughts, trimmed at the end (A3).
    pub response_text: String,
    /// The text between and after the blocks: logged, not published (A3).
    pub trailing_text: String,
    /// The text of thought regions (A9).
    pub thoughts: String,
    /// The whole message, cut without gap or overlap.
    pub segments: Vec<Segment>,
    /// The blocks in order, including blocks that do not run.
    pub blocks: Vec<Block>,
    /// The calls of all blocks in order; see [`Call::is_ready`].
    pub calls: Vec<Arc<Call>>,
    /// Remarks in order of discovery.
    pub diagnostics: Vec<Diagnostic>,
}

impl Parsed {
    /// The calls that may run by themselves as far as the text decides.
    pub fn ready_calls(&self) -> impl Iterator<Item = &Call> {
        let calls = self.calls.iter().map(Arc::as_ref);
        calls.filter(|call| call.is_ready())
    }

    /// The calls that a message's policy lets run, including calls with problems of their own, in
    /// the order in which they run. No call of a block with problems is among them.
    pub fn runnable(&self) -> impl Iterator<Item = &Call> {
        let calls = self.calls.iter().map(Arc::as_ref);
        calls.filter(|call| {
            let sound_block = call.dialect == Dialect::Native
                || self
                    .blocks
                    .get(call.block)
                    .is_none_or(|block| block.problems.is_empty());
            call.runs && sound_block
        })
    }

    /// The calls that do not run because a block directly before theirs holds them in another
    /// dialect (A2).
    pub fn repeated(&self) -> impl Iterator<Item = &Call> {
        let calls = self.calls.iter().map(Arc::as_ref);
        calls.filter(|call| {
            let block = self.blocks.get(call.block);
            !call.runs && block.is_some_and(|block| block.runs && block.problems.is_empty())
        })
    }

    /// The problems of blocks that should have run and of their calls.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        let blocks = self
            .blocks
            .iter()
            .filter(|block| block.runs)
            .flat_map(|block| &block.problems);
        let calls = self
            .calls
            .iter()
            .filter(|call| call.runs)
            .flat_map(|call| &call.problems);
        blocks.chain(calls)
    }
}

/// The kind of a piece of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentKind {
    /// Published text.
    Response,
    /// Text after the first block.
    Trailing,
    /// A thought region.
    Thought,
    /// The block at this position in [`Parsed::blocks`].
    Block(usize),
    /// The marks of a code fence round blocks that were read (A7).
    Fence,
    /// Beyond the message limit, not scanned.
    Overflow,
}

/// A piece of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The kind of the piece.
    pub kind: SegmentKind,
    /// The place of the piece.
    pub span: Span,
}

/// The end of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockEnd {
    /// By its own marker.
    Closed,
    /// The marker was missing and supplied (A10).
    Repaired,
    /// The message ended inside it.
    Truncated,
    /// A limit was reached.
    Limited,
}

/// A block of calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Its dialect.
    pub dialect: Dialect,
    /// The place of the block, markers included.
    pub span: Span,
    /// The end of the block.
    pub end: BlockEnd,
    /// Whether the message's policy lets this block run (A1). Problems may still forbid it.
    pub runs: bool,
    /// The reason why it does not run; empty if it does.
    pub not_run_because: String,
    /// The problems of the block as a whole. No call of a block with problems runs.
    pub problems: Vec<Problem>,
    /// Block-wide control values in the order written, for instance `request_id`, `comment`.
    pub controls: Map<String, Value>,
}

/// The controls of a step, next to its arguments (T26 to T30).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepControl {
    /// The step number as written; `None` without numbers.
    pub step: Option<u32>,
    /// Whether the next step runs if this one fails.
    pub continue_on_error: bool,
    /// Attempts after the first, as requested; the executor caps it.
    pub retries: u32,
    /// Values to be fetched: parameter and URI.
    pub uris: Map<String, Value>,
    /// Whether to dispatch and record without waiting, as VCP requests it (T27).
    pub no_reply: bool,
    /// Other control keys as written (T28).
    pub metadata: Map<String, Value>,
}

/// The source text of an argument (G6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawArgument {
    /// The parameter it was taken for.
    pub name: Arc<str>,
    /// The name as written.
    pub written_name: Arc<str>,
    /// The untrimmed source text between the delimiters; JSON text for JSON dialects.
    pub text: SourceText,
    /// The place of the value; empty for values without a place of their own.
    pub span: Span,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Position of its block in [`Parsed::blocks`].
    pub block: usize,
    /// Its dialect.
    pub dialect: Dialect,
    /// The tool's id; the name as written if no such tool is visible.
    pub tool_id: String,
    /// The tool name as written.
    pub written_name: String,
    /// The typed arguments, in the order written.
    pub arguments: Map<String, Value>,
    /// The source text of each argument.
    pub raw_arguments: Vec<RawArgument>,
    /// The place of the call in the message.
    pub span: Span,
    /// Every deviation that was read all the same.
    pub tolerances: Vec<Tolerance>,
    /// All problems of the call at once.
    pub problems: Vec<Problem>,
    /// Whether more than one reading was possible.
    pub ambiguous: bool,
    /// Whether the repair rule holds: a repair, and the tool is not declared read-only, or, for any
    /// tool, a value that may not be the intended value (G8).
    pub needs_confirmation: bool,
    /// Whether its block runs.
    pub runs: bool,
    /// The controls of the step.
    pub control: StepControl,
    /// The provider's id of a native call; empty otherwise.
    pub provider_id: String,
}

impl Call {
    /// Whether it may run by itself as far as the text decides: its block runs, it has no problems,
    /// and it needs no confirmation.
    pub fn is_ready(&self) -> bool {
        self.runs && self.problems.is_empty() && !self.needs_confirmation
    }

    /// Whether a structure or a value was supplied.
    pub fn was_repaired(&self) -> bool {
        self.tolerances
            .iter()
            .any(|tolerance| tolerance.class.is_repair())
    }

    /// The same bytes for the same call in every dialect: compact JSON with sorted keys.
    pub fn canonical(&self) -> String {
        call_catalogue::canonical::call(&self.tool_id, &self.arguments)
    }
}
