//! The trace and the span of exported log records.

use opentelemetry::Context;
use tracing::{Event, Subscriber, dispatcher};
use tracing_subscriber::{Layer, layer, registry::LookupSpan};

/// Exports each record in the context of the span that it was logged in. No other code sets the
/// context of OpenTelemetry, since spans are entered on every poll and logged in rarely.
pub(crate) struct InSpanContext<L>(pub(crate) L);

impl<S, L> Layer<S> for InSpanContext<L>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    L: Layer<S>,
{
    fn on_event(&self, event: &Event<'_>, context: layer::Context<'_, S>) {
        let span = context.event_span(event).map(|span| span.id());
        // The subscriber of the process: a layer that may be missing does not learn its subscriber.
        let in_span = span.and_then(|id| {
            dispatcher::get_default(|subscriber| {
                tracing_opentelemetry::get_otel_context(&id, subscriber)
            })
        });
        let _attached = in_span.map(Context::attach);
        self.0.on_event(event, context);
    }
}
