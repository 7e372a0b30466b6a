//! The collector of the pieces of a message: segments, blocks, calls, events.

use std::sync::Arc;

use call_catalogue::{
    Class, Diagnostic, Dialect, Problem, ProblemCode, Rule, Severity, Span, ToolMatch,
};

use super::adjacent::Adjacent;
use crate::dialect::context::Context;
use crate::dialect::raw::{Early, ScannedBlock};
use crate::typing::{self, TypedAhead};
use crate::{BlockEnd, Call, Event, MultiBlock, Parsed, Segment, SegmentKind, ToolState};

/// A piece whose fate is open until the end of the message (A7).
#[derive(Debug)]
pub(super) enum PendingPiece {
    Text(Span),
    /// The marks of a fence round a block.
    Fence(Span),
    Thought(Span),
    Block(Box<(ScannedBlock, bool)>),
}

#[derive(Debug)]
pub(super) struct Assembler {
    parsed: Parsed,
    events: Vec<Event>,
    held: Vec<PendingPiece>,
    /// End of the last block, for the question whether the next one is adjacent.
    last_block_end: usize,
    /// The calls of the blocks before, up to the last text.
    adjacent: Adjacent,
    /// End of the last mark that turned all text before it into a thought.
    thought_until: usize,
    /// The reason why no further block runs.
    halted: Option<String>,
    most_diagnostics: usize,
    dropped_diagnostics: usize,
    quiet: bool,
}

impl Assembler {
    pub(super) fn new(most_diagnostics: usize) -> Self {
        Self {
            parsed: Parsed::default(),
            events: Vec::new(),
            held: Vec::new(),
            last_block_end: 0,
            adjacent: Adjacent::default(),
            thought_until: 0,
            halted: None,
            most_diagnostics,
            dropped_diagnostics: 0,
            quiet: false,
        }
    }

    /// Turns events off, for a caller that reads the outcome only.
    pub(super) fn be_quiet(&mut self) {
        self.quiet = true;
    }

    fn event(&mut self, event: impl FnOnce() -> Event) {
        if !self.quiet {
            self.events.push(event());
        }
    }

    pub(super) fn drain(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The published text and the text behind the blocks.
    pub(super) fn prose(&self) -> impl Iterator<Item = Span> + '_ {
        let prose = |kind| matches!(kind, SegmentKind::Response | SegmentKind::Trailing);
        let segments = self.parsed.segments.iter();
        segments
            .filter(move |segment| prose(segment.kind))
            .map(|segment| segment.span)
    }

    pub(super) fn diagnostics(&self) -> &[Diagnostic] {
        &self.parsed.diagnostics
    }

    pub(super) fn has_blocks(&self) -> bool {
        !self.parsed.blocks.is_empty()
    }

    pub(super) fn next_block(&self) -> usize {
        self.parsed.blocks.len()
    }

    pub(super) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether only blocks and the marks of their fences are held, and no text.
    pub(super) fn holds_blocks_only(&self, text: &str) -> bool {
        let is_text = |item: &PendingPiece| matches!(item, PendingPiece::Text(span) if !span.of(text).trim().is_empty());
        !self.held.iter().any(is_text)
    }

    pub(super) fn hold(&mut self, item: PendingPiece) {
        self.held.push(item);
    }

    pub(super) fn segment(&mut self, kind: SegmentKind, span: Span) {
        if span.is_empty() {
            return;
        }
        match self.parsed.segments.last_mut() {
            Some(last)
                if last.kind == kind
                    && !matches!(kind, SegmentKind::Block(_))
                    && last.span.end == span.start =>
            {
                last.span.end = span.end;
            }
            _ => self.parsed.segments.push(Segment { kind, span }),
        }
    }

    /// Releases text.
    pub(super) fn text(&mut self, text: &str, span: Span) {
        if span.is_empty() {
            return;
        }
        if self.is_holding() {
            self.held.push(PendingPiece::Text(span));
            return;
        }
        self.release(text, span);
    }

