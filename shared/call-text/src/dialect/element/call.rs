//! The inside of a call: parameters, stray text, its end.

use call_catalogue::{Class, NameReading, Rule, Span, Tolerance, ToolMatch};

use super::open::{is_generic_call, is_generic_parameter};
use super::short::Opened;
use super::surroundings::Surroundings;
use super::value::ValueScan;
use super::{ElementScanner, ElementState};
use crate::BlockEnd;
use crate::dialect::context::Context;
use crate::dialect::raw::{Content, Early, Progress, RawCall, RawValue, Written};
use crate::scan::tag::{Attribute, Tag, TagKind};
use crate::scan::{Feed, Look};

/// The name of a call's tag: with its namespace only where a tool has that name (F7).
fn called(tag: &Tag, text: &str, context: &Context<'_>) -> Span {
    let visible = || context.catalogue.has_visible(tag.whole.of(text));
    match tag.whole == tag.name || visible() {
        true => tag.whole,
        false => tag.name,
    }
}

impl ElementScanner {
    /// Enters a call whose opening tag was read.
    pub(super) fn open_call(
        &mut self,
        tag: &Tag,
        feed: &Feed<'_>,
        context: &Context<'_>,
        early: &mut Vec<Early>,
    ) {
        let text = feed.text;
        let written_span = called(tag, text, context);
        let written = written_span.of(text);
        let mut call = RawCall {
            span: tag.span,
            ..RawCall::default()
        };
        let mut found = context.catalogue.find(written);
        let direct = matches!(found, ToolMatch::Visible(..));
        let (name, name_span) = match tag
            .named(text)
            .filter(|_| !direct && is_generic_call(written))
        {
            Some((name, span)) => {
                if self.wrapper == Some("action") {
                    let note = Tolerance::new(
                        Rule::N10,
                        Class::Repair,
                        "name_by_attribute",
                        tag.span,
                        tag.span.of(text),
                        name,
                    );
                    call.notes.push(note);
                }
                found = context.catalogue.find(name);
                (name, span)
            }
            None => (written, written_span),
        };
        self.tool = None;
        if let ToolMatch::Visible(index, reading) = found {
            self.tool = Some(index);
            note_reading(&mut call, reading, name, name_span, context, index);
        }
        if tag.wide {
            call.notes.push(Tolerance::new(
                Rule::V12,
                Class::Spelling,
                "wide_tag",
                tag.span,
                tag.span.of(text),
                name,
            ));
        }
        call.name = name.to_owned();
        call.found = Some(found);
        call.name_span = name_span;
        let others = tag.attributes.iter();
        let others = others.filter(|attribute| attribute.value != name_span);
        for attribute in others.filter(|attribute| !attribute.is_nonce(feed)) {
            call.arguments.push(RawValue {
                name: Written::At(attribute.name),
                name_span: attribute.name,
                content: Content::Attribute(attribute.value),
            });
        }
        if !context.quiet {
            early.push(Early::Call {
                call: self.raw.calls.len(),
                name: call.name.clone(),
                span: name_span,
            });
        }
        self.raw.calls.push(call);
        self.call_tag = tag.name;
        if tag.whole != tag.name && !direct && !std::mem::replace(&mut self.namespaced, true) {
            self.note_namespace(tag, feed, context);
        }
        self.pos = tag.span.end;
        self.state = if tag.kind == TagKind::Empty {
            ElementState::Body
        } else {
            ElementState::Call
        };
    }

