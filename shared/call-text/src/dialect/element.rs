//! Blocks made of elements: ACTION, `<tool_call>`, `<invoke>`, `<function=x>`, and JSON in them.
//!
//! Well-formedness is not required (G4): names decide which brackets are tags. The scanner cuts a
//! block into calls and top-level parameters; stage two reads the inside of a parameter.

mod ahead;
mod bare;
mod between;
mod call;
mod mode;
mod open;
mod short;
mod surroundings;
mod value;

use call_catalogue::{Class, Dialect, Problem, ProblemCode, Rule, Span, Tolerance};
pub(crate) use open::{Opening, opening};

use self::ahead::Ahead;
use self::mode::Mode;
use self::value::{Doubt, ElementStep, ValueScan};
use super::context::Context;
use super::raw::{Early, Progress, RawBlock, RawCall};
use crate::scan::gap::GapMemo;
use crate::scan::json::JsonEnd;
use crate::scan::tag::{self, Tag, TagKind};
use crate::scan::{Feed, Look};
use crate::{BlockEnd, FinishReason, Repair};

#[derive(Debug)]
enum ElementState {
    /// Between calls.
    Body,
    /// A JSON value between calls.
    Json { start: usize, end: JsonEnd },
    /// Between the parameters of the last call.
    Call,
    /// In a JSON value that may be all arguments of the last call (A16).
    Arguments { start: usize, end: JsonEnd },
    /// Inside a parameter of the last call.
    Value,
}

/// Cuts one block, resumable at every byte.
#[derive(Debug)]
pub(crate) struct ElementScanner {
    start: usize,
    /// After the opening tag: text continues here if this is not a block.
    opened: usize,
    pos: usize,
    state: ElementState,
    mode: Mode,
    /// Lower-case name of the tag that closes the block; `None` if the call's own close does.
    wrapper: Option<&'static str>,
    /// Whether a tag with a namespace was read.
    namespaced: bool,
    /// Nested wrappers that are open (A6).
    nested: usize,
    /// Whether it began with a tool element instead of the wrapper (A11).
    missing_open: bool,
    /// The value that is open.
    scan: Option<ValueScan>,
    /// The name in the tag of the call that is open.
    call_tag: Span,
    /// Position of its tool, if it is visible.
    tool: Option<usize>,
    raw: RawBlock,
    gap: GapMemo,
    ahead: Ahead,
    saw_json: bool,
    /// Whether JSON in a call is still looked for; no longer once one did not end.
    seeks_arguments: bool,
    /// Whether the walk is in stray text, outside of calls and parameters.
    in_stray: bool,
}

impl ElementScanner {
    /// Starts a block whose opening tag was read.
    pub(crate) fn new(
        opening: Opening,
        tag: &Tag,
        feed: &Feed<'_>,
        context: &Context<'_>,
        early: &mut Vec<Early>,
    ) -> Self {
        let mut scanner = Self {
            start: tag.span.start,
            opened: tag.span.end,
            pos: tag.span.end,
            state: ElementState::Body,
            mode: Mode::default(),
            wrapper: None,
            namespaced: tag.whole != tag.name,
            nested: 0,
            missing_open: false,
            scan: None,
            call_tag: tag.name,
            tool: None,
            raw: RawBlock::default(),
            gap: GapMemo::default(),
            ahead: Ahead::default(),
            saw_json: false,
            seeks_arguments: opening != Opening::BareTool,
            in_stray: false,
        };
        if tag.whole != tag.name {
            scanner.note_namespace(tag, feed, context);
        }
        match opening {
            Opening::Wrapper(name) => {
                scanner.wrapper = Some(name);
                scanner.note_wrapper(tag, feed, name);
            }
            Opening::Call => scanner.open_call(tag, feed, context, early),
            Opening::BareTool => {
                scanner.wrapper = Some("action");
                scanner.missing_open = true;
                scanner.open_call(tag, feed, context, early);
            }
        }
        scanner
    }

    /// The dialect, as far as it is known.
    pub(crate) fn dialect(&self) -> Dialect {
        if self.wrapper == Some("action") {
            Dialect::Action
        } else if self.saw_json {
            Dialect::ToolJson
        } else {
            Dialect::ToolTag
        }
    }

