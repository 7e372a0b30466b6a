//! Blocks made of `key:「始」value「末」` fields: TAM v1, TAM v2 and VCP.
//!
//! The scanner cuts a block into fields; stage two sorts them into commands, control keys and
//! parameters of steps, since a block may start with any key.

mod inside;
pub(crate) mod key;
pub(crate) mod marks;
mod value;

use call_catalogue::{COLON_MISSING, Class, Dialect, Problem, ProblemCode, Rule, Span, Tolerance};

use self::marks::{BlockFamily, Marker};
use self::value::{FieldStep, FieldValue};
use super::command::CommandKey;
use super::context::Context;
use super::raw::{Early, Plain, Progress, RawBlock, RawField, Written};
use crate::BlockEnd;
use crate::scan::{Feed, Look};

#[derive(Debug)]
enum FieldState {
    Between,
    /// In a comment that lasts to the end of the line.
    Line,
    Value,
}

/// Cuts one block, resumable at every byte.
#[derive(Debug)]
pub(crate) struct FieldScanner {
    family: BlockFamily,
    start: usize,
    opened: usize,
    pos: usize,
    state: FieldState,
    /// The value that is open.
    scan: Option<FieldValue>,
    raw: RawBlock,
    /// Whether the first field has the delimiters of TAM v2; `None` before that field.
    /// Later fields do not change it, so that a stream knows the dialect when it opens the block.
    is_v2: Option<bool>,
    /// Whether a value holds closing delimiters that could be read otherwise.
    pub(crate) doubtful: bool,
    literal_closers: bool,
}

impl FieldScanner {
    pub(crate) fn new(marker: Marker, start: usize, feed: &Feed<'_>) -> Self {
        let mut raw = RawBlock::default();
        if !marker.exact {
            let span = Span::new(start, marker.end);
            let usual = marker.family.dialects()[0].opening_mark(feed.nonce);
            raw.notes.push(Tolerance::new(
                Rule::T1,
                Class::Spelling,
                "marker_spelling",
                span,
                span.of(feed.text),
                &usual,
            ));
        }
        Self {
            family: marker.family,
            start,
            opened: marker.end,
            pos: marker.end,
            state: FieldState::Between,
            scan: None,
            raw,
            is_v2: None,
            doubtful: false,
            literal_closers: false,
        }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        match self.family {
            BlockFamily::Vcp => Dialect::Vcp,
            BlockFamily::Tam if self.is_v2 == Some(true) => Dialect::TamV2,
            BlockFamily::Tam => Dialect::TamV1,
        }
    }

    /// The fields that are closed.
    pub(crate) fn fields(&self) -> &[RawField] {
        &self.raw.fields
    }

    pub(crate) fn start(&self) -> usize {
        self.start
    }

