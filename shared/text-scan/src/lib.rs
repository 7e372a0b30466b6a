//! Reads text that may still grow: marks, tags, JSON values.
//!
//! Every question about text ahead answers yes, no or *more*: the text ends here and the message
//! does not. Decisions are only taken on yes and no, so the end of a chunk can never matter (G5).
//! The caller remembers the part that was searched and does not search it again, so work stays linear; the
//! bytes looked at are counted.

pub mod gap;
pub mod json;
mod limits;
pub mod sought;
pub mod tag;
pub mod thought;

use std::cell::Cell;

use memchr::memmem;

/// An answer about text ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look<T> {
    /// Yes, with the find.
    Yes(T),
    /// No, whatever follows.
    No,
    /// Cannot be known before more text arrives.
    More,
}

impl<T> Look<T> {
    /// The answer with its yes changed.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Look<U> {
        match self {
            Self::Yes(value) => Look::Yes(change(value)),
            Self::No => Look::No,
            Self::More => Look::More,
        }
    }

    /// The answer, or another answer where it is no; *more* remains unless the other is yes.
    pub fn or_else(self, other: impl FnOnce() -> Look<T>) -> Look<T> {
        match self {
            Self::Yes(value) => Look::Yes(value),
            Self::No => other(),
            Self::More => match other() {
                Look::Yes(value) => Look::Yes(value),
                _ => Look::More,
            },
        }
    }
}

impl<T> Look<T> {
    /// The first yes; *more* if one is still possible.
    pub fn first(looks: impl IntoIterator<Item = Self>) -> Self {
        let mut answer = Self::No;
        for look in looks {
            match look {
                Self::Yes(_) => return look,
                Self::More => answer = Self::More,
                Self::No => {}
            }
        }
        answer
    }
}

/// Unwraps a yes; returns *more* to the caller; yields `None` for no.
#[macro_export]
macro_rules! look {
    ($look:expr, $more:expr) => {
        match $look {
            $crate::Look::Yes(value) => Some(value),
            $crate::Look::No => None,
            $crate::Look::More => return $more,
        }
    };
}

pub use limits::Limits;

/// The text read so far.
#[derive(Clone, Copy)]
pub struct Feed<'t> {
    /// The text.
    pub text: &'t str,
    /// Whether no more text will arrive.
    pub eof: bool,
    /// Bytes looked at so far.
    pub steps: &'t Cell<u64>,
    /// The letters that the marks which open blocks must hold; none if missing.
    pub nonce: Option<&'t str>,
}

impl<'t> Feed<'t> {
    /// The text as bytes.
    pub fn bytes(&self) -> &'t [u8] {
        self.text.as_bytes()
    }

    /// Bytes of the text.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Counts bytes that were looked at.
    pub fn count(&self, bytes: usize) {
        self.steps.set(self.steps.get() + bytes as u64 + 1);
    }

    /// First occurrence of one of two bytes.
    pub fn find2(&self, a: u8, b: u8, from: usize) -> Option<usize> {
        let found = memchr::memchr2(a, b, &self.bytes()[from..]).map(|at| from + at);
        self.count(found.unwrap_or(self.len()) - from);
        found
    }

    /// First occurrence of a byte at or after a position.
    pub fn find_byte(&self, byte: u8, from: usize) -> Option<usize> {
        let found = memchr::memchr(byte, &self.bytes()[from..]).map(|at| from + at);
        self.count(found.unwrap_or(self.len()) - from);
        found
    }

    /// First occurrence of a text at or after a position.
    pub fn find(&self, needle: &str, from: usize) -> Option<usize> {
        let found = memmem::find(&self.bytes()[from..], needle.as_bytes()).map(|at| from + at);
        self.count(found.unwrap_or(self.len()) - from);
        found
    }

    /// Whether the text continues with `literal`.
    pub fn literal(&self, at: usize, literal: &str) -> Look<usize> {
        let rest = &self.bytes()[at.min(self.len())..];
        let common = rest.len().min(literal.len());
        if rest[..common] != literal.as_bytes()[..common] {
            Look::No
        } else if common == literal.len() {
            Look::Yes(at + literal.len())
        } else {
            self.ended()
        }
    }

    /// Whether the text continues with `literal` in any ASCII letter case.
    pub fn literal_any_case(&self, at: usize, literal: &str) -> Look<usize> {
        let rest = &self.bytes()[at.min(self.len())..];
        // Most text is written as usual, or differs at once.
        if rest.starts_with(literal.as_bytes()) {
            return Look::Yes(at + literal.len());
        }
        if let ([here, ..], [first, ..]) = (rest, literal.as_bytes())
            && !here.eq_ignore_ascii_case(first)
        {
            return Look::No;
        }
        let common = rest.len().min(literal.len());
        if !rest[..common].eq_ignore_ascii_case(&literal.as_bytes()[..common]) {
            Look::No
        } else if common == literal.len() {
            Look::Yes(at + literal.len())
        } else {
            self.ended()
        }
    }

    /// The answer where the text ends before the question is settled.
    pub fn ended<T>(&self) -> Look<T> {
        if self.eof { Look::No } else { Look::More }
    }

    /// First position at or after `from` that is not ASCII white space.
    pub fn skip_space(&self, from: usize) -> usize {
        let bytes = self.bytes();
        let mut at = from;
        while at < bytes.len() && bytes[at].is_ascii_whitespace() {
            at += 1;
        }
        self.count(at - from);
        at
    }

    /// First position at or after `from` that is neither space nor tab.
    pub fn skip_blank(&self, from: usize) -> usize {
        let bytes = self.bytes();
        let mut at = from;
        while at < bytes.len() && matches!(bytes[at], b' ' | b'\t' | b'\r') {
            at += 1;
        }
        self.count(at - from);
        at
    }

    /// The character at a position.
    pub fn char_at(&self, at: usize) -> Option<char> {
        self.text.get(at..)?.chars().next()
    }

    /// The largest character boundary at or before a position.
    pub fn floor(&self, at: usize) -> usize {
        let mut at = at.min(self.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }
}
