//! Handing a block to the scanner of its dialect, alone or inside a fence.

use super::code::{self, Fence};
use super::regions::cut_opener;
use super::sink::{Held, Sink};
use super::walk::{Go, Place, Walk};
use crate::dialect::element::{Context, ElementScanner, Opening, opening};
use crate::dialect::fields::FieldScanner;
use crate::dialect::fields::marks::{self, Marker};
use crate::dialect::raw::{Early, Progress, RawBlock, ScannedBlock};
use crate::scan::tag::{self, Tag};
use crate::scan::{Feed, Look};
use crate::typing::TypedAhead;
use crate::{
    BlockEnd, Dialect, FencePolicy, Problem, ProblemCode, Rule, SegmentKind, Severity, Span,
};

#[derive(Debug)]
enum Scanner {
    Elements(Box<ElementScanner>),
    Fields(Box<FieldScanner>),
}

/// A fence whose content is blocks so far.
#[derive(Debug)]
struct FenceTry {
    fence: Fence,
    done: Vec<(ScannedBlock, bool)>,
}

/// A block that is being scanned.
#[derive(Debug)]
pub(super) struct BlockScan {
    scanner: Scanner,
    /// What became known early and is not reported before the block is certain.
    early: Vec<Early>,
    opened: bool,
    /// Nothing is reported before the end: the block may turn out to be text.
    uncertain: bool,
    fence: Option<FenceTry>,
    /// The block is closed; the fence round it is looked at.
    closed: Option<usize>,
    /// Calls that were typed while the block was written.
    ahead: TypedAhead,
}

/// Whether a block starts at a position.
pub(super) enum Attempt {
    Block(Box<BlockScan>),
    Nothing,
    More,
}

impl BlockScan {
    fn new(scanner: Scanner) -> Self {
        Self {
            scanner,
            early: Vec::new(),
            opened: false,
            uncertain: false,
            fence: None,
            closed: None,
            ahead: TypedAhead::default(),
        }
    }

    pub(super) fn fields(marker: Marker, at: usize, feed: &Feed<'_>) -> Self {
        Self::new(Scanner::Fields(Box::new(FieldScanner::new(
            marker, at, feed,
        ))))
    }

    pub(super) fn elements(
        what: Opening,
        tag: &Tag,
        feed: &Feed<'_>,
        context: &Context<'_>,
    ) -> Self {
        let mut early = Vec::new();
        let scanner = ElementScanner::new(what, tag, feed, context, &mut early);
        let mut scan = Self::new(Scanner::Elements(Box::new(scanner)));
        scan.early = early;
        scan.uncertain = what == Opening::BareTool;
        scan
    }

    /// The block that starts at a position, if one does.
    pub(super) fn at(feed: &Feed<'_>, context: &Context<'_>, at: usize) -> Attempt {
        if at >= feed.len() || !feed.text[at..].starts_with(['<', '＜']) {
            return Attempt::Nothing;
        }
        let allows = |dialect: Dialect| context.policy.dialect.is_none_or(|fixed| fixed == dialect);
        if feed.bytes()[at] == b'<' {
            match marks::marker(feed, at) {
                Look::Yes(marker) if marker.opens => {
                    let tam = marker.family == marks::BlockFamily::Tam;
                    let allowed = if tam {
                        allows(Dialect::TamV1) || allows(Dialect::TamV2)
                    } else {
                        allows(Dialect::Vcp)
                    };
                    return if allowed {
                        Attempt::Block(Box::new(Self::fields(marker, at, feed)))
                    } else {
                        Attempt::Nothing
                    };
                }
                Look::More => return Attempt::More,
                _ => {}
            }
        }
        match tag::read(feed, at, &context.policy.limits) {
            Look::Yes(tag) => {
                match opening(&tag, feed.text, context.catalogue, context.policy, false) {
                    Some(what) => {
                        Attempt::Block(Box::new(Self::elements(what, &tag, feed, context)))
                    }
                    None => Attempt::Nothing,
                }
            }
            Look::More => Attempt::More,
            Look::No => Attempt::Nothing,
        }
    }

