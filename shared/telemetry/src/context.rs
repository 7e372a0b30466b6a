//! W3C trace context in and out, and the ids of the current span.
//!
//! A tonic `MetadataMap` is used through its header map: `inject(metadata.as_mut())` and
//! `extract(metadata.as_ref())`.

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{
    Context,
    propagation::{Extractor, TextMapPropagator},
    trace::{SpanContext, TraceContextExt},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// A span of another process, taken from its trace context.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteParent(SpanContext);

impl RemoteParent {
    /// Returns the trace id as 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        self.0.trace_id().to_string()
    }

    /// Returns the span id as 16 hexadecimal digits.
    pub fn span_id(&self) -> String {
        self.0.span_id().to_string()
    }
}

/// Reads the trace context from headers. `None` if there is none, more than one, or a bad one.
pub fn extract(headers: &HeaderMap) -> Option<RemoteParent> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let parent = parents.next()?;
    if parents.next().is_some() {
        return None;
    }
    read(
        parent.to_str().ok()?,
        headers
            .get(TRACESTATE)
            .and_then(|state| state.to_str().ok()),
    )
}

/// Reads a `traceparent`, as in a header or a script's environment.
pub fn parse_traceparent(traceparent: &str) -> Option<RemoteParent> {
    read(traceparent, None)
}

/// Makes `parent` the parent of `span`. Works only before the span is entered for the first time.
pub fn set_parent(span: &Span, parent: &RemoteParent) {
    let context = Context::new().with_remote_span_context(parent.0.clone());
    // Fails where no telemetry was set up or the span is filtered out; there is no trace then.
    let _ = span.set_parent(context);
}

/// Links `span` to a span that is not to be trusted with being its parent.
pub fn link(span: &Span, other: &RemoteParent) {
    span.add_link(other.0.clone());
}

/// Writes the context of the current span into headers, in place of a context that they have.
pub fn inject(headers: &mut HeaderMap) {
    inject_span(&Span::current(), headers);
}

/// Writes the context of `span` into headers, in place of a context that they have.
pub fn inject_span(span: &Span, headers: &mut HeaderMap) {
    headers.remove(TRACEPARENT);
    headers.remove(TRACESTATE);
    let Some(context) = context_of(span) else {
        return;
    };
    if let Ok(value) = HeaderValue::try_from(print(&context)) {
        headers.insert(TRACEPARENT, value);
    }
    let state = context.trace_state().header();
    if !state.is_empty()
        && let Ok(value) = HeaderValue::try_from(state)
    {
        headers.insert(TRACESTATE, value);
    }
}

/// Returns the current span as a `traceparent`; `None` outside spans.
pub fn current_traceparent() -> Option<String> {
    context_of(&Span::current()).map(|context| print(&context))
}

/// Returns the current trace id as 32 hexadecimal digits; empty outside spans.
pub fn current_trace_id() -> String {
    trace_id(&Span::current())
}

/// Returns the current trace id as [`current_trace_id`] does, and the span id as 16 hexadecimal
/// digits; both empty outside spans.
pub fn current_ids() -> (String, String) {
    context_of(&Span::current())
        .map(|context| {
            (
                context.trace_id().to_string(),
                context.span_id().to_string(),
            )
        })
        .unwrap_or_default()
}

/// Returns the trace id of `span` as 32 hexadecimal digits; empty if it has none.
pub fn trace_id(span: &Span) -> String {
    context_of(span)
        .map(|context| context.trace_id().to_string())
        .unwrap_or_default()
}

fn context_of(span: &Span) -> Option<SpanContext> {
    let context = span.context();
    let context = context.span().span_context().clone();
    context.is_valid().then_some(context)
}

fn print(context: &SpanContext) -> String {
    format!(
        "00-{}-{}-{:02x}",
        context.trace_id(),
        context.span_id(),
        context.trace_flags().to_u8() & 1
    )
}

fn read(traceparent: &str, tracestate: Option<&str>) -> Option<RemoteParent> {
    struct Pair<'a>(&'a str, Option<&'a str>);
    impl Extractor for Pair<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            match key {
                "traceparent" => Some(self.0),
                "tracestate" => self.1,
                _ => None,
            }
        }

        fn keys(&self) -> Vec<&str> {
            vec!["traceparent", "tracestate"]
        }
    }
    let context = TraceContextPropagator::new()
        .extract_with_context(&Context::new(), &Pair(traceparent, tracestate));
    let context = context.span().span_context().clone();
    context.is_valid().then_some(RemoteParent(context))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TRACEPARENT, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_traceparent_is_read() {
        let parent = extract(&headers(&[GOOD])).unwrap();
        assert_eq!(parent.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parent.span_id(), "b7ad6b7169203331");
        assert_eq!(parse_traceparent(GOOD), Some(parent));
    }

    #[test]
    fn what_is_no_single_traceparent_is_ignored() {
        for values in [
            &[][..],
            &[GOOD, GOOD],
            &["00-00000000000000000000000000000000-b7ad6b7169203331-01"],
            &["00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"],
            &["00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"],
            &["ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
            &["00-0af7651916cd43dd8448eb211c80319c"],
            &["nonsense"],
        ] {
            assert_eq!(extract(&headers(values)), None, "{values:?}");
        }
    }
}
