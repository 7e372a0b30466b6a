//! Values between tags: lists, objects and text (A19, A21, A22, C2, C7, C8).

use call_catalogue::schema::{Schema, Types};
use call_catalogue::{Class, Problem, ProblemCode, Rule, Span};
use serde_json::{Map, Value};

use super::text;
use super::value::{Typer, ValuePlace};
use crate::scan::tag::{self, TagKind};
use crate::scan::{Feed, Look};

/// An element inside a value.
#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(crate) name: String,
    pub(crate) inner: Span,
}

/// The elements of a value and whether there is text between them.
#[derive(Debug, Default, Clone)]
pub(crate) struct Children {
    pub(crate) elements: Vec<Child>,
    /// Text between the elements, comments left out.
    pub(crate) text: String,
}

impl Typer<'_> {
    /// Types the text between tags.
    pub(crate) fn markup(
        &mut self,
        span: Span,
        schema: Schema<'_>,
        place: &ValuePlace<'_>,
    ) -> Option<Value> {
        let types = schema.types();
        let source = span.of(self.text);
        if text::is_plain(source) && !text::holds_stray_end(source) {
            return self.scalar(source.into(), schema, place);
        }
        let structural = types.is_any() || types.has(Types::OBJECT) || types.has(Types::ARRAY);
        if structural && schema.allowed().is_none() && source.contains('<') {
            let schema = schema.located();
            if place.depth() > self.limits.depth {
                let message = format!("a value is nested deeper than {}", self.limits.depth);
                self.problems.push(
                    Problem::new(ProblemCode::LimitExceeded, Rule::V13, place.span, message)
                        .at(place.path()),
                );
                return None;
            }
            if let Some(children) = self
                .children(span)
                .filter(|children| fits(children, schema, types))
            {
                return Some(self.elements(children, schema, types, place));
            }
            if !types.has(Types::STRING) && holds_item_tag(source) {
                self.refuse_items(place, source);
                return None;
            }
        }
        let (value, noticed) = text::of_markup(source, schema);
        if noticed.entities_kept {
            self.note(
                Rule::V3,
                Class::Verbatim,
                "entities_kept",
                place,
                source,
                &value,
            );
        }
        if noticed.joined {
            self.note(
                Rule::V6,
                Class::Verbatim,
                "text_and_cdata",
                place,
                source,
                &value,
            );
        }
        if noticed.stray_mark {
            self.note(
                Rule::V8,
                Class::Doubt,
                "cdata_mark_missing",
                place,
                source,
                &value,
            );
        }
        self.scalar(value, schema, place)
    }

    /// Reports a list whose items are not closed one by one: with a closing tag supplied each of
    /// them is, so that it must not be taken for one text (V1).
    fn refuse_items(&mut self, place: &ValuePlace<'_>, source: &str) {
        let message = format!(
            "The elements of '{}' are not all closed: write <item>…</item> for each",
            place.name()
        );
        self.problems.push(
            Problem::new(
                ProblemCode::UnterminatedValue,
                Rule::V1,
                place.span,
                message,
            )
            .at(place.path())
            .expected("<item>…</item>")
            .received(source),
        );
    }

    /// Cuts a value into elements; `None` if it is not made of elements.
    pub(crate) fn children(&self, span: Span) -> Option<Children> {
        let steps = std::cell::Cell::new(0);
        let feed = Feed {
            text: &self.text[..span.end],
            eof: true,
            steps: &steps,
            nonce: None,
        };
        let mut children = Children::default();
        let mut at = span.start;
        while at < span.end {
            let next =
                memchr::memchr(b'<', &feed.bytes()[at..]).map_or(span.end, |offset| at + offset);
            children.text.push_str(&feed.text[at..next]);
            if next == span.end {
                break;
            }
            if let Look::Yes(body) = feed.literal(next, "<!--") {
                at = feed.find("-->", body)? + 3;
                continue;
            }
            let Look::Yes(tag) = tag::read(&feed, next, self.limits) else {
                return None;
            };
            let name = tag.name.of(self.text);
            let inner = match tag.kind {
                TagKind::Close => return None,
                TagKind::Empty => Span::new(tag.span.end, tag.span.end),
                TagKind::Open => {
                    let (end, after) = matching_close(&feed, tag.span.end, name, self.limits)?;
                    at = after;
                    Span::new(tag.span.end, end)
                }
            };
            if tag.kind == TagKind::Empty {
                at = tag.span.end;
            }
            let named = tag.named(self.text).map(|(name, _)| name);
            let generic = ["param", "parameter", "arg"].contains(&name);
            let name = named.filter(|_| generic).unwrap_or(name);
            children.elements.push(Child {
                name: call_catalogue::names::clean(name).into_owned(),
                inner,
            });
            if children.elements.len() > 4096 {
                return None;
            }
        }
        (!children.elements.is_empty()).then_some(children)
    }

    pub(super) fn elements(
        &mut self,
        children: Children,
        schema: Schema<'_>,
        types: Types,
        place: &ValuePlace<'_>,
    ) -> Value {
        if schema.is_union() {
            return self.elements_as_alternative(&children, schema, place);
        }
        let only_items = children.elements.iter().all(|child| child.name == "item");
        let declares_item = schema.property("item").is_some();
        let first = children.elements[0].name.clone();
        let one_tag = children.elements.iter().all(|child| child.name == first);
        let no_text = children.text.trim().is_empty();
        if types.has(Types::ARRAY) && no_text {
            let as_list = if types.is_any() {
                only_items
            } else {
                only_items && !declares_item
            };
            // A declared list whose elements share one tag, unless the tag is a property of its items.
            let container = !types.is_any()
                && one_tag
                && (children.elements.len() > 1 || schema.items().property(&first).is_none())
                && !(types.has(Types::OBJECT) && schema.property(&first).is_some());
            if as_list || container {
                return self.list(children.elements, schema.items(), place);
            }
        }
        if !types.has(Types::OBJECT) {
            let object = self.object(children, schema.items(), &place.item(0));
            self.note(
                Rule::C8,
                Class::Repair,
                "wrapped_as_array",
                place,
                "object",
                "array of one",
            );
            return Value::Array(vec![object]);
        }
        self.object(children, schema, place)
    }

    fn list(&mut self, elements: Vec<Child>, items: Schema<'_>, place: &ValuePlace<'_>) -> Value {
        let mut list = Vec::with_capacity(elements.len());
        let types = items.types();
        let texts = !types.has(Types::OBJECT) && !types.has(Types::ARRAY);
        for (index, child) in elements.into_iter().enumerate() {
            let under = ValuePlace {
                span: child.inner,
                ..place.item(index)
            };
            if texts && child.name == "item" && holds_item_tag(child.inner.of(self.text)) {
                self.refuse_items(place, child.inner.of(self.text));
            }
            list.push(
                self.markup(child.inner, items, &under)
                    .unwrap_or(Value::Null),
            );
        }
        Value::Array(list)
    }

    fn object(&mut self, children: Children, schema: Schema<'_>, place: &ValuePlace<'_>) -> Value {
        if schema.is_union() {
            return self.elements_as_alternative(&children, schema, place);
        }
        let mut groups: Vec<(String, Vec<Span>)> = Vec::new();
        let mut positions = std::collections::HashMap::new();
        for child in children.elements {
            let position = *positions.entry(child.name.clone()).or_insert(groups.len());
            if position == groups.len() {
                groups.push((child.name, Vec::new()));
            }
            groups[position].1.push(child.inner);
        }
        let mut object = Map::new();
        for (name, spans) in groups {
            let under = ValuePlace {
                span: spans[0],
                ..place.under(&name)
            };
            if let Some(value) = self.repeated(&spans, schema.member(&name), &under) {
                object.insert(name, value);
            }
        }
        let text = children.text.trim();
        if !text.is_empty() {
            self.note(
                Rule::A22,
                Class::Repair,
                "text_beside_elements",
                place,
                text,
                "#text",
            );
            object.insert("#text".to_owned(), Value::String(text.to_owned()));
        }
        Value::Object(object)
    }

    /// The value of elements that repeat one name (A19, A20).
    pub(crate) fn repeated(
        &mut self,
        spans: &[Span],
        schema: Schema<'_>,
        place: &ValuePlace<'_>,
    ) -> Option<Value> {
        let types = schema.types();
        if let [span] = spans {
            return self.single(*span, schema, types, place);
        }
        if types.has(Types::ARRAY) {
            let items = if types.is_any() {
                Schema::unknown()
            } else {
                schema.items()
            };
            let mut list = Vec::with_capacity(spans.len());
            for (index, span) in spans.iter().enumerate() {
                let under = ValuePlace {
                    span: *span,
                    ..place.item(index)
                };
                list.push(self.markup(*span, items, &under).unwrap_or(Value::Null));
            }
            return Some(Value::Array(list));
        }
        let first = spans[0].of(self.text);
        if spans.iter().all(|span| span.of(self.text) == first) {
            self.note(
                Rule::A20,
                Class::Spelling,
                "repeated_parameter",
                place,
                first,
                first,
            );
        } else {
            let name = place.name();
            let message = format!(
                "Parameter '{name}' is given {} times with different values",
                spans.len()
            );
            self.problems.push(
                Problem::new(
                    ProblemCode::DuplicateParameter,
                    Rule::A20,
                    place.span,
                    message,
                )
                .at(place.path())
                .expected("one value")
                .received(spans[1].of(self.text)),
            );
        }
        self.markup(spans[0], schema, place)
    }

    /// One element; where a list of objects is declared and the element holds an object, it is a
    /// list of one (A19).
    fn single(
        &mut self,
        span: Span,
        schema: Schema<'_>,
        types: Types,
        place: &ValuePlace<'_>,
    ) -> Option<Value> {
        if types.has(Types::ARRAY) && !types.is_any() && !types.has(Types::OBJECT) {
            let items = schema.items();
            if items.types().has(Types::OBJECT) && !items.types().is_any() {
                let children = self.children(span);
                let known = children.as_ref().is_some_and(|children| {
                    children
                        .elements
                        .iter()
                        .all(|child| items.property(&child.name).is_some())
                });
                if let Some(children) = children.filter(|_| known) {
                    self.note(
                        Rule::A19,
                        Class::Spelling,
                        "single_element_list",
                        place,
                        span.of(self.text),
                        "array of one",
                    );
                    return Some(Value::Array(vec![self.object(
                        children,
                        items,
                        &place.item(0),
                    )]));
                }
            }
        }
        let element = ValuePlace {
            element: true,
            ..*place
        };
        self.markup(span, schema, &element)
    }
}

