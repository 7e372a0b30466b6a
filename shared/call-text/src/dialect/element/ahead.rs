//! What was read ahead of the place where a block is read, so that it is not read again.

use crate::Limits;
use crate::scan::gap::CommentMemo;
use crate::scan::tag::{self, Tag};
use crate::scan::{Feed, Look};

/// What is known of the text ahead.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    pub(super) comments: CommentMemo,
    /// The tag behind the closing tag of a value.
    pub(super) after_value: NextTag,
    /// The tag behind the closing tag of a call.
    pub(super) after_call: NextTag,
}

/// A tag that stands behind a gap.
#[derive(Debug, Default)]
pub(super) struct NextTag(Option<(usize, Tag)>);

impl NextTag {
    /// Keeps the tag that follows the gap at `from`.
    pub(super) fn keep(&mut self, from: usize, tag: Tag) -> &Tag {
        &self.0.insert((from, tag)).1
    }

    /// Where the tag behind the gap at `from` starts, if that is known.
    fn start(&self, from: usize) -> Option<usize> {
        let (known, tag) = self.0.as_ref()?;
        (*known == from).then_some(tag.span.start)
    }

    fn take(&mut self, at: usize) -> Option<Tag> {
        self.0
            .take_if(|(_, tag)| tag.span.start == at)
            .map(|(_, tag)| tag)
    }
}

impl Ahead {
    /// Where the next tag stands if only a gap lies before it.
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
