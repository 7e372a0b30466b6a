//! The end of a value (V1): the first closing tag of its own after which the call continues as a
//! call: with another parameter, or with the end of the call and of the block.
//!
//! Opening tags of the same name inside the value are counted, so that a quoted call stays
//! inside it. If the count never comes out, the first place that fits without counting is taken;
//! if text follows the closing tag, the last place before the end of the block is. Going
//! back is rare and limited, so the work stays linear.

mod cdata;
mod follow;
mod reading;

use call_catalogue::{Class, Rule, Span, Tolerance};

use self::follow::AfterTag;
pub(super) use self::reading::Doubt;
use super::ahead::Ahead;
use super::mode::{MOST_REWINDS, Mode};
use super::surroundings::Surroundings;
use crate::dialect::raw::{Content, RawValue, Written};
use crate::scan::gap::GapMemo;
use crate::scan::tag::{self, Glance, Tag, TagKind};
use crate::scan::{Feed, Look};

/// A place where the value may end.
#[derive(Debug, Clone, Copy)]
struct TagCut {
    inner_end: usize,
    after: usize,
    /// Whether an element follows that is no known parameter.
    element_follows: bool,
}

#[derive(Debug)]
pub(super) enum ElementStep {
    More,
    Ended {
        inner: Span,
        after: usize,
    },
    TooLong {
        at: usize,
    },
    /// The text ends inside the value; or the block's end was seen inside it.
    Unclosed {
        malformed_at: Option<usize>,
    },
}

#[derive(Debug)]
pub(super) struct ValueScan {
    name: Written,
    name_span: Span,
    /// The tag's name as written: its closing tag must repeat it.
    tag_name: Span,
    generic: bool,
    wide: bool,
    inner_start: usize,
    pos: usize,
    /// Opening tags of the same name that are not closed.
    depth: usize,
    /// Wrappers opened inside the value.
    wrappers: usize,
    /// Elements named like the call that are open inside the value.
    calls: usize,
    in_cdata: bool,
    /// Whether a `]]>` was passed that no fitting mark followed.
    soft_cdata_end: bool,
    /// Whether the value is made of elements, once a caller needed to know.
    elements: Option<bool>,
    weak: Option<TagCut>,
    counted: Option<TagCut>,
    in_cdata_cut: Option<TagCut>,
    /// The CDATA sections so far; the last one may be open.
    sections: Vec<Span>,
    /// A section opens inside a section in which the value could have ended: `]]>` was forgotten.
    section_in_section: Option<Span>,
    /// The value's own closing tag in a section.
    own_close: Option<Span>,
    /// Whether a `]]>` that did not end the section follows it.
    end_after_own_close: bool,
    block_end_seen: Option<usize>,
    /// Source text up to here was reported as grown.
    reported: usize,
    gaps: [GapMemo; 2],
    notes: Vec<Tolerance>,
}

impl ValueScan {
    pub(super) fn new(name: Written, name_span: Span, tag: &Tag, generic: bool) -> Self {
        Self {
            name,
            name_span,
            tag_name: tag.name,
            generic,
            wide: tag.wide,
            inner_start: tag.span.end,
            pos: tag.span.end,
            depth: 0,
            wrappers: 0,
            calls: 0,
            in_cdata: false,
            soft_cdata_end: false,
            elements: None,
            weak: None,
            counted: None,
            in_cdata_cut: None,
            sections: Vec::new(),
            section_in_section: None,
            own_close: None,
            end_after_own_close: false,
            block_end_seen: None,
            reported: tag.span.end,
            gaps: [GapMemo::default(); 2],
            notes: Vec::new(),
        }
    }

    pub(super) fn name<'n>(&'n self, feed: &Feed<'n>) -> &'n str {
        self.name.of(feed.text)
    }

    pub(super) fn is_generic(&self) -> bool {
        self.generic
    }

    pub(super) fn pos(&self) -> usize {
        self.pos
    }

    pub(super) fn take_notes(&mut self) -> Vec<Tolerance> {
        std::mem::take(&mut self.notes)
    }