    /// Whether a call was opened: then the block is reported even if it is broken.
    pub(crate) fn has_calls(&self) -> bool {
        !self.raw.calls.is_empty() || self.saw_json
    }

    /// The calls that are closed, where the block's dialect is certain.
    pub(crate) fn closed_calls(&self) -> Option<&[RawCall]> {
        let open = !matches!(self.state, ElementState::Body | ElementState::Json { .. });
        let closed = self.raw.calls.len() - usize::from(open && !self.raw.calls.is_empty());
        (self.wrapper == Some("action")).then(|| &self.raw.calls[..closed])
    }

    /// Whether a `<tool_call>` has no call yet: text in it may then be a call of GLM.
    pub(crate) fn may_be_glm(&self) -> bool {
        self.wrapper == Some("tool_call") && !self.has_calls()
    }

    pub(crate) fn start(&self) -> usize {
        self.start
    }

    pub(crate) fn take(self) -> RawBlock {
        self.raw
    }

    /// Goes as far as the text allows.
    pub(crate) fn step(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        early: &mut Vec<Early>,
    ) -> Progress {
        loop {
            let most = context.policy.limits.block_bytes;
            if self.pos.saturating_sub(self.start) > most {
                self.pos = self.start + most;
                return self.limited("block bytes", most, feed);
            }
            let progress = match &mut self.state {
                ElementState::Body => self.body(feed, context, early),
                ElementState::Json { .. } => self.json(feed, most),
                ElementState::Call => self.between_parameters(feed, context, early),
                ElementState::Arguments { .. } => self.json_arguments(feed),
                ElementState::Value => self.value(feed, context, early),
            };
            match progress {
                // Read again above, as if the rest had arrived later.
                Some(Progress::Closed { at, end })
                    if at - self.start > most && end != BlockEnd::Limited =>
                {
                    self.pos = at
                }
                Some(progress) => return progress,
                None => {}
            }
        }
    }

    fn note(
        &mut self,
        rule: Rule,
        class: Class,
        code: &str,
        span: Span,
        feed: &Feed<'_>,
        after: &str,
    ) {
        self.raw.notes.push(Tolerance::new(
            rule,
            class,
            code,
            span,
            span.of(feed.text),
            after,
        ));
    }

    fn note_wrapper(&mut self, tag: &Tag, feed: &Feed<'_>, name: &str) {
        let written = tag.name.of(feed.text);
        let others = (tag.attributes.iter()).any(|attribute| !attribute.is_nonce(feed));
        if name == "action" && (written != "ACTION" || tag.spaced || others) {
            self.note(
                Rule::A4,
                Class::Spelling,
                "wrapper_spelling",
                tag.span,
                feed,
                "<ACTION>",
            );
        }
        if tag.wide {
            self.note(
                Rule::V12,
                Class::Spelling,
                "wide_tag",
                tag.span,
                feed,
                written,
            );
        }
    }

    /// Between calls: white space, comments, calls, the end.
    fn body(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        early: &mut Vec<Early>,
    ) -> Option<Progress> {
        let at = match self.next_part(feed) {
            Look::Yes(at) => at,
            Look::More => return Some(Progress::More),
            Look::No => return Some(self.truncated(feed, context)),
        };
        if at == feed.len() {
            return Some(self.truncated(feed, context));
        }
        if self.missing_open && !self.at_wrapper_or_call(feed, at, context) {
            return Some(self.bare_call(feed, context));
        }
        match feed.bytes()[at] {
            b'{' | b'[' if !self.in_stray && (self.raw.calls.is_empty() || self.saw_json) => {
                self.state = ElementState::Json {
                    start: at,
                    end: JsonEnd::at(at),
                };
                return None;
            }
            b'`' if !self.in_stray
                && self.wrapper != Some("action")
                && (self.raw.calls.is_empty() || self.saw_json) =>
            {
                match self.fence_mark(feed, at) {
                    Look::Yes(()) => return None,
                    Look::More => return Some(Progress::More),
                    Look::No => return self.stray_in_body(feed, at),
                }
            }
            b'<' => {}
            _ if feed.text[at..].starts_with('＜') => {}
            _ => return self.stray_in_body(feed, at),
        }
        let tag = match self.ahead.read(feed, at, &context.policy.limits) {
            Look::Yes(tag) => tag,
            Look::More => return Some(Progress::More),
            Look::No => return self.not_a_tag(feed, at),
        };
        let name = tag.name.of(feed.text);
        let is_wrapper = self
            .wrapper
            .is_some_and(|wrapper| name.eq_ignore_ascii_case(wrapper));
        match tag.kind {
            TagKind::Close if is_wrapper => self.close_wrapper(&tag, feed),
            TagKind::Close => {
                self.push_stray(tag.span);
                None
            }
            TagKind::Open if is_wrapper && tag.named(feed.text).is_none() => {
                self.open_nested(&tag, feed)
            }
            _ if self.raw.calls.len() >= context.policy.limits.calls => {
                Some(self.limited("calls", context.policy.limits.calls, feed))
            }
            _ => {
                self.open_call(&tag, feed, context, early);
                None
            }
        }
    }

