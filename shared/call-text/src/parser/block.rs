//! A block that is being scanned by the scanner of its dialect.

use call_catalogue::{Dialect, Span};

use super::assembler::Assembler;
use super::code::Fence;
use crate::BlockEnd;
use crate::dialect::context::Context;
use crate::dialect::element::{ElementScanner, Opening, opening};
use crate::dialect::fields::FieldScanner;
use crate::dialect::fields::marks::{self, Marker};
use crate::dialect::raw::{Early, Progress, ScannedBlock};
use crate::dialect::trained::{Around, TrainedScanner};
use crate::scan::tag::{self, Tag};
use crate::scan::{Feed, Look};
use crate::typing::TypedAhead;

#[derive(Debug)]
enum Scanner {
    Elements(Box<ElementScanner>),
    Fields(Box<FieldScanner>),
    Trained(Box<TrainedScanner>),
}

/// A fence whose content is blocks so far.
#[derive(Debug)]
pub(super) struct FenceTry {
    pub(super) fence: Fence,
    pub(super) done: Vec<(ScannedBlock, bool)>,
}

/// A block that is being scanned.
#[derive(Debug)]
pub(super) struct BlockScan {
    scanner: Scanner,
    /// Facts known early that are not reported before the block is certain.
    early: Vec<Early>,
    opened: bool,
    /// Whether events wait for the end, as the block may turn out to be text.
    pub(super) uncertain: bool,
    pub(super) fence: Option<FenceTry>,
    /// Whether the block is closed, and the fence round it comes next.
    pub(super) closed: Option<usize>,
    /// The fence that it is if it turns out to be text.
    pub(super) or_fence: Option<Fence>,
    /// Calls that were typed while the block was written.
    pub(super) ahead: TypedAhead,
}

