//! Reading text that may still grow.
//!
//! Every question about text ahead answers yes, no or *more*: the text ends here and the message
//! does not. Decisions are only taken on yes and no, so where a chunk ends can never matter (G5).
//! What was searched is remembered by the caller and not searched again, so work stays linear; the
//! bytes looked at are counted.

pub(crate) mod gap;
pub(crate) mod json;
pub(crate) mod tag;

use std::cell::Cell;

use memchr::memmem;

/// An answer about text ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look<T> {
    Yes(T),
    No,
    /// Cannot be known before more text arrives.
    More,
}

/// Unwraps a yes; hands *more* on to the caller; gives `None` for no.
macro_rules! look {
    ($look:expr, $more:expr) => {
        match $look {
            $crate::scan::Look::Yes(value) => Some(value),
            $crate::scan::Look::No => None,
            $crate::scan::Look::More => return $more,
        }
    };
}
pub(crate) use look;

/// The text read so far.
#[derive(Clone, Copy)]
pub(crate) struct Feed<'t> {
    pub(crate) text: &'t str,
    /// No more text will come.
    pub(crate) eof: bool,
    /// Bytes looked at so far.
    pub(crate) steps: &'t Cell<u64>,
    /// What the marks that open blocks must hold; nothing if missing.
    pub(crate) nonce: Option<&'t str>,
}

impl<'t> Feed<'t> {
    pub(crate) fn bytes(&self) -> &'t [u8] {
        self.text.as_bytes()
    }

    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn count(&self, bytes: usize) {
        self.steps.set(self.steps.get() + bytes as u64 + 1);
    }

    /// First occurrence of one of two bytes.
    pub(crate) fn find2(&self, a: u8, b: u8, from: usize) -> Option<usize> {
        let found = memchr::memchr2(a, b, &self.bytes()[from..]).map(|at| from + at);
        self.count(found.unwrap_or(self.len()) - from);
        found
    }

    pub(crate) fn find_byte(&self, byte: u8, from: usize) -> Option<usize> {
        let found = memchr::memchr(byte, &self.bytes()[from..]).map(|at| from + at);
        self.count(found.unwrap_or(self.len()) - from);
        found
    }

    pub(crate) fn find(&self, needle: &str, from: usize) -> Option<usize> {
        let found = memmem::find(&self.bytes()[from..], needle.as_bytes()).map(|at| from + at);
        self.count(found.unwrap_or(self.len()) - from);
        found
    }

    /// Whether the text continues with `literal`.
    pub(crate) fn literal(&self, at: usize, literal: &str) -> Look<usize> {
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
    pub(crate) fn literal_any_case(&self, at: usize, literal: &str) -> Look<usize> {
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
    pub(crate) fn ended<T>(&self) -> Look<T> {
        if self.eof { Look::No } else { Look::More }
    }

    /// First position at or after `from` that is not ASCII white space.
    pub(crate) fn skip_space(&self, from: usize) -> usize {
        let bytes = self.bytes();
        let mut at = from;
        while at < bytes.len() && bytes[at].is_ascii_whitespace() {
            at += 1;
        }
        self.count(at - from);
        at
    }

    /// First position at or after `from` that is neither space nor tab.
    pub(crate) fn skip_blank(&self, from: usize) -> usize {
        let bytes = self.bytes();
        let mut at = from;
        while at < bytes.len() && matches!(bytes[at], b' ' | b'\t' | b'\r') {
            at += 1;
        }
        self.count(at - from);
        at
    }

    /// The character at a position.
    pub(crate) fn char_at(&self, at: usize) -> Option<char> {
        self.text.get(at..)?.chars().next()
    }

    /// The largest character boundary at or before a position.
    pub(crate) fn floor(&self, at: usize) -> usize {
        let mut at = at.min(self.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }
}
