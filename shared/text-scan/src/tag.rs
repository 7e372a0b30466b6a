//! Tags as models write them: any id as a name (N7), attributes, drifted spellings (A4, V12).

use std::borrow::Cow;

use call_catalogue::Span;

use super::{Feed, Look};
use crate::Limits;

/// The effect of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagKind {
    /// Opens an element.
    Open,
    /// Closes an element.
    Close,
    /// Opens and closes at once; only a slash directly before `>` does that (N9).
    Empty,
}

/// `key="value"` in a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute {
    /// The name.
    pub name: Span,
    /// The value, without its quotes.
    pub value: Span,
}

/// A tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// Its effect.
    pub kind: TagKind,
    /// The name without its namespace (F7).
    pub name: Span,
    /// The name as written.
    pub whole: Span,
    /// The `x` of `<function=x>`.
    pub assigned: Option<Span>,
    /// Its attributes, in the order written.
    pub attributes: Vec<Attribute>,
    /// The place of the whole tag.
    pub span: Span,
    /// Whether it is written with full-width brackets or smart quotes (V12).
    pub wide: bool,
    /// Whether space lies between the bracket and the name.
    pub spaced: bool,
    /// Whether it is only brackets and a name of letters, digits and the usual signs.
    pub plain: bool,
}

impl Tag {
    /// The value of the `name` attribute, or the assigned name.
    pub fn named<'t>(&self, text: &'t str) -> Option<(&'t str, Span)> {
        if let Some(span) = self.assigned {
            return Some((span.of(text), span));
        }
        let attribute = self
            .attributes
            .iter()
            .find(|attribute| attribute.name.of(text).eq_ignore_ascii_case("name"))?;
        Some((attribute.value.of(text), attribute.value))
    }
}

/// The attribute that holds the nonce of an opening tag.
const NONCE: &str = "n";

impl Attribute {
    /// Whether it holds the nonce.
    pub fn is_nonce(&self, feed: &Feed<'_>) -> bool {
        self.name.of(feed.text) == NONCE && feed.nonce == Some(self.value.of(feed.text))
    }
}

impl Tag {
    /// Whether it may open a block as far as the nonce goes.
    pub fn has_nonce(&self, feed: &Feed<'_>) -> bool {
        feed.nonce.is_none()
            || self
                .attributes
                .iter()
                .any(|attribute| attribute.is_nonce(feed))
    }
}

/// A tag that follows a gap.
#[derive(Debug, Default)]
pub struct NextTag(Option<(usize, Tag)>);

impl NextTag {
    /// Keeps the tag that follows the gap at `from`.
    pub fn keep(&mut self, from: usize, tag: Tag) -> &Tag {
        &self.0.insert((from, tag)).1
    }

    /// The start of the tag behind the gap at `from`, if it is known.
    pub fn start(&self, from: usize) -> Option<usize> {
        let (known, tag) = self.0.as_ref()?;
        (*known == from).then_some(tag.span.start)
    }

    /// Removes and returns the tag if it starts at a position.
    pub fn take(&mut self, at: usize) -> Option<Tag> {
        self.0
            .take_if(|(_, tag)| tag.span.start == at)
            .map(|(_, tag)| tag)
    }
}

const MOST_ATTRIBUTES: usize = 16;
const WIDE_OPEN: char = '＜';
const WIDE_CLOSE: char = '＞';

/// Reads the tag that starts at `at`, the position of a `<` or `＜`.
pub fn read(feed: &Feed<'_>, at: usize, limits: &Limits) -> Look<Tag> {
    if let Some(tag) = read_plain(feed, at, limits) {
        feed.count(tag.span.len());
        return Look::Yes(tag);
    }
    let answer = TagReader {
        feed,
        at,
        start: at,
        limit: at + limits.tag_bytes,
    }
    .tag(limits);
    if let Look::Yes(tag) = &answer {
        feed.count(tag.span.len());
    } else {
        feed.count(8);
    }
    answer
}

/// The first bytes behind a `<`, at a glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Glance<'t> {
    /// A tag of this name, which is made of letters, digits and the usual signs, if it is a tag at
    /// all.
    Name(&'t str),
    /// No tag starts here, as in most code.
    Nothing,
    /// The tag has to be read.
    Unclear,
}

/// A first look at the tag that may start at `at`, the position of a `<`.
pub fn glance<'t>(feed: &Feed<'t>, at: usize) -> Glance<'t> {
    let slash = feed.bytes().get(at + 1) == Some(&b'/');
    let start = feed.skip_space(at + 1 + usize::from(slash));
    let rest = &feed.bytes()[start..];
    let Some(width) = rest
        .iter()
        .position(|byte| !call_catalogue::names::is_plain(*byte))
    else {
        return Glance::Unclear;
    };
    feed.count(width);
    match rest[width] {
        byte if ends_no_name(byte) => Glance::Nothing,
        byte if width > 0 && (matches!(byte, b'>' | b'=') || byte.is_ascii_whitespace()) => {
            Glance::Name(local(&feed.text[start..start + width]))
        }
        _ => Glance::Unclear,
    }
}

