//! The tags that may follow a value.

use call_catalogue::schema::{Schema, Types};
use call_catalogue::{Entry, names};

use super::open::{is_generic_call, is_generic_parameter};
use crate::NameMatch;
use crate::dialect::context::Context;
use crate::scan::Feed;
use crate::scan::tag::Tag;

/// The tags that may follow a value.
pub(super) struct Surroundings<'s> {
    pub(super) context: &'s Context<'s>,
    pub(super) wrapper: Option<&'static str>,
    /// Whether tags have namespaces, so that their first letters differ from their names'.
    pub(super) namespaced: bool,
    pub(super) call_tag: &'s str,
    pub(super) entry: Option<&'s Entry>,
    /// Whether parameters are written `<parameter name="x">`.
    pub(super) assigned: bool,
}

impl Surroundings<'_> {
    /// Whether the tag opens a parameter of this call.
    pub(super) fn is_sibling(&self, tag: &Tag, text: &str) -> bool {
        let name = tag.name.of(text);
        if is_generic_parameter(name) && tag.named(text).is_some() {
            return true;
        }
        if self.assigned {
            return false;
        }
        let Some(entry) = self.entry else { return true };
        if entry.parameters.is_empty() || entry.declares(name) {
            return true;
        }
        let cleaned = names::clean(name);
        entry.declares(&cleaned)
            || (self.context.policy.action_names == NameMatch::Normalized
                && entry.squashed_matches(&cleaned).next().is_some())
    }

    /// Whether a closing tag of this name ends the call.
    pub(super) fn closes_call(&self, name: &str) -> bool {
        if name == self.call_tag {
            return true;
        }
        let cleaned = names::clean(name);
        cleaned.eq_ignore_ascii_case(&names::clean(self.call_tag))
            || self.entry.is_some_and(|entry| entry.is_closed_by(&cleaned))
    }

    /// Whether a closing tag of this name ends the block.
    pub(super) fn closes_block(&self, name: &str) -> bool {
        self.wrapper
            .is_some_and(|wrapper| name.eq_ignore_ascii_case(wrapper))
    }

    /// Whether the tag opens another call.
    pub(super) fn opens_call(&self, tag: &Tag, text: &str) -> bool {
        let name = tag.name.of(text);
        (is_generic_call(name) && tag.named(text).is_some())
            || self.context.catalogue.has_visible(name)
            || (self.wrapper == Some("action") && name.eq_ignore_ascii_case("action"))
    }

    /// Whether a value that may be structured begins with an element or a comment.
    pub(super) fn holds_elements(&self, feed: &Feed<'_>, name: &str, from: usize) -> bool {
        let rest = &feed.bytes()[feed.skip_space(from)..];
        let element = rest.first() == Some(&b'<')
            && (rest.get(1) != Some(&b'!') || rest.starts_with(b"<!--"));
        element
            && self.entry.is_none_or(|entry| {
                let types = Schema::root(&entry.tool.parameters).member(name).types();
                types.has(Types::OBJECT) || types.has(Types::ARRAY)
            })
    }

    /// Whether a tag that starts with this byte after `<` or `</` can matter here.
    pub(super) fn may_matter(&self, first: u8, own: &str) -> bool {
        if self.namespaced || !first.is_ascii_alphanumeric() {
            return true;
        }
        let starts = |name: &str| {
            name.as_bytes()
                .first()
                .is_some_and(|byte| byte.eq_ignore_ascii_case(&first))
        };
        starts(own)
            || starts(self.call_tag)
            || self.wrapper.is_some_and(starts)
            || self
                .entry
                .is_some_and(|entry| starts(&entry.alias) || starts(&entry.tool.id))
    }
}
