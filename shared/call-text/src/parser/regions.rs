//! Regions of prose in which nothing is a call, and what looks like a block in them.

use super::sink::Sink;
use crate::scan::{Feed, Look};
use crate::{Rule, Severity, Span};

pub(super) fn is_thought(name: &str) -> bool {
    ["think", "thinking", "reasoning", "thought"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

/// The place after `</name>`.
pub(super) fn thought_end(feed: &Feed<'_>, at: usize, name: &str) -> Look<usize> {
    for part in ["</", name] {
        let from = if part == "</" { at } else { at + 2 };
        match feed.literal_any_case(from, part) {
            Look::Yes(_) => {}
            other => return other,
        }
    }
    let after = feed.skip_space(at + 2 + name.len());
    feed.literal(after, ">")
}

const BLOCK_STARTS: &[&str] = &[
    "<action>",
    "<|[request_tool]|>",
    "<<<[tool_request]>>>",
    "<tool_call",
    "<invoke ",
    "<function=",
];

pub(super) fn starts_block(feed: &Feed<'_>, at: usize) -> Look<()> {
    let mut more = false;
    for start in BLOCK_STARTS {
        match feed.literal_any_case(at, start) {
            Look::Yes(_) => return Look::Yes(()),
            Look::More => more = true,
            Look::No => {}
        }
    }
    if more { Look::More } else { Look::No }
}

/// Whether a region without calls holds what looks like a block, for a remark.
pub(super) fn holds_block(text: &str) -> bool {
    memchr::memchr_iter(b'<', text.as_bytes()).any(|at| {
        BLOCK_STARTS.iter().any(|start| {
            text.as_bytes()
                .get(at..at + start.len())
                .is_some_and(|found| found.eq_ignore_ascii_case(start.as_bytes()))
        })
    })
}

/// `&lt;ACTION&gt;`: a block that was escaped (A8).
pub(super) fn escaped_block(text: &str, sink: &mut Sink) {
    const MARK: &str = "&lt;action&gt;";
    let found = memchr::memmem::find_iter(text.as_bytes(), b"&lt;").find(|at| {
        text.as_bytes()
            .get(*at..*at + MARK.len())
            .is_some_and(|found| found.eq_ignore_ascii_case(MARK.as_bytes()))
    });
    if let Some(at) = found {
        let message = "an escaped block was not run".to_owned();
        let hint = "write <ACTION> with plain angle brackets";
        sink.diagnose(
            Rule::A8,
            Severity::Hint,
            "escaped_block_not_run",
            Span::new(at, at + MARK.len()),
            message,
            hint,
        );
    }
}