/// Whether a block starts at a position.
pub(super) enum BlockStart {
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
            or_fence: None,
            ahead: TypedAhead::default(),
        }
    }

    pub(super) fn fields(marker: Marker, at: usize, feed: &Feed<'_>) -> Self {
        Self::new(Scanner::Fields(Box::new(FieldScanner::new(
            marker, at, feed,
        ))))
    }

    pub(super) fn trained(scanner: TrainedScanner) -> Self {
        Self::new(Scanner::Trained(Box::new(scanner)))
    }

    /// A block that may turn out to be text.
    pub(super) fn doubted(scanner: TrainedScanner) -> Self {
        Self {
            uncertain: true,
            ..Self::trained(scanner)
        }
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
    pub(super) fn at(feed: &Feed<'_>, context: &Context<'_>, at: usize) -> BlockStart {
        let seeks = context.policy.seeks_formats() && context.policy.nonce.is_none();
        let trained = || {
            let opened = TrainedScanner::opened(feed, at);
            opened.or_else(|| TrainedScanner::unsupported(feed, context, at))
        };
        match if seeks { trained() } else { Look::No } {
            Look::Yes(scanner) => return BlockStart::Block(Box::new(Self::trained(scanner))),
            Look::More if at < feed.len() => return BlockStart::More,
            _ => {}
        }
        if at >= feed.len() || !feed.text[at..].starts_with(['<', '＜']) {
            return BlockStart::Nothing;
        }
        if feed.bytes()[at] == b'<' {
            match marks::marker(feed, at) {
                Look::Yes(marker) if marker.opens => {
                    return match marker.opens_for(context.policy) {
                        true => BlockStart::Block(Box::new(Self::fields(marker, at, feed))),
                        false => BlockStart::Nothing,
                    };
                }
                Look::More => return BlockStart::More,
                _ => {}
            }
        }
        match tag::read(feed, at, &context.policy.limits) {
            Look::Yes(tag) => {
                match opening(&tag, feed.text, context.catalogue, context.policy, false) {
                    Some(what) if tag.has_nonce(feed) => {
                        BlockStart::Block(Box::new(Self::elements(what, &tag, feed, context)))
                    }
                    _ => BlockStart::Nothing,
                }
            }
            Look::More => BlockStart::More,
            Look::No => BlockStart::Nothing,
        }
    }

    /// The block that the JSON value in a fence is, if the fence is all that the message holds.
    pub(super) fn json_in_fence(feed: &Feed<'_>, context: &Context<'_>, at: usize) -> Option<Self> {
        let may = context.policy.nonce.is_none();
        let scanner = may
            .then(|| TrainedScanner::json(feed, context, at, Around::Fence))
            .flatten();
        scanner.map(Self::doubted)
    }

    /// Bytes that were looked at for a call in a trained format that turned out to be text.
    pub(super) fn looked_at(&self) -> usize {
        match &self.scanner {
            Scanner::Trained(scanner) => scanner.looked_at(),
            _ => 0,
        }
    }

    /// Whether it began with a tool's element and may be text.
    pub(super) fn is_bare_tool(&self) -> bool {
        self.uncertain && matches!(self.scanner, Scanner::Elements(_))
    }

    /// Whether it is a call in a trained format that comes first in a fence.
    pub(super) fn is_lone_in_fence(&self) -> bool {
        let first = |tried: &FenceTry| tried.done.is_empty();
        matches!(self.scanner, Scanner::Trained(_)) && self.fence.as_ref().is_some_and(first)
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
            Scanner::Trained(scanner) => scanner.start(),
        }
    }

    fn dialect(&self) -> Dialect {
        match &self.scanner {
            Scanner::Elements(scanner) => scanner.dialect(),
            Scanner::Fields(scanner) => scanner.dialect(),
            Scanner::Trained(scanner) => scanner.dialect(),
        }
    }

    fn is_doubtful(&self) -> bool {
        match &self.scanner {
            Scanner::Elements(_) | Scanner::Trained(_) => false,
            Scanner::Fields(scanner) => scanner.doubtful,
        }
    }

    pub(super) fn step(&mut self, feed: &Feed<'_>, context: &Context<'_>) -> Progress {
        loop {
            let progress = match &mut self.scanner {
                Scanner::Elements(scanner) => scanner.step(feed, context, &mut self.early),
                Scanner::Fields(scanner) => scanner.step(feed, context, &mut self.early),
                Scanner::Trained(scanner) => scanner.step(feed, context),
            };
            match (&self.scanner, progress) {
                // No tag, and perhaps a name (F1).
                (Scanner::Elements(scanner), Progress::NotABlock { resume })
                    if scanner.may_be_glm() && context.policy.seeks_formats() =>
                {
                    let glm = TrainedScanner::glm(scanner.start(), resume);
                    self.scanner = Scanner::Trained(Box::new(glm));
                }
                _ => return progress,
            }
        }
    }

    /// Types complete calls and fields, so that closing the block takes no longer than any other
    /// piece.
    pub(super) fn type_ahead(&mut self, feed: &Feed<'_>, context: &Context<'_>) {
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
            Scanner::Trained(_) => {}
        }
    }

    /// Reports the known facts, once the block is certain.
    pub(super) fn report(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        assembler: &mut Assembler,
    ) {
        if self.uncertain || self.early.is_empty() {
            return;
        }
        self.open(assembler);
        for early in std::mem::take(&mut self.early) {
            assembler.early(early, feed.text, context);
        }
    }

    pub(super) fn open(&mut self, assembler: &mut Assembler) {
        if !self.opened {
            self.opened = true;
            assembler.block_opened(self.dialect(), self.start());
        }
    }

    pub(super) fn into_scanned(
        self,
        at: usize,
        end: BlockEnd,
    ) -> (ScannedBlock, bool, Option<FenceTry>) {
        let (start, dialect, doubtful) = (self.start(), self.dialect(), self.is_doubtful());
        let raw = match self.scanner {
            Scanner::Elements(scanner) => scanner.take(),
            Scanner::Fields(scanner) => scanner.take(),
            Scanner::Trained(scanner) => scanner.take(),
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
