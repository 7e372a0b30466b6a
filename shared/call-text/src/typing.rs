//! Stage two: from names and text to typed arguments, led by the tool's schema.
//!
//! No value is guessed: it has the type of its schema or stays a string. Every deviation that is
//! tolerated is logged as a [`Tolerance`]; all problems are reported at once.

mod ahead;
mod arguments;
mod call;
mod check;
mod json;
mod steps;
mod structure;
pub(crate) mod text;
mod union;
pub(crate) mod value;

use std::cell::OnceCell;
use std::sync::Arc;

use call_catalogue::{
    COLON_MISSING, Class, Diagnostic, Dialect, Problem, ProblemCode, Rule, Severity, Span,
    Tolerance, ToolMatch,
};
use serde_json::Map;

use self::steps::StepCall;
use crate::dialect::context::Context;
use crate::dialect::raw::{Controls, RawBlock, RawCall, ScannedBlock};
use crate::{Block, BlockEnd, Call, FinishReason, SourceText};

pub(crate) use ahead::TypedAhead;
pub(crate) use call::type_call;

/// A typed block, its calls, and remarks on it.
pub(crate) struct TypedBlock {
    pub(crate) block: Block,
    pub(crate) calls: Vec<Call>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// The message and the part of it that a block's calls share (G6).
pub(crate) struct Source<'t> {
    pub(crate) text: &'t str,
    block: Span,
    shared: OnceCell<Arc<str>>,
}

impl<'t> Source<'t> {
    pub(crate) fn new(text: &'t str, block: Span) -> Self {
        Self {
            text,
            block,
            shared: OnceCell::new(),
        }
    }

    /// A part of the block, which keeps the whole block's text.
    fn piece(&self, span: Span) -> SourceText {
        let shared = self.shared.get_or_init(|| self.block.of(self.text).into());
        match span.start.checked_sub(self.block.start) {
            Some(start) if span.end <= self.block.end => {
                SourceText::of(shared, Span::new(start, start + span.len()))
            }
            _ => span.of(self.text).into(),
        }
    }
}

/// Types a block that a scanner has cut.
pub(crate) fn type_block(
    scanned: ScannedBlock,
    index: usize,
    doubtful: bool,
    mut ahead: TypedAhead,
    text: &str,
    context: &Context<'_>,
) -> TypedBlock {
    let mut raw = scanned.raw;
    let (controls, steps) = if scanned.dialect.is_field_based() && scanned.end != BlockEnd::Limited
    {
        calls_of_fields(&mut raw, scanned.dialect, scanned.span, text, context)
    } else {
        (Controls::new(), Vec::new())
    };
    let mut diagnostics: Vec<Diagnostic> = raw.notes.iter().map(Tolerance::to_diagnostic).collect();
    diagnostics.extend(stray_of(&raw, scanned.dialect, text));
    if context.policy.strict {
        refuse(&raw.notes, &mut raw.problems);
    }
    advise(&mut raw.problems, context.finish);
    let source = Source::new(text, scanned.span);
    let mut calls = Vec::with_capacity(raw.calls.len() + steps.len());
    let of_block = |call: &mut RawCall| {
        // A repair of the block is a repair of each of its calls.
        let repairs = raw.notes.iter().filter(|note| note.class.is_repair());
        call.notes.extend(repairs.cloned());
        call.ambiguous |= doubtful;
        call.dialect.get_or_insert(scanned.dialect);
    };
    let nothing = Map::new();
    for mut call in raw.calls {
        of_block(&mut call);
        let known = ahead.take(&call);
        calls.push(known.unwrap_or_else(|| type_call(call, &nothing, &nothing, &source, context)));
    }
    for StepCall {
        mut call,
        control,
        hints,
    } in steps
    {
        of_block(&mut call);
        let plain = hints.is_empty() && control.uris.is_empty();
        let known = if plain { ahead.take(&call) } else { None };
        let mut typed =
            known.unwrap_or_else(|| type_call(call, &hints, &control.uris, &source, context));
        typed.control = control;
        calls.push(typed);
    }
    for call in &mut calls {
        call.block = index;
        diagnostics.extend(call.tolerances.iter().map(Tolerance::to_diagnostic));
    }
    diagnostics.extend(raw.problems.iter().map(problem_diagnostic));
    diagnostics.extend(
        calls
            .iter()
            .flat_map(|call| &call.problems)
            .map(problem_diagnostic),
    );
    let dialect = calls.first().map_or(scanned.dialect, |call| call.dialect);
    let block = Block {
        dialect,
        span: scanned.span,
        end: scanned.end,
        runs: false,
        not_run_because: String::new(),
        problems: raw.problems,
        controls,
    };
    TypedBlock {
        block,
        calls,
        diagnostics,
    }
}