    pub(super) fn in_fence(&mut self, fence: Fence) {
        self.fence = Some(FenceTry {
            fence,
            done: Vec::new(),
        });
        self.uncertain = true;
    }

    pub(super) fn start(&self) -> usize {
        match &self.scanner {
            Scanner::Elements(scanner) => scanner.start(),
            Scanner::Fields(scanner) => scanner.start(),
        }
    }

    fn dialect(&self) -> Dialect {
        match &self.scanner {
            Scanner::Elements(scanner) => scanner.dialect(),
            Scanner::Fields(scanner) => scanner.dialect(),
        }
    }

    fn is_doubtful(&self) -> bool {
        match &self.scanner {
            Scanner::Elements(_) => false,
            Scanner::Fields(scanner) => scanner.doubtful,
        }
    }

    fn step(&mut self, feed: &Feed<'_>, context: &Context<'_>) -> Progress {
        match &mut self.scanner {
            Scanner::Elements(scanner) => scanner.step(feed, context, &mut self.early),
            Scanner::Fields(scanner) => scanner.step(feed, context, &mut self.early),
        }
    }

    /// Types what is complete, so that closing the block takes no longer than any other piece.
    fn type_ahead(&mut self, feed: &Feed<'_>, context: &Context<'_>) {
        if context.quiet || self.uncertain {
            return;
        }
        match &self.scanner {
            Scanner::Elements(scanner) => {
                if let Some(calls) = scanner.closed_calls() {
                    let dialect = scanner.dialect();
                    self.ahead.calls(calls, dialect, feed.text, context);
                }
            }
            Scanner::Fields(scanner) => {
                let dialect = scanner.dialect();
                self.ahead
                    .fields(scanner.fields(), dialect, feed.text, context);
            }
        }
    }

    /// Reports what is known, once the block is certain to be one.
    fn report(&mut self, feed: &Feed<'_>, context: &Context<'_>, sink: &mut Sink) {
        if self.uncertain || self.early.is_empty() {
            return;
        }
        self.open(sink);
        for early in std::mem::take(&mut self.early) {
            sink.early(early, feed.text, context);
        }
    }

    fn open(&mut self, sink: &mut Sink) {
        if !self.opened {
            self.opened = true;
            sink.block_opened(self.dialect(), self.start());
        }
    }

    fn into_scanned(self, at: usize, end: BlockEnd) -> (ScannedBlock, bool, Option<FenceTry>) {
        let (start, dialect, doubtful) = (self.start(), self.dialect(), self.is_doubtful());
        let raw = match self.scanner {
            Scanner::Elements(scanner) => scanner.take(),
            Scanner::Fields(scanner) => scanner.take(),
        };
        (
            ScannedBlock {
                dialect,
                span: Span::new(start, at),
                end,
                raw,
            },
            doubtful,
            self.fence,
        )
    }
}

impl Walk {
    /// Continues with the block that is being scanned.
    pub(super) fn scan_block(
        &mut self,
        mut scan: Box<BlockScan>,
        feed: &Feed<'_>,
        context: &Context<'_>,
        sink: &mut Sink,
    ) -> Go {
        if scan.closed.is_some() {
            return self.after_block_in_fence(scan, feed, context, sink);
        }
        // An unfenced block makes text of what fences held.
        if scan.fence.is_none() && !scan.uncertain && sink.is_holding() {
            sink.settle(false, feed.text, context);
        }
        let progress = scan.step(feed, context);
        match progress {
            Progress::More => {
                scan.report(feed, context, sink);
                scan.type_ahead(feed, context);
                self.place = Place::Block(scan);
                Go::Wait
            }
            Progress::NotABlock { resume } => {
                match &scan.fence {
                    Some(tried) => self.as_plain_fence(tried.fence),
                    None => {
                        if scan.uncertain {
                            let span = Span::new(scan.start(), resume);
                            let message = "a tool element without <ACTION> is text".to_owned();
                            sink.diagnose(
                                Rule::A12,
                                Severity::Hint,
                                "bare_tool_element",
                                span,
                                message,
                                "wrap the call in <ACTION>",
                            );
                        }
                        self.place = Place::Text;
                        self.pos = resume;
                    }
                }
                Go::On
            }
            Progress::Closed { at, end } if scan.fence.is_some() => {
                if !matches!(end, BlockEnd::Closed) {
                    let fence = scan.fence.as_ref().map(|tried| tried.fence);
                    if let Some(fence) = fence {
                        self.as_plain_fence(fence);
                    }
                    return Go::On;
                }
                scan.closed = Some(at);
                self.place = Place::Block(scan);
                Go::On
            }
            Progress::Closed { at, end } => {
                if sink.is_holding() {
                    sink.settle(false, feed.text, context);
                }
                scan.uncertain = false;
                scan.report(feed, context, sink);
                scan.open(sink);
                let ahead = std::mem::take(&mut scan.ahead);
                let (scanned, doubtful, _) = scan.into_scanned(at, end);
                sink.block(scanned, doubtful, ahead, feed.text, context);
                self.pos = at;
                self.released = at;
                self.place = Place::Text;
                Go::On
            }
        }
    }

