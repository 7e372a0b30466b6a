//! Values that end as most do: the first bracket behind them opens their own closing tag, and
//! another parameter or the end of the call follows it. [`super::value`] decides all others, and
//! would decide the same for these.

use call_catalogue::Span;

use super::ElementScanner;
use super::surroundings::Surroundings;
use crate::dialect::context::Context;
use crate::dialect::raw::{Content, Early, RawValue, Written};
use crate::scan::tag::{self, Tag, TagKind};
use crate::scan::{Feed, Look};

/// A parameter whose opening tag was read.
pub(super) struct Opened<'t> {
    pub(super) tag: &'t Tag,
    /// Whether its name is in an attribute.
    pub(super) generic: bool,
}

impl ElementScanner {
    /// Reads the whole value of a parameter, if all of it is there and it is as simple as that.
    /// Returns the name otherwise.
    pub(super) fn short_value(
        &mut self,
        opened: &Opened<'_>,
        name: Written,
        name_span: Span,
        feed: &Feed<'_>,
        context: &Context<'_>,
        early: &mut Vec<Early>,
    ) -> Option<Written> {
        let Some((inner, after)) = self.short_end(opened, feed, context) else {
            return Some(name);
        };
        let position = self.raw.calls.len().saturating_sub(1);
        let Some(call) = self.raw.calls.last_mut() else {
            return Some(name);
        };
        if !context.quiet && !inner.is_empty() {
            early.push(Early::Delta {
                call: position,
                argument: call.arguments.len(),
                name: name.of(feed.text).to_owned(),
                span: inner,
            });
        }
        call.add(RawValue {
            name,
            name_span,
            content: Content::Markup(inner),
        });
        self.pos = after;
        None
    }

    /// The value and the place behind its closing tag.
    fn short_end(
        &mut self,
        opened: &Opened<'_>,
        feed: &Feed<'_>,
        context: &Context<'_>,
    ) -> Option<(Span, usize)> {
        let (open, limits) = (opened.tag, &context.policy.limits);
        let name = open.name.of(feed.text);
        // `<name>` without attributes: then `</name>` is a tag of the same name.
        if open.wide || open.span.len() != name.len() + 2 {
            return None;
        }
        let from = open.span.end;
        let end = feed.find_byte(b'<', from)?;
        let rest = feed.bytes().get(end..)?.strip_prefix(b"</")?;
        let rest = rest.strip_prefix(name.as_bytes())?;
        let after = end + name.len() + 3;
        feed.count(after - end);
        let fits = rest.first() == Some(&b'>')
            && after - end <= limits.tag_bytes
            && end - from <= limits.value_bytes
            && after <= self.start + limits.block_bytes;
        let goes_on = fits && self.goes_on_after(opened, after, feed, context);
        goes_on.then_some((Span::new(from, end), after))
    }

    /// Whether the call continues as a call behind the closing tag of a value.
    fn goes_on_after(
        &mut self,
        opened: &Opened<'_>,
        after: usize,
        feed: &Feed<'_>,
        context: &Context<'_>,
    ) -> bool {
        let around = Surroundings {
            context,
            wrapper: self.wrapper,
            namespaced: self.namespaced,
            call_tag: self.call_tag.of(feed.text),
            entry: self.tool.map(|tool| context.catalogue.entry(tool)),
            assigned: opened.generic,
        };
        let Some(next) = next_tag(feed, after, context) else {
            return false;
        };
        let name = next.name.of(feed.text);
        if next.kind != TagKind::Close {
            let same = !opened.generic && name == opened.tag.name.of(feed.text);
            let known = same || around.is_sibling(&next, feed.text);
            self.ahead.after_value.keep(after, next);
            return known;
        }
        if !around.closes_call(name) {
            return false;
        }
        let behind = next.span.end;
        self.ahead.after_value.keep(after, next);
        if around.wrapper.is_none() {
            return true;
        }
        let Some(next) = next_tag(feed, behind, context) else {
            return false;
        };
        let ends = match next.kind {
            TagKind::Close => around.closes_block(next.name.of(feed.text)),
            _ => around.opens_call(&next, feed.text),
        };
        self.ahead.after_call.keep(behind, next);
        ends
    }
}

/// The next tag, if only white space lies before it.
fn next_tag(feed: &Feed<'_>, from: usize, context: &Context<'_>) -> Option<Tag> {
    match tag::read(feed, feed.skip_space(from), &context.policy.limits) {
        Look::Yes(tag) => Some(tag),
        _ => None,
    }
}
