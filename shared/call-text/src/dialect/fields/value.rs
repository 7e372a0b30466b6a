//! The end of a delimited value (T5): the first closing delimiter after which the block continues
//! as fields or ends. Pairs inside the value are counted as a tie-breaker.

use call_catalogue::{Class, Rule, Span, Tolerance};

use super::inside::{self, InnerMarks};
use super::key::{self, FieldStart};
use super::marks::{self, Delimiters};
use crate::dialect::command::CommandKey;
use crate::dialect::context::Context;
use crate::dialect::raw::{Plain, RawField, Written};
use crate::scan::{Feed, Look};

#[derive(Debug, Clone, Copy)]
struct Cut {
    inner_end: usize,
    after: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum FieldStep {
    More,
    Ended {
        inner: Span,
        after: usize,
    },
    TooLong {
        at: usize,
    },
    /// No end; the block's end marker was seen inside.
    Unclosed {
        marker_at: Option<usize>,
    },
}

/// The part of a block that follows a closing delimiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Follow {
    Field,
    BlockEnd,
    Text,
    /// Another closing delimiter alone.
    Closer,
}

#[derive(Debug)]
pub(super) struct FieldValue {
    start: FieldStart,
    pos: usize,
    /// Opening delimiters inside the value that are not closed.
    depth: usize,
    /// Block markers opened inside the value.
    blocks: usize,
    counted: Option<Cut>,
    mixed: Option<(Cut, Delimiters)>,
    missing: Option<Cut>,
    weak: Option<Cut>,
    marker_seen: Option<usize>,
    reported: usize,
    /// Everything before `.0` is no closing delimiter; looked at up to `.1`.
    tail: (usize, usize),
    /// The end of the text that was searched for line breaks.
    newest: usize,
    /// The end (`.1`) of the text that was searched behind the closing delimiter at `.0`.
    searched: (usize, usize),
    separators: super::SeparatorMemo,
    /// Whether another closing delimiter directly follows a closing delimiter inside the value.
    pub(super) doubled_closer: bool,
    pub(super) literal_closer: bool,
    /// Whether a mark, or a possible mark, is inside the value.
    marked: bool,
    /// The value ran over the end of its block into another one.
    pub(super) crossing: Option<Tolerance>,
    /// A field that was read behind a closing delimiter.
    pub(super) next: Option<(usize, FieldStart)>,
    notes: Vec<Tolerance>,
}

impl FieldValue {
    pub(super) fn new(start: FieldStart) -> Self {
        Self {
            start,
            pos: start.value,
            depth: 0,
            blocks: 0,
            counted: None,
            mixed: None,
            missing: None,
            weak: None,
            marker_seen: None,
            reported: start.value,
            tail: (start.value, start.value),
            newest: start.value,
            searched: (0, 0),
            separators: super::SeparatorMemo::default(),
            doubled_closer: false,
            literal_closer: false,
            marked: false,
            crossing: None,
            next: None,
            notes: Vec::new(),
        }
    }

    pub(super) fn key_span(&self) -> Span {
        self.start.key
    }

    pub(super) fn pos(&self) -> usize {
        self.pos
    }

    pub(super) fn take_field(&mut self, feed: &Feed<'_>, inner: Span) -> RawField {
        let mut notes = std::mem::take(&mut self.notes);
        if self.start.drifted_colon {
            let span = Span::new(self.start.key.start, self.start.value);
            notes.push(Tolerance::new(
                Rule::T11,
                Class::Spelling,
                "colon_spelling",
                span,
                span.of(feed.text),
                ":",
            ));
        }
        let inside = match self.marked {
            true => inside::look(feed, self.start.delimiters, inner),
            false => InnerMarks::default(),
        };
        self.crossing = inside.judge(feed, inner, &mut notes);
        RawField {
            key: Written::At(self.start.key),
            reading: CommandKey::read(self.start.key.of(feed.text)),
            key_span: self.start.key,
            value: Plain {
                span: inner,
                escaped: self.start.delimiters.is_escape(),
                bare: false,
            },
            notes,
            inner_keys: inside.keys,
        }
    }

