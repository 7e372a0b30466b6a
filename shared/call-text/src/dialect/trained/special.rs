//! Calls between special tokens: DeepSeek (F3), gpt-oss (F4), Kimi (F5).

use call_catalogue::{Rule, Span, TrainedFormat};

use super::{Scan, any_of, behind_fence, past_fence};
use crate::dialect::raw::Progress;
use crate::scan::json::JsonEnd;
use crate::scan::{Feed, Look, look};
use crate::{BlockEnd, FinishReason, Repair};

/// The tokens of a format, between which its calls stand.
#[derive(Debug)]
struct Grammar {
    format: TrainedFormat,
    /// Tokens that open a list of calls.
    section: &'static [&'static str],
    /// Tokens that open a call.
    call: &'static [&'static str],
    /// The token between the name and the arguments.
    separator: &'static str,
    /// Tokens that end a call.
    end: &'static [&'static str],
    /// Tokens that end the list.
    close: &'static [&'static str],
    /// Whether the token that ends a call also ends the answer, so that servers cut it off.
    ends_answer: bool,
}

static DEEP_SEEK: Grammar = Grammar {
    format: TrainedFormat::DeepSeek,
    section: &["<｜tool▁calls▁begin｜>"],
    call: &["<｜tool▁call▁begin｜>"],
    separator: "<｜tool▁sep｜>",
    end: &["<｜tool▁call▁end｜>"],
    close: &["<｜tool▁calls▁end｜>"],
    ends_answer: false,
};

static KIMI: Grammar = Grammar {
    format: TrainedFormat::Kimi,
    section: &[
        "<|tool_calls_section_begin|>",
        "<|tool_call_section_begin|>",
    ],
    call: &["<|tool_call_begin|>"],
    separator: "<|tool_call_argument_begin|>",
    end: &["<|tool_call_end|>"],
    close: &["<|tool_calls_section_end|>", "<|tool_call_section_end|>"],
    ends_answer: false,
};

static HARMONY: Grammar = Grammar {
    format: TrainedFormat::Harmony,
    section: &[],
    call: &[],
    separator: MESSAGE,
    end: &["<|call|>", "<|end|>"],
    close: &[],
    ends_answer: true,
};

/// The tokens that begin a message of gpt-oss.
const HEADS: [&str; 2] = ["<|channel|>", "<|start|>assistant"];
/// The texts that begin a call of gpt-oss.
const CALL_HEADS: [&str; 3] = [
    "<|channel|>commentary to=functions.",
    "<|start|>assistant to=functions.",
    "<|start|>assistant<|channel|>commentary to=functions.",
];
const START: &str = "<|start|>";
/// The most times that the first mark of a message is passed where it is repeated.
const MOST_STARTS: usize = 4;
const TYPED: &str = "<|constrain|>";
const MESSAGE: &str = "<|message|>";
/// The most bytes of the head of a message, or between the beginning of a call and its arguments.
const LONGEST_HEAD: usize = 256;

/// The tokens that end a message of gpt-oss.
const TAILS: [&str; 3] = ["<|end|>", "<|return|>", "<|call|>"];

/// The head of a message of gpt-oss.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    /// The function that the message calls, if it is a call.
    pub(crate) calls: Option<Span>,
    /// Whether it begins a comment to the user.
    pub(crate) comments: bool,
    /// Whether the mark at its end is missing.
    broken: bool,
    /// The start of the message.
    pub(crate) end: usize,
}

/// The head of a message of gpt-oss at a position.
pub(crate) fn head(feed: &Feed<'_>, at: usize) -> Look<Head> {
    let mut start = at;
    for _ in 0..MOST_STARTS {
        match feed
            .literal(start, START)
            .map(|end| (end, feed.literal(end, START)))
        {
            Look::Yes((end, Look::Yes(_))) => start = end,
            Look::Yes((_, Look::More)) => return Look::More,
            _ => break,
        }
    }
    match any_of(feed, start, &HEADS) {
        Look::Yes(_) => {}
        Look::More => return Look::More,
        Look::No => return Look::No,
    }
    let window = feed.floor(feed.len().min(at + LONGEST_HEAD));
    feed.count(window - at);
    let head = &feed.text[at..window];
    let width = head.find(MESSAGE);
    // No head holds a brace, a line break or the end of a message.
    let ends = HARMONY
        .end
        .iter()
        .filter_map(|end| head.find(end))
        .chain(head.find(['{', '\n']));
    let broken = ends
        .min()
        .filter(|end| width.is_none_or(|width| *end < width));
    let Some(width) = width.filter(|_| broken.is_none()) else {
        let is_whole = broken.is_some() || feed.eof;
        let head = &head[..broken.unwrap_or(head.len())];
        return match called(at, head) {
            _ if !is_whole && feed.len() < at + LONGEST_HEAD => Look::More,
            Some(name) if is_whole => Look::Yes(Head {
                calls: Some(name),
                comments: false,
                broken: broken.is_some(),
                end: at + head.len(),
            }),
            _ => Look::No,
        };
    };
    let head = &head[..width];
    let calls = called(at, head);
    // A message with a type is a call, even without its recipient.
    let broken = calls.is_none() && head.contains(TYPED);
    Look::Yes(Head {
        calls: calls.or(broken.then(|| Span::new(at, at))),
        comments: head.contains("commentary"),
        broken,
        end: at + width + MESSAGE.len(),
    })
}

