//! The walk through the text between blocks.

use call_catalogue::{FENCE_NOT_CLOSED, Rule, Severity, Span};

use super::assembler::Assembler;
use super::block::{BlockScan, BlockStart};
use super::code::{self, Fence, InlineSearch};
use super::mark_search::{MarkSearch, WIDEST_INDENT};
use super::regions::{closes_block, holds_block, remark_on_lookalikes};
use crate::FencePolicy;
use crate::dialect::context::Context;
use crate::dialect::element::{Opening, opening};
use crate::dialect::fields::marks;
use crate::dialect::trained;
use crate::scan::tag::{self, Tag, TagKind};
use crate::scan::{Feed, Look};
use crate::thought::{self, Thought};

/// The region that the scanner is in.
#[derive(Debug, Default)]
pub(super) enum ScanState {
    #[default]
    Text,
    /// In a fence whose content is text.
    Fence(Fence),
    /// At the start of a fence that may hold a block (A7).
    FenceStart(Fence),
    Comment,
    Thought(Thought),
    /// In the white space behind a thought, which belongs to it.
    BehindThought,
    Block(Box<BlockScan>),
}

#[derive(Debug, Default)]
pub(super) struct TextScanner {
    pub(super) place: ScanState,
    /// The position up to which the text is decided, though maybe not yet released.
    pub(super) pos: usize,
    /// The end of the released text.
    pub(super) released: usize,
    /// Start of the line of `pos`.
    line: usize,
    marks: MarkSearch,
    inline: InlineSearch,
    /// The positions up to which inline code of a width is known not to close.
    unclosed_code: [usize; 9],
    /// The number of tool elements without wrapper that were tried.
    bare_tools: usize,
    /// The number of long texts tried as calls in a trained format that turned out to be text.
    pub(super) long_looks: usize,
    /// The number of fences that were tried as blocks.
    pub(super) fences: usize,
    /// Start of the region that the scanner is in, for remarks.
    pub(super) region: usize,
    pub(super) region_had_block: bool,
    /// Whether a closing mark without a block was remarked on.
    pub(super) lone_close: bool,
    /// The closing tag of a tool before the first block: it matters only if a block follows.
    pub(super) tool_close: Option<Span>,
    /// Whether the head of a message of gpt-oss was read.
    pub(super) heads: bool,
    /// Whether a block in a quotation was remarked on.
    pub(super) quoted: bool,
    /// The position up to which fields outside of a block were looked for.
    pub(super) fields_sought: usize,
}

const MOST_BARE_TOOLS: usize = 16;
const MOST_FENCES: usize = 16;

/// Whether the scanner continues.
pub(super) enum Step {
    Continue,
    Wait,
}

impl TextScanner {
    pub(super) fn advance(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        assembler: &mut Assembler,
    ) {
        loop {
            let step = match &self.place {
                ScanState::Text => self.text(feed, context, assembler),
                ScanState::Fence(fence) => {
                    let fence = *fence;
                    self.fence(feed, fence, assembler)
                }
                ScanState::FenceStart(fence) => {
                    let fence = *fence;
                    self.fence_start(feed, fence, context, assembler)
                }
                ScanState::Comment => self.comment(feed, assembler),
                ScanState::Thought(thought) => {
                    let thought = thought.clone();
                    self.thought(feed, &thought, assembler)
                }
                ScanState::BehindThought => self.behind_thought(feed, assembler),
                ScanState::Block(_) => self.block(feed, context, assembler),
            };
            if matches!(step, Step::Wait) {
                return;
            }
        }
    }

    /// Ends the message: decides on held blocks and remarks on open regions.
    pub(super) fn finish(&mut self, text: &str, context: &Context<'_>, assembler: &mut Assembler) {
        if let ScanState::Thought(_) = self.place
            && self.region_had_block
        {
            let span = Span::new(self.region, text.len());
            let message =
                "the thought is not closed and holds a block, which was not run".to_owned();
            assembler.diagnose(
                Rule::A9,
                Severity::Warning,
                "block_in_open_thought",
                span,
                message,
                "close the thought before the block",
            );
        }
        if let ScanState::Fence(fence) = &self.place
            && holds_block(&text[fence.body.min(text.len())..])
        {
            let message = "a block inside a code fence that is never closed was not run".to_owned();
            assembler.diagnose(
                Rule::A7,
                Severity::Warning,
                FENCE_NOT_CLOSED,
                Span::new(fence.start, text.len()),
                message,
                "write the block outside of a fence",
            );
        }
        assembler.settle(!assembler.has_blocks(), text, context);
        remark_on_lookalikes(text, assembler);
    }

