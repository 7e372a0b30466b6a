//! Regions in which the model thinks: they hold no calls (A9).

use call_catalogue::{Rule, Severity, Span};

use super::assembler::Assembler;
use super::regions::starts_block;
use super::text_scanner::{ScanState, Step, TextScanner};
use crate::scan::{Feed, Look};
use crate::thought::{self, Thought};

impl TextScanner {
    /// Follows a mark that opens a thought and is no tag, or that closes one; `None` if there is no
    /// such mark at the position.
    pub(super) fn thought_mark(
        &mut self,
        feed: &Feed<'_>,
        at: usize,
        assembler: &mut Assembler,
    ) -> Option<Step> {
        match Thought::opened(feed, at) {
            Look::Yes((thought, end)) if !self.in_quote(feed, at) => {
                return Some(self.begin_thought(feed, thought, Span::new(at, end), assembler));
            }
            Look::More => return Some(self.wait_at(feed, at, assembler)),
            _ => {}
        }
        match thought::closed(feed, at) {
            Look::Yes(end) if !self.in_quote(feed, at) => {
                Some(self.take_back(feed, Span::new(at, end), assembler))
            }
            Look::More => Some(self.wait_at(feed, at, assembler)),
            _ => None,
        }
    }

    pub(super) fn begin_thought(
        &mut self,
        feed: &Feed<'_>,
        thought: Option<Thought>,
        mark: Span,
        assembler: &mut Assembler,
    ) -> Step {
        self.release(feed, mark.start, assembler);
        self.place = thought.map_or(ScanState::BehindThought, ScanState::Thought);
        self.region = mark.start;
        self.region_had_block = false;
        self.pos = mark.end;
        Step::Continue
    }

    /// Handles a closing mark of a thought without an opening one: the prompt opened it, so that
    /// all text before is thought.
    fn take_back(&mut self, feed: &Feed<'_>, mark: Span, assembler: &mut Assembler) -> Step {
        self.release(feed, mark.start, assembler);
        self.make_thought(feed, mark.end, false, assembler)
    }

    /// Turns all text up to a position into a thought; `opened` is whether a block was opened in it
    /// that has no end.
    pub(super) fn make_thought(
        &mut self,
        feed: &Feed<'_>,
        end: usize,
        opened: bool,
        assembler: &mut Assembler,
    ) -> Step {
        assembler.take_back(feed.text, end, opened);
        self.released = end;
        self.pos = end;
        self.place = ScanState::BehindThought;
        self.tool_close = None;
        self.lone_close = false;
        self.fences = 0;
        Step::Continue
    }

    pub(super) fn thought(
        &mut self,
        feed: &Feed<'_>,
        thought: &Thought,
        assembler: &mut Assembler,
    ) -> Step {
        loop {
            let Some(at) = thought.next_mark(feed, self.pos) else {
                return self.release_all(feed, assembler);
            };
            self.note_line(feed, at);
            self.pos = at;
            match thought.end(feed, at) {
                Look::Yes(end) => {
                    self.release(feed, end, assembler);
                    self.pos = end;
                    self.place = ScanState::BehindThought;
                    if self.region_had_block {
                        let message = "a block inside a thought was not run".to_owned();
                        let span = Span::new(self.region, end);
                        assembler.diagnose(
                            Rule::A9,
                            Severity::Hint,
                            "block_in_thought",
                            span,
                            message,
                            "write the block after the thought",
                        );
                    }
                    return Step::Continue;
                }
                Look::More => return self.wait_at(feed, at, assembler),
                Look::No => {}
            }
            match starts_block(feed, at) {
                Look::Yes(()) => self.region_had_block = true,
                Look::More => return self.wait_at(feed, at, assembler),
                Look::No => {}
            }
            self.pos = at + feed.char_at(at).map_or(1, char::len_utf8);
        }
    }

    pub(super) fn behind_thought(&mut self, feed: &Feed<'_>, assembler: &mut Assembler) -> Step {
        let end = feed.skip_space(self.pos);
        self.note_line(feed, end);
        self.pos = end;
        self.release(feed, end, assembler);
        if end == feed.len() && !feed.eof {
            return Step::Wait;
        }
        self.place = ScanState::Text;
        Step::Continue
    }
}
