//! The text of a value: entities (V3), CDATA (V4 to V9), outer white space (V5, V10, T16), the
//! ESCAPE spelling (T7).

mod entities;

use std::borrow::Cow;

use call_catalogue::schema::{Schema, Types};

/// A piece of a value between tags.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'t> {
    Text(&'t str),
    CData(&'t str),
}

/// Properties of a value that were noticed while it was read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Noticed {
    /// Whether entities were left as written because the author did not escape (V3).
    pub(crate) entities_kept: bool,
    pub(crate) entities_decoded: bool,
    pub(crate) cdata: bool,
    /// Whether the value is text and CDATA, or several sections (V6).
    pub(crate) joined: bool,
    /// Whether a mark of CDATA is in the text without its other half, or doubled (V8).
    pub(crate) stray_mark: bool,
}

/// Whether decoding and trimming cannot change a text and it cannot be structure: short, printable
/// ASCII, no markup, no blanks at its ends.
pub(crate) fn is_plain(text: &str) -> bool {
    const SHORT: usize = 32;
    let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'<' | b'&');
    let bytes = text.as_bytes();
    bytes.len() <= SHORT && has_no_outer_space(bytes) && bytes.iter().all(plain)
}

fn has_no_outer_space(bytes: &[u8]) -> bool {
    let visible = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_graphic);
    visible(bytes.first()) && visible(bytes.last())
}

/// Whether a text ends like CDATA.
pub(crate) fn holds_stray_end(text: &str) -> bool {
    text.trim_end().ends_with("]]>")
}

/// The text without outer white space, which most values do not have.
pub(crate) fn trim(text: &str) -> &str {
    match has_no_outer_space(text.as_bytes()) {
        true => text,
        false => text.trim(),
    }
}

/// The text between tags as it is meant under a schema.
pub(crate) fn of_markup<'t>(source: &'t str, schema: Schema<'_>) -> (Cow<'t, str>, Noticed) {
    let mut noticed = Noticed {
        stray_mark: holds_stray_end(source) || cdata_opener(source.trim_start()).is_some(),
        ..Noticed::default()
    };
    if memchr::memchr(b'<', source.as_bytes()).is_none() {
        let trimmed = without_outer_space(source, schema);
        return (decode(trimmed, schema, &mut noticed), noticed);
    }
    let pieces = pieces(source);
    let sections = pieces
        .iter()
        .filter(|piece| matches!(piece, Piece::CData(_)))
        .count();
    let unescaped = pieces
        .iter()
        .any(|piece| matches!(piece, Piece::Text(text) if text.contains('<')));
    if sections == 0 || unescaped {
        // Markup outside CDATA means that the text was not escaped: then CDATA marks are text as
        // well.
        let trimmed = without_outer_space(source, schema);
        return (decode(trimmed, schema, &mut noticed), noticed);
    }
    noticed.cdata = true;
    noticed.stray_mark = false;
    let mut out = String::with_capacity(source.len());
    let mut seen = 0;
    let blank = pieces.iter().all(|piece| match piece {
        Piece::Text(text) | Piece::CData(text) => is_blank_text(text, schema),
    });
    // The first section begins with a line break, so the last one ends with one (V5).
    let mut framed = false;
    for piece in &pieces {
        match piece {
            Piece::Text(text) if text.trim().is_empty() => {}
            Piece::Text(text) => {
                noticed.joined = true;
                out.push_str(&decode(text, schema, &mut noticed));
            }
            Piece::CData(text) => {
                seen += 1;
                let mut text = *text;
                noticed.stray_mark |= (seen == 1 && cdata_opener(text).is_some())
                    || (seen == sections && text.ends_with("]]>"));
                if seen == 1 && !blank && !schema.preserves_white_space() {
                    let width = first_break(text);
                    framed = width.is_some();
                    text = &text[width.unwrap_or(0)..];
                }
                if seen == sections && framed {
                    text = without_last_break(text);
                }
                out.push_str(text);
            }
        }
    }
    noticed.joined |= sections > 1;
    (Cow::Owned(out), noticed)
}

