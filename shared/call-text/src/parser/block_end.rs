//! Following a block to its end, alone or inside a fence.

use call_catalogue::{Dialect, Problem, ProblemCode, Rule, Severity, Span};

use super::assembler::{Assembler, PendingPiece};
use super::block::{BlockScan, BlockStart};
use super::code::{self, Fence};
use super::regions::cut_opener;
use super::text_scanner::{ScanState, Step, TextScanner};
use crate::dialect::context::Context;
use crate::dialect::raw::{Progress, RawBlock, ScannedBlock};
use crate::scan::{Feed, Look};
use crate::thought;
use crate::typing::TypedAhead;
use crate::{BlockEnd, FencePolicy, FinishReason, SegmentKind};

impl TextScanner {
    /// Continues with the block that is being scanned.
    pub(super) fn scan_block(
        &mut self,
        mut scan: Box<BlockScan>,
        feed: &Feed<'_>,
        context: &Context<'_>,
        assembler: &mut Assembler,
    ) -> Step {
        if scan.closed.is_some() {
            return self.after_block_in_fence(scan, feed, context, assembler);
        }
        // An unfenced block turns blocks in fences into text.
        if scan.fence.is_none() && !scan.uncertain && assembler.is_holding() {
            assembler.settle(false, feed.text, context);
        }
        let progress = scan.step(feed, context);
        if let Progress::Closed { end, .. } = progress
            && end != BlockEnd::Closed
            && scan.is_lone_in_fence()
        {
            // The message ends in the call, and the fence with it (G9).
            self.pass_fence_mark(scan.start(), assembler);
            scan.fence = None;
        }
        match progress {
            Progress::More => {
                scan.report(feed, context, assembler);
                scan.type_ahead(feed, context);
                self.place = ScanState::Block(scan);
                Step::Wait
            }
            Progress::NotABlock { resume } => self.not_a_block(&scan, resume, assembler),
            Progress::Closed { at, end } if scan.fence.is_some() => {
                if !matches!(end, BlockEnd::Closed) {
                    let fence = scan.fence.as_ref().map(|tried| tried.fence);
                    if let Some(fence) = fence {
                        self.as_plain_fence(fence);
                    }
                    return Step::Continue;
                }
                scan.closed = Some(at);
                self.place = ScanState::Block(scan);
                Step::Continue
            }
            Progress::Closed { at, end } => {
                // A draft of a call in a thought that only closes: the mark is not in a value.
                if end == BlockEnd::Truncated
                    && !matches!(
                        context.finish,
                        FinishReason::Length | FinishReason::Interrupted
                    )
                    && let Some(mark) = thought::last_closed(feed, scan.start(), at)
                {
                    return self.make_thought(feed, mark, true, assembler);
                }
                if assembler.is_holding() {
                    assembler.settle(false, feed.text, context);
                }
                scan.uncertain = false;
                scan.report(feed, context, assembler);
                scan.open(assembler);
                let ahead = std::mem::take(&mut scan.ahead);
                let (scanned, doubtful, _) = scan.into_scanned(at, end);
                assembler.block(scanned, doubtful, ahead, feed.text, context);
                self.pos = at;
                self.released = at;
                self.place = ScanState::Text;
                Step::Continue
            }
        }
    }

    /// Resolves a block that turned out to be none: it is a plain fence, or text.
    fn not_a_block(&mut self, scan: &BlockScan, resume: usize, assembler: &mut Assembler) -> Step {
        const LITTLE: usize = 512;
        self.long_looks += usize::from(scan.looked_at() > LITTLE);
        match scan
            .fence
            .as_ref()
            .map(|tried| tried.fence)
            .or(scan.or_fence)
        {
            Some(fence) => self.as_plain_fence(fence),
            None => {
                if scan.is_bare_tool() {
                    let span = Span::new(scan.start(), resume);
                    let message = "a tool element without <ACTION> is text".to_owned();
                    assembler.diagnose(
                        Rule::A12,
                        Severity::Hint,
                        "bare_tool_element",
                        span,
                        message,
                        "wrap the call in <ACTION>",
                    );
                }
                self.place = ScanState::Text;
                self.pos = resume;
            }
        }
        Step::Continue
    }

    /// Keeps the mark of a fence round a block from the published text.
    fn pass_fence_mark(&mut self, block: usize, assembler: &mut Assembler) {
        assembler.segment(
            SegmentKind::Fence,
            Span::new(self.released.min(block), block),
        );
        self.released = block;
    }

