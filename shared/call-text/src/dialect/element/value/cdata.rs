//! CDATA inside a value: the start and the end of a section (V7 to V9).

use call_catalogue::{Class, Rule, Span, Tolerance};

use super::follow::AfterTag;
use super::{ElementStep, TagCut, ValueScan, other_than_yes};
use crate::dialect::element::ahead::Ahead;
use crate::dialect::element::surroundings::Surroundings;
use crate::scan::tag::{self, TagKind};
use crate::scan::{Feed, Look};

impl ValueScan {
    /// `<![CDATA[`, also with drifted case or a space (V9).
    pub(super) fn open_cdata(&mut self, feed: &Feed<'_>, at: usize) -> Look<Option<ElementStep>> {
        let mut here = at + 1;
        for part in ["!", "[", "CDATA", "["] {
            match feed.literal_any_case(feed.skip_blank(here), part) {
                Look::Yes(end) => here = end,
                Look::No => return Look::No,
                Look::More => return Look::More,
            }
        }
        let span = Span::new(at, here);
        if span.of(feed.text) != "<![CDATA[" {
            self.notes.push(Tolerance::new(
                Rule::V9,
                Class::Spelling,
                "cdata_spelling",
                span,
                span.of(feed.text),
                "<![CDATA[",
            ));
        }
        self.in_cdata = true;
        self.sections.push(Span::new(at, at));
        self.soft_cdata_end = false;
        self.in_cdata_cut = None;
        self.pos = here;
        Look::Yes(None)
    }

    /// A `]` or `<` inside CDATA.
    pub(super) fn in_cdata(
        &mut self,
        feed: &Feed<'_>,
        around: &Surroundings<'_>,
        ahead: &mut Ahead,
        at: usize,
    ) -> Look<Option<ElementStep>> {
        // Most brackets of code open and end nothing.
        let bracket = feed.bytes()[at];
        let matters = |next: &u8| match bracket {
            b']' => *next == b']',
            _ => matches!(next, b'/' | b'!' | b' ' | b'\t' | b'\r'),
        };
        if !feed.bytes().get(at + 1).is_none_or(matters) {
            return Look::No;
        }
        if bracket == b']' {
            return self.at_cdata_end(feed, around, at);
        }
        // Text followed a `]]>`: now another section opens (G7).
        if self.soft_cdata_end {
            match self.open_cdata(feed, at) {
                Look::No => {}
                other => return other,
            }
        }
        if self.in_cdata_cut.is_some() {
            match feed.literal_any_case(at, "<![CDATA[") {
                Look::Yes(end) => {
                    self.section_in_section.get_or_insert(Span::new(at, end));
                }
                Look::No => {}
                Look::More => return Look::More,
            }
        }
        let after = match self.own_close_in_cdata(feed, around, at) {
            Look::Yes(after) => after,
            other => return other_than_yes(other),
        };
        self.own_close.get_or_insert(Span::new(at, after));
        match self.follow(feed, around, ahead, after) {
            Look::Yes(AfterTag::Call) => {
                let cut = TagCut {
                    inner_end: at,
                    after,
                    element_follows: false,
                };
                if self.soft_cdata_end {
                    return Look::Yes(Some(self.end_at(cut)));
                }
                self.in_cdata_cut.get_or_insert(cut);
            }
            Look::More => return Look::More,
            _ => {}
        }
        self.pos = after;
        Look::Yes(None)
    }

    /// The value's own closing tag inside CDATA. It is compared byte by byte: text that only begins
    /// like a tag must not hide the `]]>` behind it (V7).
    fn own_close_in_cdata(
        &self,
        feed: &Feed<'_>,
        around: &Surroundings<'_>,
        at: usize,
    ) -> Look<usize> {
        let mut here = at;
        for part in ["</", self.tag_name.of(feed.text)] {
            match feed.literal(here, part) {
                Look::Yes(end) => here = end,
                other => return other,
            }
        }
        let bracket = feed.skip_space(here);
        if bracket - here > around.context.policy.limits.tag_bytes {
            return Look::No;
        }
        feed.literal(bracket, ">")
    }

    fn at_cdata_end(
        &mut self,
        feed: &Feed<'_>,
        around: &Surroundings<'_>,
        at: usize,
    ) -> Look<Option<ElementStep>> {
        let end = match feed.literal(at, "]]>") {
            Look::Yes(end) => end,
            other => return other_than_yes(other),
        };
        let fits = match self.fits_after_cdata(feed, around, end) {
            Look::Yes(fits) => fits,
            Look::No => false,
            Look::More => return Look::More,
        };
        if fits {
            self.in_cdata = false;
            self.in_cdata_cut = None;
        } else {
            self.soft_cdata_end = true;
            self.end_after_own_close |= self.own_close.is_some();
        }
        if let Some(section) = self.sections.last_mut()
            && (fits || section.is_empty())
        {
            section.end = end;
        }
        self.pos = end;
        Look::Yes(None)
    }

    /// `]]>` ends CDATA if another section or the closing tag of the parameter, the call or the
    /// block follows (V7), and always inside an element of the value.
    fn fits_after_cdata(
        &mut self,
        feed: &Feed<'_>,
        around: &Surroundings<'_>,
        end: usize,
    ) -> Look<bool> {
        if self.is_structured(feed, around) {
            return Look::Yes(true);
        }
        let at = feed.skip_space(end);
        if at == feed.len() {
            return feed.ended();
        }
        match feed.literal_any_case(at, "<![CDATA[") {
            Look::Yes(_) => return Look::Yes(true),
            Look::More => return Look::More,
            Look::No => {}
        }
        match tag::read(feed, at, &around.context.policy.limits) {
            Look::Yes(tag) => {
                let name = tag.name.of(feed.text);
                let closes = name.eq_ignore_ascii_case(self.tag_name.of(feed.text))
                    || around.closes_call(name)
                    || around.closes_block(name);
                Look::Yes(tag.kind == TagKind::Close && closes)
            }
            Look::No => Look::Yes(false),
            Look::More => Look::More,
        }
    }
}

/// Whether a value with a section that was not closed holds a possible remnant of the mark that
/// should have closed it, or another mark in its place, or text before the section: then the mark
/// that opens it may have replaced another.
pub(super) fn holds_remains(value: &str) -> bool {
    const WIDEST: usize = 4;
    let mut opened = memchr::memmem::find_iter(value.as_bytes(), "<![CDATA[");
    if opened.nth(1).is_some() || !value.trim_start().starts_with('<') {
        return true;
    }
    let mut tail = value.trim_end().chars().rev().take(WIDEST);
    tail.any(|c| matches!(c, ']' | '>')) || value.contains("]]>")
}