    pub(super) fn take_value(&mut self, inner: Span) -> RawValue {
        RawValue {
            name: std::mem::replace(&mut self.name, Written::At(self.name_span)),
            name_span: self.name_span,
            content: Content::Markup(inner),
        }
    }

    /// The part of the value before `most` that became certain since the last call.
    pub(super) fn grown(&mut self, most: usize) -> Option<Span> {
        let cuts = [self.weak, self.counted, self.in_cdata_cut];
        let certain = cuts
            .iter()
            .flatten()
            .map(|cut| cut.inner_end)
            .fold(self.pos.min(most), usize::min);
        (certain > self.reported).then(|| {
            let span = Span::new(self.reported, certain);
            self.reported = certain;
            span
        })
    }

    /// The part not yet reported of a value that has ended.
    pub(super) fn rest(&self, inner: Span) -> Option<Span> {
        (inner.end > self.reported).then(|| Span::new(self.reported, inner.end))
    }

    pub(super) fn step(
        &mut self,
        feed: &Feed<'_>,
        around: &Surroundings<'_>,
        mode: &mut Mode,
        ahead: &mut Ahead,
    ) -> ElementStep {
        loop {
            let second = match (self.in_cdata, self.wide) {
                (true, _) => b']',
                (false, true) => 0xEF,
                (false, false) => b'<',
            };
            let found = feed.find2(b'<', second, self.pos);
            // Measured to the next mark, so that chunks make no difference.
            if found.unwrap_or(feed.len()) - self.inner_start
                > around.context.policy.limits.value_bytes
            {
                self.pos = feed.floor(self.inner_start + around.context.policy.limits.value_bytes);
                return ElementStep::TooLong { at: self.pos };
            }
            let Some(at) = found else {
                self.pos = feed.len();
                return if feed.eof {
                    self.at_end(feed, mode)
                } else {
                    ElementStep::More
                };
            };
            self.pos = at;
            let step = if self.in_cdata {
                self.in_cdata(feed, around, ahead, at)
            } else {
                self.at_bracket(feed, around, mode, ahead, at)
            };
            match step {
                Look::Yes(Some(ended)) => return ended,
                Look::Yes(None) => {}
                Look::More => return ElementStep::More,
                Look::No => self.pos = at + 1,
            }
        }
    }

    fn end_at(&self, cut: TagCut) -> ElementStep {
        ElementStep::Ended {
            inner: Span::new(self.inner_start, cut.inner_end),
            after: cut.after,
        }
    }

    /// A `<` outside CDATA.
    fn at_bracket(
        &mut self,
        feed: &Feed<'_>,
        around: &Surroundings<'_>,
        mode: &mut Mode,
        ahead: &mut Ahead,
        at: usize,
    ) -> Look<Option<ElementStep>> {
        let width = feed.char_at(at).map_or(1, char::len_utf8);
        if width == 3 && feed.char_at(at) != Some('＜') {
            self.pos = at + width;
            return Look::Yes(None);
        }
        let Some(&next) = feed.bytes().get(at + width) else {
            return feed.ended();
        };
        if matches!(next, b'!' | b' ') && width == 1 {
            match self.skip_comment(feed, around, ahead, at) {
                Look::No => {}
                other => return other,
            }
            match self.open_cdata(feed, at) {
                Look::No => {}
                other => return other,
            }
        }
        let closing = next == b'/';
        let first = if closing {
            feed.bytes().get(at + width + 1).copied()
        } else {
            Some(next)
        };
        let Some(first) = first else {
            return feed.ended();
        };
        let pending = self.weak.is_some() && !closing;
        self.pos = at + width;
        if !pending && !around.may_matter(first, self.tag_name.of(feed.text)) {
            return Look::Yes(None);
        }
        if width == 1 && (!pending || !closing) {
            match tag::glance(feed, at) {
                Glance::Nothing => return Look::Yes(None),
                Glance::Name(name)
                    if !pending && !closing && !self.is_counted(feed, around, name) =>
                {
                    return Look::Yes(None);
                }
                _ => {}
            }
        }
        let tag = match tag::read(feed, at, &around.context.policy.limits) {
            Look::Yes(tag) if tag.wide && !self.wide => return Look::Yes(None),
            Look::Yes(tag) => tag,
            Look::No => return Look::Yes(None),
            Look::More => {
                self.pos = at;
                return Look::More;
            }
        };
        if tag.kind == TagKind::Close {
            let answer = self.at_close(feed, around, mode, ahead, &tag);
            self.pos = if matches!(answer, Look::More) {
                at
            } else {
                tag.span.end
            };
            return answer;
        }
        if let Some(cut) = self.stray_before_sibling(feed, around, &tag) {
            return Look::Yes(Some(self.end_at(cut)));
        }
        self.count_open(feed, around, &tag, mode);
        self.pos = tag.span.end;
        Look::Yes(None)
    }

