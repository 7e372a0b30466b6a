//! Reads JSON text without losing digits or swallowing duplicate keys.
//!
//! Three things that a common reader does are wrong for text that a model or a stranger wrote: it
//! keeps the last of two equal keys (so that two readers disagree about the request), it
//! rounds numbers, and it takes an object with serde_json's private key for a number. This reader
//! accepts RFC 8259 only; every key of an object is different, a number keeps the digits it
//! was written with or is refused, and size and depth are bounded.

use std::collections::HashSet;
use std::fmt;

use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use crate::limits::JsonLimits;
use crate::listed::Listed;
use crate::violation::{cut, join_pointer};

/// Duplicate keys listed in one error.
const MOST_DUPLICATES: usize = 16;

/// Depth beyond which no limit goes, so that the reader's own stack stays small.
const DEEPEST: usize = 128;

/// The problems of a refused text; `Display` names line, column and pointer of each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("text is not acceptable JSON: {}", Listed(.problems))]
pub struct JsonError {
    /// All duplicate keys, or the place where the text stops being JSON; never empty.
    pub problems: Vec<JsonProblem>,
}

/// One problem of a JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonProblem {
    /// The kind of problem.
    pub kind: JsonProblemKind,
    /// JSON pointer of the value that was being read.
    pub pointer: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Byte offset, from 0.
    pub offset: usize,
}

/// The kinds of problem of a JSON text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonProblemKind {
    /// One object names a key twice.
    #[error("duplicate key {key:?}; name each key once")]
    DuplicateKey {
        /// The key, cut where it is long.
        key: String,
    },
    /// The text is longer than the limit.
    #[error("text of {bytes} bytes is longer than {limit}; send less")]
    TooLarge {
        /// Bytes of the text.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Arrays and objects are nested deeper than the limit.
    #[error("nested deeper than {limit} levels; flatten the value")]
    TooDeep {
        /// Levels allowed.
        limit: usize,
    },
    /// A number has more characters than the limit.
    #[error("number has more than {limit} characters; send it as a string")]
    NumberTooLong {
        /// Characters allowed.
        limit: usize,
    },
    /// A number is too large or too small to be represented.
    #[error("number {text} is out of range; send it as a string")]
    NumberOutOfRange {
        /// The number as written, cut where it is long.
        text: String,
    },
    /// Anything that is not JSON.
    #[error("expected {expected}, found {found}")]
    Syntax {
        /// The text allowed at this place.
        expected: &'static str,
        /// The text at this place.
        found: String,
    },
}

/// Reads one JSON value with the default limits.
///
/// # Errors
///
/// Fails on text that is not RFC 8259 JSON, on duplicate keys, and beyond a limit.
pub fn parse_json_strict(text: &str) -> Result<Value, JsonError> {
    parse_json_strict_with(text, &JsonLimits::default())
}

/// Reads one JSON value.
///
/// # Errors
///
/// Fails on text that is not RFC 8259 JSON, on duplicate keys, and beyond a limit.
pub fn parse_json_strict_with(text: &str, limits: &JsonLimits) -> Result<Value, JsonError> {
    let mut reader = Reader {
        text,
        bytes: text.as_bytes(),
        at: 0,
        path: Vec::new(),
        depth: 0,
        limits,
        deepest: limits.max_depth.min(DEEPEST),
        duplicates: Vec::new(),
    };
    if text.len() > limits.max_bytes {
        let kind = JsonProblemKind::TooLarge {
            bytes: text.len(),
            limit: limits.max_bytes,
        };
        return Err(JsonError {
            problems: vec![reader.problem(kind)],
        });
    }
    let read = reader.document();
    let mut problems = reader.duplicates;
    // Problems inside a value were found before a problem of its key.
    problems.sort_by_key(|problem| problem.offset);
    match read {
        Ok(value) if problems.is_empty() => return Ok(value),
        Ok(_) => {}
        Err(problem) => problems.push(*problem),
    }
    Err(JsonError { problems })
}

/// A boxed problem keeps the results of the inner functions small.
type Step<T> = Result<T, Box<JsonProblem>>;