    /// Whether a block still looks like one after a tool element without opening wrapper.
    fn at_wrapper_or_call(&self, feed: &Feed<'_>, at: usize, context: &Context<'_>) -> bool {
        match tag::read(feed, at, &context.policy.limits) {
            Look::Yes(tag) if tag.kind == TagKind::Close => {
                tag.name.of(feed.text).eq_ignore_ascii_case("action")
            }
            Look::Yes(tag) => context.catalogue.has_visible(tag.name.of(feed.text)),
            // The caller reads the same tag again and then waits for more text.
            Look::More => true,
            Look::No => false,
        }
    }

    fn close_wrapper(&mut self, tag: &Tag, feed: &Feed<'_>) -> Option<Progress> {
        self.pos = tag.span.end;
        if self.nested > 0 {
            self.nested -= 1;
            return None;
        }
        if self.missing_open {
            let first = Span::new(self.start, self.start);
            self.note(
                Rule::A11,
                Class::Repair,
                "missing_opening_wrapper",
                first,
                feed,
                "<ACTION>",
            );
        }
        if self.raw.calls.is_empty() && self.raw.problems.is_empty() {
            let span = Span::new(self.start, self.pos);
            let message = "The block holds no tool call";
            self.raw.problems.push(Problem::new(
                ProblemCode::EmptyAction,
                Rule::A13,
                span,
                message,
            ));
        }
        Some(Progress::Closed {
            at: self.pos,
            end: BlockEnd::Closed,
        })
    }

    /// A second opening wrapper: one level is flattened (A6), but after prose the first one was
    /// only mentioned.
    fn open_nested(&mut self, tag: &Tag, feed: &Feed<'_>) -> Option<Progress> {
        let blank = self
            .raw
            .stray
            .iter()
            .all(|span| span.of(feed.text).trim().is_empty());
        if self.raw.calls.is_empty() && !blank {
            return Some(Progress::NotABlock {
                resume: tag.span.start,
            });
        }
        if self.nested == 1 {
            let message = format!("{} is nested more than once", tag.span.of(feed.text));
            let problem = Problem::new(ProblemCode::MalformedBlock, Rule::A6, tag.span, message);
            self.raw.problems.push(problem);
        }
        self.note(
            Rule::A6,
            Class::Repair,
            "nested_wrapper",
            tag.span,
            feed,
            "",
        );
        self.nested += 1;
        self.pos = tag.span.end;
        None
    }

    /// The message ended inside the block (A10).
    fn truncated(&mut self, feed: &Feed<'_>, context: &Context<'_>) -> Progress {
        if self.missing_open {
            return self.bare_call(feed, context);
        }
        if self.raw.calls.is_empty() && self.has_stray(feed) {
            return Progress::NotABlock {
                resume: self.opened,
            };
        }
        let policy = context.policy;
        let may_repair = policy.repair == Repair::WrapperOnly
            && !policy.strict
            && context.finish == FinishReason::Stop;
        if may_repair
            && !self.raw.calls.is_empty()
            && !self.has_stray(feed)
            && self.raw.problems.is_empty()
        {
            let at = feed.len();
            self.note(
                Rule::A10,
                Class::Repair,
                "closing_wrapper_supplied",
                Span::new(at, at),
                feed,
                "</ACTION>",
            );
            return Progress::Closed {
                at,
                end: BlockEnd::Repaired,
            };
        }
        let last = self
            .raw
            .calls
            .last()
            .map(|call| format!("</{}>", call.name))
            .unwrap_or_default();
        let message = if last.is_empty() {
            "the block was opened and not closed".to_owned()
        } else {
            format!("the block is not closed; the last complete element ends with {last}")
        };
        self.cut_off(Span::new(self.start, feed.len()), &message)
    }