/// Whether a byte is neither in the name of a tag nor behind it.
fn ends_no_name(byte: u8) -> bool {
    matches!(
        byte,
        b'<' | b'"'
            | b'\''
            | b'{'
            | b'}'
            | b';'
            | b','
            | b'('
            | b')'
            | b'!'
            | b'?'
            | b'|'
            | b'['
            | b'&'
    )
}

/// The tag if it is written as most are: brackets, perhaps a slash, a plain name.
fn read_plain(feed: &Feed<'_>, at: usize, limits: &Limits) -> Option<Tag> {
    let rest = feed.bytes().get(at..)?.strip_prefix(b"<")?;
    let (kind, rest) = match rest.strip_prefix(b"/") {
        Some(rest) => (TagKind::Close, rest),
        None => (TagKind::Open, rest),
    };
    let width = rest
        .iter()
        .position(|byte| !call_catalogue::names::is_plain(*byte))?;
    if width == 0 || width > limits.name_bytes || rest[width] != b'>' {
        return None;
    }
    let start = at + 1 + usize::from(kind == TagKind::Close);
    let whole = Span::new(start, start + width);
    let span = Span::new(at, whole.end + 1);
    if span.len() > limits.tag_bytes {
        return None;
    }
    Some(Tag {
        kind,
        name: local_span(whole, feed.text),
        whole,
        assigned: None,
        attributes: Vec::new(),
        span,
        wide: false,
        spaced: false,
        plain: true,
    })
}

/// The name of a tag without the namespace that a model family puts before the usual names (F7), as
/// in `minimax:tool_call` and `｜DSML｜invoke`.
fn local(name: &str) -> &str {
    const NAMES: [&str; 6] = [
        "tool_call",
        "tool_calls",
        "function_calls",
        "function",
        "invoke",
        "parameter",
    ];
    match name.rsplit_once([':', '｜']) {
        Some((namespace, local)) if is_namespace(namespace) && NAMES.contains(&local) => local,
        _ => name,
    }
}

/// The beginning of a tag without the namespace before its name, as far as it has arrived.
pub fn without_namespace(text: &str) -> Cow<'_, str> {
    let Some((namespace, rest)) = text
        .strip_prefix('<')
        .and_then(|text| text.rsplit_once([':', '｜']))
    else {
        return Cow::Borrowed(text);
    };
    match !rest.is_empty() && is_namespace(namespace) {
        true => Cow::Owned(format!("<{rest}")),
        false => Cow::Borrowed(text),
    }
}

/// Whether a text is a namespace: letters and digits, with bars or hyphens round them.
fn is_namespace(text: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '｜');
    text.contains(char::is_alphanumeric) && text.chars().all(part)
}

fn local_span(name: Span, text: &str) -> Span {
    Span::new(name.end - local(name.of(text)).len(), name.end)
}

struct TagReader<'f, 't> {
    feed: &'f Feed<'t>,
    at: usize,
    start: usize,
    limit: usize,
}

impl TagReader<'_, '_> {
    /// The character here, unless the limit or the end of the text is reached.
    fn peek(&self) -> Look<char> {
        if self.at >= self.limit {
            return Look::No;
        }
        match self.feed.char_at(self.at) {
            Some(c) => Look::Yes(c),
            None => self.feed.ended(),
        }
    }

    fn skip_space(&mut self) -> bool {
        let before = self.at;
        while let Look::Yes(c) = self.peek() {
            if !c.is_whitespace() {
                break;
            }
            self.at += c.len_utf8();
        }
        self.at > before
    }

