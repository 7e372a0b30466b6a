//! Formats that are recognised and not read: the model is shown how to write the call instead (F9).

use call_catalogue::Rule;

use super::{Scan, any_of, plain};
use crate::BlockEnd;
use crate::dialect::context::Context;
use crate::dialect::raw::Progress;
use crate::scan::{Feed, Look, look};

/// A format by its marks.
#[derive(Debug)]
struct Marks {
    label: &'static str,
    open: &'static [&'static str],
    /// The marks that end the call; it may end with the message instead.
    close: &'static [&'static str],
}

/// The word behind a fence whose content is a call in Python.
pub(crate) const FENCE: &str = "tool_code";

static TOOL_CODE: Marks = Marks {
    label: "Gemma's tool_code",
    open: &[],
    close: &["\n```"],
};

static FORMATS: &[Marks] = &[
    Marks {
        label: "LFM2",
        open: &["<|tool_call_start|>"],
        close: &["<|tool_call_end|>"],
    },
    Marks {
        label: "Llama's Python",
        open: &["<|python_start|>", "<|python_tag|>"],
        close: &["<|python_end|>", "<|eom_id|>", "<|eot_id|>", "<|eot|>"],
    },
    Marks {
        label: "Phi",
        open: &["<|tool_call|>"],
        close: &["<|/tool_call|>", "</|tool_call|>", "<|end_tool_call|>"],
    },
    Marks {
        label: "Gemma",
        open: &["<|tool_call>", "<start_function_call>"],
        close: &["<tool_call|>", "<end_function_call>"],
    },
    Marks {
        label: "Nemotron",
        open: &["<TOOLCALL>"],
        close: &["</TOOLCALL>"],
    },
    Marks {
        label: "InternLM",
        open: &["<|action_start|>"],
        close: &["<|action_end|>"],
    },
    Marks {
        label: "Cohere",
        open: &["<|START_ACTION|>"],
        close: &["<|END_ACTION|>"],
    },
    Marks {
        label: "Step",
        open: &["<｜tool_calls_begin｜>", "<｜tool_call_begin｜>"],
        close: &["<｜tool_calls_end｜>"],
    },
    Marks {
        label: "[TOOL_CALL]",
        open: &["[TOOL_CALL]"],
        close: &["[/TOOL_CALL]"],
    },
    Marks {
        label: "Glaive",
        open: &["<functioncall>"],
        close: &["</functioncall>", "<|endoftext|>"],
    },
];

/// The marks between the parts of a call whose opening mark is missing.
static PARTS: &[Marks] = &[
    Marks {
        label: "Mistral without its opening mark",
        open: &["[ARGS]"],
        close: &[],
    },
    Marks {
        label: "gpt-oss with its marks changed",
        open: &["<|constrain|>"],
        close: &["<|call|>"],
    },
    Marks {
        label: "Kimi without its opening mark",
        open: &["<|tool_call_argument_begin|>"],
        close: &["<|tool_calls_section_end|>", "<|tool_call_end|>"],
    },
    Marks {
        label: "DeepSeek without its opening mark",
        open: &["<｜tool▁sep｜>"],
        close: &["<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>"],
    },
];

impl Marks {
    /// Whether they belong to a format that is read where it is whole.
    fn is_part(&self) -> bool {
        PARTS.iter().any(|marks| std::ptr::eq(marks, self))
    }
}

#[derive(Debug)]
pub(super) struct UnsupportedScanner {
    marks: &'static Marks,
    opened: usize,
    sought: usize,
}

/// The scanner of the call that opens at a position.
pub(super) fn opened(
    feed: &Feed<'_>,
    context: &Context<'_>,
    at: usize,
) -> Look<UnsupportedScanner> {
    if context.catalogue.is_empty() {
        return Look::No;
    }
    let mut more = false;
    for marks in FORMATS.iter().chain(PARTS) {
        match any_of(feed, at, marks.open) {
            Look::Yes(opened) => return Look::Yes(UnsupportedScanner::new(marks, opened)),
            Look::More => more = true,
            Look::No => {}
        }
    }
    if more { Look::More } else { Look::No }
}

static PYTHON_LIST: Marks = Marks {
    label: "a Python list",
    open: &[],
    close: &[")]"],
};