    /// Whether an opening tag of this name is counted.
    fn is_counted(&self, feed: &Feed<'_>, around: &Surroundings<'_>, name: &str) -> bool {
        name == self.tag_name.of(feed.text) || around.closes_call(name) || around.closes_block(name)
    }

    fn count_open(&mut self, feed: &Feed<'_>, around: &Surroundings<'_>, tag: &Tag, mode: &Mode) {
        if tag.kind != TagKind::Open || mode.unbalanced {
            return;
        }
        let name = tag.name.of(feed.text);
        if name == self.tag_name.of(feed.text) {
            self.depth += 1;
        } else if around.wrapper.is_some() && around.closes_call(name) {
            self.calls += usize::from(self.is_structured(feed, around));
        } else if around.closes_block(name)
            || (around.wrapper.is_none() && around.closes_call(name))
        {
            self.wrappers += 1;
        }
    }

    /// Text, then a known parameter: the value ended before the text (A16).
    fn stray_before_sibling(
        &self,
        feed: &Feed<'_>,
        around: &Surroundings<'_>,
        tag: &Tag,
    ) -> Option<TagCut> {
        let weak = self
            .weak
            .filter(|_| self.depth == 0 && around.entry.is_some())?;
        let between = feed.text.get(weak.after..tag.span.start)?;
        // Text that was looked at once and holds a bracket is not looked at again.
        let plain = memchr::memchr(b'<', between.as_bytes()).is_none();
        (plain && around.is_sibling(tag, feed.text)).then_some(weak)
    }

    fn at_close(
        &mut self,
        feed: &Feed<'_>,
        around: &Surroundings<'_>,
        mode: &mut Mode,
        ahead: &mut Ahead,
        tag: &Tag,
    ) -> Look<Option<ElementStep>> {
        let name = tag.name.of(feed.text);
        if name.eq_ignore_ascii_case(self.tag_name.of(feed.text))
            || call_catalogue::names::clean(name) == self.name.of(feed.text)
        {
            return self.at_own_close(feed, around, mode, ahead, tag);
        }
        if around.wrapper.is_none() && self.wrappers > 0 && around.closes_call(name) {
            self.wrappers -= 1;
        } else if around.closes_block(name) {
            if self.wrappers > 0 {
                self.wrappers -= 1;
            } else {
                self.block_end_seen.get_or_insert(tag.span.end);
            }
        } else if around.closes_call(name) {
            if self.wrappers == 0 {
                match self.ends_call(feed, around, ahead, tag.span.end) {
                    Look::Yes(true) => {
                        if let Some(cut) = self.weak.or(self.counted) {
                            return Look::Yes(Some(self.go_back(cut, mode)));
                        }
                    }
                    Look::More => return Look::More,
                    _ => {}
                }
            }
            self.calls = self.calls.saturating_sub(1);
        }
        Look::Yes(None)
    }

