//! `[TOOL_CALLS]` with a JSON list, or with a name, `[ARGS]` and a JSON object (F6).

use call_catalogue::{Rule, Span, TrainedFormat};

use super::Scan;
use crate::BlockEnd;
use crate::dialect::json::read_calls;
use crate::dialect::raw::Progress;
use crate::scan::json::JsonEnd;
use crate::scan::{Feed, Look, look};

pub(super) const OPEN: &str = "[TOOL_CALLS]";
const ARGUMENTS: &str = "[ARGS]";
const ID: &str = "[CALL_ID]";
/// The most bytes between the mark and the arguments.
const LONGEST_HEAD: usize = 256;

#[derive(Debug)]
enum MistralPlace {
    Start,
    /// Behind a call with its name, where another may follow whose mark is missing.
    Behind,
    /// In the JSON value that starts at a position; the name of the call, if it comes before.
    Json {
        name: Option<Span>,
        start: usize,
        end: JsonEnd,
    },
}

#[derive(Debug)]
pub(super) struct MistralScanner {
    opened: usize,
    pos: usize,
    place: MistralPlace,
}

pub(super) fn opened(feed: &Feed<'_>, at: usize) -> Look<MistralScanner> {
    feed.literal(at, OPEN).map(|opened| MistralScanner {
        opened,
        pos: opened,
        place: MistralPlace::Start,
    })
}

/// Whether a misspelt mark precedes a list at a position.
pub(super) fn is_near(feed: &Feed<'_>, at: usize) -> bool {
    let before = &feed.bytes()[at.saturating_sub(OPEN.len() + 2)..at];
    let holds = |part: &[u8]| before.windows(part.len()).any(|window| window == part);
    // A result of a tool shows it broken, on purpose.
    let broken = holds(b"[_TOOL");
    feed.bytes().get(at..at + 2) == Some(b"[{") && !broken && (holds(b"TOOL") || holds(b"CALL"))
}

impl MistralScanner {
    /// The place behind the mark that opens it.
    pub(super) fn opened(&self) -> usize {
        self.opened
    }

    pub(super) fn step(&mut self, scan: &mut Scan<'_, '_>) -> Progress {
        loop {
            let progress = match &mut self.place {
                MistralPlace::Start => self.start(scan),
                MistralPlace::Behind => self.behind(scan),
                MistralPlace::Json { name, start, end } => {
                    let name = *name;
                    let start = *start;
                    match end.find(scan.feed) {
                        Look::Yes(behind) => {
                            let json = Span::new(start, behind);
                            self.pos = behind;
                            match name {
                                Some(name) => {
                                    scan.call(name, Span::new(name.start, behind), json);
                                    self.place = MistralPlace::Behind;
                                    None
                                }
                                None => {
                                    read_calls(scan.feed.text, json, false, scan.raw);
                                    Some(scan.closed(
                                        TrainedFormat::Mistral,
                                        behind,
                                        BlockEnd::Closed,
                                    ))
                                }
                            }
                        }
                        Look::More => Some(Progress::More),
                        Look::No => Some(scan.truncated("the JSON of the call is not closed")),
                    }
                }
            };
            if let Some(progress) = progress {
                return progress;
            }
        }
    }