/// The scanner of `[name(` at a position, where a visible tool is named.
pub(super) fn python_list(
    feed: &Feed<'_>,
    context: &Context<'_>,
    at: usize,
) -> Look<UnsupportedScanner> {
    if feed.bytes().get(at) != Some(&b'[') {
        return Look::No;
    }
    let start = feed.skip_space(at + 1);
    let most = context.policy.limits.name_bytes;
    let rest = &feed.bytes()[start..];
    let in_name =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'-');
    let Some(width) = rest.iter().take(most).position(|byte| !in_name(byte)) else {
        return if rest.len() < most {
            feed.ended()
        } else {
            Look::No
        };
    };
    let name = &feed.text[start..start + width];
    let visible = context.catalogue.has_visible(name);
    match rest[width] == b'(' && visible {
        true => Look::Yes(UnsupportedScanner::new(&PYTHON_LIST, at + 1)),
        false => Look::No,
    }
}

/// Every mark that opens a call in one of the formats.
pub(super) fn marks() -> impl Iterator<Item = &'static str> {
    FORMATS
        .iter()
        .chain(PARTS)
        .flat_map(|marks| marks.open)
        .copied()
}

/// The word before the calls of Phi, at the start of a line.
pub(super) const FUNCTOOLS: &str = "functools[";
static LIST_OF_PHI: Marks = Marks {
    label: "Phi",
    open: &[],
    close: &["}]"],
};

static REACT: Marks = Marks {
    label: "ReAct",
    open: &[],
    close: &["\nObservation"],
};

/// The word before a call of ReAct, at the start of a line.
pub(crate) const ACTION: &str = "Action:";
const ACTION_INPUT: &str = "Action Input:";

/// The scanner of `Action: name` with `Action Input:` in the next line, where a visible tool is named.
pub(super) fn react(feed: &Feed<'_>, context: &Context<'_>, at: usize) -> Look<UnsupportedScanner> {
    let Some(opened) = look!(feed.literal(at, ACTION), Look::More) else {
        return Look::No;
    };
    let most = feed.len().min(opened + context.policy.limits.name_bytes);
    let Some(width) = memchr::memchr(b'\n', &feed.bytes()[opened..most]) else {
        return if most == feed.len() {
            feed.ended()
        } else {
            Look::No
        };
    };
    let name = feed.text[opened..opened + width].trim_matches([' ', '`', '*', '\r', '[', ']']);
    if !context.catalogue.has_visible(name) {
        return Look::No;
    }
    let next = feed.skip_space(opened + width);
    feed.literal(next, ACTION_INPUT)
        .map(|_| UnsupportedScanner::new(&REACT, opened))
}

impl UnsupportedScanner {
    fn new(marks: &'static Marks, opened: usize) -> Self {
        Self {
            marks,
            opened,
            sought: opened,
        }
    }

    pub(super) fn functools(opened: usize) -> Self {
        Self::new(&LIST_OF_PHI, opened)
    }

    pub(super) fn tool_code(body: usize) -> Self {
        Self::new(&TOOL_CODE, body)
    }

    /// The end of the text that was looked at.
    pub(super) fn reached(&self) -> usize {
        self.sought
    }

    /// The place behind the mark that opens it.
    pub(super) fn opened(&self) -> usize {
        self.opened
    }

    pub(super) fn step(&mut self, scan: &mut Scan<'_, '_>) -> Progress {
        let feed = scan.feed;
        let close = self.marks.close;
        let found = close.iter().filter_map(|mark| {
            let start = feed.find(mark, self.sought)?;
            Some((start, start + mark.len()))
        });
        let (inner, at) = match found.min() {
            Some(found) => found,
            None if feed.eof => (feed.len(), feed.len()),
            None => {
                const LONGEST: usize = 64;
                self.sought = feed
                    .floor(feed.len().saturating_sub(LONGEST))
                    .max(self.opened);
                return Progress::More;
            }
        };
        self.sought = at;
        let body = feed.text[self.opened..inner.max(self.opened)].trim();
        let calls = plain::calls_of(body);
        let visible = |name: &str| scan.context.catalogue.has_visible(name);
        let is_part = self.marks.is_part() && body.contains('{');
        if calls.is_empty()
            && !is_part
            && !body
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(visible)
        {
            return Progress::NotABlock {
                resume: self.opened,
            };
        }
        for call in calls.into_iter().filter(|call| visible(&call.name)) {
            scan.raw.calls.push(call);
        }
        scan.unsupported(Rule::F9, self.marks.label, at);
        Progress::Closed {
            at,
            end: BlockEnd::Closed,
        }
    }
}