    fn at_own_close(
        &mut self,
        feed: &Feed<'_>,
        around: &Surroundings<'_>,
        mode: &Mode,
        ahead: &mut Ahead,
        tag: &Tag,
    ) -> Look<Option<ElementStep>> {
        let follow = match self.follow(feed, around, ahead, tag.span.end) {
            Look::Yes(follow) => follow,
            _ => return Look::More,
        };
        let element_follows = follow == AfterTag::Element;
        let fits = follow == AfterTag::Call
            || (element_follows && (mode.lenient || around.entry.is_none()))
            || mode.rewinds >= MOST_REWINDS;
        let cut = TagCut {
            inner_end: tag.span.start,
            after: tag.span.end,
            element_follows,
        };
        if self.depth > 0 && !mode.unbalanced {
            self.depth -= 1;
            if fits {
                self.counted.get_or_insert(cut);
            }
        } else if fits {
            let cut = self.without_doubled_close(feed, cut);
            return Look::Yes(Some(self.end_at(cut)));
        } else if self.block_end_seen.is_none()
            && !self.weak.is_some_and(|weak| weak.element_follows)
        {
            self.weak = Some(cut);
        }
        Look::Yes(None)
    }

    /// Moves the end to an earlier closing tag of the value that lies directly before it (V1).
    fn without_doubled_close(&mut self, feed: &Feed<'_>, cut: TagCut) -> TagCut {
        let doubled = |weak: &TagCut| {
            let between = feed.text.get(weak.after..cut.inner_end);
            between.is_some_and(|between| between.trim().is_empty())
        };
        let Some(weak) = self.weak.filter(doubled) else {
            return cut;
        };
        let span = Span::new(weak.after, cut.after);
        self.notes.push(Tolerance::new(
            Rule::V1,
            Class::Repair,
            "doubled_closing_tag",
            span,
            span.of(feed.text).trim(),
            "",
        ));
        TagCut {
            inner_end: weak.inner_end,
            ..cut
        }
    }

    /// Makes an earlier place the end.
    fn go_back(&mut self, cut: TagCut, mode: &mut Mode) -> ElementStep {
        mode.rewinds += 1;
        mode.lenient |= cut.element_follows;
        mode.unbalanced = true;
        self.end_at(cut)
    }

    /// Whether the value is made of elements: then its text is read as XML.
    fn is_structured(&mut self, feed: &Feed<'_>, around: &Surroundings<'_>) -> bool {
        let name = self.name.of(feed.text);
        let elements = || around.holds_elements(feed, name, self.inner_start);
        *self.elements.get_or_insert_with(elements)
    }

    /// A comment between the elements of a value, in which no tag counts (A15).
    fn skip_comment(
        &mut self,
        feed: &Feed<'_>,
        around: &Surroundings<'_>,
        ahead: &mut Ahead,
        at: usize,
    ) -> Look<Option<ElementStep>> {
        let body = match feed.literal(at, "<!--") {
            Look::Yes(body) => body,
            other => return other_than_yes(other),
        };
        if !self.is_structured(feed, around) {
            return Look::No;
        }
        match ahead.comments.end(feed, body) {
            Look::Yes(end) => {
                self.pos = end;
                Look::Yes(None)
            }
            other => other_than_yes(other),
        }
    }

    /// No more text: the best place seen, if there is one.
    fn at_end(&mut self, feed: &Feed<'_>, mode: &mut Mode) -> ElementStep {
        if mode.rewinds >= MOST_REWINDS {
            return ElementStep::Unclosed {
                malformed_at: self.block_end_seen,
            };
        }
        if let Some(cut) = self.in_cdata_cut.filter(|_| self.in_cdata) {
            let span = Span::new(cut.inner_end, cut.inner_end);
            let value = Span::new(self.inner_start, cut.inner_end).of(feed.text);
            let class = match cdata::holds_remains(value) {
                true => Class::Doubt,
                false => Class::Repair,
            };
            let note = Tolerance::new(Rule::V8, class, "cdata_not_closed", span, "", "]]>");
            self.notes.push(note);
            // A `]]>` behind the cut is not its end.
            if let Some(section) = self.sections.last_mut() {
                section.end = section.start;
            }
            return self.go_back(cut, mode);
        }
        match self.counted.or(self.weak) {
            Some(cut) => self.go_back(cut, mode),
            None => ElementStep::Unclosed {
                malformed_at: self.block_end_seen,
            },
        }
    }
}

fn other_than_yes<T>(look: Look<T>) -> Look<Option<ElementStep>> {
    match look {
        Look::More => Look::More,
        _ => Look::No,
    }
}