    fn behind(&mut self, scan: &mut Scan<'_, '_>) -> Option<Progress> {
        let feed = scan.feed;
        let at = feed.skip_space(self.pos);
        let most = feed.len().min(at + LONGEST_HEAD);
        let in_name =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'-');
        let width = feed.bytes()[at..most]
            .iter()
            .position(|byte| !in_name(byte));
        let closed = |scan: &mut Scan<'_, '_>| {
            Some(scan.closed(TrainedFormat::Mistral, self.pos, BlockEnd::Closed))
        };
        let Some(width) = width.filter(|width| *width > 0) else {
            let open = at == feed.len() || width.is_none() && most == feed.len();
            return if open && !feed.eof {
                Some(Progress::More)
            } else {
                closed(scan)
            };
        };
        let name = Span::new(at, at + width);
        let Some(end) = look!(feed.literal(name.end, ARGUMENTS), Some(Progress::More)) else {
            return closed(scan);
        };
        let start = feed.skip_space(end);
        match feed.bytes().get(start) {
            Some(b'{') => {}
            None if !feed.eof => return Some(Progress::More),
            _ => return closed(scan),
        }
        scan.repaired("missing_opening_mark", Span::new(at, at), OPEN);
        self.place = MistralPlace::Json {
            name: Some(name),
            start,
            end: JsonEnd::at(start),
        };
        None
    }

    fn start(&mut self, scan: &mut Scan<'_, '_>) -> Option<Progress> {
        let feed = scan.feed;
        let text = Progress::NotABlock {
            resume: self.opened,
        };
        let at = feed.skip_space(self.pos);
        if let Some(end) = look!(feed.literal(at, OPEN), Some(Progress::More)) {
            scan.repaired("doubled_mark", Span::new(at, end), "");
            self.pos = end;
            return None;
        }
        let most = feed.len().min(at + LONGEST_HEAD);
        let ends = |byte: &u8| matches!(byte, b'[' | b'{' | b'\n' | b'<');
        let Some(width) = feed.bytes()[at..most].iter().position(ends) else {
            let head = feed.text[at..feed.floor(most)].trim();
            let is_name = !head.contains(char::is_whitespace);
            let cut = head.is_empty() || is_name && head.contains(char::is_alphanumeric);
            return Some(match most == feed.len() && (cut || !feed.eof) {
                true => scan.ended("the block ends before the arguments"),
                false => text,
            });
        };
        let name = Span::new(at, at + feed.text[at..at + width].trim_end().len());
        let written = name.of(feed.text);
        let mut json = at + width;
        if !written.is_empty() {
            if written.contains(&ARGUMENTS[1..]) {
                return Some(Self::unreadable(
                    json,
                    scan,
                    "the mark behind the name is misspelt",
                ));
            }
            if written.contains(char::is_whitespace) {
                return Some(text);
            }
            if let Some(id) = look!(feed.literal(json, ID), Some(Progress::More)) {
                let most = feed.len().min(id + LONGEST_HEAD);
                let ends = |byte: &u8| matches!(byte, b'[' | b'{');
                match feed.bytes()[id..most].iter().position(ends) {
                    Some(width) => json = id + width,
                    None if most == feed.len() => {
                        return Some(scan.ended("the block ends before the arguments"));
                    }
                    None => return Some(text),
                }
            }
            while let Some(end) = look!(feed.literal(json, ARGUMENTS), Some(Progress::More)) {
                if feed.text[at..json].contains(ARGUMENTS) {
                    scan.repaired("doubled_mark", Span::new(json, end), "");
                }
                json = feed.skip_space(end);
            }
            if json == feed.len() {
                return Some(scan.ended("the block ends before the arguments"));
            }
            if feed.bytes()[json] != b'{' {
                let visible = scan.context.catalogue.has_visible(written);
                // Directly behind the mark no prose begins with a name and a bracket.
                let opens = at == self.opened && feed.bytes()[json] == b'[';
                return Some(match visible || opens || json > at + width {
                    true => Self::unreadable(json, scan, "the arguments are no JSON object"),
                    false => text,
                });
            }
        } else if !matches!(feed.bytes()[json], b'[' | b'{') {
            return Some(text);
        }
        self.place = MistralPlace::Json {
            name: (!written.is_empty()).then_some(name),
            start: json,
            end: JsonEnd::at(json),
        };
        None
    }

    /// Ends the block with the line of the part that cannot be read.
    fn unreadable(from: usize, scan: &mut Scan<'_, '_>, message: &str) -> Progress {
        let feed = scan.feed;
        let line = feed.text[from..].find('\n');
        match line {
            None if !feed.eof => Progress::More,
            line => {
                let end = line.map_or(feed.len(), |line| from + line);
                scan.malformed(Rule::F6, end, message.to_owned())
            }
        }
    }
}
