//! The text behind a closing tag or the end of CDATA: it decides whether the value ended there.

use super::ValueScan;
use crate::dialect::element::ahead::Ahead;
use crate::dialect::element::surroundings::Surroundings;
use crate::scan::tag::{self, TagKind};
use crate::scan::{Feed, Look, gap};

/// The part of a block that follows a closing tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterTag {
    Call,
    Element,
    Text,
}

impl ValueScan {
    /// Returns the part of a block that follows a closing tag.
    pub(super) fn follow(
        &mut self,
        feed: &Feed<'_>,
        around: &Surroundings<'_>,
        ahead: &mut Ahead,
        after: usize,
    ) -> Look<AfterTag> {
        let at = match gap::skip(feed, after, &mut self.gaps[0], &mut ahead.comments) {
            Look::Yes(at) => at,
            Look::No => return Look::Yes(AfterTag::Text),
            Look::More => return Look::More,
        };
        if at == feed.len() {
            return Look::Yes(AfterTag::Call);
        }
        let tag = match tag::read(feed, at, &around.context.policy.limits) {
            Look::Yes(tag) => tag,
            Look::No => return Look::Yes(AfterTag::Text),
            Look::More => return Look::More,
        };
        let tag = ahead.after_value.keep(after, tag);
        let (name, kind, end) = (tag.name.of(feed.text), tag.kind, tag.span.end);
        if kind != TagKind::Close {
            let same = name == self.tag_name.of(feed.text) && !self.generic;
            let known = same || around.is_sibling(tag, feed.text);
            return Look::Yes(if known {
                AfterTag::Call
            } else {
                AfterTag::Element
            });
        }
        if !around.closes_call(name) {
            return Look::Yes(AfterTag::Text);
        }
        match self.ends_call(feed, around, ahead, end) {
            Look::Yes(true) => Look::Yes(AfterTag::Call),
            Look::More => Look::More,
            _ => Look::Yes(AfterTag::Text),
        }
    }

    /// Whether the block continues as a block after the call's closing tag: it ends, or another call
    /// follows. An element of that name inside the value may be followed by another one as well.
    pub(super) fn ends_call(
        &mut self,
        feed: &Feed<'_>,
        around: &Surroundings<'_>,
        ahead: &mut Ahead,
        after: usize,
    ) -> Look<bool> {
        if around.wrapper.is_none() {
            return Look::Yes(true);
        }
        let at = match gap::skip(feed, after, &mut self.gaps[1], &mut ahead.comments) {
            Look::Yes(at) => at,
            Look::No => return Look::Yes(false),
            Look::More => return Look::More,
        };
        if at == feed.len() {
            return Look::Yes(true);
        }
        let tag = match tag::read(feed, at, &around.context.policy.limits) {
            Look::Yes(tag) => ahead.after_call.keep(after, tag),
            Look::No => return Look::Yes(false),
            Look::More => return Look::More,
        };
        Look::Yes(match tag.kind {
            TagKind::Close => around.closes_block(tag.name.of(feed.text)),
            _ => self.calls == 0 && around.opens_call(tag, feed.text),
        })
    }
}