/// Length of `<![CDATA[` in any accepted spelling at the start of a text.
fn cdata_opener(text: &str) -> Option<usize> {
    let mut rest = text.strip_prefix('<')?;
    for part in ["!", "[", "CDATA", "["] {
        rest = rest.trim_start_matches([' ', '\t', '\r']);
        let head = rest.get(..part.len())?;
        if !head.eq_ignore_ascii_case(part) {
            return None;
        }
        rest = &rest[part.len()..];
    }
    Some(text.len() - rest.len())
}

fn pieces(source: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut text_from = 0;
    let mut at = 0;
    while let Some(offset) = memchr::memchr(b'<', &source.as_bytes()[at..]) {
        let open = at + offset;
        let Some(width) = cdata_opener(&source[open..]) else {
            at = open + 1;
            continue;
        };
        if open > text_from {
            pieces.push(Piece::Text(&source[text_from..open]));
        }
        let body = open + width;
        let (end, after) = cdata_end(source, body);
        pieces.push(Piece::CData(&source[body..end]));
        text_from = after;
        at = after;
    }
    if text_from < source.len() {
        pieces.push(Piece::Text(&source[text_from..]));
    }
    pieces
}

/// The end of a CDATA body and the place after its mark: the first `]]>` that the end of the value
/// or another section follows, otherwise the first one (V6, V7). Text may come before the other
/// section if it holds no further `]]>`, as in every well-formed value (G7).
fn cdata_end(source: &str, body: usize) -> (usize, usize) {
    let mut first = None;
    let marks = memchr::memmem::find_iter(&source.as_bytes()[body..], b"]]>");
    let mut marks = marks.map(|at| body + at).peekable();
    // The next bracket, looked for once.
    let mut open = body;
    while let Some(end) = marks.next() {
        first.get_or_insert(end);
        let after = end + 3;
        let rest = source[after..].trim_start();
        if rest.is_empty() || cdata_opener(rest).is_some() {
            return (end, after);
        }
        if open < after {
            let found = memchr::memchr(b'<', &source.as_bytes()[after..]);
            open = found.map_or(source.len(), |at| after + at);
        }
        let last_before = marks.peek().is_none_or(|next| *next > open);
        if last_before && cdata_opener(&source[open..]).is_some() {
            return (end, after);
        }
    }
    first.map_or((source.len(), source.len()), |end| (end, end + 3))
}

/// A value on lines of its own without its layout: the line break it begins with and,
/// only where there is one, the last line break with the indentation after it (V5, V10).
fn laid_out(text: &str) -> &str {
    first_break(text).map_or(text, |width| without_last_break(&text[width..]))
}

/// Width of the line break at the start of a text.
fn first_break(text: &str) -> Option<usize> {
    ["\r\n", "\n"]
        .iter()
        .find(|line_break| text.starts_with(**line_break))
        .map(|line_break| line_break.len())
}

/// Without the last line break and the indentation after it.
fn without_last_break(text: &str) -> &str {
    let head = text.trim_end_matches([' ', '\t']);
    head.strip_suffix("\r\n")
        .or_else(|| head.strip_suffix('\n'))
        .unwrap_or(text)
}

/// A value without the white space that does not belong to it (V10, T16): the layout of a value on
/// lines of its own, and the space round a single line.
fn without_outer_space<'t>(source: &'t str, schema: Schema<'_>) -> &'t str {
    if has_no_outer_space(source.as_bytes()) || schema.preserves_white_space() {
        return source;
    }
    if is_blank_text(source, schema) {
        return source;
    }
    let body = laid_out(source);
    let broken = memchr::memchr(b'\n', body.as_bytes()).is_some();
    if broken || schema.is_raw() || schema.allows_exactly(body) {
        return body;
    }
    body.trim()
}

