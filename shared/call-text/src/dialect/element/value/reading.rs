//! Whether a value that was cut could have ended earlier (V1): it holds its own closing tag, a tag
//! that begins another parameter or another call, or the end of its call.

use call_catalogue::schema::{Schema, Types};
use call_catalogue::{
    Class, MARK_INSIDE_VALUE, Problem, ProblemCode, Rule, Span, Tolerance, names,
};

use super::ValueScan;
use crate::dialect::element::open::{is_generic_call, is_generic_parameter, names_call};
use crate::dialect::element::surroundings::Surroundings;
use crate::scan::tag::{self, Glance, Tag, TagKind};
use crate::scan::{Feed, Look};
use json_schema::pointer;

/// A second reading of a value.
#[derive(Debug)]
pub(in crate::dialect::element) enum Doubt {
    /// The value was probably cut wrong.
    Repair(Tolerance),
    /// With one closing tag supplied every field is closed: the value as it is must not run.
    Refused(Problem),
}

/// A longer gap is not looked through.
const MOST_BLANK: usize = 64;

/// Tags of one name inside a value.
#[derive(Debug, Default)]
struct Pairs {
    open: usize,
    /// The first opening tag that is not closed, while one is open.
    first_open: Span,
    /// The first closing tag without an opening one.
    unopened: Option<Span>,
    /// The last opening tag.
    last_open: Span,
}

impl Pairs {
    fn count(&mut self, tag: &Tag) {
        match tag.kind {
            TagKind::Open => {
                if self.open == 0 {
                    self.first_open = tag.span;
                }
                self.open += 1;
                self.last_open = tag.span;
            }
            TagKind::Close if self.open == 0 => {
                self.unopened.get_or_insert(tag.span);
            }
            TagKind::Close => self.open -= 1,
            TagKind::Empty => {}
        }
    }

    fn unclosed(&self) -> Option<Span> {
        (self.open > 0).then_some(self.first_open)
    }
}

/// The tags inside a value that could belong to the call.
#[derive(Debug, Default)]
struct InnerTags {
    own: Pairs,
    call: Pairs,
    siblings: Vec<(usize, Pairs)>,
    /// The first tag that opens another element of the same kind, where one may follow another.
    next: Option<Span>,
    /// An empty element of the call's name.
    empty_call: Option<Span>,
    /// Wrappers in which calls are quoted as a whole block.
    wrappers: Pairs,
    /// The first tag that opens a call outside of them: quoting belongs into CDATA.
    another_call: Option<Span>,
}

impl InnerTags {
    /// Whether the walk is in no quoted block: none is open, or one ended that did not begin here.
    fn quotes_no_block(&self) -> bool {
        self.wrappers.open == 0 || self.wrappers.unopened.is_some()
    }
}

fn doubtful(feed: &Feed<'_>, span: Span) -> Tolerance {
    let held = span.of(feed.text);
    Tolerance::new(Rule::V1, Class::Doubt, MARK_INSIDE_VALUE, span, held, "")
}

