//! Regions of prose without calls, and lookalikes of blocks in them.

use call_catalogue::{Dialect, Rule, Severity, Span};

use super::assembler::Assembler;
use crate::dialect::trained;
use crate::scan::tag;
use crate::scan::{Feed, Look};

const BLOCK_STARTS: &[&str] = &[
    "<action>",
    "<|[request_tool]|>",
    "<<<[tool_request]>>>",
    // With a nonce.
    "<action ",
    "<|[request_tool ",
    "<<<[tool_request ",
    "<tool_call",
    "<invoke ",
    "<function=",
];

pub(super) fn starts_block(feed: &Feed<'_>, at: usize) -> Look<()> {
    let mut more = false;
    for start in BLOCK_STARTS.iter().chain(trained::OPENERS) {
        match feed.literal_any_case(at, start) {
            Look::Yes(_) => return Look::Yes(()),
            Look::More => more = true,
            Look::No => {}
        }
    }
    if more { Look::More } else { Look::No }
}

/// Whether a region without calls holds a lookalike of a block, for a remark.
pub(super) fn holds_block(text: &str) -> bool {
    memchr::memchr_iter(b'<', text.as_bytes()).any(|at| {
        BLOCK_STARTS.iter().chain(trained::OPENERS).any(|start| {
            text.as_bytes()
                .get(at..at + start.len())
                .is_some_and(|found| found.eq_ignore_ascii_case(start.as_bytes()))
        })
    })
}

/// The dialect of a block whose first tag the end of the message cut off at a position.
pub(super) fn cut_opener(text: &str, at: usize) -> Option<Dialect> {
    const SHORTEST: usize = 4;
    const LONGEST: usize = 256;
    let rest = text.get(at..).filter(|rest| rest.len() <= LONGEST)?;
    if rest.len() < SHORTEST
        || rest.contains(['>', '\n']) && !rest.starts_with("<|") && !rest.starts_with("<<<[")
    {
        return None;
    }
    let whole = rest;
    let rest = &*tag::without_namespace(rest);
    let starts = |opener: &str| {
        let head = rest.get(..opener.len().min(rest.len()));
        head.is_some_and(|head| opener[..head.len()].eq_ignore_ascii_case(head))
    };
    // Only tags may have attributes; markers are cut or whole.
    let is_cut = |opener: &str| starts(opener) && rest.len() < opener.len();
    match rest {
        _ if is_cut("<|[REQUEST_TOOL]|>") => Some(Dialect::TamV1),
        _ if is_cut("<<<[TOOL_REQUEST]>>>") => Some(Dialect::Vcp),
        _ if trained::is_cut(whole) => Some(Dialect::ToolJson),
        _ if is_cut("<ACTION>") || starts("<ACTION ") => Some(Dialect::Action),
        _ => ["<tool_call", "<invoke ", "<function=", "<function_calls"]
            .iter()
            .any(|opener| starts(opener))
            .then_some(Dialect::ToolTag),
    }
}

/// The words of the markers that open a block, and the positions of the `Q` and the underscore in
/// each.
const WORDS: [(&str, usize, usize); 2] = [("REQUEST_TOOL", 2, 7), ("TOOL_REQUEST", 7, 4)];

/// `<ACTION>` as it is escaped.
const ESCAPED: &str = "&lt;action&gt;";

/// Adds remarks on lookalikes of blocks at the end of the message, when all blocks are known.
pub(super) fn remark_on_lookalikes(text: &str, assembler: &mut Assembler) {
    let (mut words, mut escaped) = (false, None);
    // Few texts hold one of the words, whose rarest letter is the Q. So one search settles most.
    let mut search = |span: Span| {
        let piece = span.of(text).as_bytes();
        let starts = |at: Option<usize>, mark: &str| {
            let found = at.and_then(|at| piece.get(at..at + mark.len()));
            found.is_some_and(|found| found.eq_ignore_ascii_case(mark.as_bytes()))
        };
        for at in memchr::memchr3_iter(b'q', b'Q', b'&', piece) {
            if piece[at] == b'&' {
                let found = escaped.is_none() && starts(Some(at), ESCAPED);
                escaped = escaped.or(found.then_some(span.start + at));
            } else if at > 0 && piece[at - 1].eq_ignore_ascii_case(&b'e') {
                words |= (WORDS.iter()).any(|(word, q, _)| starts(at.checked_sub(*q), word));
            }
        }
    };
    let blocks = assembler.has_blocks();
    match blocks {
        true => assembler.prose().for_each(search),
        false => search(Span::new(0, text.len())),
    }
    if words {
        near_misses(text, assembler);
    }
    if let Some(at) = escaped.filter(|_| !blocks) {
        escaped_block(at, assembler);
    }
}

