//! A call as a JSON object, or a list of them, that is the whole message (F2).

use call_catalogue::{Rule, Span, ToolMatch, TrainedFormat};
use serde_json::Value;

use super::Scan;
use crate::BlockEnd;
use crate::dialect::json::{is_argument_key, is_name_key, name_and_arguments, read_calls};
use crate::dialect::raw::Progress;
use crate::scan::json::parse_spelled;
use crate::scan::{Feed, Look};

/// Keys that an object may have alongside the keys of the name and of the arguments.
const OTHER_KEYS: [&str; 2] = ["type", "id"];

/// Follows a JSON value to its end, as long as the keys of its objects can be keys of a call.
#[derive(Debug)]
struct Outline {
    pos: usize,
    depth: usize,
    /// The depth of the objects that would be calls.
    calls: usize,
    in_string: bool,
    string: usize,
    /// Whether the next string is a key of such an object.
    at_key: bool,
    /// Whether it cannot be a call.
    refused: bool,
}

impl Outline {
    fn refuse(&mut self) -> Look<usize> {
        self.refused = true;
        Look::No
    }

    /// The place behind the value; *no* if it is no call, or the text ends inside it.
    fn find(&mut self, feed: &Feed<'_>) -> Look<usize> {
        let bytes = feed.bytes();
        let before = self.pos;
        while self.pos < bytes.len() {
            let byte = bytes[self.pos];
            match byte {
                b'\\' if self.in_string && self.pos + 1 == bytes.len() => break,
                b'\\' if self.in_string => self.pos += 1,
                b'"' if self.in_string => {
                    self.in_string = false;
                    let key = &feed.text[self.string..self.pos];
                    if std::mem::take(&mut self.at_key) && !may_be_key(key) {
                        return self.refuse();
                    }
                }
                _ if self.in_string => {}
                b'"' => {
                    self.in_string = true;
                    self.string = self.pos + 1;
                }
                b'{' | b'[' if self.at_key => return self.refuse(),
                b'{' | b'[' => {
                    self.depth += 1;
                    self.at_key = byte == b'{' && self.depth == self.calls;
                    if byte == b'[' && self.depth == self.calls {
                        return self.refuse();
                    }
                }
                b'}' | b']' => {
                    self.at_key = false;
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        self.pos += 1;
                        feed.count(self.pos - before);
                        return Look::Yes(self.pos);
                    }
                }
                b',' if self.depth == self.calls => self.at_key = true,
                byte if self.at_key && !byte.is_ascii_whitespace() => return self.refuse(),
                byte if self.depth < self.calls && !byte.is_ascii_whitespace() && byte != b',' => {
                    return self.refuse();
                }
                _ => {}
            }
            self.pos += 1;
        }
        feed.count(self.pos - before);
        feed.ended()
    }
}

fn may_be_key(key: &str) -> bool {
    is_name_key(key) || is_argument_key(key) || OTHER_KEYS.contains(&key)
}

/// The surroundings of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Around {
    /// Only thoughts before it.
    Nothing,
    /// The marks of a fence, which decides behind it.
    Fence,
    Text,
}

#[derive(Debug)]
pub(super) struct AloneScanner {
    start: usize,
    around: Around,
    outline: Outline,
    end: Option<usize>,
}

impl AloneScanner {
    pub(super) fn new(start: usize, around: Around) -> Self {
        Self {
            start,
            around,
            outline: Outline {
                pos: start,
                depth: 0,
                calls: 1,
                in_string: false,
                string: start,
                at_key: false,
                refused: false,
            },
            end: None,
        }
    }

    /// The end of the text that was looked at.
    pub(super) fn reached(&self) -> usize {
        self.outline.pos
    }

    pub(super) fn step(&mut self, scan: &mut Scan<'_, '_>) -> Progress {
        let feed = scan.feed;
        let text = Progress::NotABlock {
            resume: self.start + 1,
        };
        if feed.bytes().get(self.start) == Some(&b'[') {
            self.outline.calls = 2;
        }
        let end = match self.end {
            Some(end) => end,
            None => match self.outline.find(feed) {
                Look::Yes(end) => end,
                Look::More => return Progress::More,
                Look::No if self.outline.refused => return text,
                Look::No => return self.cut(scan),
            },
        };
        self.end = Some(end);
        if !self.reads(scan, Span::new(self.start, end)) {
            return text;
        }
        if self.around != Around::Fence {
            let next = feed.skip_space(end);
            if next == feed.len() && !feed.eof {
                return Progress::More;
            }
            if self.around == Around::Text || next < feed.len() {
                scan.unsupported(Rule::F2, "JSON with text around it", end);
                return Progress::Closed {
                    at: end,
                    end: BlockEnd::Closed,
                };
            }
        }
        scan.closed(TrainedFormat::Json, end, BlockEnd::Closed)
    }

    /// Reads the calls of the value; returns `false` if it is no call.
    fn reads(&self, scan: &mut Scan<'_, '_>, span: Span) -> bool {
        if !scan.raw.calls.is_empty() {
            return true;
        }
        let Ok((value, _)) = parse_spelled(span.of(scan.feed.text)) else {
            return false;
        };
        let items = match &value {
            Value::Array(items) => items.as_slice(),
            other => std::slice::from_ref(other),
        };
        let is_call = |item: &Value| is_call(item, scan);
        if items.is_empty() || !items.iter().all(is_call) {
            return false;
        }
        read_calls(scan.feed.text, span, false, scan.raw);
        true
    }

    /// The message ends inside the value: a broken call if a visible tool is named in it, or begins to be.
    fn cut(&self, scan: &mut Scan<'_, '_>) -> Progress {
        let named = named_in(&scan.feed.text[self.start..]).is_some_and(|name| {
            let name = super::function_name(name);
            !name.is_empty() && super::begins_name(scan.context.catalogue, name)
        });
        match named {
            true => scan.truncated("the JSON of the call is not closed"),
            false => Progress::NotABlock {
                resume: self.start + 1,
            },
        }
    }
}

/// The name in the first member of an object, or of the first object of a list, as far as it has
/// arrived.
fn named_in(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '[' | '{'));
    let (key, rest) = rest.strip_prefix('"')?.split_once('"')?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    let name = rest.strip_prefix('"')?.split('"').next()?;
    is_name_key(key).then_some(name)
}

/// Whether a value is a call: it names a visible tool and has arguments, or has all that a call has and a name that
/// resembles a tool's.
fn is_call(value: &Value, scan: &Scan<'_, '_>) -> bool {
    let Some((name, Some(arguments))) = value.as_object().and_then(name_and_arguments) else {
        return false;
    };
    let object = arguments.is_object()
        || arguments
            .as_str()
            .is_some_and(|text| text.trim_start().starts_with('{'));
    let catalogue = scan.context.catalogue;
    let name = super::function_name(name);
    object
        && (!matches!(catalogue.find(name), ToolMatch::Unknown)
            || value.get("arguments").is_some()
            || !catalogue.nearest_tools(name).is_empty())
}
