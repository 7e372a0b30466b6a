//! Taking the meaning out of protocol marks in untrusted text (L2).

use std::borrow::Cow;

use call_catalogue::names::is_invisible;
use call_text::thought;

/// The replacement of the bracket of a mark: visible, and no part of any dialect.
const BROKEN: char = '‹';

/// The names of tags that are broken, in addition to tags round a thought.
const NAMES: &[&str] = &[
    "action",
    "tool_call",
    "tool_calls",
    "function_calls",
    "function_call",
    "invoke",
    "function",
    "tool_response",
    "tool_result",
    "function_results",
    "function_result",
    "observation",
    "arg_key",
    "arg_value",
    "toolcall",
    "functioncall",
    "start_function_call",
];

/// Marks in square brackets that are broken.
const BRACKETED: &[&str] = &[
    "[TOOL_CALLS]",
    "[TOOL_CALL]",
    "[/TOOL_CALL]",
    "[ARGS]",
    "[CALL_ID]",
];

const WORDS: &[(&str, &str)] = &[
    ("「始", "「始ESCAPE"),
    ("「末", "「末ESCAPE"),
    ("{始", "{始ESCAPE"),
    ("{末", "{末ESCAPE"),
    ("»»»", "»_»_»"),
    ("«««", "«_«_«"),
];

/// Breaks every mark that a dialect could take for a call, with visible characters. Text without
/// marks is returned unchanged.
pub fn neutralise(text: &str) -> Cow<'_, str> {
    let interesting =
        |c: char| matches!(c, '<' | '＜' | '「' | '{' | '»' | '«') || thought::FIRST.contains(&c);
    let Some(first) = text.find(interesting) else {
        return Cow::Borrowed(text);
    };
    let mut out = String::new();
    let mut changed = false;
    out.push_str(&text[..first]);
    let mut rest = &text[first..];
    while let Some(c) = rest.chars().next() {
        let width = c.len_utf8();
        let in_thought =
            starts_thought_mark(rest) || BRACKETED.iter().any(|mark| rest.starts_with(mark));
        if matches!(c, '<' | '＜') && (in_thought || starts_mark(&rest[width..])) {
            out.push(BROKEN);
            changed = true;
            rest = &rest[width..];
        } else if in_thought {
            out.extend([c, '_']);
            changed = true;
            rest = &rest[width..];
        } else if let Some((word, safe)) = WORDS
            .iter()
            .find(|(word, safe)| rest.starts_with(word) && !rest.starts_with(safe))
        {
            out.push_str(safe);
            changed = true;
            rest = &rest[word.len()..];
        } else {
            out.push_str(&rest[..width]);
            rest = &rest[width..];
        }
        let plain = rest.find(interesting).unwrap_or(rest.len());
        out.push_str(&rest[..plain]);
        rest = &rest[plain..];
    }
    if changed {
        Cow::Owned(out)
    } else {
        Cow::Borrowed(text)
    }
}

/// The longest beginning of a text that has at most `most` bytes when its marks are broken.
pub fn head_within(text: &str, most: usize) -> &str {
    let mut head = &text[..text.floor_char_boundary(most)];
    while let Some(excess) = excess(head, most) {
        head = &head[..head.floor_char_boundary(head.len() - excess)];
    }
    head
}

/// The longest end of a text that has at most `most` bytes when its marks are broken.
pub fn tail_within(text: &str, most: usize) -> &str {
    let mut tail = &text[text.ceil_char_boundary(text.len().saturating_sub(most))..];
    while let Some(excess) = excess(tail, most) {
        tail = &tail[tail.ceil_char_boundary(excess)..];
    }
    tail
}

/// The least number of bytes to cut from a text for it to fit; `None` if it fits.
fn excess(text: &str, most: usize) -> Option<usize> {
    /// The most bytes that one byte becomes: a bracket.
    const WIDEST: usize = BROKEN.len_utf8();
    let excess = neutralise(text).len().checked_sub(most + 1)? + 1;
    Some(excess.div_ceil(WIDEST))
}

/// Whether a text starts with a mark round a thought that is no tag.
fn starts_thought_mark(text: &str) -> bool {
    let mut marks = thought::MARKS.iter();
    marks.any(|(open, close)| text.starts_with(open) || text.starts_with(close))
}

/// Whether the text behind a bracket makes it a mark.
fn starts_mark(after: &str) -> bool {
    const LONGEST: usize = 24;
    let skip = |text: &str| -> usize {
        let blank =
            |c: &char| c.is_whitespace() || matches!(c, '/' | '<' | '＜') || is_invisible(*c);
        text.chars()
            .take(8)
            .take_while(blank)
            .map(char::len_utf8)
            .sum()
    };
    let rest = &after[skip(after)..];
    if rest.starts_with(['|', '[', '｜', '［']) {
        return true;
    }
    let name: String = rest
        .chars()
        .filter(|c| !is_invisible(*c))
        .take(LONGEST)
        .take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':'))
        .collect();
    let name = folded(&name);
    let first = name.split(':').next().unwrap_or_default();
    let last = name.rsplit(':').next().unwrap_or_default();
    let mut names = NAMES.iter().chain(&thought::NAMES);
    names.any(|known| [name.as_str(), first, last].contains(known))
        || last == "parameter" && last != name
}

/// Lower case after compatibility folding, so that full-width letters are seen.
fn folded(name: &str) -> String {
    use unicode_normalization::UnicodeNormalization;
    name.nfkc().collect::<String>().to_lowercase()
}