    /// Releases text up to a position.
    pub(super) fn release(&mut self, feed: &Feed<'_>, to: usize, assembler: &mut Assembler) {
        if to > self.released {
            let span = Span::new(self.released, to);
            match self.place {
                ScanState::Thought(_) | ScanState::BehindThought => {
                    assembler.thought(feed.text, span)
                }
                _ => assembler.text(feed.text, span),
            }
            self.released = to;
        }
    }

    /// Releases the rest of the text, in which no mark begins, and waits for more.
    pub(super) fn release_all(&mut self, feed: &Feed<'_>, assembler: &mut Assembler) -> Step {
        self.note_line(feed, feed.len());
        self.pos = feed.len();
        self.release(feed, feed.len(), assembler);
        Step::Wait
    }

    fn text(&mut self, feed: &Feed<'_>, context: &Context<'_>, assembler: &mut Assembler) -> Step {
        let Some(at) = self.marks.next(feed, self.pos) else {
            return self.release_words(feed, assembler);
        };
        self.note_line(feed, at);
        self.pos = at;
        match feed.bytes()[at] {
            b'`' | b'~' => self.code_mark(feed, context, at, assembler),
            _ => self.bracket(feed, context, at, assembler),
        }
    }

    /// Releases the rest of the text, in which no mark begins, but holds back a possible word
    /// before a call.
    fn release_words(&mut self, feed: &Feed<'_>, assembler: &mut Assembler) -> Step {
        self.marks.search_end_again();
        let cut = trained::cut_word(feed.text).filter(|_| !feed.eof);
        let Some(at) = cut.filter(|at| *at >= self.pos) else {
            return self.release_all(feed, assembler);
        };
        self.note_line(feed, at);
        if !self.starts_line(feed, at) {
            return self.release_all(feed, assembler);
        }
        self.pos = at;
        self.wait_at(feed, at, assembler)
    }

    /// Keeps the start of the current line.
    pub(super) fn note_line(&mut self, feed: &Feed<'_>, to: usize) {
        let from = self.pos.max(self.line);
        if let Some(at) = memchr::memrchr(b'\n', &feed.bytes()[from..to]) {
            self.line = from + at + 1;
        }
    }

    /// Whether at most white space precedes a position in its line.
    pub(super) fn starts_line(&self, feed: &Feed<'_>, at: usize) -> bool {
        at - self.line <= WIDEST_INDENT && feed.text[self.line..at].trim().is_empty()
    }

    /// Whether the current line is a block quote (A8).
    pub(super) fn in_quote(&self, feed: &Feed<'_>, at: usize) -> bool {
        let line = &feed.bytes()[self.line..at];
        let indent = line
            .iter()
            .take(8)
            .take_while(|byte| matches!(byte, b' ' | b'\t'))
            .count();
        line.get(indent) == Some(&b'>')
    }

    fn code_mark(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        at: usize,
        assembler: &mut Assembler,
    ) -> Step {
        let width = code::run(feed, at);
        if at + width == feed.len() && !feed.eof && width < code::LONGEST_RUN {
            self.release(feed, at, assembler);
            return Step::Wait;
        }
        if self.starts_line(feed, at) {
            match code::opening(feed, at, width) {
                Look::Yes(fence) => {
                    self.release(feed, at, assembler);
                    if let Some(scan) = self.tool_code(feed, context, &fence) {
                        self.place = ScanState::Block(Box::new(scan));
                        return Step::Continue;
                    }
                    self.place = ScanState::FenceStart(fence);
                    self.region = at;
                    self.region_had_block = false;
                    return Step::Continue;
                }
                Look::More => {
                    self.release(feed, at, assembler);
                    return Step::Wait;
                }
                Look::No => {}
            }
        }
        self.pos = at + width;
        if feed.bytes()[at] == b'~'
            || width >= self.unclosed_code.len()
            || self.unclosed_code[width] > at
        {
            return Step::Continue;
        }
        match self.inline.end(feed, at, width) {
            Look::Yes(end) => {
                self.note_line(feed, end);
                self.pos = end;
            }
            Look::No => {
                let line_end = feed.find_byte(b'\n', at).unwrap_or(feed.len());
                self.unclosed_code[width] = line_end;
            }
            Look::More => {
                self.pos = at;
                // Text before a mark cannot become a call or a thought, inline code or not.
                let open = feed.text[at..]
                    .find(['<', '＜', '{', '\n', thought::FIRST[0], thought::FIRST[1]])
                    .map_or(feed.len(), |offset| at + offset);
                self.release(feed, open, assembler);
                return Step::Wait;
            }
        }
        Step::Continue
    }

