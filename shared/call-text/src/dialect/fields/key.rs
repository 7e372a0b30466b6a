//! The keys of fields: their alphabet (T13), the colon (T11) and the opening delimiter.

use call_catalogue::{Span, names};

use super::marks::{self, Delimiters};
use crate::scan::{Feed, Look, look};

/// A longer run of key characters holds no key.
pub(super) const MOST_KEY_BYTES: usize = 128;

/// `key:` and an opening delimiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FieldStart {
    pub(super) key: Span,
    pub(super) delimiters: Delimiters,
    /// First byte of the value.
    pub(super) value: usize,
    /// Whether another mark than a plain colon lies between.
    pub(super) drifted_colon: bool,
}

/// Whether a character may be part of a key.
pub(super) fn is_key_char(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || c.is_alphanumeric()
        || matches!(c, '_' | '-' | ' ' | '.' | '\t' | '`' | '*')
        || names::is_invisible(c)
}

/// A key and the place after its colon.
pub(super) fn key(feed: &Feed<'_>, at: usize) -> Look<(Span, usize, bool)> {
    let rest = feed.text.get(at..).unwrap_or_default();
    // Most keys are letters and digits only, right before a colon.
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let width = rest.bytes().take(MOST_KEY_BYTES).take_while(plain).count();
    if width > 0 && rest.as_bytes().get(width) == Some(&b':') {
        feed.count(width);
        return Look::Yes((Span::new(at, at + width), at + width + 1, false));
    }
    for (offset, c) in rest.char_indices() {
        let here = at + offset;
        if matches!(c, ':' | '：' | '=') {
            feed.count(offset);
            let key = trimmed(feed, at, here);
            if key.is_empty() {
                return Look::No;
            }
            let drifted = c != ':' || key.end != here;
            return Look::Yes((key, here + c.len_utf8(), drifted));
        }
        if !is_key_char(c) || offset > MOST_KEY_BYTES {
            feed.count(offset);
            return Look::No;
        }
    }
    feed.count(rest.len());
    match rest.is_empty() {
        true => Look::No,
        false => feed.ended(),
    }
}

/// A field that starts here.
pub(super) fn field_start(feed: &Feed<'_>, at: usize) -> Look<FieldStart> {
    let Some((key, after, drifted_colon)) = look!(key(feed, at), Look::More) else {
        return Look::No;
    };
    let value = feed.skip_space(after);
    if value == feed.len() {
        return feed.ended();
    }
    match marks::opener(feed, value) {
        Look::Yes((delimiters, start)) => Look::Yes(FieldStart {
            key,
            delimiters,
            value: start,
            drifted_colon,
        }),
        Look::No => Look::No,
        Look::More => Look::More,
    }
}

/// The key directly before an opening delimiter, if it starts its line: looked for backwards.
pub(super) fn key_before(feed: &Feed<'_>, opener: usize, floor: usize) -> Option<(Span, usize)> {
    let from = feed.floor(opener.saturating_sub(MOST_KEY_BYTES + 8).max(floor));
    let before = feed.text.get(from..opener)?;
    feed.count(before.len());
    let line = before
        .rfind('\n')
        .map(|at| at + 1)
        .or((from == floor).then_some(0))?;
    let head = before[line..].trim_end();
    let colon = head
        .chars()
        .next_back()
        .filter(|c| matches!(c, ':' | '：' | '='))?;
    let key = &head[..head.len() - colon.len_utf8()];
    if key.trim().is_empty() || !key.chars().all(is_key_char) {
        return None;
    }
    let start = from + line;
    Some((trimmed(feed, start, start + key.len()), start))
}

/// The key without white space, bullets and markup round it.
pub(super) fn trimmed(feed: &Feed<'_>, start: usize, end: usize) -> Span {
    let text = &feed.text[start..end];
    let ignorable = |c: char| c.is_whitespace() || matches!(c, '`' | '*') || names::is_invisible(c);
    let left = text.trim_start_matches(|c: char| ignorable(c) || c == '-');
    let start = end - left.len();
    Span::new(start, start + left.trim_end_matches(ignorable).len())
}

/// Whether a block holds only the beginning of the key that names its tool, behind which the
/// message ends (G9).
pub(super) fn is_cut(inside: &str) -> bool {
    let number = |c: char| c.is_ascii_digit() || matches!(c, '_' | '-' | ' ');
    let begun = inside.trim().trim_end_matches(number).to_lowercase();
    let mut first = ["command", "tool_name"].into_iter();
    first.any(|key| key.starts_with(&begun))
}

/// The key in a line that an opening delimiter follows without a colon.
pub(crate) fn without_colon(line: &str) -> Option<&str> {
    let near = line.floor_char_boundary(MOST_KEY_BYTES * 2);
    let line = line[..near].lines().next()?;
    let openers = Delimiters::ALL.iter().map(|own| own.opener());
    let at = openers.filter_map(|opener| line.find(opener)).min()?;
    let key = line[..at].trim();
    (!key.is_empty() && key.chars().all(is_key_char)).then_some(key)
}