/// Whether the schema expects elements here. A string is preferred where it is admitted,
/// unless every element is a declared property.
fn fits(children: &Children, schema: Schema<'_>, types: Types) -> bool {
    if types.is_any() {
        return children.text.trim().is_empty()
            || children.elements.iter().all(|child| child.name == "item");
    }
    if !types.has(Types::STRING) {
        return true;
    }
    let declared = children
        .elements
        .iter()
        .all(|child| schema.property(&child.name).is_some());
    let items =
        types.has(Types::ARRAY) && children.elements.iter().all(|child| child.name == "item");
    children.text.trim().is_empty() && ((types.has(Types::OBJECT) && declared) || items)
}

/// Whether a text holds a tag of an item.
fn holds_item_tag(text: &str) -> bool {
    let mut names = ["<item>", "</item>"].into_iter();
    names.any(|tag| memchr::memmem::find(text.as_bytes(), tag.as_bytes()).is_some())
}

/// The closing tag that balances an opened element: where it starts and ends. CDATA and comments
/// are skipped (A5).
fn matching_close(
    feed: &Feed<'_>,
    from: usize,
    name: &str,
    limits: &crate::Limits,
) -> Option<(usize, usize)> {
    let mut depth = 0usize;
    let mut at = from;
    // Once no comment ends any more, none is searched for again.
    let mut comments = true;
    loop {
        let here = memchr::memchr(b'<', &feed.bytes()[at..]).map(|offset| at + offset)?;
        if comments && let Look::Yes(body) = feed.literal(here, "<!--") {
            match feed.find("-->", body) {
                Some(end) => {
                    at = end + 3;
                    continue;
                }
                None => comments = false,
            }
        }
        if let Look::Yes(body) = feed.literal_any_case(here, "<![CDATA[") {
            at = feed.find("]]>", body)? + 3;
            continue;
        }
        let Look::Yes(tag) = tag::read(feed, here, limits) else {
            at = here + 1;
            continue;
        };
        at = tag.span.end;
        if tag.name.of(feed.text) != name {
            continue;
        }
        match tag.kind {
            TagKind::Open => depth += 1,
            TagKind::Empty => {}
            TagKind::Close if depth == 0 => return Some((tag.span.start, tag.span.end)),
            TagKind::Close => depth -= 1,
        }
    }
}
