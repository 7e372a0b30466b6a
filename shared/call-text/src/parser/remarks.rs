//! Remarks on marks of blocks in text that open and close no block.

use std::sync::LazyLock;

use call_catalogue::{LONE_CLOSE, Rule, Severity, Span};
use memchr::memmem::Finder;

use super::assembler::Assembler;
use super::text_scanner::TextScanner;
use crate::scan::Feed;

/// The opening delimiters of fields, with ESCAPE or without.
static MARKS: LazyLock<[Finder<'static>; 3]> =
    LazyLock::new(|| ["「始", "{始", "»»»"].map(Finder::new));

impl TextScanner {
    /// Remarks on fields in the text before a block: its opening mark, or the mark of another
    /// block, is misplaced.
    pub(super) fn remark_on_fields(
        &mut self,
        feed: &Feed<'_>,
        at: usize,
        assembler: &mut Assembler,
    ) {
        let from = self.fields_sought.min(at);
        feed.count(at - from);
        let text = &feed.text.as_bytes()[from..at];
        let mut marks = MARKS.iter().filter_map(|mark| mark.find(text));
        if let Some(found) = marks.next() {
            let span = Span::new(from + found, at);
            let message = "fields before the opening mark of a block belong to no call".to_owned();
            assembler.diagnose(
                Rule::T1,
                Severity::Hint,
                "fields_outside_block",
                span,
                message,
                "write every field between the marks of the block",
            );
        }
    }

    /// A closing mark in text: the block before it was not seen, perhaps because its opening mark is
    /// missing or misspelt.
    pub(super) fn remark_on_close(
        &mut self,
        feed: &Feed<'_>,
        span: Span,
        rule: Rule,
        assembler: &mut Assembler,
    ) {
        // A line that begins with `>` need not be a quotation: it may be the `<` of the opening mark.
        if self.quoted && self.in_quote(feed, span.start) {
            return;
        }
        self.release(feed, span.start, assembler);
        self.remark_on_lone_close(feed, span, rule, assembler);
    }

    /// Remarks on a closing mark in released text, once for each message.
    pub(super) fn remark_on_lone_close(
        &mut self,
        feed: &Feed<'_>,
        span: Span,
        rule: Rule,
        assembler: &mut Assembler,
    ) {
        if std::mem::replace(&mut self.lone_close, true) {
            return;
        }
        let mark = span.of(feed.text);
        let message = format!("'{mark}' closes no block: nothing before it was run as a call");
        assembler.diagnose(
            rule,
            Severity::Hint,
            LONE_CLOSE,
            span,
            message,
            "begin the block with its opening mark",
        );
    }

    /// Remarks on a mark that would open a block and stays text: it lacks the nonce, or is in a
    /// quotation.
    pub(super) fn remark_on_text(
        &mut self,
        feed: &Feed<'_>,
        span: Span,
        has_nonce: bool,
        assembler: &mut Assembler,
    ) {
        match has_nonce {
            true => self.remark_on_quoted(feed, span, assembler),
            false => remark_on_nonce(feed, span, assembler),
        }
    }

    /// A block in a quotation: it stays text.
    fn remark_on_quoted(&mut self, feed: &Feed<'_>, span: Span, assembler: &mut Assembler) {
        self.release(feed, span.start, assembler);
        self.quoted = true;
        let message = "a block in a quotation was not run".to_owned();
        assembler.diagnose(
            Rule::A8,
            Severity::Hint,
            "quoted_block_not_run",
            span,
            message,
            "",
        );
    }
}

/// A mark that would open a block and lacks the nonce.
fn remark_on_nonce(feed: &Feed<'_>, span: Span, assembler: &mut Assembler) {
    let mark = span.of(feed.text);
    let message = format!("'{mark}' opens no block: it lacks the nonce of this turn");
    assembler.diagnose(
        Rule::G1006,
        Severity::Warning,
        "nonce_missing",
        span,
        message,
        "open blocks with the mark that the prompt states",
    );
}
