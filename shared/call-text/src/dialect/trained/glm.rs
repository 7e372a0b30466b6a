//! `<tool_call>name`, then `<arg_key>k</arg_key>` and `<arg_value>v</arg_value>` in turns (F1).

use call_catalogue::{Problem, ProblemCode, Rule, Span, TrainedFormat};

use super::Scan;
use crate::BlockEnd;
use crate::dialect::raw::{Content, Plain, Progress, RawCall, RawValue, Written};
use crate::scan::{Look, look};

const KEY: (&str, &str) = ("<arg_key>", "</arg_key>");
const VALUE: (&str, &str) = ("<arg_value>", "</arg_value>");
const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";
/// The marks that a value holds which was probably cut wrong (G8).
const MARKS: [&str; 6] = [KEY.0, KEY.1, VALUE.0, VALUE.1, OPEN, CLOSE];

#[derive(Debug)]
enum GlmPlace {
    Name,
    Keys,
    /// In the value of a parameter, with the end of the text searched so far.
    Value {
        key: Span,
        from: usize,
        sought: usize,
    },
    /// Behind a part that cannot be read, on the way to the end of the block.
    Lost {
        sought: usize,
        message: String,
    },
}

#[derive(Debug)]
pub(super) struct GlmScanner {
    opened: usize,
    pos: usize,
    place: GlmPlace,
}

impl GlmScanner {
    pub(super) fn new(opened: usize) -> Self {
        Self {
            opened,
            pos: opened,
            place: GlmPlace::Name,
        }
    }

    pub(super) fn step(&mut self, scan: &mut Scan<'_, '_>) -> Progress {
        loop {
            let progress = match &mut self.place {
                GlmPlace::Name => self.name(scan),
                GlmPlace::Keys => self.keys(scan),
                GlmPlace::Value { .. } => self.value(scan),
                GlmPlace::Lost { sought, message } => {
                    Some(scan.lost(Rule::F1, &[CLOSE], sought, message))
                }
            };
            if let Some(progress) = progress {
                return progress;
            }
        }
    }