/// The place behind a mark that ends a message of gpt-oss.
pub(crate) fn tail(feed: &Feed<'_>, at: usize) -> Look<usize> {
    any_of(feed, at, &TAILS)
}

/// The function that a head addresses.
fn called(at: usize, head: &str) -> Option<Span> {
    const TO: &str = "to=";
    let start = head.find(TO)? + TO.len();
    let rest = &head[start..];
    let width = rest
        .find(|c: char| c.is_whitespace() || c == '<')
        .unwrap_or(rest.len());
    let name = super::function_name(&rest[..width]);
    let skipped = width - name.len();
    Some(Span::new(at + start + skipped, at + start + width))
}

#[derive(Debug)]
enum SpecialPlace {
    /// Between calls.
    Calls,
    /// Behind the token that opens a call, before the end of its name.
    Header,
    /// Behind the name of a call and the token that separates it from the arguments.
    Separated { name: Span, from: usize },
    /// In the arguments of a call.
    Arguments {
        name: Span,
        start: usize,
        end: JsonEnd,
    },
    /// Behind the arguments.
    Behind { name: Span, json: Span },
    /// Behind a part that cannot be read.
    Lost { sought: usize, message: String },
}

#[derive(Debug)]
pub(super) struct SpecialScanner {
    grammar: &'static Grammar,
    opened: usize,
    pos: usize,
    /// The start of the open call.
    call: usize,
    in_section: bool,
    place: SpecialPlace,
}

/// Every mark that opens a call in one of the formats.
pub(super) fn marks() -> impl Iterator<Item = &'static str> {
    let marks = [&DEEP_SEEK, &KIMI]
        .into_iter()
        .flat_map(|grammar| [grammar.section, grammar.call]);
    marks.flatten().chain(&HEADS).chain(&CALL_HEADS).copied()
}

/// The scanner of the list or call that opens at a position.
pub(super) fn opened(feed: &Feed<'_>, at: usize) -> Look<SpecialScanner> {
    let scanner = |grammar, opened, in_section, place| SpecialScanner {
        grammar,
        opened,
        pos: opened,
        call: at,
        in_section,
        place,
    };
    let mut more = false;
    for grammar in [&DEEP_SEEK, &KIMI] {
        match any_of(feed, at, grammar.section) {
            Look::Yes(end) => return Look::Yes(scanner(grammar, end, true, SpecialPlace::Calls)),
            look => more |= look == Look::More,
        }
        match any_of(feed, at, grammar.call) {
            Look::Yes(end) => return Look::Yes(scanner(grammar, end, false, SpecialPlace::Header)),
            look => more |= look == Look::More,
        }
    }
    match head(feed, at) {
        Look::Yes(Head { calls: Some(_), .. }) => {
            return Look::Yes(scanner(&HARMONY, at, false, SpecialPlace::Header));
        }
        Look::More => more = true,
        _ => {}
    }
    if more { Look::More } else { Look::No }
}

impl SpecialScanner {
    /// The place behind the mark that opens it.
    pub(super) fn opened(&self) -> usize {
        self.opened
    }

    pub(super) fn step(&mut self, scan: &mut Scan<'_, '_>) -> Progress {
        loop {
            let progress = match &mut self.place {
                SpecialPlace::Calls => self.calls(scan),
                SpecialPlace::Header => self.header(scan),
                SpecialPlace::Separated { name, from } => {
                    let (name, from) = (*name, *from);
                    self.separated(scan, name, from)
                }
                SpecialPlace::Arguments { name, start, end } => match end.find(scan.feed) {
                    Look::Yes(behind) => {
                        let json = Span::new(*start, behind);
                        self.place = SpecialPlace::Behind { name: *name, json };
                        None
                    }
                    Look::More => Some(Progress::More),
                    Look::No => Some(scan.truncated("the JSON of the arguments is not closed")),
                },
                SpecialPlace::Behind { name, json } => {
                    let (name, json) = (*name, *json);
                    self.behind(scan, name, json)
                }
                SpecialPlace::Lost { sought, message } => {
                    let marks = if self.in_section {
                        self.grammar.close
                    } else {
                        self.grammar.end
                    };
                    Some(scan.lost(self.grammar.format.rule(), marks, sought, message))
                }
            };
            if let Some(progress) = progress {
                return progress;
            }
        }
    }