/// One step from a value to a value inside it.
enum Segment {
    Key(String),
    Item(usize),
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// Segments from the root to the value being read.
    path: Vec<Segment>,
    depth: usize,
    limits: &'a JsonLimits,
    deepest: usize,
    duplicates: Vec<JsonProblem>,
}

impl Reader<'_> {
    fn document(&mut self) -> Step<Value> {
        let value = self.value()?;
        self.skip_space();
        if self.at < self.bytes.len() {
            return Err(self.syntax("the end of the text"));
        }
        Ok(value)
    }

    fn value(&mut self) -> Step<Value> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => Err(self.syntax("a JSON value")),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Step<Value>) -> Step<Value> {
        if self.depth == self.deepest {
            return Err(Box::new(self.problem(JsonProblemKind::TooDeep {
                limit: self.deepest,
            })));
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Step<Value> {
        let mut map = Map::new();
        let mut repeated: HashSet<String> = HashSet::new();
        self.skip_space();
        if self.eat(b'}') {
            return Ok(Value::Object(map));
        }
        loop {
            self.skip_space();
            let key_at = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.syntax("a key in double quotes"));
            }
            let key = self.string()?;
            self.skip_space();
            if !self.eat(b':') {
                return Err(self.syntax("`:` after the key"));
            }
            // The path has the key while its value is read.
            self.path.push(Segment::Key(key));
            let value = self.value()?;
            if let Some(Segment::Key(key)) = self.path.pop() {
                match map.entry(key) {
                    Entry::Vacant(free) => {
                        free.insert(value);
                    }
                    Entry::Occupied(first) => {
                        let key = first.key().clone();
                        if repeated.insert(key.clone()) {
                            self.repeated(key, key_at);
                        }
                    }
                }
            }
            self.skip_space();
            if self.eat(b'}') {
                return Ok(Value::Object(map));
            }
            if !self.eat(b',') {
                return Err(self.syntax("`,` or `}`"));
            }
        }
    }

    /// Notes that the object being read has named a key before.
    fn repeated(&mut self, key: String, key_at: usize) {
        if self.duplicates.len() < MOST_DUPLICATES {
            let kind = JsonProblemKind::DuplicateKey { key: cut(&key, 64) };
            self.path.push(Segment::Key(key));
            let problem = self.problem_at(kind, key_at);
            self.path.pop();
            self.duplicates.push(problem);
        }
    }

    fn array(&mut self) -> Step<Value> {
        let mut items = Vec::new();
        self.skip_space();
        if self.eat(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            self.path.push(Segment::Item(items.len()));
            items.push(self.value()?);
            self.path.pop();
            self.skip_space();
            if self.eat(b']') {
                return Ok(Value::Array(items));
            }
            if !self.eat(b',') {
                return Err(self.syntax("`,` or `]`"));
            }
        }
    }

    fn word(&mut self, word: &'static str, value: Value) -> Step<Value> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.syntax("a JSON value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Step<Number> {
        let start = self.at;
        self.eat(b'-');
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.syntax("a digit")),
        }
        let mut whole = true;
        if self.eat(b'.') {
            whole = false;
            self.some_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            whole = false;
            self.at += 1;
            if !self.eat(b'+') {
                self.eat(b'-');
            }
            self.some_digits()?;
        }
        let text = &self.text[start..self.at];
        if text.len() > self.limits.max_number_chars {
            let kind = JsonProblemKind::NumberTooLong {
                limit: self.limits.max_number_chars,
            };
            return Err(Box::new(self.problem_at(kind, start)));
        }
        // A whole number keeps its digits whatever its size. A number with a fraction or an
        // exponent must lie within a double, or a later reader would see infinity or zero in its
        // place.
        let parsed = if whole || within_double(text) {
            serde_json::from_str::<Number>(text).ok()
        } else {
            None
        };
        parsed.ok_or_else(|| {
            Box::new(self.problem_at(
                JsonProblemKind::NumberOutOfRange {
                    text: cut(text, 64),
                },
                start,
            ))
        })
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Step<()> {
        let start = self.at;
        self.digits();
        if self.at == start {
            Err(self.syntax("a digit"))
        } else {
            Ok(())
        }
    }

    fn string(&mut self) -> Step<String> {
        let opening = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let run = self.at;
            while matches!(self.peek(), Some(byte) if byte != b'"' && byte != b'\\' && byte >= 0x20)
            {
                self.at += 1;
            }
            out.push_str(&self.text[run..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(_) => {
                    return Err(
                        self.syntax("an escape such as \\n instead of a bare control character")
                    );
                }
                None => {
                    self.at = opening;
                    return Err(Box::new(self.problem(JsonProblemKind::Syntax {
                        expected: "a closing double quote",
                        found: "the end of the text".to_owned(),
                    })));
                }
            }
        }
    }

    fn escape(&mut self) -> Step<char> {
        let start = self.at;
        self.at += 1;
        let Some(letter) = self.peek() else {
            return Err(self.syntax("an escape letter"));
        };
        self.at += 1;
        match letter {
            b'"' => Ok('"'),
            b'\\' => Ok('\\'),
            b'/' => Ok('/'),
            b'b' => Ok('\u{8}'),
            b'f' => Ok('\u{c}'),
            b'n' => Ok('\n'),
            b'r' => Ok('\r'),
            b't' => Ok('\t'),
            b'u' => self.unicode_escape(start),
            _ => {
                self.at = start;
                Err(self.syntax("one of the escapes \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u"))
            }
        }
    }

    fn unicode_escape(&mut self, start: usize) -> Step<char> {
        let first = self.four_hex(start)?;
        let code = if (0xD800..0xDC00).contains(&first) && self.bytes[self.at..].starts_with(b"\\u")
        {
            self.at += 2;
            let second = self.four_hex(start)?;
            if (0xDC00..0xE000).contains(&second) {
                0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
            } else {
                first
            }
        } else {
            first
        };
        char::from_u32(code).ok_or_else(|| {
            self.at = start;
            self.syntax("a pair of surrogate escapes; a lone surrogate is not a character")
        })
    }

    fn four_hex(&mut self, start: usize) -> Step<u32> {
        let digits = self
            .bytes
            .get(self.at..self.at + 4)
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let Some(digits) = digits else {
            self.at = start;
            return Err(self.syntax("four hexadecimal digits after \\u"));
        };
        self.at += 4;
        Ok(digits.iter().fold(0, |code, digit| {
            code * 16 + char::from(*digit).to_digit(16).unwrap_or(0)
        }))
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.at += 1;
        }
        found
    }

    fn syntax(&self, expected: &'static str) -> Box<JsonProblem> {
        let found = match self
            .text
            .get(self.at..)
            .and_then(|rest| rest.chars().next())
        {
            Some(c) => format!("{c:?}"),
            None => "the end of the text".to_owned(),
        };
        Box::new(self.problem(JsonProblemKind::Syntax { expected, found }))
    }

    fn problem(&self, kind: JsonProblemKind) -> JsonProblem {
        self.problem_at(kind, self.at)
    }

    fn problem_at(&self, kind: JsonProblemKind, offset: usize) -> JsonProblem {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        JsonProblem {
            kind,
            pointer: self
                .path
                .iter()
                .fold(String::new(), |pointer, segment| match segment {
                    Segment::Key(key) => join_pointer(&pointer, key),
                    Segment::Item(index) => format!("{pointer}/{index}"),
                }),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            offset,
        }
    }
}

/// Returns whether a double can hold the number's magnitude: not infinite, and not zero unless
/// every digit before the exponent is.
fn within_double(text: &str) -> bool {
    let Ok(double) = text.parse::<f64>() else {
        return false;
    };
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let zero = !mantissa.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    double.is_finite() && (double != 0.0 || zero)
}

impl fmt::Display for JsonProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at line {}, column {}",
            self.kind, self.line, self.column
        )?;
        if self.pointer.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", cut(&self.pointer, 200))
        }
    }
}

#[cfg(test)]
mod tests;