    /// A `<`, a `＜` or the beginning of another mark in prose.
    fn bracket(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        at: usize,
        assembler: &mut Assembler,
    ) -> Step {
        let step = feed.char_at(at).map_or(1, char::len_utf8);
        if at > 0 && feed.bytes()[at - 1] == b'\\' {
            // Escaped as Markdown does it (A8).
            self.pos = at + step;
            return Step::Continue;
        }
        let mark = self.trained_mark(feed, context, at, assembler);
        let mark = mark.or_else(|| self.message_head(feed, at, assembler));
        if let Some(step) = mark.or_else(|| self.thought_mark(feed, at, assembler)) {
            return step;
        }
        if !matches!(feed.char_at(at), Some('<' | '＜')) {
            self.pos = at + step;
            if feed.eof && !self.in_quote(feed, at) {
                self.cut_opener(feed, context, at, assembler);
            }
            return Step::Continue;
        }
        match feed.literal(at, "<!--") {
            Look::Yes(body) => {
                self.release(feed, at, assembler);
                self.place = ScanState::Comment;
                self.region = at;
                self.region_had_block = false;
                self.pos = body;
                return Step::Continue;
            }
            Look::More => return self.wait_at(feed, at, assembler),
            Look::No => {}
        }
        if step == 1 {
            match marks::any_marker(feed, at) {
                Look::Yes(marker) if marker.opens => {
                    if marker.opens_for(context.policy) && !self.in_quote(feed, at) {
                        self.release(feed, at, assembler);
                        self.remark_on_fields(feed, at, assembler);
                        self.fields_sought = marker.end;
                        self.place =
                            ScanState::Block(Box::new(BlockScan::fields(marker, at, feed)));
                        return Step::Continue;
                    }
                    let span = Span::new(at, marker.end);
                    self.remark_on_text(feed, span, !marker.lacks_nonce, assembler);
                    self.pos = marker.end;
                    return Step::Continue;
                }
                Look::Yes(marker) => {
                    self.remark_on_close(feed, Span::new(at, marker.end), Rule::T1, assembler);
                    self.pos = marker.end;
                    return Step::Continue;
                }
                Look::More => return self.wait_at(feed, at, assembler),
                Look::No => {}
            }
        }
        let tag = match tag::read(feed, at, &context.policy.limits) {
            Look::Yes(tag) => tag,
            Look::More => return self.wait_at(feed, at, assembler),
            Look::No => {
                self.pos = at + step;
                if feed.eof && !self.in_quote(feed, at) {
                    self.cut_opener(feed, context, at, assembler);
                }
                return Step::Continue;
            }
        };
        self.pos = at + step;
        let thought = Thought::of_tag(&tag, feed.text);
        if thought.is_some() && !self.in_quote(feed, at) {
            return self.begin_thought(feed, thought, tag.span, assembler);
        }
        if tag.kind == TagKind::Close && !self.lone_close {
            let name = tag.name.of(feed.text);
            let of_tool = || context.catalogue.has_visible(name);
            if closes_block(name) || (assembler.has_blocks() && of_tool()) {
                self.remark_on_close(feed, tag.span, Rule::A11, assembler);
            } else if self.tool_close.is_none() && of_tool() && !self.in_quote(feed, at) {
                self.tool_close = Some(tag.span);
            }
        }
        self.open(feed, context, &tag, assembler)
    }

    fn open(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        tag: &Tag,
        assembler: &mut Assembler,
    ) -> Step {
        let at = tag.span.start;
        let line_start = self.starts_line(feed, at);
        let Some(mut what) = opening(
            tag,
            feed.text,
            context.catalogue,
            context.policy,
            line_start,
        ) else {
            return Step::Continue;
        };
        let has_nonce = tag.has_nonce(feed);
        if !has_nonce || self.in_quote(feed, at) {
            if what != Opening::BareTool {
                self.remark_on_text(feed, tag.span, has_nonce, assembler);
            }
            self.pos = tag.span.end;
            return Step::Continue;
        }
        if what == Opening::BareTool {
            if context.policy.bare_tools {
                what = Opening::Call;
            } else if self.bare_tools >= MOST_BARE_TOOLS {
                return Step::Continue;
            }
            self.bare_tools += 1;
        }
        self.release(feed, at, assembler);
        if what != Opening::BareTool
            && let Some(close) = self.tool_close.take()
        {
            self.remark_on_lone_close(feed, close, Rule::A11, assembler);
        }
        self.place = ScanState::Block(Box::new(BlockScan::elements(what, tag, feed, context)));
        Step::Continue
    }

    pub(super) fn wait_at(
        &mut self,
        feed: &Feed<'_>,
        at: usize,
        assembler: &mut Assembler,
    ) -> Step {
        self.release(feed, at, assembler);
        Step::Wait
    }