    pub(crate) fn take(self) -> RawBlock {
        self.raw
    }

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
            let progress = match &self.state {
                FieldState::Between => self.between(feed, context),
                FieldState::Line => self.rest_of_line(feed),
                FieldState::Value => self.value(feed, context, early),
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

    fn between(&mut self, feed: &Feed<'_>, context: &Context<'_>) -> Option<Progress> {
        let mut at = self.pos;
        while let Some(c) = feed.char_at(at).filter(|c| is_separator(*c)) {
            at += c.len_utf8();
        }
        feed.count(at - self.pos);
        self.pos = at;
        if at == feed.len() {
            return Some(if feed.eof {
                self.truncated(feed)
            } else {
                Progress::More
            });
        }
        let known = self.scan.as_ref().and_then(|scan| scan.next);
        let known = known.filter(|(start, _)| *start == at);
        if known.is_none() {
            for comment in ["#", "//"] {
                match feed.literal(at, comment) {
                    Look::Yes(_) => {
                        self.state = FieldState::Line;
                        return None;
                    }
                    Look::More => return Some(Progress::More),
                    Look::No => {}
                }
            }
            if feed.bytes()[at] == b'<' {
                match marks::marker(feed, at) {
                    Look::Yes(marker) => return self.at_marker(feed, at, marker),
                    Look::More => return Some(Progress::More),
                    Look::No => {}
                }
            }
        }
        if self.raw.fields.len() >= context.policy.limits.parameters {
            return Some(self.limited("parameters", context.policy.limits.parameters, feed));
        }
        let start = match known {
            Some((_, start)) => Look::Yes(start),
            None => key::field_start(feed, at),
        };
        match start {
            Look::Yes(start) => {
                let before = self.dialect();
                self.is_v2.get_or_insert(start.delimiters.is_v2());
                if start.delimiters == marks::Delimiters::Brace
                    || (before == Dialect::Vcp && start.delimiters.is_v2())
                {
                    let span =
                        Span::new(start.value - start.delimiters.opener().len(), start.value);
                    let note = Tolerance::new(
                        Rule::T8,
                        Class::Spelling,
                        "delimiter_family",
                        span,
                        span.of(feed.text),
                        "「始」",
                    );
                    self.raw.notes.push(note);
                }
                self.scan = Some(FieldValue::new(start));
                self.state = FieldState::Value;
                None
            }
            Look::More => Some(Progress::More),
            Look::No => self.bare_field_or_stray(feed, context, at),
        }
    }

    fn at_marker(&mut self, feed: &Feed<'_>, at: usize, marker: Marker) -> Option<Progress> {
        let span = Span::new(at, marker.end);
        if marker.opens {
            if self.raw.fields.is_empty() {
                return Some(Progress::NotABlock { resume: at });
            }
            let message = "the block is not closed before the next one starts";
            let whole = Span::new(self.start, at);
            self.raw.problems.push(Problem::new(
                ProblemCode::TruncatedBlock,
                Rule::T34,
                whole,
                message,
            ));
            return Some(Progress::Closed {
                at,
                end: BlockEnd::Truncated,
            });
        }
        if marker.family != self.family || !marker.exact {
            let usual = if self.family == BlockFamily::Tam {
                "<|[END_TOOL]|>"
            } else {
                "<<<[END_TOOL_REQUEST]>>>"
            };
            self.raw.notes.push(Tolerance::new(
                Rule::T1,
                Class::Spelling,
                "marker_spelling",
                span,
                span.of(feed.text),
                usual,
            ));
        }
        self.pos = marker.end;
        self.note_lost_fields(feed);
        self.doubtful |= self.literal_closers
            && self
                .raw
                .fields
                .iter()
                .filter(|field| field.reading.is_any_command())
                .count()
                > 1;
        Some(Progress::Closed {
            at: marker.end,
            end: BlockEnd::Closed,
        })
    }

    /// Notes delimiters between the fields: they are left of a field that could not be read (T33).
    fn note_lost_fields(&mut self, feed: &Feed<'_>) {
        let lost = |span: &&Span| inside::holds_marks(span.of(feed.text));
        if let Some(span) = self.raw.stray.iter().find(lost) {
            let head = &feed.text[self.opened..span.start];
            let line = head
                .rfind('\n')
                .map_or(self.opened, |at| self.opened + at + 1);
            let (code, lost) = match key::without_colon(&feed.text[line..]) {
                Some(key) => (COLON_MISSING, key),
                None => ("lost_field", span.of(feed.text).trim()),
            };
            let (rule, class) = (Rule::T33, Class::Doubt);
            let note = Tolerance::new(rule, class, code, *span, lost, "");
            self.raw.notes.push(note);
        }
    }

    /// Reads `key: value` without delimiters (T10), or passes stray text (T33).
    fn bare_field_or_stray(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        at: usize,
    ) -> Option<Progress> {
        match key::key(feed, at) {
            Look::More => return Some(Progress::More),
            Look::Yes((key, after, _))
                if !context.policy.strict
                    && context.catalogue.is_known_field(key.of(feed.text)) =>
            {
                return self.bare_field(feed, key, after);
            }
            _ => {}
        }
        // Skips one run of key characters and the character behind it, so that a key further on in
        // the line is found.
        let mut here = at;
        while let Some(c) = feed.char_at(here) {
            // A marker may directly follow the remains of a field.
            if c == '<' && here > at {
                break;
            }
            here += c.len_utf8();
            if !key::is_key_char(c) || here - at > key::MOST_KEY_BYTES {
                break;
            }
        }
        feed.count(here - at);
        self.raw.stray.push(Span::new(at, here));
        self.pos = here;
        None
    }

    fn bare_field(&mut self, feed: &Feed<'_>, key: Span, after: usize) -> Option<Progress> {
        let end = match feed.find_byte(b'\n', after) {
            Some(end) => end,
            None if feed.eof => feed.len(),
            None => return Some(Progress::More),
        };
        let line = &feed.text[after..end];
        let marker = line
            .find("<|[")
            .or_else(|| line.find("<<<["))
            .map_or(end, |at| after + at);
        let value = feed.text[after..marker].trim();
        let start = if value.is_empty() {
            after
        } else {
            value.as_ptr() as usize - feed.text.as_ptr() as usize
        };
        let span = Span::new(start, start + value.len());
        // Remains of delimiters are no part of the intended value, and an empty value may have lost
        // its text.
        let class = match value.is_empty() || inside::holds_marks(value) {
            true => Class::Doubt,
            false => Class::Repair,
        };
        let note = Tolerance::new(
            Rule::T10,
            class,
            "no_delimiters",
            Span::new(key.start, marker),
            value,
            value,
        );
        self.raw.fields.push(RawField {
            key: Written::At(key),
            reading: CommandKey::read(key.of(feed.text)),
            key_span: key,
            value: Plain {
                span,
                escaped: false,
                bare: true,
            },
            notes: vec![note],
            inner_keys: Vec::new(),
        });
        self.pos = marker;
        None
    }

    fn rest_of_line(&mut self, feed: &Feed<'_>) -> Option<Progress> {
        let end = feed.find_byte(b'\n', self.pos);
        let stop = end.unwrap_or(feed.len());
        self.pos = stop;
        match end {
            Some(_) => {
                self.state = FieldState::Between;
                None
            }
            None if feed.eof => {
                self.state = FieldState::Between;
                None
            }
            None => Some(Progress::More),
        }
    }

    fn value(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        early: &mut Vec<Early>,
    ) -> Option<Progress> {
        let scan = self.scan.as_mut()?;
        let step = scan.step(feed, context);
        // A block that has grown too long ends at its limit, however much had arrived.
        let limit = self.start + context.policy.limits.block_bytes;
        let over = scan.pos() > limit;
        let grown = match &step {
            _ if context.quiet => None,
            FieldStep::Ended { inner, .. } if !over => scan.rest(*inner),
            _ => scan.grown(feed, feed.floor(limit)),
        };
        let key = scan.key_span();
        if let Some(span) = grown {
            early.push(Early::Delta {
                call: 0,
                argument: self.raw.fields.len(),
                name: key.of(feed.text).to_owned(),
                span,
            });
        }
        if over {
            self.pos = limit;
            return Some(self.limited("block bytes", context.policy.limits.block_bytes, feed));
        }
        match step {
            FieldStep::More => {
                self.pos = scan.pos();
                Some(Progress::More)
            }
            FieldStep::Ended { inner, after } => {
                let field = scan.take_field(feed, inner);
                let names_call = field.reading.names_call(self.family == BlockFamily::Vcp);
                if !context.quiet && names_call {
                    let trimmed = inner.of(feed.text).trim();
                    early.push(Early::Call {
                        call: 0,
                        name: trimmed.to_owned(),
                        span: inner,
                    });
                }
                self.raw.notes.extend(scan.crossing.take());
                self.literal_closers |= scan.literal_closer;
                self.doubtful |= scan.doubled_closer;
                self.pos = after;
                self.state = FieldState::Between;
                self.raw.fields.push(field);
                None
            }
            FieldStep::TooLong { at } => {
                self.pos = at;
                Some(self.limited("value bytes", context.policy.limits.value_bytes, feed))
            }
            FieldStep::Unclosed { marker_at } => {
                Some(self.unclosed(feed, key.of(feed.text), marker_at))
            }
        }
    }

    fn unclosed(&mut self, feed: &Feed<'_>, key: &str, marker_at: Option<usize>) -> Progress {
        let Some(at) = marker_at else {
            let message = format!("the block ends inside '{key}'");
            return self.cut_off(Span::new(self.start, feed.len()), message);
        };
        let end = match marks::marker(feed, at) {
            Look::Yes(marker) => marker.end,
            _ => at,
        };
        let span = Span::new(self.start, end);
        let message = format!("the value of '{key}' is not closed before the end of the block");
        self.raw.problems.push(
            Problem::new(ProblemCode::UnterminatedValue, Rule::T9, span, message)
                .at(format!("/{key}")),
        );
        self.pos = end;
        Progress::Closed {
            at: end,
            end: BlockEnd::Closed,
        }
    }

    fn truncated(&mut self, feed: &Feed<'_>) -> Progress {
        let stray = self
            .raw
            .stray
            .iter()
            .any(|span| !span.of(feed.text).trim().is_empty());
        if self.raw.fields.is_empty() && stray && !key::is_cut(&feed.text[self.opened..]) {
            return Progress::NotABlock {
                resume: self.opened,
            };
        }
        let message = match self.raw.fields.last() {
            Some(field) => format!(
                "the block is not closed; the last complete field is '{}'",
                field.key.of(feed.text)
            ),
            None => "the block was opened and not closed".to_owned(),
        };
        self.cut_off(Span::new(self.start, feed.len()), message)
    }

    fn cut_off(&mut self, span: Span, message: String) -> Progress {
        self.raw.cut_off(Rule::T34, span, message)
    }

    fn limited(&mut self, what: &str, limit: usize, feed: &Feed<'_>) -> Progress {
        let span = Span::new(self.start, feed.floor(self.pos));
        self.raw.limited(what, limit, span)
    }
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || matches!(c, ',' | ';' | '，' | '；' | '、' | '\u{feff}' | '\u{200b}')
}

/// The separators behind a closing delimiter that were skipped already.
#[derive(Debug, Clone, Copy, Default)]
struct SeparatorMemo {
    from: usize,
    at: usize,
    /// Whether a line break or a comma is among them.
    separated: bool,
    in_comment: bool,
}

/// First position after separators and comment lines, and whether a line break or a comma is
/// among them.
fn skip_separators(feed: &Feed<'_>, from: usize, memo: &mut SeparatorMemo) -> Look<(usize, bool)> {
    if memo.from != from || memo.at < from {
        *memo = SeparatorMemo {
            from,
            at: from,
            ..SeparatorMemo::default()
        };
    }
    let before = memo.at;
    loop {
        if memo.in_comment {
            match feed.find_byte(b'\n', memo.at) {
                Some(end) => memo.at = end,
                None => {
                    memo.at = feed.len();
                    return if feed.eof {
                        Look::Yes((memo.at, memo.separated))
                    } else {
                        Look::More
                    };
                }
            }
            memo.in_comment = false;
        }
        while let Some(c) = feed.char_at(memo.at).filter(|c| is_separator(*c)) {
            memo.separated |= !matches!(c, ' ' | '\t');
            memo.at += c.len_utf8();
        }
        feed.count(memo.at.saturating_sub(before));
        let next = feed.bytes().get(memo.at);
        if next.is_some_and(|next| !matches!(next, b'#' | b'/')) {
            return Look::Yes((memo.at, memo.separated));
        }
        match (feed.literal(memo.at, "#"), feed.literal(memo.at, "//")) {
            (Look::Yes(_), _) | (_, Look::Yes(_)) => memo.in_comment = true,
            (Look::More, _) | (_, Look::More) => return Look::More,
            _ => return Look::Yes((memo.at, memo.separated)),
        }
    }
}