    fn release(&mut self, text: &str, span: Span) {
        let trailing = self.has_blocks();
        self.segment(
            if trailing {
                SegmentKind::Trailing
            } else {
                SegmentKind::Response
            },
            span,
        );
        self.event(|| Event::Text {
            span,
            text: span.of(text).to_owned(),
            trailing,
        });
    }

    /// Releases a piece of a thought.
    pub(super) fn thought(&mut self, text: &str, span: Span) {
        if span.is_empty() {
            return;
        }
        if self.is_holding() {
            self.held.push(PendingPiece::Thought(span));
            return;
        }
        self.segment(SegmentKind::Thought, span);
        self.event(|| Event::Thought {
            span,
            text: span.of(text).to_owned(),
            takes_back: false,
        });
    }

    /// Turns everything up to a closing mark without an opening one into a thought (A9).
    pub(super) fn take_back(&mut self, text: &str, end: usize, opened: bool) {
        let span = Span::new(self.thought_until, end);
        let is_thought = |segment: &Segment| segment.kind == SegmentKind::Thought;
        let has_block = opened || self.has_blocks();
        let takes_back = has_block || !self.parsed.segments.iter().all(is_thought);
        if has_block || self.is_holding() {
            let message = "a block before the end of a thought was not run".to_owned();
            let hint = "write the block after the thought";
            self.diagnose(
                Rule::A9,
                Severity::Hint,
                "block_in_thought",
                span,
                message,
                hint,
            );
        }
        self.held.clear();
        self.halted = None;
        self.last_block_end = end;
        self.adjacent.clear();
        self.thought_until = end;
        let parsed = &mut self.parsed;
        parsed.segments.clear();
        parsed.blocks.clear();
        parsed.calls.clear();
        parsed.dialect = None;
        self.segment(SegmentKind::Thought, Span::new(0, end));
        self.event(|| Event::Thought {
            span,
            text: span.of(text).to_owned(),
            takes_back,
        });
    }

    /// Decides on held blocks: they run, or are text (A7). They are text where prose follows: a
    /// model that explains a call continues, a model that calls stops.
    pub(super) fn settle(&mut self, run: bool, text: &str, context: &Context<'_>) {
        let held = std::mem::take(&mut self.held);
        let mut behind = held
            .iter()
            .skip_while(|item| !matches!(item, PendingPiece::Block(_)));
        let prose = |item: &PendingPiece| matches!(item, PendingPiece::Text(span) if !span.of(text).trim().is_empty());
        let explained = behind.any(prose);
        let run = run && !explained;
        for item in held {
            match item {
                PendingPiece::Fence(span) if run => self.segment(SegmentKind::Fence, span),
                PendingPiece::Text(span) | PendingPiece::Fence(span) => self.release(text, span),
                PendingPiece::Thought(span) => self.thought(text, span),
                PendingPiece::Block(block) if run => {
                    self.block(block.0, block.1, TypedAhead::default(), text, context);
                }
                PendingPiece::Block(block) => {
                    let span = block.0.span;
                    let (message, hint) = match explained {
                        true => (
                            "a block inside a code fence with text behind it is an example and was not run",
                            "write the block outside of a fence and stop after it",
                        ),
                        false => (
                            "a block inside a code fence was not run",
                            "write the block outside of a fence",
                        ),
                    };
                    let (code, message) = ("fenced_block_not_run", message.to_owned());
                    self.diagnose(Rule::A7, Severity::Hint, code, span, message, hint);
                    self.release(text, span);
                }
            }
        }
    }

    /// Reports a fact that became known before a block is closed.
    pub(super) fn early(&mut self, early: Early, text: &str, context: &Context<'_>) {
        let block = self.next_block();
        self.events.push(match early {
            Early::Call { call, name, span } => {
                let tool = match context.catalogue.find(&name) {
                    ToolMatch::Visible(index, _) => {
                        ToolState::Visible(context.catalogue.entry(index).tool.id.clone())
                    }
                    ToolMatch::NotAvailable => ToolState::NotAvailable,
                    ToolMatch::Removed(_) => ToolState::Removed,
                    ToolMatch::Unknown => {
                        ToolState::Unknown(context.catalogue.nearest_tools(&name))
                    }
                };
                Event::CallOpened {
                    block,
                    call,
                    name,
                    tool,
                    span,
                }
            }
            Early::Delta {
                call,
                argument,
                name,
                span,
            } => Event::ArgumentDelta {
                block,
                call,
                argument,
                name,
                text: span.of(text).to_owned(),
            },
        });
    }