/// Finds the rest of `string="true">` at the start of a value: the tag before it was closed too early.
fn attribute_behind_its_tag(feed: &Feed<'_>, inner: Span) -> Option<Span> {
    let value = inner.of(feed.text);
    let name = value.bytes().take_while(u8::is_ascii_lowercase).count();
    let rest = value.get(name..)?;
    let ends = [r#"="true">"#, r#"="false">"#].into_iter();
    let end = ends
        .filter(|_| name < 16)
        .find(|end| rest.starts_with(end))?;
    Some(Span::new(inner.start, inner.start + name + end.len()))
}

impl ValueScan {
    /// The second reading of the value that ends at `inner.end`, if it has one.
    pub(in crate::dialect::element) fn second_reading(
        &self,
        feed: &Feed<'_>,
        around: &Surroundings<'_>,
        inner: Span,
    ) -> Option<Doubt> {
        if let Some(span) = self.section_in_section {
            return Some(self.refused(feed, span, "]]>"));
        }
        if let Some(span) = attribute_behind_its_tag(feed, inner) {
            return Some(Doubt::Repair(doubtful(feed, span)));
        }
        memchr::memchr(b'<', inner.of(feed.text).as_bytes())?;
        let (inside, starts_with_own) = self.inside(feed, around, inner);
        let repeats = self.repeats(feed, around);
        let closer = || format!("</{}>", self.tag_name.of(feed.text));
        let next = inside.next.filter(|_| repeats);
        let next = next.or_else(|| inside.own.unclosed().filter(|_| repeats));
        if let Some(span) = inside.call.unopened.or(next) {
            return Some(self.refused(feed, span, &closer()));
        }
        let sibling = |(_, pairs): &(usize, Pairs)| pairs.unopened.or(pairs.unclosed());
        let siblings = inside.siblings.iter().find_map(sibling);
        let doubled = inside.own.unclosed().filter(|_| starts_with_own);
        let span = inside.own.unopened.or(siblings).or(doubled);
        let in_section = self.mark_in_section(feed, around, inner);
        let span = span.or(inside.empty_call).or(inside.another_call);
        let span = span.or(in_section)?;
        Some(Doubt::Repair(doubtful(feed, span)))
    }

    /// A mark inside of CDATA where more than one section, or more than CDATA, is part of the value:
    /// the mark may be misplaced and belong between them.
    fn mark_in_section(
        &self,
        feed: &Feed<'_>,
        around: &Surroundings<'_>,
        inner: Span,
    ) -> Option<Span> {
        let own_close = self.own_close.filter(|own| own.start < inner.end);
        if own_close.is_some_and(|own| {
            self.end_after_own_close
                || self.swaps_ends(feed, around, Span::new(own.start, inner.end))
        }) {
            return own_close;
        }
        if self.sections.is_empty() || !self.is_joined(feed, inner) {
            return None;
        }
        let text = inner.of(feed.text).as_bytes();
        feed.count(text.len());
        let mut openers = memchr::memmem::find_iter(text, b"<![CDATA[").map(|at| inner.start + at);
        let nested = openers.find(|at| {
            self.sections
                .binary_search_by_key(at, |section| section.start)
                .is_err()
        });
        own_close.or(nested.map(|at| Span::new(at, at + "<![CDATA[".len())))
    }

    /// Whether a section closes an element of the value's name that it does not open, and opens one
    /// that it does not close: its end was probably swapped with the end of another value.
    fn swaps_ends(&self, feed: &Feed<'_>, around: &Surroundings<'_>, section: Span) -> bool {
        let whole = Feed {
            text: &feed.text[..section.end],
            eof: true,
            ..*feed
        };
        let mut pairs = Pairs::default();
        let mut at = section.start;
        while let Some(here) = whole.find2(b'<', b'<', at) {
            at = here + 1;
            if let Look::Yes(tag) = tag::read(&whole, here, &around.context.policy.limits) {
                at = tag.span.end;
                if tag.name.of(feed.text) == self.tag_name.of(feed.text) {
                    pairs.count(&tag);
                }
            }
        }
        pairs.unopened.is_some() && pairs.unclosed().is_some()
    }

    /// Whether the value is put together of several sections, or of text and sections.
    fn is_joined(&self, feed: &Feed<'_>, inner: Span) -> bool {
        let mut from = inner.start;
        for section in &self.sections {
            let between = feed.text.get(from..section.start).unwrap_or_default();
            // `]]>` and `<![CDATA[` themselves are written in two sections.
            let head = &feed.bytes()[..from.saturating_sub("]]>".len())];
            let split = head.ends_with(b"]]") || head.ends_with(b"<![");
            if !between.trim().is_empty() || (from > inner.start && !split) {
                return true;
            }
            from = section.end.max(section.start);
        }
        let rest = feed.text.get(from..inner.end).unwrap_or_default();
        !rest.trim().is_empty()
    }

    /// Counts the tags outside of CDATA and comments that could belong to the call.
    fn inside(&self, feed: &Feed<'_>, around: &Surroundings<'_>, inner: Span) -> (InnerTags, bool) {
        let whole = Feed {
            text: &feed.text[..inner.end],
            eof: true,
            ..*feed
        };
        let mut inside = InnerTags::default();
        let mut starts_with_own = false;
        let first = whole.skip_space(inner.start);
        let mut comments = self.elements == Some(true);
        let mut sections = self.sections.iter().peekable();
        let mut at = inner.start;
        while let Some(here) = whole.find2(b'<', b'<', at) {
            while sections.next_if(|section| section.start < here).is_some() {}
            if let Some(section) = sections.next_if(|section| section.start == here) {
                at = section.end.clamp(here + 1, inner.end);
                continue;
            }
            if comments && let Look::Yes(body) = whole.literal(here, "<!--") {
                match whole.find("-->", body) {
                    Some(end) => {
                        at = end + 3;
                        continue;
                    }
                    None => comments = false,
                }
            }
            let tag = match tag::glance(&whole, here) {
                Glance::Nothing => Look::No,
                Glance::Name(name) if !self.may_belong(feed, around, name) => Look::No,
                _ => tag::read(&whole, here, &around.context.policy.limits),
            };
            let Look::Yes(tag) = tag else {
                at = here + 1;
                continue;
            };
            at = tag.span.end;
            let name = tag.name.of(feed.text);
            if around.closes_block(name) {
                inside.wrappers.count(&tag);
            } else if inside.quotes_no_block() && self.opens_call(feed, around, &tag) {
                inside.another_call.get_or_insert(tag.span);
            }
            if name.eq_ignore_ascii_case(self.tag_name.of(feed.text)) {
                starts_with_own |= here == first && tag.kind == TagKind::Open;
                if inside.call.open == 0 && self.opens_next(feed, around, &tag) {
                    inside.next.get_or_insert(tag.span);
                }
                inside.own.count(&tag);
            } else if around.closes_call(name) {
                inside.call.count(&tag);
                let opened = inside.call.last_open;
                let within = feed
                    .text
                    .get(opened.end..here)
                    .filter(|_| tag.kind == TagKind::Close);
                if within
                    .is_some_and(|within| within.len() < MOST_BLANK && within.trim().is_empty())
                {
                    inside.empty_call.get_or_insert(opened);
                }
            } else if let Some(position) = self.sibling(around, name) {
                let siblings = &mut inside.siblings;
                let known = siblings.iter().position(|(known, _)| *known == position);
                let known = known.unwrap_or_else(|| {
                    siblings.push((position, Pairs::default()));
                    siblings.len() - 1
                });
                siblings[known].1.count(&tag);
            }
        }
        (inside, starts_with_own)
    }

    /// Whether a tag of this name could belong to the call, or open another. Code is full of brackets
    /// before names that do neither.
    fn may_belong(&self, feed: &Feed<'_>, around: &Surroundings<'_>, name: &str) -> bool {
        name.eq_ignore_ascii_case(self.tag_name.of(feed.text))
            || around.closes_block(name)
            || around.closes_call(name)
            || is_generic_call(name)
            || self.sibling(around, name).is_some()
            || around.context.catalogue.has_visible(name)
    }

    /// The other parameter that a tag of this name belongs to.
    fn sibling(&self, around: &Surroundings<'_>, name: &str) -> Option<usize> {
        let entry = around.entry.filter(|_| !self.generic)?;
        entry.position(&names::clean(name))
    }

    /// Whether a tag opens another element of the same kind: another `<param name="x">` of the
    /// call, or another item of a list of texts.
    fn opens_next(&self, feed: &Feed<'_>, around: &Surroundings<'_>, tag: &Tag) -> bool {
        if tag.kind == TagKind::Close {
            return false;
        }
        match tag.named(feed.text) {
            Some((named, _)) if self.generic && is_generic_parameter(tag.name.of(feed.text)) => {
                around.entry.is_none_or(|entry| entry.declares(named))
            }
            _ => !self.generic,
        }
    }

    /// Whether a tag opens a call: by a name in it, or as the element of a visible tool, where that
    /// is no parameter and no member of an object.
    fn opens_call(&self, feed: &Feed<'_>, around: &Surroundings<'_>, tag: &Tag) -> bool {
        let (name, catalogue) = (tag.name.of(feed.text), around.context.catalogue);
        if tag.kind == TagKind::Close {
            return false;
        }
        names_call(tag, feed.text, catalogue)
            || (catalogue.has_visible(name)
                && !name.eq_ignore_ascii_case(self.tag_name.of(feed.text))
                && self.sibling(around, name).is_none()
                && !(self.elements == Some(true) && self.holds_objects(feed, around)))
    }

    /// Whether the value, or an item of it, may be an object.
    fn holds_objects(&self, feed: &Feed<'_>, around: &Surroundings<'_>) -> bool {
        around.entry.is_some_and(|entry| {
            let schema = Schema::root(&entry.tool.parameters).member(self.name.of(feed.text));
            let objects = |schema: Schema<'_>| schema.types().has(Types::OBJECT);
            objects(schema) || (schema.types().has(Types::ARRAY) && objects(schema.items()))
        })
    }

    /// Whether an element of the same kind may follow this one.
    fn repeats(&self, feed: &Feed<'_>, around: &Surroundings<'_>) -> bool {
        if self.generic {
            return true;
        }
        around.entry.is_some_and(|entry| {
            let schema = Schema::root(&entry.tool.parameters).member(self.name.of(feed.text));
            let (types, items) = (schema.types(), schema.items().types());
            let texts = !items.has(Types::OBJECT) && !items.has(Types::ARRAY);
            types.has(Types::ARRAY) && !types.is_any() && texts
        })
    }

    fn refused(&self, feed: &Feed<'_>, span: Span, missing: &str) -> Doubt {
        let name = self.name.of(feed.text);
        let message = format!(
            "The value of '{name}' holds {}: {missing} is missing before it, or the value must be in CDATA",
            call_catalogue::cut(span.of(feed.text))
        );
        let code = ProblemCode::UnterminatedValue;
        Doubt::Refused(
            Problem::new(code, Rule::V1, span, message)
                .at(pointer::join("", name))
                .expected(missing)
                .received(span.of(feed.text)),
        )
    }
}