    /// The part of the value before `most` that became certain since the last call. A possible
    /// closing delimiter of another family, or in TAM v2 a possible next field, is held back.
    pub(super) fn grown(&mut self, feed: &Feed<'_>, most: usize) -> Option<Span> {
        let reach = self.pos.min(most).max(self.newest);
        let new = &feed.text[self.newest..reach];
        feed.count(new.len());
        let whole_lines = new.rfind('\n').map(|at| self.newest + at + 1);
        self.newest = reach;
        let sure = if self.start.delimiters.is_v2() {
            whole_lines.unwrap_or(self.tail.1)
        } else {
            reach
        };
        let text = &feed.text[self.tail.1..sure];
        if let Some((at, c)) = text.char_indices().rev().find(|(_, c)| !may_close(*c)) {
            self.tail.0 = self.tail.1 + at + c.len_utf8();
        }
        self.tail.1 = sure;
        let cuts = [
            self.counted,
            self.mixed.map(|(cut, _)| cut),
            self.missing,
            self.weak,
        ];
        let certain = cuts
            .iter()
            .flatten()
            .map(|cut| cut.inner_end)
            .fold(self.tail.0, usize::min);
        (certain > self.reported).then(|| {
            let span = Span::new(self.reported, certain);
            self.reported = certain;
            span
        })
    }

    pub(super) fn rest(&self, inner: Span) -> Option<Span> {
        (inner.end > self.reported).then(|| Span::new(self.reported, inner.end))
    }

    pub(super) fn step(&mut self, feed: &Feed<'_>, context: &Context<'_>) -> FieldStep {
        let (open_byte, close_byte) = self.start.delimiters.first_bytes();
        loop {
            let found = memchr::memchr3(open_byte, close_byte, b'<', &feed.bytes()[self.pos..]);
            let reach = found.unwrap_or(feed.len() - self.pos);
            feed.count(reach);
            // Measured to the next mark, so that chunks make no difference.
            let most = context.policy.limits.value_bytes;
            if self.pos + reach - self.start.value > most {
                self.pos = feed.floor(self.start.value + most);
                return FieldStep::TooLong { at: self.pos };
            }
            let Some(offset) = found else {
                // A foreign closing delimiter matters only where the block ends without an own one.
                self.pos = feed.len();
                return if feed.eof {
                    self.at_end()
                } else {
                    FieldStep::More
                };
            };
            self.pos += offset;
            let at = self.pos;
            match self.token(feed, context, at) {
                Look::Yes(Some(ended)) => return ended,
                Look::Yes(None) => self.marked = true,
                Look::No => {
                    let c = feed.char_at(at).unwrap_or('<');
                    self.marked |= c != '<' && inside::may_delimit(c);
                    self.marked |= self.start.delimiters.is_escape();
                    self.pos = at + c.len_utf8();
                }
                Look::More => {
                    self.pos = at;
                    return FieldStep::More;
                }
            }
        }
    }

    fn end_at(&self, cut: Cut) -> FieldStep {
        FieldStep::Ended {
            inner: Span::new(self.start.value, cut.inner_end),
            after: cut.after,
        }
    }

    fn token(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        at: usize,
    ) -> Look<Option<FieldStep>> {
        let own = self.start.delimiters;
        match feed.literal_any_case(at, own.closer()) {
            Look::Yes(end) => return self.at_closer(feed, context, at, end),
            Look::More => return Look::More,
            Look::No => {}
        }
        if own.is_escape() {
            return Look::No;
        }
        match feed.literal_any_case(at, own.opener()) {
            Look::Yes(end) => {
                self.at_opener(feed, context, at);
                self.pos = end;
                return Look::Yes(None);
            }
            Look::More => return Look::More,
            Look::No => {}
        }
        if feed.bytes()[at] != b'<' {
            return Look::No;
        }
        let marker = match marks::marker(feed, at) {
            Look::Yes(marker) => marker,
            Look::No => return Look::No,
            Look::More => return Look::More,
        };
        self.pos = marker.end;
        if marker.opens {
            self.blocks += 1;
        } else if self.blocks > 0 {
            self.blocks -= 1;
        } else if starts_line(feed, at, self.start.value) {
            return Look::Yes(self.at_block_end(feed, at));
        }
        Look::Yes(None)
    }

    /// The block's end marker without an own closing delimiter before it.
    fn at_block_end(&mut self, feed: &Feed<'_>, at: usize) -> Option<FieldStep> {
        self.marked = true;
        self.look_for_foreign_closer(feed, at);
        if self.start.delimiters.is_v2()
            && self.missing.is_none()
            && self.mixed.is_none()
            && self.counted.is_none()
        {
            self.missing = Some(self.end_of_text(feed, at));
        }
        let ended = self.best_cut();
        if ended.is_none() {
            self.marker_seen.get_or_insert(at);
        }
        ended
    }

    /// The end of the text before a line: there a missing delimiter is supplied (T9).
    fn end_of_text(&self, feed: &Feed<'_>, line: usize) -> Cut {
        let text = feed.text[self.start.value..line].trim_end();
        Cut {
            inner_end: self.start.value + text.len(),
            after: line,
        }
    }

