//! The marks of TAM and VCP: block markers and delimiter families (T1, T7, T8).

use call_catalogue::Dialect;

use crate::Policy;
use crate::scan::{Feed, Look, look};

/// The family of blocks that a marker belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockFamily {
    /// `<|[REQUEST_TOOL]|>`.
    Tam,
    /// `<<<[TOOL_REQUEST]>>>`.
    Vcp,
}

impl BlockFamily {
    /// Returns the dialects whose blocks begin with its marker.
    pub(crate) fn dialects(self) -> &'static [Dialect] {
        match self {
            Self::Tam => &[Dialect::TamV1, Dialect::TamV2],
            Self::Vcp => &[Dialect::Vcp],
        }
    }
}

/// A block marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) family: BlockFamily,
    pub(crate) opens: bool,
    pub(crate) end: usize,
    /// Whether it is written exactly as the dialect writes it.
    pub(crate) exact: bool,
    /// Whether it opens no block, as it lacks the nonce.
    pub(crate) lacks_nonce: bool,
}

impl Marker {
    /// Whether it opens a block that is read.
    pub(crate) fn opens_for(&self, policy: &Policy) -> bool {
        let read = |fixed| self.family.dialects().contains(&fixed);
        self.opens && !self.lacks_nonce && policy.dialect.is_none_or(read)
    }
}

/// The marker at `at`, the position of a `<`. A marker that lacks the nonce is none.
pub(crate) fn marker(feed: &Feed<'_>, at: usize) -> Look<Marker> {
    match any_marker(feed, at) {
        Look::Yes(marker) if marker.lacks_nonce => Look::No,
        answer => answer,
    }
}

/// The marker at `at`, the position of a `<`, with the nonce or without.
pub(crate) fn any_marker(feed: &Feed<'_>, at: usize) -> Look<Marker> {
    let answer = read_marker(feed, at);
    if let Look::Yes(marker) = &answer {
        let written = &feed.text[at..marker.end];
        let exact = match (marker.family, marker.opens, feed.nonce) {
            (family, true, Some(nonce)) => {
                written == family.dialects()[0].opening_mark(Some(nonce))
            }
            (BlockFamily::Tam, true, None) => written == "<|[REQUEST_TOOL]|>",
            (BlockFamily::Tam, false, _) => written == "<|[END_TOOL]|>",
            (BlockFamily::Vcp, true, None) => written == "<<<[TOOL_REQUEST]>>>",
            (BlockFamily::Vcp, false, _) => written == "<<<[END_TOOL_REQUEST]>>>",
        };
        return Look::Yes(Marker { exact, ..*marker });
    }
    answer
}

/// The most letters and digits of a nonce.
const MOST_NONCE: usize = 32;

/// Reads the nonce behind the word of an opening marker. Returns its end, and whether it differs
/// from the required nonce.
fn nonce(feed: &Feed<'_>, at: usize, opens: bool) -> Look<(usize, bool)> {
    let Some(wanted) = feed.nonce.filter(|_| opens) else {
        return Look::Yes((at, false));
    };
    let start = feed.skip_blank(at);
    let rest = &feed.bytes()[start..];
    let written = rest.iter().take(MOST_NONCE);
    let length = written
        .take_while(|byte| byte.is_ascii_alphanumeric())
        .count();
    if length == rest.len() && length < MOST_NONCE && !feed.eof {
        return Look::More;
    }
    let end = start + length;
    Look::Yes((end, &feed.text[start..end] != wanted))
}

const MOST_SPACES: usize = 4;
const MOST_BRACKETS: usize = 4;

/// Whether the first character that is no bracket and no blank already settles that a `<` begins no
/// marker, as in most code.
fn is_code(feed: &Feed<'_>, at: usize) -> bool {
    let following = feed.bytes().get(at + 1..).unwrap_or_default();
    let mut following = following.iter().take(MOST_BRACKETS + MOST_SPACES);
    let next = following.find(|byte| !matches!(byte, b'<' | b' ' | b'\t'));
    next.is_some_and(|next| !matches!(next, b'|' | b'['))
}

