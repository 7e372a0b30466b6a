//! The formats in which models were trained to write calls, and to which they fall back when the prompt is long
//! (F1 to F6, F9).
//!
//! A block is reported when it has ended: its values are in JSON, whose end decides where the call
//! ends. A mark that opens a call that cannot be read is a broken block, never the answer (G9).

mod alone;
mod glm;
mod mistral;
mod plain;
mod special;
mod unsupported;

use call_catalogue::{
    Catalogue, Class, Dialect, Problem, ProblemCode, Rule, Span, TRAINED_FORMAT, Tolerance,
    TrainedFormat,
};

use self::alone::AloneScanner;
use self::glm::GlmScanner;
use self::mistral::MistralScanner;
use self::special::SpecialScanner;
use self::unsupported::UnsupportedScanner;
use super::context::Context;
use super::raw::{Progress, RawBlock, RawCall};
use crate::BlockEnd;
use crate::scan::{Feed, Look};

pub(crate) use alone::Around;
pub(crate) use special::{head, tail};
use unsupported::FUNCTOOLS;
pub(crate) use unsupported::{ACTION, FENCE};

/// The marks that open a call in one of the formats, for regions in which no call is read.
pub(crate) const OPENERS: &[&str] = &["<｜tool▁call", "<|tool_call", "<|channel|>commentary to="];

#[derive(Debug)]
enum Format {
    Glm(GlmScanner),
    Alone(AloneScanner),
    Special(SpecialScanner),
    Mistral(MistralScanner),
    Unsupported(UnsupportedScanner),
}

/// Cuts one block of a trained format, resumable at every byte.
#[derive(Debug)]
pub(crate) struct TrainedScanner {
    start: usize,
    /// The end of the text that was looked at, for a block that turned out to be none.
    reached: usize,
    format: Format,
    raw: RawBlock,
}

/// The text, the context and the block that a scanner of a format works on.
struct Scan<'s, 't> {
    feed: &'s Feed<'t>,
    context: &'s Context<'s>,
    /// The start of the block.
    start: usize,
    raw: &'s mut RawBlock,
}

impl TrainedScanner {
    fn new(start: usize, format: Format) -> Self {
        Self {
            start,
            reached: start,
            format,
            raw: RawBlock::default(),
        }
    }

    /// The scanner of the block that a mark opens at a position.
    pub(crate) fn opened(feed: &Feed<'_>, at: usize) -> Look<Self> {
        let special = special::opened(feed, at).map(Format::Special);
        let found = special.or_else(|| mistral::opened(feed, at).map(Format::Mistral));
        found.map(|format| Self::new(at, format))
    }

    /// The scanner of the block in a format that is not read which a mark opens at a position.
    pub(crate) fn unsupported(feed: &Feed<'_>, context: &Context<'_>, at: usize) -> Look<Self> {
        let found = unsupported::opened(feed, context, at);
        found.map(|scanner| Self::new(at, Format::Unsupported(scanner)))
    }

    /// The scanner of the JSON value at a position, where a line begins.
    pub(crate) fn json(
        feed: &Feed<'_>,
        context: &Context<'_>,
        at: usize,
        around: Around,
    ) -> Option<Self> {
        let opens = matches!(feed.bytes().get(at), Some(b'{' | b'['));
        let seeks = opens && context.policy.seeks_formats() && !context.catalogue.is_empty();
        seeks.then(|| Self::new(at, Format::Alone(AloneScanner::new(at, around))))
    }

    /// The scanner of `functools[` whose bracket is at a position.
    pub(crate) fn functools(feed: &Feed<'_>, context: &Context<'_>, at: usize) -> Option<Self> {
        let start = (at + 1).checked_sub(FUNCTOOLS.len())?;
        let opened = feed.text.as_bytes().get(start..=at)? == FUNCTOOLS.as_bytes();
        let seeks = opened && !context.catalogue.is_empty();
        seeks.then(|| {
            Self::new(
                start,
                Format::Unsupported(UnsupportedScanner::functools(at + 1)),
            )
        })
    }

    /// The scanner of the call of ReAct that opens at a position, where a line begins.
    pub(crate) fn react(feed: &Feed<'_>, context: &Context<'_>, at: usize) -> Look<Self> {
        let found = unsupported::react(feed, context, at);
        found.map(|scanner| Self::new(at, Format::Unsupported(scanner)))
    }

    /// The scanner of the list of calls in Python that opens at a position, where a line begins.
    pub(crate) fn python_list(feed: &Feed<'_>, context: &Context<'_>, at: usize) -> Look<Self> {
        let found = unsupported::python_list(feed, context, at);
        found.map(|scanner| Self::new(at, Format::Unsupported(scanner)))
    }

    /// The scanner of `<tool_call>` with a name behind it that is no tag (F1).
    pub(crate) fn glm(start: usize, opened: usize) -> Self {
        Self::new(start, Format::Glm(GlmScanner::new(opened)))
    }