    /// The name, on a line of its own or directly before the first key.
    fn name(&mut self, scan: &mut Scan<'_, '_>) -> Option<Progress> {
        let (feed, catalogue) = (scan.feed, scan.context.catalogue);
        let text = Progress::NotABlock {
            resume: self.opened,
        };
        let start = feed.skip_space(self.pos);
        if let Some(end) = look!(feed.literal(start, OPEN), Some(Progress::More)) {
            scan.repaired("doubled_mark", Span::new(start, end), "");
            self.pos = end;
            return None;
        }
        let most = scan.context.policy.limits.name_bytes;
        let rest = &feed.bytes()[start..];
        let ends = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'<' | b'{');
        let Some(width) = rest.iter().take(most).position(ends) else {
            let name = &feed.text[start..];
            return Some(match rest.len() < most {
                true if !feed.eof => Progress::More,
                true if super::begins_name(catalogue, name) || name.contains(&CLOSE[1..]) => {
                    scan.truncated("the block ends in the name of a tool")
                }
                _ => text,
            });
        };
        let name = Span::new(start, start + width);
        let next = feed.skip_space(name.end);
        // In a closing mark whose first two characters changed places, the slash is behind the
        // name.
        let written = name.of(feed.text).trim_end_matches('/');
        let swapped = written.len() < width && feed.bytes().get(next) == Some(&b'<');
        let visible = catalogue.has_visible(written);
        if next == feed.len() && !feed.eof {
            return Some(Progress::More);
        }
        let marks = [KEY.0, CLOSE, KEY.1, VALUE.0, VALUE.1];
        let marked = look!(super::any_of(feed, next, &marks), Some(Progress::More)).is_some();
        // A mark whose bracket became white space is no word of prose.
        let headless = marks.map(|mark| &mark[1..]);
        let headless = look!(super::any_of(feed, next, &headless), Some(Progress::More)).is_some();
        let cut =
            |mark: &&str| mark.starts_with(&feed.text[next..]) && mark.len() > feed.len() - next;
        if feed.eof && visible && !marked && marks.iter().any(cut) {
            return Some(scan.truncated("the block ends behind the name of a tool"));
        }
        let json = feed.bytes().get(next) == Some(&b'{');
        let closes = feed.text[next..].starts_with(CLOSE);
        // In prose a space and more words follow.
        let gap = &feed.text[name.end..next];
        let in_prose = !gap.is_empty() && !gap.contains('\n') && !marked && !json;
        let is_call = visible && !in_prose || marked && !closes;
        if name.of(feed.text).contains(&CLOSE[1..]) || visible && (swapped || headless) {
            let message = "the mark behind the name is misspelt".to_owned();
            return Some(scan.malformed(Rule::F1, name.end, message));
        }
        if name.is_empty() || !is_call {
            return Some(text);
        }
        scan.raw.calls.push(RawCall {
            name: name.of(feed.text).to_owned(),
            name_span: name,
            span: Span::new(scan.start, name.end),
            ..RawCall::default()
        });
        self.pos = next;
        self.place = GlmPlace::Keys;
        None
    }

    fn keys(&mut self, scan: &mut Scan<'_, '_>) -> Option<Progress> {
        let feed = scan.feed;
        let at = feed.skip_space(self.pos);
        if at == feed.len() {
            return Some(scan.ended("the block is not closed: </tool_call> is missing"));
        }
        if let Some(end) = look!(feed.literal(at, CLOSE), Some(Progress::More)) {
            if let Some(call) = scan.raw.calls.last_mut() {
                call.span.end = end;
            }
            return Some(scan.closed(TrainedFormat::Glm, end, BlockEnd::Closed));
        }
        let limits = &scan.context.policy.limits;
        let arguments = scan.raw.calls.last().map_or(0, |call| call.arguments.len());
        if arguments >= limits.parameters {
            return self.lose(format!(
                "the call has more than {} parameters",
                limits.parameters
            ));
        }
        let Some(key) = look!(feed.literal(at, KEY.0), Some(Progress::More)) else {
            return self.lose("<arg_key> or </tool_call> is missing".to_owned());
        };
        let most = feed.len().min(key + limits.name_bytes + KEY.1.len());
        let Some(end) = feed.text.as_bytes()[key..most]
            .iter()
            .position(|byte| *byte == b'<')
        else {
            return match most == feed.len() {
                true => Some(scan.ended("the block ends inside <arg_key>")),
                false => self.lose("<arg_key> is not closed".to_owned()),
            };
        };
        let key = Span::new(key, key + end);
        let Some(behind) = look!(feed.literal(key.end, KEY.1), Some(Progress::More)) else {
            return self.lose("<arg_key> is not closed".to_owned());
        };
        let value = feed.skip_space(behind);
        let Some(from) = look!(feed.literal(value, VALUE.0), Some(Progress::More)) else {
            return self.lose(format!("'{}' has no <arg_value>", key.of(feed.text)));
        };
        self.place = GlmPlace::Value {
            key,
            from,
            sought: from,
        };
        None
    }

    /// A value ends at the first mark of its end behind which the call continues or ends.
    fn value(&mut self, scan: &mut Scan<'_, '_>) -> Option<Progress> {
        let GlmPlace::Value { key, from, sought } = &mut self.place else {
            return None;
        };
        let feed = scan.feed;
        let message = format!("the block ends inside '{}'", key.of(feed.text));
        let end = loop {
            let Some(end) = feed.find(VALUE.1, *sought) else {
                let kept = feed.floor(feed.len().saturating_sub(VALUE.1.len()));
                *sought = kept.max(*sought);
                return Some(scan.ended(&message));
            };
            *sought = end;
            let next = feed.skip_space(end + VALUE.1.len());
            match super::any_of(feed, next, &[KEY.0, CLOSE]) {
                Look::Yes(_) => break end,
                Look::More => return Some(Progress::More),
                Look::No => *sought = end + VALUE.1.len(),
            }
        };
        let (key, span) = (*key, Span::new(*from, end));
        self.pos = end + VALUE.1.len();
        self.place = GlmPlace::Keys;
        let inner = span.of(feed.text);
        let held = MARKS.iter().find(|mark| inner.contains(**mark));
        let call = scan.raw.calls.last_mut()?;
        if let Some(mark) = held {
            let message = format!(
                "'{}' holds {mark}, so its end is unclear",
                key.of(feed.text)
            );
            let problem = Problem::new(ProblemCode::MalformedBlock, Rule::G8, span, message);
            call.problems.push(problem);
        }
        call.add(RawValue {
            name: Written::cleaned(key, feed.text),
            name_span: key,
            content: Content::Plain(Plain {
                span,
                escaped: false,
                bare: false,
            }),
        });
        None
    }

    /// Gives the block up: only its end is still sought.
    fn lose(&mut self, message: String) -> Option<Progress> {
        self.place = GlmPlace::Lost {
            sought: self.pos,
            message,
        };
        None
    }
}