    pub(super) fn block_opened(&mut self, dialect: Dialect, at: usize) {
        let block = self.next_block();
        self.event(|| Event::BlockOpened { block, dialect, at });
    }

    /// Adds a finished block: types it and decides whether it runs (A1, T2).
    pub(super) fn block(
        &mut self,
        scanned: ScannedBlock,
        doubtful: bool,
        ahead: TypedAhead,
        text: &str,
        context: &Context<'_>,
    ) {
        if self.is_holding() {
            self.settle(false, text, context);
        }
        let index = self.parsed.blocks.len();
        let span = scanned.span;
        let limited = scanned.end == BlockEnd::Limited;
        let mut typed = typing::type_block(scanned, index, doubtful, ahead, text, context);
        let most = context.policy.limits.calls;
        if self.parsed.calls.len() + typed.calls.len() > most {
            let message = format!("the limit of {most} calls in one message was reached");
            typed.block.problems.push(Problem::new(
                ProblemCode::LimitExceeded,
                Rule::V13,
                span,
                message,
            ));
        }
        typed.block.not_run_because = self.reason_not_to_run(&typed.block, text, context);
        typed.block.runs = typed.block.not_run_because.is_empty();
        self.remark_on_block(&typed.block);
        for call in &mut typed.calls {
            call.runs = typed.block.runs && typed.block.problems.is_empty();
        }
        let between = text.get(self.last_block_end..span.start);
        if between.is_none_or(|between| !between.trim().is_empty()) {
            self.adjacent.clear();
        }
        let repeated = self.adjacent.stop_repeated(&mut typed.calls);
        let repeated = repeated.into_iter().filter_map(|at| typed.calls.get(at));
        typed.diagnostics.extend(repeated.map(repeated_call));
        for diagnostic in typed.diagnostics {
            self.push_diagnostic(diagnostic);
        }
        if limited {
            self.halted
                .get_or_insert_with(|| "a limit was reached before it".to_owned());
        }
        if !typed.block.problems.is_empty() && typed.block.runs {
            self.halted
                .get_or_insert_with(|| "an earlier block is broken".to_owned());
        }
        self.segment(SegmentKind::Block(index), span);
        self.last_block_end = span.end;
        let calls: Vec<Arc<Call>> = typed.calls.into_iter().map(Arc::new).collect();
        self.adjacent.add(&calls);
        if !self.quiet {
            self.events.push(Event::BlockClosed {
                block: index,
                state: Box::new(typed.block.clone()),
                calls: calls.clone(),
            });
        }
        self.parsed.blocks.push(typed.block);
        self.parsed.calls.extend(calls);
    }

    /// Remarks on a block that does not run, or that mixes dialects (A1, T2, T3).
    fn remark_on_block(&mut self, block: &crate::Block) {
        let fields = block.dialect.is_field_based();
        if !block.runs {
            let rule = if fields { Rule::T2 } else { Rule::A1 };
            let message = format!("a later block was not run: {}", block.not_run_because);
            let hint = "write one block and wait for its result";
            self.diagnose(
                rule,
                Severity::Warning,
                "later_block_ignored",
                block.span,
                message,
                hint,
            );
        }
        let first = *self.parsed.dialect.get_or_insert(block.dialect);
        if first.is_field_based() != fields {
            let message = format!(
                "a {} block appears in a message that began with {first}",
                block.dialect
            );
            let hint = "use one way of writing calls";
            self.diagnose(
                Rule::T3,
                Severity::Warning,
                "mixed_dialects",
                block.span,
                message,
                hint,
            );
        }
    }