    /// The scanner of a fence whose content is a call in Python (F9).
    pub(crate) fn tool_code(start: usize, body: usize) -> Self {
        Self::new(
            start,
            Format::Unsupported(UnsupportedScanner::tool_code(body)),
        )
    }

    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// The mark that opens it.
    pub(crate) fn mark(&self) -> Span {
        let end = match &self.format {
            Format::Special(scanner) => scanner.opened(),
            Format::Mistral(scanner) => scanner.opened(),
            Format::Unsupported(scanner) => scanner.opened(),
            Format::Glm(_) | Format::Alone(_) => self.start,
        };
        // Every mark begins with a character of one byte.
        Span::new(self.start, end.max(self.start + 1))
    }

    /// The dialect whose calls the block's are like.
    pub(crate) fn dialect(&self) -> Dialect {
        match self.format {
            Format::Glm(_) => Dialect::ToolTag,
            _ => Dialect::ToolJson,
        }
    }

    /// The number of bytes that were looked at for a block that turned out to be none.
    pub(crate) fn looked_at(&self) -> usize {
        self.reached - self.start
    }

    pub(crate) fn take(self) -> RawBlock {
        self.raw
    }

    /// Goes as far as the text allows.
    pub(crate) fn step(&mut self, feed: &Feed<'_>, context: &Context<'_>) -> Progress {
        let Self {
            start, format, raw, ..
        } = self;
        let mut scan = Scan {
            feed,
            context,
            start: *start,
            raw,
        };
        let progress = match format {
            Format::Glm(scanner) => scanner.step(&mut scan),
            Format::Alone(scanner) => scanner.step(&mut scan),
            Format::Special(scanner) => scanner.step(&mut scan),
            Format::Mistral(scanner) => scanner.step(&mut scan),
            Format::Unsupported(scanner) => scanner.step(&mut scan),
        };
        self.reached = match &self.format {
            Format::Alone(scanner) => scanner.reached(),
            Format::Unsupported(scanner) => scanner.reached(),
            _ => self.start,
        };
        let start = &self.start;
        let most = context.policy.limits.block_bytes;
        let reached = match progress {
            Progress::More => feed.len(),
            Progress::Closed { at, .. } => at,
            Progress::NotABlock { .. } => *start,
        };
        if reached - *start <= most {
            return progress;
        }
        let span = Span::new(*start, feed.floor(*start + most));
        self.raw.calls.clear();
        self.raw.limited("block bytes", most, span)
    }
}

impl Scan<'_, '_> {
    fn text(&self) -> &str {
        self.feed.text
    }

    /// Closes the block, whose calls are in a format that the policy may exclude.
    fn closed(&mut self, format: TrainedFormat, at: usize, end: BlockEnd) -> Progress {
        let span = Span::new(self.start, at);
        if !self.context.policy.reads(format) {
            self.unsupported(format.rule(), format.label(), at);
        } else if self.raw.problems.is_empty() {
            let opener = Span::new(self.start, self.feed.floor(at.min(self.start + 24)));
            let before = opener.of(self.feed.text).lines().next().unwrap_or_default();
            let note = Tolerance::new(
                format.rule(),
                Class::Verbatim,
                TRAINED_FORMAT,
                span,
                before,
                format.as_str(),
            );
            self.raw.notes.push(note);
        }
        Progress::Closed { at, end }
    }

    /// Refuses a block in a format that is not read (G9).
    fn unsupported(&mut self, rule: Rule, label: &str, at: usize) {
        let span = Span::new(self.start, at);
        let message = format!("a call in the form of {label} is not read here");
        let problem = Problem::new(ProblemCode::UnsupportedFormat, rule, span, message);
        self.raw.problems.push(problem);
    }

    /// Ends the block as a broken one at `at`.
    fn malformed(&mut self, rule: Rule, at: usize, message: String) -> Progress {
        let span = Span::new(self.start, at);
        let message = match TrainedFormat::of_rule(rule) {
            Some(format) => format!(
                "a call in the form of {} cannot be read: {message}",
                format.label()
            ),
            None => message,
        };
        let problem = Problem::new(ProblemCode::MalformedBlock, rule, span, message);
        self.raw.problems.push(problem);
        Progress::Closed {
            at,
            end: BlockEnd::Closed,
        }
    }

    /// Waits for more text, or ends the block with the message (A10).
    fn ended(&mut self, message: &str) -> Progress {
        match self.feed.eof {
            false => Progress::More,
            true => self.truncated(message),
        }
    }

    fn truncated(&mut self, message: &str) -> Progress {
        let span = Span::new(self.start, self.feed.len());
        self.raw.cut_off(Rule::A10, span, message.to_owned())
    }

