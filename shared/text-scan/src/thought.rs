//! The marks round the thoughts of a model (A9): tags of many names, and the marks of model
//! families.

use std::cell::Cell;

use crate::tag::{Tag, TagKind};
use crate::{Feed, Look};

/// The names of tags round a thought.
pub const NAMES: [&str; 7] = [
    "think",
    "thinking",
    "reasoning",
    "thought",
    "reflection",
    "scratchpad",
    "seed:think",
];

/// Marks that are no tags, opening and closing.
pub const MARKS: [(&str, &str); 3] = [
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|channel>thought", "<channel|>"),
];

/// The first characters of the marks that are no tags, other than `<`.
pub const FIRST: [char; 2] = ['[', '◁'];

/// The marks that open a thought in the answers of gpt-oss, with and without the head of the message.
const ANALYSIS: [&str; 2] = [
    "<|channel|>analysis",
    "<|start|>assistant<|channel|>analysis",
];
/// The marks before the text of such an answer.
const FINAL: [&str; 2] = [
    "<|channel|>final<|message|>",
    "<|start|>assistant<|channel|>final<|message|>",
];

/// A thought, by its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Thought {
    /// `</name>`.
    Tag(String),
    /// One of the marks.
    Mark(&'static str),
    /// The end of the message in gpt-oss, or the start of another message.
    Analysis,
}

impl Thought {
    /// The thought that a tag opens; `None` for a tag that opens no thought.
    pub fn of_tag(tag: &Tag, text: &str) -> Option<Self> {
        let name = tag.name.of(text);
        let is_known = || NAMES.iter().any(|known| name.eq_ignore_ascii_case(known));
        (tag.kind == TagKind::Open && is_known()).then(|| Self::Tag(name.to_ascii_lowercase()))
    }

    /// The thought that a mark opens which is no tag, and the place behind the mark; no thought where the mark is
    /// all of it.
    pub fn opened(feed: &Feed<'_>, at: usize) -> Look<(Option<Self>, usize)> {
        let marks = MARKS
            .iter()
            .map(|(open, close)| (*open, Some(Self::Mark(close))));
        let analysis = ANALYSIS.iter().map(|open| (*open, Some(Self::Analysis)));
        let text = FINAL.iter().map(|open| (*open, None));
        Look::first(marks.chain(analysis).chain(text).map(|(open, thought)| {
            match feed.literal(at, open) {
                Look::Yes(end) => Look::Yes((thought, end)),
                Look::More => Look::More,
                Look::No => Look::No,
            }
        }))
    }

    /// The next place at which it may end, or a block may begin.
    pub fn next_mark(&self, feed: &Feed<'_>, from: usize) -> Option<usize> {
        let own = match self {
            Self::Mark(close) => close.as_bytes()[0],
            Self::Tag(_) | Self::Analysis => b'<',
        };
        feed.find2(b'<', own, from)
    }

    /// The place where the text continues, if the thought ends here.
    pub fn end(&self, feed: &Feed<'_>, at: usize) -> Look<usize> {
        match self {
            Self::Tag(name) => closing_tag(feed, at, [name.as_str()]),
            Self::Mark(close) => feed.literal(at, close),
            Self::Analysis => match feed.literal(at, ANALYSIS[0]) {
                Look::Yes(_) => Look::No,
                Look::More => Look::More,
                Look::No => Look::first([
                    feed.literal(at, "<|end|>"),
                    stays(feed.literal(at, "<|channel|>"), at),
                    stays(feed.literal(at, "<|start|>"), at),
                ]),
            },
        }
    }
}

/// The place behind a mark that closes any thought, if there is one at the position.
pub fn closed(feed: &Feed<'_>, at: usize) -> Look<usize> {
    let marks = MARKS.iter();
    let marks = marks.map(|(_, close)| feed.literal(at, close));
    Look::first(marks.chain([closing_tag(feed, at, NAMES)]))
}

/// The place behind the last mark from `from` to `to` that closes any thought.
pub fn last_closed(feed: &Feed<'_>, from: usize, to: usize) -> Option<usize> {
    let begins = |c: char| c == '<' || FIRST.contains(&c);
    feed.count(to - from);
    let mut places = feed.text[from..to].rmatch_indices(begins);
    places.find_map(|(at, _)| match closed(feed, from + at) {
        Look::Yes(end) => Some(end),
        _ => None,
    })
}

/// The place of the first mark in a text that closes a thought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// Here.
    At {
        /// The place of the mark.
        start: usize,
        /// The place behind it.
        end: usize,
    },
    /// Perhaps here: the text ends in a possible beginning of a mark.
    Perhaps {
        /// The place of the beginning.
        start: usize,
    },
    /// The text holds none.
    Nowhere,
}

/// Looks for the first mark that closes a thought in a text that may grow.
pub fn closing_mark(text: &str) -> Closing {
    let steps = Cell::new(0);
    let feed = Feed {
        text,
        eof: false,
        steps: &steps,
        nonce: None,
    };
    let begins = |c: char| c == '<' || FIRST.contains(&c);
    for (start, _) in text.match_indices(begins) {
        match closed(&feed, start) {
            Look::Yes(end) => return Closing::At { start, end },
            Look::More => return Closing::Perhaps { start },
            Look::No => {}
        }
    }
    Closing::Nowhere
}

/// The place behind `</name>` with one of the names, in any letter case and with spaces inside.
fn closing_tag<'n>(
    feed: &Feed<'_>,
    at: usize,
    names: impl IntoIterator<Item = &'n str>,
) -> Look<usize> {
    let name_at = match feed.literal(at, "</") {
        Look::Yes(behind) => feed.skip_space(behind),
        other => return other,
    };
    let names = names.into_iter();
    Look::first(
        names.map(|name| match feed.literal_any_case(name_at, name) {
            Look::Yes(behind) => feed.literal(feed.skip_space(behind), ">"),
            other => other,
        }),
    )
}

fn stays(look: Look<usize>, at: usize) -> Look<usize> {
    match look {
        Look::Yes(_) => Look::Yes(at),
        other => other,
    }
}