/// Markers that were nearly written right, in published text (T1): a hint, and a warning where the
/// fields of a call follow.
fn near_misses(text: &str, assembler: &mut Assembler) {
    const MOST: usize = 8;
    let prose: Vec<Span> = assembler.prose().collect();
    let found: Vec<(Span, bool)> = prose
        .into_iter()
        .flat_map(|span| near_misses_in(text, span))
        .take(MOST)
        .collect();
    for (span, meant) in found {
        let written = span.of(text);
        let tam =
            written.to_ascii_uppercase().contains("REQUEST_TOOL") || written.contains(['|', '｜']);
        let right = match tam {
            true => "write <|[REQUEST_TOOL]|> before the fields and <|[END_TOOL]|> after them",
            false => {
                "write <<<[TOOL_REQUEST]>>> before the fields and <<<[END_TOOL_REQUEST]>>> after them"
            }
        };
        let severity = match meant {
            true => Severity::Warning,
            false => Severity::Hint,
        };
        let message = format!("'{written}' opens no block");
        assembler.diagnose(
            Rule::T1,
            severity,
            call_catalogue::NEAR_MISS,
            span,
            message,
            right,
        );
    }
}

/// The places in a piece of prose of a tool's marker whose brackets are wrong, and
/// whether fields follow it.
fn near_misses_in(text: &str, span: Span) -> impl Iterator<Item = (Span, bool)> {
    const RIGHT: [&str; 2] = ["<|[REQUEST_TOOL]|>", "<<<[TOOL_REQUEST]>>>"];
    const MOST_BRACKETS: usize = 8;
    let piece = span.of(text);
    let places = memchr::memchr_iter(b'_', piece.as_bytes())
        .filter_map(|at| {
            WORDS.iter().find_map(|(word, _, underscore)| {
                let start = at.checked_sub(*underscore)?;
                let found = piece.get(start..start + word.len())?;
                found
                    .eq_ignore_ascii_case(word)
                    .then_some((start, start + word.len()))
            })
        })
        .collect::<Vec<_>>();
    places.into_iter().filter_map(move |(start, end)| {
        let opens = |c: &char| "<＜|｜[［【".contains(*c);
        let closes = |c: &char| ">＞|｜]］】".contains(*c);
        let before = piece[..start]
            .chars()
            .rev()
            .take(MOST_BRACKETS)
            .take_while(opens);
        let after = piece[end..].chars().take(MOST_BRACKETS).take_while(closes);
        let (before, after): (usize, usize) = (
            before.map(char::len_utf8).sum(),
            after.map(char::len_utf8).sum(),
        );
        let (start, end) = (start - before, end + after);
        let whole = &piece[start..end];
        let quoted = piece[..start].ends_with('`') || piece[..start].ends_with('\\');
        if before == 0
            || after == 0
            || quoted
            || RIGHT.iter().any(|right| right.eq_ignore_ascii_case(whole))
        {
            return None;
        }
        let line = piece[..start].rfind('\n').map_or(0, |at| at + 1);
        let alone = piece[line..start].trim().is_empty();
        let fenced = ["```", "~~~"].iter().any(|mark| {
            let fences = piece[..line]
                .lines()
                .filter(|line| line.trim_start().starts_with(mark));
            fences.count() % 2 == 1
        });
        let fields = ["「始", "»»»", "{始}"]
            .iter()
            .any(|mark| piece[end..].contains(mark));
        Some((
            Span::new(span.start + start, span.start + end),
            alone && fields && !fenced,
        ))
    })
}

/// `&lt;ACTION&gt;`: a block that was escaped (A8).
fn escaped_block(at: usize, assembler: &mut Assembler) {
    assembler.diagnose(
        Rule::A8,
        Severity::Hint,
        "escaped_block_not_run",
        Span::new(at, at + ESCAPED.len()),
        "an escaped block was not run".to_owned(),
        "write <ACTION> with plain angle brackets",
    );
}

/// Whether a closing tag of this name ends a block, and not just a part of one.
pub(super) fn closes_block(name: &str) -> bool {
    [
        "action",
        "tool_call",
        "tool_calls",
        "function_calls",
        "invoke",
        "function",
        "param",
        "parameter",
    ]
    .iter()
    .any(|known| name.eq_ignore_ascii_case(known))
}
