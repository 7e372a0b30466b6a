//! Trace ids exist without an endpoint, and the context crosses a boundary.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod export;

use http::HeaderMap;
use settings::Problems;
use telemetry::{TelemetrySettings, context, spans};
use tracing::Instrument;

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn start() {
    telemetry::init_for_tests();
}

#[test]
fn a_span_has_ids_without_an_endpoint() {
    start();
    assert_eq!(context::current_trace_id(), "");
    let span = spans::execute_tool("file:read");
    let _entered = span.enter();
    let trace = context::current_trace_id();
    assert_eq!(trace.len(), 32);
    let (same_trace, span_id) = context::current_ids();
    assert_eq!((same_trace, span_id.len()), (trace.clone(), 16));
    let inner = spans::chat("small").in_scope(context::current_trace_id);
    assert_eq!(inner, trace);
    let traceparent = context::current_traceparent().unwrap();
    assert!(
        traceparent.starts_with(&format!("00-{trace}-")),
        "{traceparent}"
    );
}

#[test]
fn a_remote_parent_gives_its_trace() {
    start();
    let parent = context::parse_traceparent(CALLER).unwrap();
    let span = tracing::info_span!(parent: None, "rpc");
    context::set_parent(&span, &parent);
    let (trace, mut headers) = (context::trace_id(&span), HeaderMap::new());
    span.in_scope(|| context::inject(&mut headers));
    assert_eq!(trace, parent.trace_id());
    let sent = context::extract(&headers).unwrap();
    assert_eq!(sent.trace_id(), parent.trace_id());
    assert_ne!(sent.span_id(), parent.span_id());
}

#[test]
fn a_link_leaves_the_trace_its_own() {
    start();
    let caller = context::parse_traceparent(CALLER).unwrap();
    let span = tracing::info_span!(parent: None, "rpc");
    context::link(&span, &caller);
    assert_ne!(context::trace_id(&span), caller.trace_id());
}

#[test]
fn injecting_outside_spans_removes_a_forged_context() {
    start();
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", CALLER.parse().unwrap());
    context::inject(&mut headers);
    assert!(headers.is_empty());
}

#[tokio::test]
async fn the_trace_follows_an_instrumented_task() {
    start();
    let span = spans::invoke_agent("ada");
    let trace = context::trace_id(&span);
    let task = tokio::spawn(async { context::current_trace_id() }.instrument(span));
    assert_eq!(task.await.unwrap(), trace);
}

#[test]
fn every_bad_setting_is_reported() {
    let mut problems = Problems::default();
    TelemetrySettings::default().check("telemetry", &mut problems);
    assert!(problems.is_empty());
    let settings = TelemetrySettings {
        log_filter: "=====".to_owned(),
        otlp_endpoint: Some("https://collector:4317".to_owned()),
        metric_interval: std::time::Duration::ZERO,
        sample_ratio: 1.5,
        ..TelemetrySettings::default()
    };
    settings.check("telemetry", &mut problems);
    let text = format!("{problems:?}");
    for key in [
        "log_filter",
        "otlp_endpoint",
        "metric_interval",
        "sample_ratio",
    ] {
        assert!(
            text.contains(&format!("telemetry.{key}")),
            "{key} in {text}"
        );
    }
}
