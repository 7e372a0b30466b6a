//! Text between the parts of a block: stray text, CDATA, JSON.

use call_catalogue::{Class, Rule, Span};

use super::{ElementScanner, ElementState};
use crate::dialect::raw::Progress;
use crate::scan::json::{self, JsonEnd};
use crate::scan::{Feed, Look, gap};

impl ElementScanner {
    /// Passes stray text between calls.
    pub(super) fn stray_in_body(&mut self, feed: &Feed<'_>, at: usize) -> Option<Progress> {
        if self.wrapper != Some("action") && !self.has_calls() {
            // `<tool_call>` in prose.
            return Some(Progress::NotABlock {
                resume: self.opened,
            });
        }
        self.stray_run(feed, at)
    }

    /// The next part of the block: behind white space and comments, or where text continued.
    pub(super) fn next_part(&mut self, feed: &Feed<'_>) -> Look<usize> {
        if self.in_stray {
            if !feed.text[self.pos..].starts_with(['<', '＜']) {
                return if self.pos == feed.len() && !feed.eof {
                    Look::More
                } else {
                    Look::Yes(self.pos)
                };
            }
            self.in_stray = false;
        }
        match self.ahead.next(self.pos) {
            Some(at) => Look::Yes(at),
            None => gap::skip(feed, self.pos, &mut self.gap, &mut self.ahead.comments),
        }
    }

    /// Passes the mark of a fence round the JSON of a call (F8).
    pub(super) fn fence_mark(&mut self, feed: &Feed<'_>, at: usize) -> Look<()> {
        const LONGEST: usize = 32;
        let rest = &feed.text[at..];
        let head = &rest[..rest.floor_char_boundary(LONGEST)];
        let line = head.split(['\n', '{', '[', '<']).next().unwrap_or_default();
        if line.len() == rest.len() && !feed.eof {
            return Look::More;
        }
        if !is_fence(line) {
            return Look::No;
        }
        let span = Span::new(at, at + line.len());
        self.note(Rule::F8, Class::Spelling, "fence_in_block", span, feed, "");
        self.pos = span.end;
        Look::Yes(())
    }

    /// Passes stray text up to the next bracket.
    pub(super) fn stray_run(&mut self, feed: &Feed<'_>, at: usize) -> Option<Progress> {
        let mut end = at + feed.char_at(at).map_or(1, char::len_utf8);
        loop {
            match feed.find2(b'<', 0xEF, end) {
                Some(found)
                    if feed.bytes()[found] == b'<' || feed.text[found..].starts_with('＜') =>
                {
                    self.push_stray(Span::new(at, found));
                    self.in_stray = false;
                    return None;
                }
                Some(found) => end = found + feed.char_at(found).map_or(1, char::len_utf8),
                None => {
                    // The certain part is recorded, so that it is not searched again.
                    self.push_stray(Span::new(at, feed.len()));
                    self.in_stray = !feed.eof;
                    return (!feed.eof).then_some(Progress::More);
                }
            }
        }
    }

    /// Whether the message ends inside the tag of the first call (G9): the block holds the
    /// beginning of a tag only.
    fn is_cut_in_name(&self, feed: &Feed<'_>) -> bool {
        const LONGEST: usize = 256;
        let inside = feed.text[self.opened..].trim_start();
        let tag = inside.strip_prefix(['<', '＜']);
        self.raw.calls.is_empty() && tag.is_some_and(|tag| tag.len() <= LONGEST && is_cut_tag(tag))
    }

    /// A `<` that starts no tag: CDATA and declarations are passed over whole (A5, V14).
    pub(super) fn not_a_tag(&mut self, feed: &Feed<'_>, at: usize) -> Option<Progress> {
        for (open, close) in [("<![CDATA[", "]]>"), ("<?", "?>"), ("<!", ">")] {
            match feed.literal_any_case(at, open) {
                Look::Yes(body) => {
                    let Some(end) = feed.find(close, body) else {
                        if feed.eof {
                            self.pos = feed.len();
                            return None;
                        }
                        return Some(Progress::More);
                    };
                    self.push_stray(Span::new(at, end + close.len()));
                    return None;
                }
                Look::More => return Some(Progress::More),
                Look::No => {}
            }
        }
        if feed.eof && self.is_cut_in_name(feed) {
            self.pos = feed.len();
            return None;
        }
        let width = feed.char_at(at).map_or(1, char::len_utf8);
        self.push_stray(Span::new(at, at + width));
        None
    }