    fn tag(mut self, limits: &Limits) -> Look<Tag> {
        let first = super::look!(self.peek(), Look::More);
        let Some(first) = first.filter(|c| matches!(*c, '<' | WIDE_OPEN)) else {
            return Look::No;
        };
        let mut wide = first == WIDE_OPEN;
        self.at += first.len_utf8();
        let mut spaced = self.skip_space();
        let mut kind = TagKind::Open;
        if self.peek() == Look::Yes('/') {
            kind = TagKind::Close;
            self.at += 1;
            spaced |= self.skip_space();
        }
        let whole = match self.name(limits) {
            Look::Yes(whole) => whole,
            Look::No => return Look::No,
            Look::More => return Look::More,
        };
        let mut assigned = None;
        if self.peek() == Look::Yes('=') {
            self.at += 1;
            assigned = Some(
                super::look!(self.value(), Look::More)
                    .map_or(Span::new(self.at, self.at), |(span, _)| span),
            );
        }
        let mut attributes = Vec::new();
        loop {
            let apart = self.skip_space();
            let Some(c) = super::look!(self.peek(), Look::More) else {
                return Look::No;
            };
            match c {
                '>' | WIDE_CLOSE => {
                    wide |= c == WIDE_CLOSE;
                    self.at += c.len_utf8();
                    let span = Span::new(self.start, self.at);
                    return Look::Yes(Tag {
                        kind,
                        name: local_span(whole, self.feed.text),
                        whole,
                        assigned,
                        attributes,
                        span,
                        wide,
                        spaced,
                        plain: false,
                    });
                }
                '/' => {
                    self.at += 1;
                    let Some(after) = super::look!(self.peek(), Look::More) else {
                        return Look::No;
                    };
                    if matches!(after, '>' | WIDE_CLOSE) && kind == TagKind::Open {
                        kind = TagKind::Empty;
                    }
                }
                '<' | WIDE_OPEN => return Look::No,
                _ if attributes.len() == MOST_ATTRIBUTES => return Look::No,
                // The text directly behind an attribute is the value of an element whose bracket is
                // missing.
                _ if !apart && !attributes.is_empty() => return Look::No,
                _ => match self.attribute() {
                    Look::Yes((attribute, smart)) => {
                        wide |= smart;
                        attributes.push(attribute);
                    }
                    Look::No => return Look::No,
                    Look::More => return Look::More,
                },
            }
        }
    }

    fn name(&mut self, limits: &Limits) -> Look<Span> {
        let start = self.at;
        loop {
            let Some(c) = super::look!(self.peek(), Look::More) else {
                return Look::No;
            };
            if c.is_whitespace() || matches!(c, '>' | WIDE_CLOSE | '=') {
                break;
            }
            if c == WIDE_OPEN || u8::try_from(c).is_ok_and(ends_no_name) {
                return Look::No;
            }
            if c == '/' {
                // Ends the name only directly before the bracket (N9).
                match self.feed.char_at(self.at + 1) {
                    Some('>' | WIDE_CLOSE) => break,
                    Some(_) => {}
                    None => return self.feed.ended(),
                }
            }
            self.at += c.len_utf8();
            if self.at - start > limits.name_bytes {
                return Look::No;
            }
        }
        if self.at == start {
            Look::No
        } else {
            Look::Yes(Span::new(start, self.at))
        }
    }

    fn attribute(&mut self) -> Look<(Attribute, bool)> {
        let start = self.at;
        loop {
            let Some(c) = super::look!(self.peek(), Look::More) else {
                return Look::No;
            };
            if c.is_whitespace() || matches!(c, '=' | '>' | WIDE_CLOSE | '/') {
                break;
            }
            if matches!(c, '<' | WIDE_OPEN) {
                return Look::No;
            }
            self.at += c.len_utf8();
        }
        let name = Span::new(start, self.at);
        self.skip_space();
        if name.is_empty() && self.peek() != Look::Yes('=') {
            return Look::No;
        }
        if self.peek() != Look::Yes('=') {
            if matches!(self.peek(), Look::More) {
                return Look::More;
            }
            return Look::Yes((
                Attribute {
                    name,
                    value: Span::new(self.at, self.at),
                },
                false,
            ));
        }
        self.at += 1;
        self.skip_space();
        match self.value() {
            Look::Yes((value, smart)) => Look::Yes((Attribute { name, value }, smart)),
            Look::No => Look::No,
            Look::More => Look::More,
        }
    }

    /// A quoted or bare value and whether smart quotes enclose it.
    fn value(&mut self) -> Look<(Span, bool)> {
        let Some(first) = super::look!(self.peek(), Look::More) else {
            return Look::No;
        };
        let closer: &[char] = match first {
            '"' => &['"'],
            '\'' => &['\''],
            '“' | '”' | '＂' => &['”', '“', '"', '＂'],
            '‘' | '’' => &['’', '‘', '\''],
            _ => &[],
        };
        if closer.is_empty() {
            let start = self.at;
            loop {
                let Some(c) = super::look!(self.peek(), Look::More) else {
                    return Look::No;
                };
                if c == '/' && matches!(self.feed.char_at(self.at + 1), Some('>' | WIDE_CLOSE)) {
                    break;
                }
                if c.is_whitespace() || matches!(c, '>' | WIDE_CLOSE) {
                    break;
                }
                if matches!(c, '<' | WIDE_OPEN) {
                    return Look::No;
                }
                self.at += c.len_utf8();
            }
            return Look::Yes((Span::new(start, self.at), false));
        }
        self.at += first.len_utf8();
        let start = self.at;
        loop {
            let Some(c) = super::look!(self.peek(), Look::More) else {
                return Look::No;
            };
            if closer.contains(&c) {
                let span = Span::new(start, self.at);
                self.at += c.len_utf8();
                return Look::Yes((span, closer.len() > 1));
            }
            // A value never holds an opening bracket, so that a row of unfinished tags stays linear.
            if c == '<' {
                return Look::No;
            }
            self.at += c.len_utf8();
        }
    }
}