    fn closed(&self, scan: &mut Scan<'_, '_>, at: usize, end: BlockEnd) -> Option<Progress> {
        Some(scan.closed(self.grammar.format, at, end))
    }

    fn lose(&mut self, message: &str) -> Option<Progress> {
        self.place = SpecialPlace::Lost {
            sought: self.pos,
            message: message.to_owned(),
        };
        None
    }

    /// Between the calls of a section.
    fn calls(&mut self, scan: &mut Scan<'_, '_>) -> Option<Progress> {
        let (feed, grammar) = (scan.feed, self.grammar);
        let at = feed.skip_space(self.pos);
        if at == feed.len() && (!feed.eof || scan.raw.calls.is_empty()) {
            return Some(scan.ended("the list of calls is not closed"));
        }
        if let Some(end) = look!(any_of(feed, at, grammar.close), Some(Progress::More)) {
            if scan.raw.calls.is_empty() {
                let message = "the block holds no tool call".to_owned();
                return Some(scan.malformed(Rule::A13, end, message));
            }
            return self.closed(scan, end, BlockEnd::Closed);
        }
        if let Some(end) = look!(any_of(feed, at, grammar.call), Some(Progress::More)) {
            self.call = at;
            self.pos = end;
            self.place = SpecialPlace::Header;
            return None;
        }
        for marks in [grammar.section, grammar.end] {
            if let Some(end) = look!(any_of(feed, at, marks), Some(Progress::More)) {
                scan.repaired("doubled_mark", Span::new(at, end), "");
                self.pos = end;
                return None;
            }
        }
        if feed.eof && is_cut(grammar, &feed.text[at..]) {
            return Some(scan.truncated("the list of calls is not closed"));
        }
        // In prose about the format, or behind the calls, no part of a call follows.
        let window = feed.floor(feed.len().min(at + LONGEST_HEAD));
        let near = |mark: &&str| feed.text[at..window].contains(*mark);
        let parts = [grammar.separator]
            .into_iter()
            .chain(grammar.end.iter().copied());
        let is_call = parts.filter(near).count() > 0;
        if !is_call && window == feed.len() && !feed.eof {
            return Some(Progress::More);
        }
        if is_call {
            return self.lose(&format!("{} is missing before the name", grammar.call[0]));
        }
        if scan.raw.calls.is_empty() {
            return Some(Progress::NotABlock {
                resume: self.opened,
            });
        }
        // Only the end of the list is missing (A10).
        let policy = scan.context.policy;
        let stopped = at < feed.len() || scan.context.finish == FinishReason::Stop;
        if policy.repair == Repair::Never || policy.strict || !stopped {
            return Some(scan.truncated("the list of calls is not closed"));
        }
        let here = Span::new(self.pos, self.pos);
        scan.repaired("closing_wrapper_supplied", here, grammar.close[0]);
        self.closed(scan, self.pos, BlockEnd::Repaired)
    }

    /// The name of a call, up to its arguments.
    fn header(&mut self, scan: &mut Scan<'_, '_>) -> Option<Progress> {
        let (feed, grammar) = (scan.feed, self.grammar);
        if scan.raw.calls.len() >= scan.context.policy.limits.calls {
            return self.lose("the block holds too many calls");
        }
        let (name, from) = match grammar.call.is_empty() {
            true => match head(feed, self.pos) {
                Look::Yes(Head { broken: true, .. }) => {
                    return self.lose("the head of the call lacks its recipient or <|message|>");
                }
                Look::Yes(Head {
                    calls: Some(name),
                    end,
                    ..
                }) => (name, end),
                Look::More => return Some(Progress::More),
                _ => return self.lose("the head of the message cannot be read"),
            },
            false => {
                let start = feed.skip_space(self.pos);
                if let Some(end) = look!(any_of(feed, start, grammar.call), Some(Progress::More)) {
                    scan.repaired("doubled_mark", Span::new(start, end), "");
                    self.pos = end;
                    return None;
                }
                let most = feed.len().min(start + LONGEST_HEAD);
                let Some(width) = memchr::memchr(b'<', &feed.bytes()[start..most]) else {
                    return match most == feed.len() {
                        true => Some(scan.ended("the block ends in the name of a tool")),
                        false => self.lose("the name of the tool is not ended"),
                    };
                };
                let name = Span::new(start, start + width);
                match look!(
                    feed.literal(name.end, grammar.separator),
                    Some(Progress::More)
                ) {
                    Some(from) => (trimmed(name, feed.text), from),
                    None => {
                        return self
                            .lose(&format!("{} is missing behind the name", grammar.separator));
                    }
                }
            }
        };
        self.place = SpecialPlace::Separated { name, from };
        None
    }

