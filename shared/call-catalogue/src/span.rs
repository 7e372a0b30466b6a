//! Byte positions in the text that was parsed.

use serde::{Deserialize, Serialize};

/// A half-open range of bytes in the message, as decoded to UTF-8.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Span {
    /// First byte of the range.
    pub start: usize,
    /// First byte after the range.
    pub end: usize,
}

// Inlined, as the scanners of `call-text` call these at every mark.
impl Span {
    /// Creates the range `start..end`; an inverted pair becomes the empty range at `start`.
    #[inline]
    pub fn new(start: usize, end: usize) -> Self {
        Self {
            start,
            end: end.max(start),
        }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether the range holds no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The bytes of `text` that the range covers; empty if the range does not fit the text.
    #[inline]
    pub fn of<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.start..self.end).unwrap_or("")
    }
}