/// Whether a text under a schema is only blanks: that is no layout, and stays (V10).
fn is_blank_text(source: &str, schema: Schema<'_>) -> bool {
    source.trim().is_empty() && schema.types().has(Types::STRING)
}

/// The text of a delimited value (T16).
pub(crate) fn of_plain<'t>(source: &'t str, schema: Schema<'_>, bare: bool) -> &'t str {
    match !bare && schema.types().has(Types::STRING) {
        true => without_outer_space(source, schema),
        false => trim(source),
    }
}

/// Decodes entities once, unless the author did not escape (V3).
fn decode<'t>(text: &'t str, schema: Schema<'_>, noticed: &mut Noticed) -> Cow<'t, str> {
    let mut bare = false;
    let mut decoded = String::new();
    let mut from = 0;
    for at in memchr::memchr_iter(b'&', text.as_bytes()) {
        let Some((name, width)) = reference(&text[at..]) else {
            bare = true;
            continue;
        };
        if let Some(c) = character(name) {
            if from == 0 {
                decoded.reserve_exact(text.len());
            }
            decoded.push_str(&text[from..at]);
            decoded.push(c);
            from = at + width;
        }
    }
    if from == 0 {
        return Cow::Borrowed(text);
    }
    if bare || memchr::memchr(b'<', text.as_bytes()).is_some() || schema.is_raw() {
        noticed.entities_kept = true;
        return Cow::Borrowed(text);
    }
    noticed.entities_decoded = true;
    decoded.push_str(&text[from..]);
    Cow::Owned(decoded)
}

/// Decodes the five XML names, numeric forms and the names of letters and signs once; everything else
/// stays.
pub fn decode_entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for at in memchr::memchr_iter(b'&', text.as_bytes()) {
        let Some((name, width)) = reference(&text[at..]).filter(|_| at >= from) else {
            continue;
        };
        if let Some(c) = character(name) {
            out.push_str(&text[from..at]);
            out.push(c);
            from = at + width;
        }
    }
    out.push_str(&text[from..]);
    out
}

const LONGEST_ENTITY: usize = 12;

/// The name of an entity reference at the start of a text, and its width.
fn reference(text: &str) -> Option<(&str, usize)> {
    let bytes = text.as_bytes();
    let end = bytes
        .iter()
        .take(LONGEST_ENTITY)
        .position(|byte| *byte == b';')?;
    let name = text.get(1..end)?;
    let plain = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'#');
    plain.then_some((name, end + 1))
}

/// The character that a reference means.
fn character(name: &str) -> Option<char> {
    Some(match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let Some(digits) = name.strip_prefix('#') else {
                return entities::named(name);
            };
            let code = match digits.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => digits.parse().ok()?,
            };
            // Characters that XML forbids stay as they were written (X2).
            char::from_u32(code).filter(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\r'))?
        }
    })
}

/// Protocol words that the ESCAPE form spells with `ESCAPE` (T7).
const PROTOCOL_WORDS: &[&str] = &[
    "「始",
    "「末",
    "{始",
    "{末",
    "END_TOOL_REQUEST",
    "TOOL_REQUEST",
    "REQUEST_TOOL",
    "END_TOOL",
];

/// Restores protocol words of an ESCAPE value to their plain spelling.
pub(crate) fn unescape_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    'next: while !rest.is_empty() {
        for word in PROTOCOL_WORDS {
            let Some(head) = rest
                .get(..word.len())
                .filter(|head| head.eq_ignore_ascii_case(word))
            else {
                continue;
            };
            let tail = &rest[word.len()..];
            for suffix in ["_ESCAPE", "ESCAPE"] {
                if tail
                    .get(..suffix.len())
                    .is_some_and(|found| found.eq_ignore_ascii_case(suffix))
                {
                    out.push_str(head);
                    rest = &tail[suffix.len()..];
                    continue 'next;
                }
            }
        }
        let width = rest.chars().next().map_or(1, char::len_utf8);
        out.push_str(&rest[..width]);
        rest = &rest[width..];
    }
    out
}