    /// Between the parameters of a call.
    pub(super) fn between_parameters(
        &mut self,
        feed: &Feed<'_>,
        context: &Context<'_>,
        early: &mut Vec<Early>,
    ) -> Option<Progress> {
        let at = match self.next_part(feed) {
            Look::Yes(at) => at,
            Look::More => return Some(Progress::More),
            Look::No => feed.len(),
        };
        if at == feed.len() {
            let name = self
                .raw
                .calls
                .last()
                .map(|call| call.name.clone())
                .unwrap_or_default();
            return Some(self.unclosed(feed, &name, None));
        }
        if feed.bytes()[at] != b'<' && !feed.text[at..].starts_with('＜') {
            return match self.opens_arguments(feed, at) {
                Look::Yes(()) => None,
                Look::More => Some(Progress::More),
                Look::No => self.stray_run(feed, at),
            };
        }
        let tag = match self.ahead.read(feed, at, &context.policy.limits) {
            Look::Yes(tag) => tag,
            Look::More => return Some(Progress::More),
            Look::No => return self.not_a_tag(feed, at),
        };
        if tag.kind != TagKind::Close {
            return self.open_parameter(&tag, feed, context, early);
        }
        let around = Surroundings {
            context,
            wrapper: self.wrapper,
            namespaced: self.namespaced,
            call_tag: self.call_tag.of(feed.text),
            entry: self.tool.map(|tool| context.catalogue.entry(tool)),
            assigned: false,
        };
        let name = tag.name.of(feed.text);
        if around.closes_call(name) {
            return self.close_call(&tag);
        }
        if around.closes_block(name) {
            let message = format!(
                "<{}> is not closed before {}",
                around.call_tag,
                tag.span.of(feed.text)
            );
            return Some(self.malformed(tag.span.end, message));
        }
        self.push_stray(tag.span);
        None
    }

    fn close_call(&mut self, tag: &Tag) -> Option<Progress> {
        self.pos = tag.span.end;
        self.state = ElementState::Body;
        if let Some(call) = self.raw.calls.last_mut() {
            call.span = Span::new(call.span.start, tag.span.end);
        }
        self.wrapper.is_none().then_some(Progress::Closed {
            at: self.pos,
            end: BlockEnd::Closed,
        })
    }

    fn open_parameter(
        &mut self,
        tag: &Tag,
        feed: &Feed<'_>,
        context: &Context<'_>,
        early: &mut Vec<Early>,
    ) -> Option<Progress> {
        let text = feed.text;
        let limit = context.policy.limits.parameters;
        let in_action = self.wrapper == Some("action");
        let written = tag.name.of(text);
        self.namespaced |= tag.whole != tag.name;
        let tool = self.tool.map(|tool| context.catalogue.entry(tool));
        let generic = is_generic_parameter(written)
            && tag.named(text).is_some()
            && !tool.is_some_and(|tool| tool.declares(written));
        let call = self.raw.calls.last_mut()?;
        if call.arguments.len() >= limit {
            return Some(self.limited("parameters", limit, feed));
        }
        let bare = |attribute: &&Attribute| attribute.value.is_empty() && generic;
        if let Some(attribute) = tag.attributes.iter().find(bare) {
            // The value may be in the tag, whose bracket is missing (G8).
            let (code, written) = ("attribute_without_value", attribute.name.of(text));
            let note = Tolerance::new(Rule::G8, Class::Doubt, code, tag.span, written, "");
            call.notes.push(note);
        }
        let (name, name_span) = match tag.named(text).filter(|_| generic) {
            Some((name, span)) => {
                if in_action {
                    let note = Tolerance::new(
                        Rule::N10,
                        Class::Repair,
                        "name_by_attribute",
                        tag.span,
                        tag.span.of(text),
                        name,
                    );
                    call.notes.push(note);
                }
                (Written::At(span), span)
            }
            None if tag.plain => (Written::At(tag.name), tag.name),
            None => (Written::cleaned(tag.name, text), tag.name),
        };
        if tag.wide {
            call.notes.push(Tolerance::new(
                Rule::V12,
                Class::Spelling,
                "wide_tag",
                tag.span,
                tag.span.of(text),
                name.of(text),
            ));
        }
        self.pos = tag.span.end;
        if tag.kind == TagKind::Empty {
            let content = Content::Markup(Span::new(tag.span.end, tag.span.end));
            call.add(RawValue {
                name,
                name_span,
                content,
            });
            return None;
        }
        let opened = Opened { tag, generic };
        let name = self.short_value(&opened, name, name_span, feed, context, early)?;
        self.scan = Some(ValueScan::new(name, name_span, tag, generic));
        self.state = ElementState::Value;
        None
    }
}

fn note_reading(
    call: &mut RawCall,
    reading: NameReading,
    name: &str,
    span: Span,
    context: &Context<'_>,
    index: usize,
) {
    let id = &context.catalogue.entry(index).tool.id;
    let (rule, code) = match reading {
        NameReading::Exact => return,
        NameReading::CaseFolded => (Rule::N6, "tool_letter_case"),
        NameReading::Cleaned => (Rule::N7, "tool_name_cleaned"),
    };
    call.notes
        .push(Tolerance::new(rule, Class::Spelling, code, span, name, id));
}