    fn has_stray(&self, feed: &Feed<'_>) -> bool {
        self.raw
            .stray
            .iter()
            .any(|span| !span.of(feed.text).trim().is_empty())
    }

    fn cut_off(&mut self, span: Span, message: &str) -> Progress {
        self.raw.cut_off(Rule::A10, span, message.to_owned())
    }

    fn limited(&mut self, what: &str, limit: usize, feed: &Feed<'_>) -> Progress {
        let span = Span::new(self.start, feed.floor(self.pos));
        self.raw.limited(what, limit, span)
    }

    /// Inside a parameter.
    fn value(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        early: &mut Vec<Early>,
    ) -> Option<Progress> {
        let scan = self.scan.as_mut()?;
        let surroundings = surroundings::Surroundings {
            context,
            wrapper: self.wrapper,
            namespaced: self.namespaced,
            call_tag: self.call_tag.of(feed.text),
            entry: self.tool.map(|tool| context.catalogue.entry(tool)),
            assigned: scan.is_generic(),
        };
        let step = scan.step(feed, &surroundings, &mut self.mode, &mut self.ahead);
        // A block that has grown too long ends at its limit, however much had arrived.
        let limit = self.start + context.policy.limits.block_bytes;
        let over = scan.pos() > limit;
        let grown = match &step {
            _ if context.quiet => None,
            ElementStep::Ended { inner, .. } if !over => scan.rest(*inner),
            _ => scan.grown(feed.floor(limit)),
        };
        if let Some(span) = grown {
            let call = self.raw.calls.len().saturating_sub(1);
            let argument = self.raw.calls.last().map_or(0, |call| call.arguments.len());
            early.push(Early::Delta {
                call,
                argument,
                name: scan.name(feed).to_owned(),
                span,
            });
        }
        if over {
            self.pos = limit;
            return Some(self.limited("block bytes", context.policy.limits.block_bytes, feed));
        }
        match step {
            ElementStep::More => {
                self.pos = scan.pos();
                Some(Progress::More)
            }
            ElementStep::Ended { inner, after } => {
                self.pos = after;
                self.state = ElementState::Call;
                let doubt = scan.second_reading(feed, &surroundings, inner);
                if let Some(open) = self.raw.calls.last_mut() {
                    open.notes.extend(scan.take_notes());
                    match doubt {
                        Some(Doubt::Repair(note)) => open.notes.push(note),
                        Some(Doubt::Refused(problem)) => open.problems.push(problem),
                        None => {}
                    }
                    open.add(scan.take_value(inner));
                }
                None
            }
            ElementStep::TooLong { at } => {
                self.pos = at;
                Some(self.limited("value bytes", context.policy.limits.value_bytes, feed))
            }
            ElementStep::Unclosed { malformed_at } => {
                let name = scan.name(feed).to_owned();
                Some(self.unclosed(feed, &name, malformed_at))
            }
        }
    }

    /// The parameter never ends.
    fn unclosed(&mut self, feed: &Feed<'_>, name: &str, malformed_at: Option<usize>) -> Progress {
        if self.missing_open {
            return Progress::NotABlock {
                resume: self.opened,
            };
        }
        let Some(at) = malformed_at else {
            let complete = self.raw.calls.last().and_then(|call| call.arguments.last());
            let message = match complete {
                Some(value) => format!(
                    "the block ends inside '{name}'; the last complete element is '{}'",
                    value.name.of(feed.text)
                ),
                None => format!("the block ends inside '{name}'; no element before it is complete"),
            };
            return self.cut_off(Span::new(self.start, feed.len()), &message);
        };
        self.malformed(at, format!("'{name}' is not closed"))
    }

    fn malformed(&mut self, at: usize, message: String) -> Progress {
        let span = Span::new(self.start, at);
        self.pos = at;
        self.raw.problems.push(Problem::new(
            ProblemCode::MalformedBlock,
            Rule::G3,
            span,
            message,
        ));
        Progress::Closed {
            at,
            end: BlockEnd::Closed,
        }
    }
}