    /// A closing delimiter of another family directly before the end marker (T8).
    fn look_for_foreign_closer(&mut self, feed: &Feed<'_>, at: usize) {
        let value = &feed.text[self.start.value..at];
        let trimmed = value.trim_end_matches(|c: char| c.is_whitespace() || ",;，；".contains(c));
        for &delimiters in Delimiters::ALL {
            if let Some(inner) = trimmed.strip_suffix(delimiters.closer()) {
                let inner_end = self.start.value + inner.len();
                let cut = Cut {
                    inner_end,
                    after: inner_end + delimiters.closer().len(),
                };
                self.mixed.get_or_insert((cut, delimiters));
                return;
            }
        }
    }

    fn at_opener(&mut self, feed: &Feed<'_>, context: &Context<'_>, at: usize) {
        let key = key::key_before(feed, at, self.start.value);
        if self.start.delimiters == Delimiters::Arrow && key.is_none() {
            return;
        }
        if self.depth == 0
            && let Some((_, line)) =
                key.filter(|(key, _)| context.catalogue.is_known_field(key.of(feed.text)))
        {
            self.end_before_field(feed, line);
        }
        self.depth += 1;
    }

    /// A known field starts at a line inside the value: the closing delimiter before it may be of
    /// another family (T8) or missing (T9).
    fn end_before_field(&mut self, feed: &Feed<'_>, line: usize) {
        let value = &feed.text[self.start.value..line];
        let trimmed = value.trim_end_matches(|c: char| c.is_whitespace() || ",;，；".contains(c));
        for &delimiters in Delimiters::ALL
            .iter()
            .filter(|delimiters| **delimiters != self.start.delimiters)
        {
            if let Some(inner) = trimmed.strip_suffix(delimiters.closer()) {
                let inner_end = self.start.value + inner.len();
                self.mixed.get_or_insert((
                    Cut {
                        inner_end,
                        after: inner_end + delimiters.closer().len(),
                    },
                    delimiters,
                ));
                return;
            }
        }
        if self.start.delimiters.is_v2() {
            let cut = self.end_of_text(feed, line);
            self.missing.get_or_insert(cut);
        }
    }

    fn at_closer(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        at: usize,
        end: usize,
    ) -> Look<Option<FieldStep>> {
        let cut = Cut {
            inner_end: at,
            after: end,
        };
        if self.start.delimiters.is_escape() {
            return Look::Yes(Some(self.end_at(cut)));
        }
        let follow = match self.follow(feed, context, end) {
            Look::Yes(follow) => follow,
            _ => return Look::More,
        };
        self.pos = end;
        let fits = matches!(follow, Follow::Field | Follow::BlockEnd);
        if self.depth > 0 {
            self.depth -= 1;
            if fits {
                self.counted.get_or_insert(cut);
            }
            if follow == Follow::BlockEnd && self.blocks == 0 {
                return Look::Yes(self.best_cut());
            }
        } else if fits && self.blocks == 0 {
            let cut = self.without_doubled_closer(feed, cut);
            return Look::Yes(Some(self.end_at(cut)));
        } else if fits {
            self.counted.get_or_insert(cut);
        } else {
            self.literal_closer = true;
            // Rows of arrows are drawn in text, for instance where versions conflict.
            self.doubled_closer |=
                follow == Follow::Closer && self.start.delimiters != Delimiters::Arrow;
            self.weak = Some(cut);
        }
        Look::Yes(None)
    }

    /// Moves the end to an earlier closing delimiter that lies directly before it
    /// (T5).
    fn without_doubled_closer(&mut self, feed: &Feed<'_>, cut: Cut) -> Cut {
        let doubled = |weak: &Cut| {
            let between = feed.text.get(weak.after..cut.inner_end);
            self.start.delimiters != Delimiters::Arrow
                && between.is_some_and(|between| between.trim().is_empty())
        };
        let Some(weak) = self.weak.filter(doubled) else {
            return cut;
        };
        let span = Span::new(weak.after, cut.after);
        self.notes.push(Tolerance::new(
            Rule::T5,
            Class::Repair,
            "doubled_closer",
            span,
            span.of(feed.text).trim(),
            "",
        ));
        Cut {
            inner_end: weak.inner_end,
            ..cut
        }
    }

