//! Tags that were read ahead of a block's position, so that they are not read again.

use crate::Limits;
use crate::scan::gap::CommentMemo;
use crate::scan::tag::{self, NextTag, Tag};
use crate::scan::{Feed, Look};

/// Tags and comments ahead of the position of the scanner.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    pub(super) comments: CommentMemo,
    /// The tag behind the closing tag of a value.
    pub(super) after_value: NextTag,
    /// The tag behind the closing tag of a call.
    pub(super) after_call: NextTag,
}

impl Ahead {
    /// The start of the next tag, if only a gap lies before it.
    pub(super) fn next(&self, from: usize) -> Option<usize> {
        let after_value = self.after_value.start(from);
        after_value.or_else(|| self.after_call.start(from))
    }

    /// The tag at a position.
    pub(super) fn read(&mut self, feed: &Feed<'_>, at: usize, limits: &Limits) -> Look<Tag> {
        let known = self.after_value.take(at);
        match known.or_else(|| self.after_call.take(at)) {
            Some(tag) => Look::Yes(tag),
            None => tag::read(feed, at, limits),
        }
    }
}