    /// Between the name of a call and its arguments.
    fn separated(
        &mut self,
        scan: &mut Scan<'_, '_>,
        mut name: Span,
        mut from: usize,
    ) -> Option<Progress> {
        let (feed, grammar) = (scan.feed, self.grammar);
        let again = feed.skip_space(from);
        if let Some(end) = look!(feed.literal(again, grammar.separator), Some(Progress::More)) {
            scan.repaired("doubled_mark", Span::new(again, end), "");
            self.place = SpecialPlace::Separated { name, from: end };
            return None;
        }
        if name.of(feed.text) == "function" && grammar.format == TrainedFormat::DeepSeek {
            // The type of the call comes before its name.
            let most = feed.len().min(from + LONGEST_HEAD);
            let ends = |byte: &u8| matches!(byte, b'\n' | b'`' | b'{' | b'<');
            let Some(width) = feed.bytes()[from..most].iter().position(ends) else {
                return match most == feed.len() {
                    true => Some(scan.ended("the block ends in the name of a tool")),
                    false => self.lose("the name of the tool is not ended"),
                };
            };
            name = trimmed(Span::new(from, from + width), feed.text);
            from += width;
        }
        let Some(start) = look!(behind_fence(feed, from), Some(Progress::More)) else {
            return self.lose("the arguments are missing");
        };
        match feed.bytes().get(start) {
            Some(b'{') => {
                let end = JsonEnd::at(start);
                self.place = SpecialPlace::Arguments { name, start, end };
                None
            }
            Some(_) => self.lose("the arguments are no JSON object"),
            None => Some(scan.ended("the block ends before the arguments")),
        }
    }

    /// Behind the arguments: the end of the call.
    fn behind(&mut self, scan: &mut Scan<'_, '_>, name: Span, json: Span) -> Option<Progress> {
        let (feed, grammar) = (scan.feed, self.grammar);
        let at = look!(past_fence(feed, json.end), Some(Progress::More)).unwrap_or(json.end);
        let end = look!(any_of(feed, at, grammar.end), Some(Progress::More));
        let end = match end {
            Some(end) => end,
            None if at == feed.len() && grammar.ends_answer => json.end,
            None if at == feed.len() => {
                return Some(scan.ended("the block ends behind the arguments"));
            }
            None => {
                let others = [grammar.call, grammar.close, grammar.section, &HEADS];
                let mut follows = false;
                for marks in others {
                    follows |= look!(any_of(feed, at, marks), Some(Progress::More)).is_some();
                }
                if !follows {
                    return self.lose(&format!(
                        "{} is missing behind the arguments",
                        grammar.end[0]
                    ));
                }
                scan.repaired(
                    "closing_mark_supplied",
                    Span::new(json.end, json.end),
                    grammar.end[0],
                );
                json.end
            }
        };
        let closing = match self.in_section {
            true => None,
            // The mark that opens the section is missing.
            false => look!(
                any_of(feed, feed.skip_space(end), grammar.close),
                Some(Progress::More)
            ),
        };
        scan.call(name, Span::new(self.call, end), json);
        if self.in_section {
            self.pos = end;
            self.place = SpecialPlace::Calls;
            return None;
        }
        if closing.is_some() {
            let here = Span::new(scan.start, scan.start);
            scan.repaired("missing_opening_wrapper", here, grammar.section[0]);
        }
        self.closed(scan, closing.unwrap_or(end), BlockEnd::Closed)
    }
}

/// Whether a text is the beginning of a mark of the format, and not all of it.
fn is_cut(grammar: &Grammar, text: &str) -> bool {
    let marks = [grammar.call, grammar.close, grammar.end, grammar.section];
    let mut marks = marks.into_iter().flatten();
    marks.any(|mark| mark.len() > text.len() && mark.starts_with(text))
}

/// The name without white space, the namespace and the number that servers put round it.
fn trimmed(span: Span, text: &str) -> Span {
    let whole = span.of(text);
    let name = super::function_name(whole);
    let start = span.start + whole.rfind(name).unwrap_or_default();
    let number = |(name, index): &(&str, &str)| {
        !name.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit())
    };
    let width = name
        .rsplit_once(':')
        .filter(number)
        .map_or(name.len(), |(name, _)| name.len());
    Span::new(start, start + width)
}