    /// Looks for the end of a block that cannot be read: one of the marks, or the end of the message.
    fn lost(&mut self, rule: Rule, marks: &[&str], sought: &mut usize, message: &str) -> Progress {
        let feed = self.feed;
        let found = marks
            .iter()
            .filter_map(|mark| Some(feed.find(mark, *sought)? + mark.len()));
        match found.min() {
            Some(end) => self.malformed(rule, end, message.to_owned()),
            None if feed.eof => self.malformed(rule, feed.len(), message.to_owned()),
            None => {
                let longest = marks
                    .iter()
                    .map(|mark| mark.len())
                    .max()
                    .unwrap_or_default();
                *sought = feed.floor(feed.len().saturating_sub(longest)).max(*sought);
                Progress::More
            }
        }
    }

    /// Notes a mark that was left out or supplied, once, however often the place is read.
    fn repaired(&mut self, code: &str, span: Span, after: &str) {
        let before = span.of(self.feed.text);
        let note = Tolerance::new(Rule::G2, Class::Repair, code, span, before, after);
        if !self.raw.notes.contains(&note) {
            self.raw.notes.push(note);
        }
    }

    /// Adds a call whose arguments are the JSON object at `json`.
    fn call(&mut self, name: Span, span: Span, json: Span) {
        let mut call = RawCall {
            name: call_catalogue::names::clean(name.of(self.text())).into_owned(),
            span,
            name_span: name,
            ..RawCall::default()
        };
        call.arguments = super::json::arguments_at(self.text(), json, &mut call);
        self.raw.calls.push(call);
    }
}

/// Whether the byte at a position and the next byte may begin a mark.
pub(crate) fn may_open(feed: &Feed<'_>, at: usize) -> bool {
    let next = feed.bytes().get(at + 1);
    match feed.bytes()[at] {
        b'<' => next.is_none_or(|next| matches!(next, b'|' | b'T' | b's' | b'f' | 0xEF)),
        b'[' => {
            next.is_none_or(|next| matches!(next, b'T' | b'A'))
                || feed.bytes()[..at].ends_with(b"s")
        }
        _ => false,
    }
}

/// Whether a list starts at a position, behind a mark that was nearly written right.
pub(crate) fn follows_near_mark(feed: &Feed<'_>, at: usize) -> bool {
    mistral::is_near(feed, at)
}

/// Whether a text is the beginning of a mark that opens a call in one of the formats, and not all of it.
pub(crate) fn is_cut(text: &str) -> bool {
    let mut marks = special::marks()
        .chain(unsupported::marks())
        .chain([mistral::OPEN]);
    marks.any(|mark| mark.len() > text.len() && mark.starts_with(text))
}

/// The position of the unfinished word at the end of a text with which a call may begin.
pub(crate) fn cut_word(text: &str) -> Option<usize> {
    let longest = FUNCTOOLS.len().min(text.len() + 1);
    let mut ends = (1..longest).rev().map(|length| text.len() - length);
    let begins = |end: &[u8]| {
        [ACTION, FUNCTOOLS]
            .iter()
            .any(|word| word.as_bytes().starts_with(end))
    };
    ends.find(|at| begins(&text.as_bytes()[*at..]))
}

/// The name of a function without the namespace that servers put before it.
pub(crate) fn function_name(written: &str) -> &str {
    let name = written.strip_prefix("functions.").unwrap_or(written);
    let name = name.split("<|").next().unwrap_or(name);
    name.trim()
}

/// Whether a text is the beginning of the name of a visible tool.
fn begins_name(catalogue: &Catalogue, text: &str) -> bool {
    let mut entries = catalogue.entries().iter();
    entries.any(|entry| entry.tool.id.starts_with(text) || entry.alias.starts_with(text))
}

/// The place behind the first of several marks that matches at a position.
fn any_of(feed: &Feed<'_>, at: usize, marks: &[&str]) -> Look<usize> {
    Look::first(marks.iter().map(|mark| feed.literal(at, mark)))
}

/// The start of the JSON behind white space and the opening line of a fence.
fn behind_fence(feed: &Feed<'_>, from: usize) -> Look<usize> {
    let at = feed.skip_space(from);
    match feed.literal(at, "```") {
        Look::Yes(mark) => {
            const LONGEST: usize = 16;
            let line = &feed.bytes()[mark..];
            let line = &line[..line.len().min(LONGEST)];
            match memchr::memchr2(b'\n', b'{', line) {
                Some(end) => Look::Yes(feed.skip_space(mark + end)),
                None if line.len() < LONGEST => feed.ended(),
                None => Look::Yes(at),
            }
        }
        Look::More => Look::More,
        Look::No => Look::Yes(at),
    }
}

/// The place behind white space and the closing mark of a fence, if there is one.
fn past_fence(feed: &Feed<'_>, from: usize) -> Look<usize> {
    let at = feed.skip_space(from);
    match feed.literal(at, "```") {
        Look::Yes(end) => Look::Yes(feed.skip_space(end)),
        Look::More => Look::More,
        Look::No => Look::Yes(at),
    }
}