    pub(super) fn push_stray(&mut self, span: Span) {
        self.pos = span.end;
        let stray = match (&self.state, self.raw.calls.last_mut()) {
            (ElementState::Call, Some(call)) => &mut call.stray,
            _ => &mut self.raw.stray,
        };
        match stray.last_mut() {
            Some(last) if last.end == span.start => last.end = span.end,
            _ => stray.push(span),
        }
    }

    /// Enters a JSON object that comes first in a call, alone or in a fence: brackets in its texts
    /// are no tags (A16).
    pub(super) fn opens_arguments(&mut self, feed: &Feed<'_>, at: usize) -> Look<()> {
        let first = self.raw.calls.last().is_some_and(|call| {
            let fence = |span: &Span| is_fence(span.of(feed.text));
            call.arguments.is_empty() && call.stray.iter().all(fence)
        });
        if !first || self.in_stray || !self.seeks_arguments {
            return Look::No;
        }
        let mut start = at;
        match feed.literal(at, "```") {
            Look::Yes(_) => match feed.text[at..].split_once('\n') {
                Some((line, _)) if is_fence(line) => start = feed.skip_space(at + line.len()),
                None if is_fence(&feed.text[at..]) => return feed.ended(),
                _ => return Look::No,
            },
            Look::More => return Look::More,
            Look::No => {}
        }
        let brace = match feed.literal(start, "{") {
            Look::Yes(brace) => feed.skip_space(brace),
            Look::More => return Look::More,
            Look::No => return Look::No,
        };
        match feed.bytes().get(brace) {
            Some(b'"') => {}
            Some(_) => return Look::No,
            None => return feed.ended(),
        }
        if start > at {
            self.push_stray(Span::new(at, start));
        }
        let end = JsonEnd::at(start);
        self.pos = start;
        self.state = ElementState::Arguments { start, end };
        Look::Yes(())
    }

    /// The JSON object that is all arguments of the call; text where it is no JSON.
    pub(super) fn json_arguments(&mut self, feed: &Feed<'_>) -> Option<Progress> {
        let ElementState::Arguments { start, end } = &mut self.state else {
            return None;
        };
        let start = *start;
        let found = end.find(feed);
        if found == Look::More {
            self.pos = feed.len();
            return Some(Progress::More);
        }
        self.state = ElementState::Call;
        self.pos = start;
        match found {
            Look::Yes(end) if json::parse(&feed.text[start..end]).is_ok() => {
                self.push_stray(Span::new(start, end));
                None
            }
            _ => {
                self.seeks_arguments = false;
                self.stray_run(feed, start)
            }
        }
    }

    /// A JSON value between calls (A13, Hermes).
    pub(super) fn json(&mut self, feed: &Feed<'_>, most: usize) -> Option<Progress> {
        let ElementState::Json { start, end } = &mut self.state else {
            return None;
        };
        let start = *start;
        let found = end.find(feed);
        if end.pos - self.start > most {
            self.pos = self.start + most;
            return Some(self.limited("block bytes", most, feed));
        }
        match found {
            Look::Yes(end) => {
                self.saw_json = true;
                crate::dialect::json::read_calls(
                    feed.text,
                    Span::new(start, end),
                    self.wrapper == Some("action"),
                    &mut self.raw,
                );
                self.pos = end;
                self.state = ElementState::Body;
                None
            }
            Look::More => {
                self.pos = feed.len();
                Some(Progress::More)
            }
            Look::No => {
                self.saw_json = true;
                self.pos = feed.len();
                let span = Span::new(self.start, feed.len());
                Some(self.cut_off(span, "the JSON of the call is not closed"))
            }
        }
    }
}

/// Whether a text may be a name and attributes of which the last one is not complete.
fn is_cut_tag(text: &str) -> bool {
    let letter = |c: char| c.is_alphanumeric() || "_-.:/=`｜".contains(c);
    let attribute = |text: &str| text.chars().all(letter) || text.contains("=\"");
    let (name, attributes) = text.split_once(' ').unwrap_or((text, ""));
    let attributes = attributes.trim_start();
    name.chars().all(letter) && !attributes.contains(['<', '>', '\n']) && attribute(attributes)
}

/// Whether a text is the opening line of a fence, as far as it has arrived.
fn is_fence(line: &str) -> bool {
    const LONGEST: usize = 32;
    let letters = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let word = line.trim_end().strip_prefix("```");
    line.len() <= LONGEST && word.is_some_and(letters)
}
