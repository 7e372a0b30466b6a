//! Marks inside a value that show that its end was missed (T5, T9).

use call_catalogue::{Class, MARK_INSIDE_VALUE, Rule, Span, Tolerance};

use super::key;
use super::marks::{self, Delimiters};
use crate::dialect::command::CommandKey;
use crate::scan::{Feed, Look};

/// The marks inside a value.
#[derive(Debug, Default)]
pub(super) struct InnerMarks {
    /// Texts before a delimiter, or behind a closing one, that look like the key of a field.
    pub(super) keys: Vec<Span>,
    /// A delimiter that makes the end of the value doubtful.
    doubt: Option<Span>,
    /// A mark of another block, whose fields are probably mixed with the fields of this one.
    crossed: Option<Span>,
}

impl InnerMarks {
    /// Adds tolerances for the marks in a value, and returns the tolerance of a block that took in
    /// the fields of another block. A repaired value that holds a possible remnant of a mark is not
    /// certain to be the intended value.
    pub(super) fn judge(
        &self,
        feed: &Feed<'_>,
        value: Span,
        notes: &mut Vec<Tolerance>,
    ) -> Option<Tolerance> {
        let repairs = notes.iter_mut().filter(|note| note.class.is_repair());
        let mut repairs = repairs.peekable();
        if repairs.peek().is_some() && holds_remains(value.of(feed.text)) {
            repairs.for_each(|note| note.class = Class::Doubt);
        }
        notes.extend(self.note(feed));
        self.crossing(feed)
    }

    /// The tolerance of a block that took in the fields of another block.
    fn crossing(&self, feed: &Feed<'_>) -> Option<Tolerance> {
        let span = self.crossed?;
        let (rule, class) = (Rule::T9, Class::Doubt);
        let mark = span.of(feed.text);
        Some(Tolerance::new(
            rule,
            class,
            "two_blocks_in_one",
            span,
            mark,
            "",
        ))
    }

    /// The tolerance of a value that was probably cut wrong.
    fn note(&self, feed: &Feed<'_>) -> Option<Tolerance> {
        let span = self.doubt?;
        let (rule, class) = (Rule::T5, Class::Doubt);
        let before = span.of(feed.text);
        Some(Tolerance::new(
            rule,
            class,
            MARK_INSIDE_VALUE,
            span,
            before,
            "",
        ))
    }
}

/// Whether a text holds a delimiter of the corner, brace or guillemet family, or half of one.
pub(super) fn holds_marks(text: &str) -> bool {
    let mut marks = ["始", "末", "»»", "««"].into_iter();
    marks.any(|mark| memchr::memmem::find(text.as_bytes(), mark.as_bytes()).is_some())
}

/// Whether a text holds a delimiter or the mark of a block, or begins or ends with a possible
/// remnant of one. Separators of fields come behind a delimiter.
fn holds_remains(text: &str) -> bool {
    const WIDEST: usize = 3;
    let part = |c: char| "「」»«".contains(c);
    let text = text.trim();
    let blocks = ["<|[", "<<<["];
    holds_marks(text)
        || blocks.iter().any(|mark| text.contains(mark))
        || text.ends_with([',', '，', ';', '；'])
        || text.chars().take(WIDEST).any(part)
        || text.chars().rev().take(WIDEST).any(part)
}

/// Whether a delimiter may begin with a character.
pub(super) fn may_delimit(c: char) -> bool {
    matches!(c, '「' | '{' | '»' | '«' | '>' | '<')
}

/// Looks at a whole value.
pub(super) fn look(feed: &Feed<'_>, own: Delimiters, inner: Span) -> InnerMarks {
    Walk {
        feed: Feed {
            text: &feed.text[..inner.end],
            eof: true,
            ..*feed
        },
        own,
        start: inner.start,
        inside: InnerMarks::default(),
        depth: 0,
        leading: None,
        quoted: None,
    }
    .walk()
}

struct Walk<'t> {
    feed: Feed<'t>,
    own: Delimiters,
    start: usize,
    inside: InnerMarks,
    /// Opening delimiters that are not closed.
    depth: usize,
    /// An opening delimiter that the value begins with.
    leading: Option<Span>,
    /// The start of the fields of a quoted block, and whether one of them names a tool.
    quoted: Option<(usize, bool)>,
}