    /// Returns the reason why a block does not run; empty if it does.
    fn reason_not_to_run(
        &mut self,
        block: &crate::Block,
        text: &str,
        context: &Context<'_>,
    ) -> String {
        if self.parsed.blocks.is_empty() {
            return String::new();
        }
        if let Some(halted) = &self.halted {
            return halted.clone();
        }
        let between = text
            .get(self.last_block_end..block.span.start)
            .unwrap_or_default();
        if invents_a_result(between) {
            let reason = "it follows an invented result".to_owned();
            self.halted = Some(reason.clone());
            return reason;
        }
        match context.policy.multi_block {
            MultiBlock::All => String::new(),
            MultiBlock::First => "only the first block of a message runs".to_owned(),
            MultiBlock::Adjacent if between.trim().is_empty() => String::new(),
            MultiBlock::Adjacent => {
                let reason = "text appears between it and the block before".to_owned();
                self.halted = Some(reason.clone());
                reason
            }
        }
    }

    pub(super) fn diagnose(
        &mut self,
        rule: Rule,
        severity: Severity,
        code: &str,
        span: Span,
        message: String,
        hint: &str,
    ) {
        self.push_diagnostic(Diagnostic {
            rule,
            class: (severity == Severity::Hint).then_some(Class::Verbatim),
            severity,
            code: code.to_owned(),
            span,
            message,
            hint: hint.to_owned(),
        });
    }

    fn push_diagnostic(&mut self, diagnostic: Diagnostic) {
        if self.parsed.diagnostics.len() >= self.most_diagnostics {
            self.dropped_diagnostics += 1;
            return;
        }
        self.event(|| Event::Diagnostic(diagnostic.clone()));
        self.parsed.diagnostics.push(diagnostic);
    }

    pub(super) fn into_parsed(self, text: &str) -> Parsed {
        let mut parsed = self.parsed;
        if self.dropped_diagnostics > 0 {
            parsed.diagnostics.push(Diagnostic {
                rule: Rule::V13,
                class: None,
                severity: Severity::Warning,
                code: "diagnostics_dropped".to_owned(),
                span: Span::default(),
                message: format!("{} further remarks were dropped", self.dropped_diagnostics),
                hint: String::new(),
            });
        }
        let collect = |kind: SegmentKind| -> String {
            parsed
                .segments
                .iter()
                .filter(|segment| segment.kind == kind)
                .map(|segment| segment.span.of(text))
                .collect()
        };
        let thoughts = collect(SegmentKind::Thought);
        let mut response = collect(SegmentKind::Response);
        response.truncate(response.trim_end().len());
        if !thoughts.is_empty() {
            // Line breaks behind a thought belong to it.
            response.drain(..response.len() - response.trim_start().len());
        }
        parsed.response_text = response;
        parsed.trailing_text = collect(SegmentKind::Trailing).trim().to_owned();
        parsed.thoughts = thoughts;
        parsed
    }
}

/// The remark on a call that the block before holds in another dialect (A2).
fn repeated_call(call: &Call) -> Diagnostic {
    Diagnostic {
        rule: Rule::A2,
        class: Some(Class::Verbatim),
        severity: Severity::Warning,
        code: "call_in_two_dialects".to_owned(),
        span: call.span,
        message: format!(
            "the call of {} in {} is the one before it, which runs once",
            call.tool_id, call.dialect
        ),
        hint: "write each call once".to_owned(),
    }
}

/// Whether text between blocks pretends that a result came in (T2).
fn invents_a_result(text: &str) -> bool {
    const MARKS: &[&str] = &[
        "<tool_response",
        "<tool_result",
        "<function_results",
        "<function_result",
        "<observation",
    ];
    const SPEAKERS: &[&str] = &[
        "observation",
        "result",
        "results",
        "tool result",
        "user",
        "human",
        "观察",
        "观察结果",
        "结果",
        "工具结果",
        "用户",
    ];
    let lowered = text.to_lowercase();
    let spoken = lowered.lines().any(|line| {
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || "*#>_".contains(c));
        let speaks = |speaker: &&str| {
            let rest = line.strip_prefix(*speaker).unwrap_or_default();
            let rest = rest.trim_start_matches(['*', '_']).trim_start();
            rest.starts_with([':', '：'])
        };
        SPEAKERS.iter().any(speaks)
    });
    spoken || MARKS.iter().any(|mark| lowered.contains(mark))
}
