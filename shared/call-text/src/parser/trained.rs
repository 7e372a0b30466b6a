//! Marks of the formats to which models fall back (F1 to F9), in the text between blocks.

use call_catalogue::Span;

use super::assembler::Assembler;
use super::block::BlockScan;
use super::code::Fence;
use super::text_scanner::{ScanState, Step, TextScanner};
use crate::dialect::context::Context;
use crate::dialect::trained::{self, Around, TrainedScanner};
use crate::scan::{Feed, Look};

/// The most long texts that are tried as calls and turn out to be text, so that the work stays
/// linear.
const MOST_LONG_LOOKS: usize = 8;

impl TextScanner {
    /// Follows a mark that opens a call in a trained format; `None` if there is no such mark at the
    /// position.
    pub(super) fn trained_mark(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        at: usize,
        assembler: &mut Assembler,
    ) -> Option<Step> {
        if !context.policy.seeks_formats() {
            return None;
        }
        let may_look_far = self.long_looks <= MOST_LONG_LOOKS;
        let mut look = Look::No;
        if trained::may_open(feed, at) {
            look = TrainedScanner::opened(feed, at);
            if may_look_far {
                look = look
                    .or_else(|| TrainedScanner::unsupported(feed, context, at))
                    .or_else(|| self.functools(feed, context, at));
            }
        }
        let begins_line = matches!(look, Look::No)
            && may_look_far
            && feed.bytes()[at] != b'<'
            && (self.starts_line(feed, at) || trained::follows_near_mark(feed, at));
        if begins_line {
            let list = TrainedScanner::python_list(feed, context, at);
            look = list.or_else(|| TrainedScanner::react(feed, context, at));
        }
        match look {
            Look::Yes(scanner) if self.in_quote(feed, at) => {
                let mark = scanner.mark();
                self.remark_on_text(feed, mark, true, assembler);
                self.pos = at + feed.char_at(at).map_or(1, char::len_utf8);
                Some(Step::Continue)
            }
            Look::Yes(scanner) => Some(self.begin(feed, scanner, false, context, assembler)),
            Look::More => Some(self.wait_at(feed, at, assembler)),
            Look::No if begins_line => {
                let around = match self.is_alone(feed, assembler, at) {
                    true => Around::Nothing,
                    false => Around::Text,
                };
                let scanner = TrainedScanner::json(feed, context, at, around)?;
                Some(self.begin(feed, scanner, true, context, assembler))
            }
            Look::No => None,
        }
    }

    /// The scanner of the list that a bracket opens behind its word, where the word is not released.
    fn functools(&self, feed: &Feed<'_>, context: &Context<'_>, at: usize) -> Look<TrainedScanner> {
        let scanner = TrainedScanner::functools(feed, context, at);
        let held = |scanner: &TrainedScanner| {
            scanner.start() >= self.released && self.starts_line(feed, scanner.start())
        };
        scanner.filter(held).map_or(Look::No, Look::Yes)
    }

    /// Enters a block, which may be text where that is `doubted`; without the nonce of the turn it is text.
    fn begin(
        &mut self,
        feed: &Feed<'_>,
        scanner: TrainedScanner,
        doubted: bool,
        context: &Context<'_>,
        assembler: &mut Assembler,
    ) -> Step {
        let mark = scanner.mark();
        if context.policy.nonce.is_some() {
            if !doubted {
                self.remark_on_text(feed, mark, false, assembler);
            }
            self.pos = mark.end;
            return Step::Continue;
        }
        let scan = match doubted {
            true => BlockScan::doubted(scanner),
            false => BlockScan::trained(scanner),
        };
        self.release(feed, mark.start, assembler);
        self.place = ScanState::Block(Box::new(scan));
        Step::Continue
    }

    /// Follows the head of a message of gpt-oss that is no call: it belongs to no text.
    pub(super) fn message_head(
        &mut self,
        feed: &Feed<'_>,
        at: usize,
        assembler: &mut Assembler,
    ) -> Option<Step> {
        if !matches!(feed.bytes().get(at + 1), None | Some(b'|')) {
            return None;
        }
        let hidden = match trained::head(feed, at) {
            Look::Yes(head) => {
                self.heads = true;
                (head.calls.is_none() && head.comments).then_some(head.end)
            }
            Look::More => return Some(self.wait_at(feed, at, assembler)),
            Look::No if self.heads => match trained::tail(feed, at) {
                Look::Yes(end) => Some(end),
                Look::More => return Some(self.wait_at(feed, at, assembler)),
                Look::No => None,
            },
            Look::No => None,
        };
        let end = hidden.filter(|_| !self.in_quote(feed, at))?;
        Some(self.begin_thought(feed, None, Span::new(at, end), assembler))
    }

    /// Whether only thoughts and white space precede a position.
    pub(super) fn is_alone(&self, feed: &Feed<'_>, assembler: &Assembler, at: usize) -> bool {
        let is_blank = |span: Span| span.of(feed.text).trim().is_empty();
        let unreleased = Span::new(self.released.min(at), at);
        let fresh = !assembler.has_blocks() && is_blank(unreleased);
        fresh && assembler.prose().all(is_blank) && assembler.holds_blocks_only(feed.text)
    }

    /// The block that a fence with a call in Python is.
    pub(super) fn tool_code(
        &self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        fence: &Fence,
    ) -> Option<BlockScan> {
        let word = feed.text[fence.start + fence.width..fence.body].trim();
        let seeks = word == trained::FENCE
            && context.policy.seeks_formats()
            && context.policy.nonce.is_none()
            && self.long_looks <= MOST_LONG_LOOKS;
        let scanner = seeks.then(|| TrainedScanner::tool_code(fence.start, fence.body))?;
        let mut scan = BlockScan::doubted(scanner);
        scan.or_fence = Some(*fence);
        Some(scan)
    }
}
