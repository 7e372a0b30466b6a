//! One trace leads from the gateway to the script's process.

use std::collections::HashMap;

use contracts::tavern::common::v1::run_event::Kind;
use serde_json::Value;
use testkit::{PythonServer, Stack, eventually, invoke};

use crate::text::model_text;

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_invoke_text_to_the_script() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let out = directory.path().join("telemetry.jsonl");
    let receiver = PythonServer::start("otlp_receiver.py", &out, directory.path()).await?;
    let mut builder = Stack::builder().separate();
    for service in ["GATEWAY", "REGISTRY", "WORKFLOW", "SANDBOX", "AGENT"] {
        builder = builder.env(
            format!("TAVERN_{service}__TELEMETRY__OTLP_ENDPOINT"),
            receiver.uri(),
        );
    }
    let stack = builder.start().await?;
    let call = "<ACTION><CodeInterpreter:execute><language>python</language>\
                <code>import os; print(os.environ['TRACEPARENT'])</code></CodeInterpreter:execute></ACTION>";
    let run = invoke(&stack.gateway(), model_text(call)).await?;
    let trace_id = run.events[0].trace_id.clone();
    let output = run.events.iter().find_map(|event| match &event.kind {
        Some(Kind::CallSettled(settled)) => settled.result.clone(),
        _ => None,
    });
    let output = output.unwrap_or_default().output_json;
    assert!(
        output.contains(&trace_id),
        "the script saw {output}, the run has trace {trace_id}"
    );

    let wanted = ["gateway", "tool-registry", "script-sandbox"];
    let spans = eventually("the spans to arrive", || async {
        let spans = spans_of(&out, &trace_id)?;
        let has = |service: &str| spans.values().any(|span| span["service"] == service);
        wanted.iter().all(|service| has(service)).then_some(spans)
    })
    .await?;
    let script = spans
        .values()
        .find(|span| span["service"] == "script-sandbox");
    let root = root_of(&spans, script.expect("waited for above"));
    assert_eq!(root["service"], "gateway", "{root}");
    assert!(
        root["name"]
            .as_str()
            .unwrap_or_default()
            .ends_with("GatewayService/InvokeText"),
        "{root}"
    );
    Ok(())
}

/// Reads the spans of a trace that have arrived, by their ids.
fn spans_of(out: &std::path::Path, trace_id: &str) -> Option<HashMap<String, Value>> {
    let lines = std::fs::read_to_string(out).ok()?;
    let parsed = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_trace = parsed.filter(|line| line["kind"] == "span" && line["trace_id"] == trace_id);
    Some(
        of_trace
            .map(|span| {
                (
                    span["span_id"].as_str().unwrap_or_default().to_owned(),
                    span,
                )
            })
            .collect(),
    )
}

/// Follows the parents of a span as far as they have arrived.
fn root_of<'a>(spans: &'a HashMap<String, Value>, span: &'a Value) -> &'a Value {
    let mut span = span;
    while let Some(parent) = span["parent_span_id"].as_str().and_then(|id| spans.get(id)) {
        span = parent;
    }
    span
}