fn read_marker(feed: &Feed<'_>, at: usize) -> Look<Marker> {
    if is_code(feed, at) {
        return Look::No;
    }
    let mut brackets = 1;
    let mut here = at + 1;
    while brackets < MOST_BRACKETS {
        match feed.literal(here, "<") {
            Look::Yes(end) => {
                brackets += 1;
                here = end;
            }
            Look::More => return Look::More,
            Look::No => break,
        }
    }
    let family = if brackets == 1 {
        BlockFamily::Tam
    } else {
        BlockFamily::Vcp
    };
    if family == BlockFamily::Tam {
        let Some(end) = look!(part(feed, here, "|"), Look::More) else {
            return Look::No;
        };
        here = end;
    }
    let Some(end) = look!(part(feed, here, "["), Look::More) else {
        return Look::No;
    };
    here = end;
    let Some((end, opens)) = look!(word(feed, here, family), Look::More) else {
        return Look::No;
    };
    let Some((end, lacks_nonce)) = look!(nonce(feed, end, opens), Look::More) else {
        return Look::No;
    };
    let Some(mut here) = look!(part(feed, end, "]"), Look::More) else {
        return Look::No;
    };
    if family == BlockFamily::Tam {
        let Some(end) = look!(part(feed, here, "|"), Look::More) else {
            return Look::No;
        };
        let Some(end) = look!(part(feed, end, ">"), Look::More) else {
            return Look::No;
        };
        return Look::Yes(Marker {
            family,
            opens,
            end,
            exact: false,
            lacks_nonce,
        });
    }
    let Some(end) = look!(part(feed, here, ">>"), Look::More) else {
        return Look::No;
    };
    here = end;
    for _ in 0..2 {
        match feed.literal(here, ">") {
            Look::Yes(end) => here = end,
            Look::More => return Look::More,
            Look::No => break,
        }
    }
    Look::Yes(Marker {
        family,
        opens,
        end: here,
        exact: false,
        lacks_nonce,
    })
}

/// Reads the word of a marker: its end, and whether it opens a block.
fn word(feed: &Feed<'_>, at: usize, family: BlockFamily) -> Look<(usize, bool)> {
    let words: [(&str, bool); 2] = match family {
        BlockFamily::Tam => [("REQUEST_TOOL", true), ("END_TOOL", false)],
        BlockFamily::Vcp => [("TOOL_REQUEST", true), ("END_TOOL_REQUEST", false)],
    };
    for (word, opens) in words {
        if let Some(end) = look!(part(feed, at, word), Look::More) {
            return Look::Yes((end, opens));
        }
    }
    Look::No
}

/// A literal in any letter case, with up to four blanks before it.
fn part(feed: &Feed<'_>, at: usize, literal: &str) -> Look<usize> {
    let skipped = feed.skip_blank(at);
    if skipped - at > MOST_SPACES {
        return Look::No;
    }
    feed.literal_any_case(skipped, literal)
}

/// A pair of delimiters round a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delimiters {
    /// `「始」` and `「末」`.
    Corner,
    /// `「始ESCAPE」` and `「末ESCAPE」`.
    CornerEscape,
    /// `{始}` and `{末}`.
    Brace,
    /// `{始ESCAPE}` and `{末ESCAPE}`.
    BraceEscape,
    /// `»»»` and `«««`.
    Guillemet,
    /// `>>>` and `<<<`.
    Arrow,
}

impl Delimiters {
    pub(crate) const ALL: &[Delimiters] = &[
        Self::Corner,
        Self::CornerEscape,
        Self::Brace,
        Self::BraceEscape,
        Self::Guillemet,
        Self::Arrow,
    ];

    pub(crate) fn opener(self) -> &'static str {
        match self {
            Self::Corner => "「始」",
            Self::CornerEscape => "「始ESCAPE」",
            Self::Brace => "{始}",
            Self::BraceEscape => "{始ESCAPE}",
            Self::Guillemet => "»»»",
            Self::Arrow => ">>>",
        }
    }

    pub(crate) fn closer(self) -> &'static str {
        match self {
            Self::Corner => "「末」",
            Self::CornerEscape => "「末ESCAPE」",
            Self::Brace => "{末}",
            Self::BraceEscape => "{末ESCAPE}",
            Self::Guillemet => "«««",
            Self::Arrow => "<<<",
        }
    }

    /// Whether protocol words inside the value are spelled with ESCAPE.
    pub(crate) fn is_escape(self) -> bool {
        matches!(self, Self::CornerEscape | Self::BraceEscape)
    }

    /// The family without ESCAPE.
    pub(crate) fn plain(self) -> Self {
        match self {
            Self::CornerEscape => Self::Corner,
            Self::BraceEscape => Self::Brace,
            plain => plain,
        }
    }

    /// Whether they are delimiters of TAM v2.
    pub(crate) fn is_v2(self) -> bool {
        matches!(self, Self::Guillemet | Self::Arrow)
    }

    /// First byte of the opener and of the closer.
    pub(crate) fn first_bytes(self) -> (u8, u8) {
        (self.opener().as_bytes()[0], self.closer().as_bytes()[0])
    }
}

/// The opening delimiter at a position.
pub(crate) fn opener(feed: &Feed<'_>, at: usize) -> Look<(Delimiters, usize)> {
    one_of(feed, at, Delimiters::opener)
}

fn one_of(
    feed: &Feed<'_>,
    at: usize,
    spelling: fn(Delimiters) -> &'static str,
) -> Look<(Delimiters, usize)> {
    let mut more = false;
    for &delimiters in Delimiters::ALL {
        match feed.literal_any_case(at, spelling(delimiters)) {
            Look::Yes(end) => return Look::Yes((delimiters, end)),
            Look::More => more = true,
            Look::No => {}
        }
    }
    if more { Look::More } else { Look::No }
}