/// Adds advice to the problems of an incomplete block; only text cut off at a limit is too long.
fn advise(problems: &mut [Problem], finish: FinishReason) {
    let advice = match finish {
        FinishReason::Length => {
            "; the answer was cut off at its limit: write the block again and split large content into several calls"
        }
        FinishReason::Interrupted => "; the answer was cut off: write the block again",
        _ => "; write the block again, up to its end",
    };
    let cut = |problem: &&mut Problem| problem.code == ProblemCode::TruncatedBlock;
    for problem in problems.iter_mut().filter(cut) {
        problem.message.push_str(advice);
    }
}

/// One remark about all text between the calls of a block, if there is any.
fn stray_of(raw: &RawBlock, dialect: Dialect, text: &str) -> Option<Diagnostic> {
    raw.stray
        .iter()
        .copied()
        .filter(|span| !span.of(text).trim().is_empty())
        .reduce(|a, b| Span::new(a.start, b.end))
        .map(|span| stray_text(span, dialect, text))
}

/// Turns the fields of a block into calls; returns the block's controls and its steps.
fn calls_of_fields(
    raw: &mut RawBlock,
    dialect: Dialect,
    span: Span,
    text: &str,
    context: &Context<'_>,
) -> (Controls, Vec<StepCall>) {
    let steps = steps::split(std::mem::take(&mut raw.fields), dialect, text, context);
    raw.problems.extend(steps.problems);
    raw.notes.extend(steps.notes);
    if steps.calls.is_empty() && raw.problems.is_empty() {
        let mut message = "the block names no command".to_owned();
        if !steps.keys_seen.is_empty() {
            message.push_str(&format!(
                "; it has the fields {}",
                steps.keys_seen.join(", ")
            ));
        }
        let mut lost = raw.notes.iter().filter(|note| note.code == COLON_MISSING);
        if let Some(note) = lost.next() {
            message.push_str(&format!("; {}", note.words(&note.before)));
        }
        raw.problems.push(Problem::new(
            ProblemCode::MissingCommand,
            Rule::T32,
            span,
            message,
        ));
    }
    (steps.controls, steps.calls)
}

/// In a strict parse every tolerance beyond *verbatim* is an error (G2).
fn refuse(notes: &[Tolerance], problems: &mut Vec<Problem>) {
    for note in notes.iter().filter(|note| note.class != Class::Verbatim) {
        problems.push(
            Problem::new(
                ProblemCode::StrictViolation,
                note.rule,
                note.span,
                format!("'{}' is not accepted here ({})", note.before, note.code),
            )
            .expected(note.after.clone())
            .received(&note.before),
        );
    }
}

fn problem_diagnostic(problem: &Problem) -> Diagnostic {
    Diagnostic {
        rule: problem.rule,
        class: None,
        severity: Severity::Error,
        code: problem.code.as_str().to_owned(),
        span: problem.span,
        message: problem.message.clone(),
        hint: problem
            .suggestions
            .first()
            .map(|name| format!("did you mean '{name}'?"))
            .unwrap_or_default(),
    }
}

fn stray_text(span: Span, dialect: Dialect, text: &str) -> Diagnostic {
    let rule = if dialect.is_field_based() {
        Rule::T33
    } else {
        Rule::A16
    };
    Diagnostic {
        rule,
        class: Some(Class::Verbatim),
        severity: Severity::Warning,
        code: "stray_text".to_owned(),
        span,
        message: format!(
            "text between the parts of the block was left out: '{}'",
            call_catalogue::cut(span.of(text).trim())
        ),
        hint: "write remarks before the block".to_owned(),
    }
}

/// Types a call that came as structured data.
pub(crate) fn type_native(raw: RawCall, context: &Context<'_>) -> Call {
    let (nothing, source) = (Map::new(), Source::new("", Span::default()));
    type_call(raw, &nothing, &nothing, &source, context)
}

/// The problem of a tool name that names no callable tool.
fn tool_problem(found: ToolMatch, raw: &RawCall, context: &Context<'_>) -> Problem {
    if found == ToolMatch::NotAvailable {
        let message = format!("Tool '{}' is not available here", raw.name);
        let code = ProblemCode::ToolNotAvailable;
        return Problem::new(code, Rule::N5, raw.name_span, message).received(&raw.name);
    }
    if let ToolMatch::Removed(index) = found {
        let plugin = &context.catalogue.removed(index).plugin;
        let message = format!(
            "Tool '{}' is gone: the plugin {plugin}, which brought it, was removed or changed",
            raw.name
        );
        let code = ProblemCode::ToolRemoved;
        return Problem::new(code, Rule::N5, raw.name_span, message).received(&raw.name);
    }
    let (nearest, ids) = context.catalogue.by_nearness(&raw.name);
    let mut message = format!("Unknown tool ID '{}'", raw.name);
    if let Some(first) = nearest.first() {
        message.push_str(&format!(", did you mean '{first}'?"));
    }
    Problem::new(ProblemCode::UnknownTool, Rule::N4, raw.name_span, message)
        .expected(call_catalogue::names::listed(ids.into_iter()))
        .received(&raw.name)
        .suggesting(nearest)
}