    /// Behind a block in a fence: the fence closes, or another block follows, or all is text.
    fn after_block_in_fence(
        &mut self,
        scan: Box<BlockScan>,
        feed: &Feed<'_>,
        context: &Context<'_>,
        sink: &mut Sink,
    ) -> Go {
        let (Some(at), Some(fence)) = (scan.closed, scan.fence.as_ref().map(|tried| tried.fence))
        else {
            self.place = Place::Text;
            return Go::On;
        };
        let next = feed.skip_space(at);
        if next == feed.len() && !feed.eof {
            self.place = Place::Block(scan);
            return Go::Wait;
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
                self.close_fence(fence, done, end, feed, context, sink);
                return Go::On;
            }
            Look::More => {
                self.place = Place::Block(scan);
                return Go::Wait;
            }
            Look::No => {}
        }
        match BlockScan::at(feed, context, next) {
            Attempt::Block(mut following) => {
                let (scanned, doubtful, tried) = scan.into_scanned(at, BlockEnd::Closed);
                following.in_fence(fence);
                if let (Some(here), Some(before)) = (&mut following.fence, tried) {
                    here.done = before.done;
                    here.done.push((scanned, doubtful));
                }
                self.place = Place::Block(following);
                Go::On
            }
            Attempt::More => {
                self.place = Place::Block(scan);
                Go::Wait
            }
            Attempt::Nothing => {
                self.as_plain_fence(fence);
                Go::On
            }
        }
    }

    /// The message ends inside the first tag of a block: a block of which nothing is there (A10).
    pub(super) fn cut_opener(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        at: usize,
        sink: &mut Sink,
    ) {
        let dialect = cut_opener(feed.text, at);
        let allowed =
            |dialect: &Dialect| context.policy.dialect.is_none_or(|fixed| fixed == *dialect);
        let Some(dialect) = dialect.filter(allowed) else {
            return;
        };
        self.release(feed, at, sink);
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
        sink.block_opened(dialect, at);
        sink.block(scanned, false, TypedAhead::default(), feed.text, context);
        self.pos = feed.len();
        self.released = feed.len();
    }

    /// A fence that holds nothing but blocks: they run now, or wait for the end of the message.
    fn close_fence(
        &mut self,
        fence: Fence,
        done: Vec<(ScannedBlock, bool)>,
        end: usize,
        feed: &Feed<'_>,
        context: &Context<'_>,
        sink: &mut Sink,
    ) {
        let lone = context.policy.fence == FencePolicy::Lone;
        let mut from = fence.start;
        for (scanned, doubtful) in done {
            let span = scanned.span;
            let before = Span::new(from, span.start);
            if lone {
                sink.hold(Held::Fence(before));
                sink.hold(Held::Block(Box::new((scanned, doubtful))));
            } else {
                sink.segment(SegmentKind::Fence, before);
                let ahead = TypedAhead::default();
                sink.block(scanned, doubtful, ahead, feed.text, context);
            }
            from = span.end;
        }
        let rest = Span::new(from, end);
        if lone {
            sink.hold(Held::Fence(rest));
        } else {
            sink.segment(SegmentKind::Fence, rest);
        }
        self.released = end;
        self.pos = end;
        self.place = Place::Text;
    }
}