    /// Decides whether a fence may hold a block (A7).
    fn fence_start(
        &mut self,
        feed: &Feed<'_>,
        fence: Fence,
        context: &Context<'_>,
        assembler: &mut Assembler,
    ) -> Step {
        let never = context.policy.fence == FencePolicy::Never || context.policy.strict;
        let too_late = context.policy.fence == FencePolicy::Lone && assembler.has_blocks();
        let at = feed.skip_space(fence.body);
        if !never && !too_late && self.fences < MOST_FENCES {
            if at == feed.len() && !feed.eof {
                return Step::Wait;
            }
            let alone = self.is_alone(feed, assembler, fence.start);
            let json = || {
                alone
                    .then(|| BlockScan::json_in_fence(feed, context, at))
                    .flatten()
            };
            let start = match BlockScan::at(feed, context, at) {
                BlockStart::Nothing => json().map_or(BlockStart::Nothing, |scan| {
                    BlockStart::Block(Box::new(scan))
                }),
                start => start,
            };
            match start {
                BlockStart::Block(mut scan) => {
                    self.fences += 1;
                    scan.in_fence(fence);
                    self.place = ScanState::Block(scan);
                    return Step::Continue;
                }
                BlockStart::More => return Step::Wait,
                BlockStart::Nothing => {}
            }
        }
        self.as_plain_fence(fence);
        Step::Continue
    }

    /// The content of a fence is text.
    pub(super) fn as_plain_fence(&mut self, fence: Fence) {
        self.place = ScanState::Fence(fence);
        self.pos = fence.body;
        self.line = fence.body;
    }

    fn fence(&mut self, feed: &Feed<'_>, fence: Fence, assembler: &mut Assembler) -> Step {
        loop {
            // `line` is the start of the line that is looked at.
            match code::closes(feed, &fence, self.line) {
                Look::Yes(end) => {
                    self.release(feed, end, assembler);
                    self.pos = end;
                    self.place = ScanState::Text;
                    let body = &feed.text[fence.body.min(end)..end];
                    if holds_block(body) {
                        let message = "a block inside a code fence was not run".to_owned();
                        let span = Span::new(fence.start, end);
                        assembler.diagnose(
                            Rule::A7,
                            Severity::Hint,
                            "fenced_block_not_run",
                            span,
                            message,
                            "write the block outside of a fence",
                        );
                    }
                    return Step::Continue;
                }
                Look::More => {
                    self.release(feed, self.line.max(self.released), assembler);
                    return Step::Wait;
                }
                Look::No => {}
            }
            match feed.find_byte(b'\n', self.pos.max(self.line)) {
                Some(end) => {
                    // Only a line with the mark in it closes the fence; earlier lines are skipped.
                    let from = end + 1;
                    let mark = feed.find_byte(fence.mark, from).unwrap_or(feed.len());
                    let passed = memchr::memrchr(b'\n', &feed.bytes()[from..mark]);
                    self.line = passed.map_or(from, |at| from + at + 1);
                    self.pos = self.line;
                }
                None => {
                    self.pos = feed.len();
                    self.release(feed, feed.len(), assembler);
                    return Step::Wait;
                }
            }
        }
    }

    /// Passes a comment in prose: text without calls (A15).
    fn comment(&mut self, feed: &Feed<'_>, assembler: &mut Assembler) -> Step {
        let from = self.pos.saturating_sub(2).max(self.region + 4);
        let found = feed.find("-->", from);
        let end = found.map_or(feed.len(), |at| at + 3);
        self.note_line(feed, end);
        self.pos = end;
        self.release(feed, end, assembler);
        if found.is_none() && !feed.eof {
            return Step::Wait;
        }
        if holds_block(&feed.text[self.region..end]) {
            let message = "a block inside a comment was not run".to_owned();
            assembler.diagnose(
                Rule::A15,
                Severity::Hint,
                "commented_block_not_run",
                Span::new(self.region, end),
                message,
                "",
            );
        }
        self.place = ScanState::Text;
        if found.is_none() {
            Step::Wait
        } else {
            Step::Continue
        }
    }

    fn block(&mut self, feed: &Feed<'_>, context: &Context<'_>, assembler: &mut Assembler) -> Step {
        let ScanState::Block(scan) = std::mem::take(&mut self.place) else {
            return Step::Continue;
        };
        let start = scan.start();
        let step = self.scan_block(scan, feed, context, assembler);
        if !matches!(self.place, ScanState::Block(_)) {
            // Fields before a block that turned out to be text are outside of a block as before.
            if self.released > start {
                self.fields_sought = self.fields_sought.max(self.released);
            }
            // The scanner continues behind the block; find the line it is in.
            if self.pos > start
                && let Some(at) = memchr::memrchr(b'\n', &feed.bytes()[start..self.pos])
            {
                self.line = start + at + 1;
            }
        }
        step
    }
}