    /// Returns the part of a block that follows a closing delimiter.
    fn follow(&mut self, feed: &Feed<'_>, context: &Context<'_>, after: usize) -> Look<Follow> {
        let (at, separated) = match super::skip_separators(feed, after, &mut self.separators) {
            Look::Yes(answer) => answer,
            _ => return Look::More,
        };
        if at == feed.len() {
            return Look::Yes(Follow::BlockEnd);
        }
        if feed.bytes()[at] == b'<' {
            match marks::marker(feed, at) {
                // A block that starts at a line of its own ends this one (T34).
                Look::Yes(marker) if marker.opens && !starts_line(feed, at, after) => {
                    return Look::Yes(Follow::Text);
                }
                Look::Yes(_) => return Look::Yes(Follow::BlockEnd),
                Look::More => return Look::More,
                Look::No => {}
            }
        }
        match feed.literal_any_case(at, self.start.delimiters.closer()) {
            Look::Yes(_) => return Look::Yes(Follow::Closer),
            Look::More => return Look::More,
            Look::No => {}
        }
        match key::field_start(feed, at) {
            Look::Yes(start) => {
                self.next = Some((at, start));
                let known = || context.catalogue.is_known_field(start.key.of(feed.text));
                return Look::Yes(if separated || known() {
                    Follow::Field
                } else {
                    Follow::Text
                });
            }
            Look::More => return Look::More,
            Look::No => {}
        }
        self.follow_remark(feed, context, at)
    }

    /// Decides on text behind the closing delimiter: it is a remark if the next mark is a known
    /// field at the start of a line, or the end of the block (T33).
    fn follow_remark(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        from: usize,
    ) -> Look<Follow> {
        let own = self.start.delimiters;
        let (open_byte, close_byte) = own.first_bytes();
        if self.searched.0 != from {
            self.searched = (from, from);
        }
        loop {
            let here = self.searched.1;
            let found = memchr::memchr3(open_byte, close_byte, b'<', &feed.bytes()[here..]);
            feed.count(found.unwrap_or(feed.len() - here));
            let Some(offset) = found else {
                self.searched.1 = feed.len();
                return if feed.eof {
                    Look::Yes(Follow::BlockEnd)
                } else {
                    Look::More
                };
            };
            let at = here + offset;
            self.searched.1 = at;
            let mut more = false;
            match feed.literal_any_case(at, own.closer()) {
                Look::Yes(_) => return Look::Yes(Follow::Text),
                Look::More => more = true,
                Look::No => {}
            }
            match feed.literal_any_case(at, own.opener()) {
                Look::Yes(_) => {
                    let key = key::key_before(feed, at, from);
                    let known = key.is_some_and(|(key, _)| {
                        context.catalogue.is_known_field(key.of(feed.text))
                    });
                    return Look::Yes(if known { Follow::Field } else { Follow::Text });
                }
                Look::More => more = true,
                Look::No => {}
            }
            if feed.bytes()[at] == b'<' {
                match marks::marker(feed, at) {
                    Look::Yes(marker) => {
                        let ends = !marker.opens && starts_line(feed, at, from);
                        return Look::Yes(if ends { Follow::BlockEnd } else { Follow::Text });
                    }
                    Look::More => more = true,
                    Look::No => {}
                }
            }
            if more {
                return Look::More;
            }
            self.searched.1 = at + feed.char_at(at).map_or(1, char::len_utf8);
        }
    }

    /// The best of the places passed over.
    fn best_cut(&mut self) -> Option<FieldStep> {
        if self.start.delimiters.is_v2()
            && let Some(cut) = self.missing
        {
            let span = Span::new(cut.inner_end, cut.after);
            let closer = self.start.delimiters.closer();
            self.notes.push(Tolerance::new(
                Rule::T9,
                Class::Repair,
                "missing_closer",
                span,
                "",
                closer,
            ));
            return Some(self.end_at(cut));
        }
        if let Some((cut, delimiters)) = self.mixed {
            let span = Span::new(cut.inner_end, cut.after);
            let (before, after) = (delimiters.closer(), self.start.delimiters.closer());
            self.notes.push(Tolerance::new(
                Rule::T8,
                Class::Repair,
                "mixed_delimiters_used",
                span,
                before,
                after,
            ));
            return Some(self.end_at(cut));
        }
        let cut = self.counted?;
        self.literal_closer = true;
        Some(self.end_at(cut))
    }

    fn at_end(&mut self) -> FieldStep {
        self.marked = true;
        if let Some(ended) = self.best_cut() {
            return ended;
        }
        match self.weak.filter(|_| self.marker_seen.is_some()) {
            Some(cut) => self.end_at(cut),
            None => FieldStep::Unclosed {
                marker_at: self.marker_seen,
            },
        }
    }
}

/// Whether a character may belong to a closing delimiter or follow one.
fn may_close(c: char) -> bool {
    c.is_whitespace() || ",;，；「末」{}«<".contains(c) || "escape".contains(c.to_ascii_lowercase())
}

/// Whether only blanks lie between the start of the line and `at`.
fn starts_line(feed: &Feed<'_>, at: usize, floor: usize) -> bool {
    let bytes = feed.bytes();
    let mut here = at;
    while here > floor {
        match bytes[here - 1] {
            b' ' | b'\t' => here -= 1,
            b'\n' => return true,
            _ => return false,
        }
        if at - here > 64 {
            return false;
        }
    }
    true
}