    /// Behind a block in a fence: the fence closes, or another block follows, or all is text.
    fn after_block_in_fence(
        &mut self,
        scan: Box<BlockScan>,
        feed: &Feed<'_>,
        context: &Context<'_>,
        assembler: &mut Assembler,
    ) -> Step {
        let (Some(at), Some(fence)) = (scan.closed, scan.fence.as_ref().map(|tried| tried.fence))
        else {
            self.place = ScanState::Text;
            return Step::Continue;
        };
        let next = feed.skip_space(at);
        if next == feed.len() && !feed.eof {
            self.place = ScanState::Block(scan);
            return Step::Wait;
        }
        let breaks = feed.text[at..next].contains('\n');
        let closing = if breaks {
            code::closes(feed, &fence, next)
        } else {
            Look::No
        };
        match closing {
            Look::Yes(end) => {
                let (scanned, doubtful, tried) = scan.into_scanned(at, BlockEnd::Closed);
                let mut done = tried.map(|tried| tried.done).unwrap_or_default();
                done.push((scanned, doubtful));
                self.close_fence(fence, done, end, feed, context, assembler);
                return Step::Continue;
            }
            Look::More => {
                self.place = ScanState::Block(scan);
                return Step::Wait;
            }
            Look::No => {}
        }
        let rest = feed.text[next..].trim_end();
        if feed.eof && scan.is_lone_in_fence() && rest.bytes().all(|byte| byte == fence.mark) {
            self.pass_fence_mark(scan.start(), assembler);
            let (mut scanned, doubtful, _) = scan.into_scanned(at, BlockEnd::Closed);
            let message = "the code fence round the call is not closed";
            let problem =
                Problem::new(ProblemCode::MalformedBlock, Rule::G9, scanned.span, message);
            scanned.raw.problems.push(problem);
            assembler.block(scanned, doubtful, TypedAhead::default(), feed.text, context);
            assembler.segment(SegmentKind::Fence, Span::new(at, feed.len()));
            self.pos = feed.len();
            self.released = feed.len();
            self.place = ScanState::Text;
            return Step::Continue;
        }
        match BlockScan::at(feed, context, next) {
            BlockStart::Block(mut following) => {
                let (scanned, doubtful, tried) = scan.into_scanned(at, BlockEnd::Closed);
                following.in_fence(fence);
                if let (Some(here), Some(before)) = (&mut following.fence, tried) {
                    here.done = before.done;
                    here.done.push((scanned, doubtful));
                }
                self.place = ScanState::Block(following);
                Step::Continue
            }
            BlockStart::More => {
                self.place = ScanState::Block(scan);
                Step::Wait
            }
            BlockStart::Nothing => {
                self.as_plain_fence(fence);
                Step::Continue
            }
        }
    }

    /// Ends a message inside the first tag of a block: an empty block (A10).
    pub(super) fn cut_opener(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        at: usize,
        assembler: &mut Assembler,
    ) {
        let dialect = cut_opener(feed.text, at);
        let allowed =
            |dialect: &Dialect| context.policy.dialect.is_none_or(|fixed| fixed == *dialect);
        let Some(dialect) = dialect.filter(allowed) else {
            return;
        };
        self.release(feed, at, assembler);
        let span = Span::new(at, feed.len());
        let message = "the message ends inside the first tag of a block";
        let problem = Problem::new(ProblemCode::TruncatedBlock, Rule::A10, span, message);
        let raw = RawBlock {
            problems: vec![problem],
            ..RawBlock::default()
        };
        let scanned = ScannedBlock {
            dialect,
            span,
            end: BlockEnd::Truncated,
            raw,
        };
        assembler.block_opened(dialect, at);
        assembler.block(scanned, false, TypedAhead::default(), feed.text, context);
        self.pos = feed.len();
        self.released = feed.len();
    }

    /// Closes a fence that holds only blocks: they run now, or wait for the end of the message.
    fn close_fence(
        &mut self,
        fence: Fence,
        done: Vec<(ScannedBlock, bool)>,
        end: usize,
        feed: &Feed<'_>,
        context: &Context<'_>,
        assembler: &mut Assembler,
    ) {
        let lone = context.policy.fence == FencePolicy::Lone;
        let mut from = fence.start;
        for (scanned, doubtful) in done {
            let span = scanned.span;
            let before = Span::new(from, span.start);
            if lone {
                assembler.hold(PendingPiece::Fence(before));
                assembler.hold(PendingPiece::Block(Box::new((scanned, doubtful))));
            } else {
                assembler.segment(SegmentKind::Fence, before);
                let ahead = TypedAhead::default();
                assembler.block(scanned, doubtful, ahead, feed.text, context);
            }
            from = span.end;
        }
        let rest = Span::new(from, end);
        if lone {
            assembler.hold(PendingPiece::Fence(rest));
        } else {
            assembler.segment(SegmentKind::Fence, rest);
        }
        self.released = end;
        self.pos = end;
        self.place = ScanState::Text;
    }
}