impl Walk<'_> {
    fn walk(mut self) -> InnerMarks {
        let (open, close) = self.own.first_bytes();
        // The number of keys, the doubt and the depth before a block that is quoted
        // whole.
        let mut quoted: Option<(usize, Option<Span>, usize)> = None;
        let mut blocks = 0usize;
        let mut closed = false;
        let mut at = self.start;
        while let Some(offset) = memchr::memchr3(open, close, b'<', &self.feed.bytes()[at..]) {
            self.feed.count(offset);
            let here = at + offset;
            let bracket = self.feed.bytes()[here] == b'<';
            let c = match bracket {
                true => Some('<'),
                false => self.feed.char_at(here),
            };
            at = here + c.map_or(1, char::len_utf8);
            if bracket && let Look::Yes(marker) = marks::marker(&self.feed, here) {
                at = marker.end;
                if marker.opens && blocks == 0 {
                    quoted = Some((self.inside.keys.len(), self.inside.doubt, self.depth));
                    self.quoted = Some((marker.end, false));
                    if closed || self.is_attached(here) {
                        self.cross(Span::new(here, marker.end));
                    }
                }
                if marker.opens {
                    blocks += 1;
                } else if blocks == 0 {
                    closed = true;
                } else {
                    blocks -= 1;
                    if blocks == 0
                        && let Some((keys, doubt, depth)) = quoted.take()
                    {
                        let inner = self.inside.keys.split_off(keys);
                        // A field of a quoted block names a tool: otherwise two marks were
                        // confused.
                        let named = self.quoted.take().is_some_and(|(_, named)| named);
                        let named = named || inner.iter().any(|key| self.names_tool(*key));
                        if !named {
                            self.cross(Span::new(here, marker.end));
                        }
                        (self.inside.doubt, self.depth) = (doubt, depth);
                    }
                }
                continue;
            }
            // Many letters begin with the same byte as a delimiter.
            let possible = match c {
                Some('<') => self.own == Delimiters::Arrow,
                c => c.is_some_and(may_delimit),
            };
            if possible && let Some(end) = self.delimiter(here) {
                at = end;
            }
        }
        if self.depth > 0 {
            self.inside.doubt = self.inside.doubt.or(self.leading);
            self.key_before(self.feed.len());
        }
        self.inside
    }

    fn cross(&mut self, mark: Span) {
        self.inside.crossed.get_or_insert(mark);
    }

    /// Whether a word comes directly before a mark. A quoted block is set apart.
    fn is_attached(&self, mark: usize) -> bool {
        let before = self.feed.text[self.start..mark].chars().next_back();
        before.is_some_and(|c| !c.is_whitespace() && !"`'\"“‘(（:：".contains(c))
    }

    fn names_tool(&self, key: Span) -> bool {
        CommandKey::read(key.of(self.feed.text)).is_any_command()
    }

    /// Reads the delimiter at a position; returns its end.
    fn delimiter(&mut self, here: usize) -> Option<usize> {
        // Inside the ESCAPE form only the ESCAPE form is one.
        let families = Delimiters::ALL.iter().copied();
        let escaped = self.own.is_escape();
        for family in families {
            let own = family == self.own.plain();
            if escaped && !family.is_escape() && !own {
                continue;
            }
            if let Look::Yes(end) = self.feed.literal_any_case(here, family.closer()) {
                self.close(Span::new(here, end), own);
                return Some(end);
            }
            let Look::Yes(end) = self.feed.literal_any_case(here, family.opener()) else {
                continue;
            };
            if family.is_escape() || !escaped {
                self.key_before(here);
            } else if let Some((from, false)) = self.quoted {
                let key = key::key_before(&self.feed, here, from);
                let named = key.is_some_and(|(key, _)| self.names_tool(key));
                self.quoted = Some((from, named));
            }
            if own || family == self.own {
                if self.feed.text[self.start..here].trim().is_empty() {
                    self.leading.get_or_insert(Span::new(here, end));
                }
                self.depth += 1;
            }
            return Some(end);
        }
        None
    }

    fn close(&mut self, span: Span, own: bool) {
        if !self.own.is_escape() {
            self.key_before(span.start);
        }
        if self.depth > 0 || !own {
            self.depth = self.depth.saturating_sub(usize::from(own));
            return;
        }
        // Rows of arrows are drawn in text, for instance where versions conflict. In the ESCAPE form a
        // plain delimiter is text, unless a block ends behind it.
        let ends = || {
            let rest = &self.feed.text[span.end..];
            let at = span.end + rest.len() - rest.trim_start().len();
            let marker = marks::marker(&self.feed, at);
            at < self.feed.len() && matches!(marker, Look::Yes(marker) if !marker.opens)
        };
        if self.own != Delimiters::Arrow && (!self.own.is_escape() || ends()) {
            self.inside.doubt.get_or_insert(span);
        }
        self.key_behind(span.end);
    }

    /// A key and a colon directly before a delimiter.
    fn key_before(&mut self, mark: usize) {
        let floor = mark.saturating_sub(key::MOST_KEY_BYTES).max(self.start);
        let floor = self.feed.floor(floor);
        let head = self.feed.text[floor..mark].trim_end();
        self.feed.count(mark - floor);
        let Some(head) = head.strip_suffix([':', '：', '=']) else {
            return;
        };
        let letters = head.trim_end_matches(key::is_key_char).len();
        self.keys_in(Span::new(floor + letters, floor + head.len()));
    }

    /// Notes a key behind a closing delimiter without an opening one: before a colon, or alone.
    fn key_behind(&mut self, from: usize) {
        let rest = &self.feed.text[from..];
        let skipped = rest.trim_start_matches(super::is_separator);
        let start = from + rest.len() - skipped.len();
        let letters = |c: &char| key::is_key_char(*c);
        let width = skipped.chars().take_while(letters).map(char::len_utf8);
        let width: usize = width.take(key::MOST_KEY_BYTES).sum();
        self.feed.count(start - from + width);
        let line = Span::new(start, start + width);
        if self.feed.text[line.end..].starts_with([':', '：', '=']) {
            self.keys_in(line);
        } else if width > 0 && !self.own.is_escape() && !self.ends_line(line.end) {
            self.inside
                .keys
                .push(key::trimmed(&self.feed, line.start, line.end));
        }
    }

    fn ends_line(&self, at: usize) -> bool {
        self.feed
            .char_at(at)
            .is_none_or(|c| matches!(c, '\r' | '\n'))
    }

    /// The key of a line, and its last words: a remark may come before a key.
    fn keys_in(&mut self, line: Span) {
        const MOST_WORDS: usize = 8;
        let text = line.of(self.feed.text);
        let words = text
            .char_indices()
            .rev()
            .filter(|(_, c)| matches!(c, ' ' | '\t'));
        let starts = words.map(|(at, _)| line.start + at + 1).take(MOST_WORDS);
        let starts: Vec<usize> = std::iter::once(line.start).chain(starts).collect();
        for start in starts {
            let key = key::trimmed(&self.feed, start, line.end);
            if !key.is_empty() {
                self.inside.keys.push(key);
            }
        }
    }
}
