//! One trace leads from the gateway to the script's process, and shows the steps on the way.

use std::collections::HashMap;
use std::path::PathBuf;

use contracts::tavern::common::v1::{RunState, run_event::Kind};
use contracts::tavern::registry::v1::GetToolRequest;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{Followed, PythonServer, Stack, StackBuilder, eventually, invoke};

use crate::text::{failing_agents, model_text, user_message};

/// The services, by the names of their settings and of their programs.
const SERVICES: [(&str, &str); 5] = [
    ("GATEWAY", "gateway"),
    ("REGISTRY", "tool-registry"),
    ("WORKFLOW", "workflow-execution"),
    ("SANDBOX", "script-sandbox"),
    ("AGENT", "agent-runtime"),
];

/// Five processes whose telemetry goes to a receiver.
struct Observed {
    stack: Stack,
    /// The file of the receiver: a line for each span, metric and log.
    out: PathBuf,
    _receiver: PythonServer,
    _directory: TempDir,
}

impl Observed {
    async fn start(mut builder: StackBuilder) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let out = directory.path().join("telemetry.jsonl");
        let receiver = PythonServer::start("otlp_receiver.py", &out, directory.path()).await?;
        for (service, _) in SERVICES {
            let setting = |name: &str| format!("TAVERN_{service}__TELEMETRY__{name}");
            builder = builder
                .env(setting("OTLP_ENDPOINT"), receiver.uri())
                .env(setting("METRIC_INTERVAL"), "200ms");
        }
        Ok(Self {
            stack: builder.separate().start().await?,
            out,
            _receiver: receiver,
            _directory: directory,
        })
    }

    /// Returns the lines of a kind that have arrived.
    fn arrived(&self, kind: &str) -> Vec<Value> {
        let lines = std::fs::read_to_string(&self.out).unwrap_or_default();
        let lines = lines.lines().map(serde_json::from_str::<Value>);
        lines
            .filter_map(Result::ok)
            .filter(|line| line["kind"] == kind)
            .collect()
    }

    /// Returns the spans of a trace that have arrived, by their ids.
    fn spans(&self, trace_id: &str) -> HashMap<String, Value> {
        let spans = self.arrived("span").into_iter();
        let of_trace = spans.filter(|span| span["trace_id"] == trace_id);
        of_trace
            .map(|span| {
                let id = span["span_id"].as_str().unwrap_or_default().to_owned();
                (id, span)
            })
            .collect()
    }

    /// Returns the spans of the trace of a run once spans that begin with `names` have arrived.
    async fn trace(
        &self,
        run: &Followed,
        names: &[&str],
    ) -> anyhow::Result<HashMap<String, Value>> {
        let trace_id = run.events[0].trace_id.as_str();
        eventually("the spans to arrive", || async {
            let spans = self.spans(trace_id);
            let arrived = |name: &&str| named(&spans, name).is_some();
            names.iter().all(arrived).then_some(spans)
        })
        .await
    }
}

/// Returns a span whose name begins with `name`.
fn named<'a>(spans: &'a HashMap<String, Value>, name: &str) -> Option<&'a Value> {
    let begins = |span: &&Value| {
        span["name"]
            .as_str()
            .is_some_and(|all| all.starts_with(name))
    };
    spans.values().find(begins)
}

const INVOKE_TEXT: &str = "tavern.gateway.v1.GatewayService/InvokeText";

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_starts_while_its_model_writes_is_below_the_turn() -> anyhow::Result<()> {
    let observed = Observed::start(Stack::builder().deploy(failing_agents())).await?;
    let request = user_message("early_bird", "How late is it?");
    let run = invoke(&observed.stack.gateway(), request).await?;
    let names = ["invoke_agent", "chat", "execute_tool", INVOKE_TEXT];
    let spans = observed.trace(&run, &names).await?;
    let tool = named(&spans, "execute_tool").unwrap_or(&Value::Null);
    let attributes = &tool["attributes"];
    let effect = format!("{}/1/0", run.run.run_id);
    assert_eq!(attributes["gen_ai.tool.call.id"], json!(effect), "{tool}");
    let above = up_from(&spans, tool).into_iter();
    let above: Vec<&str> = above.filter_map(|span| span["name"].as_str()).collect();
    assert!(above.contains(&"invoke_agent early_bird"), "{above:?}");
    assert!(
        !above.iter().any(|name| name.starts_with("chat")),
        "{above:?}"
    );
    let chat = named(&spans, "chat").unwrap_or(&Value::Null);
    assert_eq!(
        chat["attributes"]["gen_ai.provider.name"], "scripted",
        "{chat}"
    );
    let root = root_of(&spans, tool);
    assert_eq!(
        (&root["name"], &root["status"]),
        (&json!(INVOKE_TEXT), &json!("unset"))
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trace_of_a_failed_run_is_an_error_to_its_root() -> anyhow::Result<()> {
    let observed = Observed::start(Stack::builder().deploy(failing_agents())).await?;
    let request = user_message("no_model", "Hello?");
    let run = invoke(&observed.stack.gateway(), request).await?;
    assert_eq!(run.run.state(), RunState::Failed);
    let spans = observed.trace(&run, &["invoke_agent", INVOKE_TEXT]).await?;
    for name in ["invoke_agent", INVOKE_TEXT] {
        let span = named(&spans, name).unwrap_or(&Value::Null);
        assert_eq!(span["status"], "error", "{span}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_service_measures_its_rpcs_and_health_checks_make_no_spans() -> anyhow::Result<()> {
    let observed = Observed::start(Stack::builder()).await?;
    let call = "<ACTION><CodeInterpreter:execute><language>python</language>\
                <code>print(1)</code></CodeInterpreter:execute></ACTION>";
    let run = invoke(&observed.stack.gateway(), model_text(call)).await?;
    let unknown = observed
        .stack
        .registry()
        .get_tool(GetToolRequest::default())
        .await;
    assert!(unknown.is_err());
    for (service, method, code) in [
        ("tavern.gateway.v1.GatewayService", "InvokeText", 0),
        ("tavern.registry.v1.CallService", "InvokeCalls", 0),
        ("tavern.registry.v1.ToolRegistryService", "GetTool", 3),
        ("tavern.sandbox.v1.ScriptSandboxService", "ExecuteStream", 0),
        ("tavern.run.v1.RunService", "GetRun", 3),
    ] {
        let attributes = json!({
            "rpc.system": "grpc", "rpc.service": service, "rpc.method": method,
            "rpc.grpc.status_code": code,
        });
        eventually(&format!("{service}/{method}"), || async {
            let metrics = observed.arrived("metric").into_iter();
            let mut points = metrics
                .filter(|metric| metric["name"] == "rpc.server.call.duration")
                .flat_map(|metric| metric["points"].as_array().cloned().unwrap_or_default());
            let counted = |point: &Value| {
                point["attributes"] == attributes && point["count"].as_u64() > Some(0)
            };
            points.any(|point| counted(&point)).then_some(())
        })
        .await?;
    }
    for (_, program) in SERVICES {
        eventually(&format!("the metrics of {program}"), || async {
            let metrics = observed.arrived("metric").into_iter();
            let mut own = metrics.filter(|metric| metric["service"] == program);
            own.any(|metric| metric["name"] == "rpc.server.call.duration")
                .then_some(())
        })
        .await?;
    }
    // The services check each other's readiness before they answer. Each exports its spans in their
    // order, so the spans of these checks would have arrived before the spans of the run.
    let called = [
        INVOKE_TEXT,
        "tavern.registry.v1.CallService/InvokeCalls",
        "tavern.sandbox.v1.ScriptSandboxService/ExecuteStream",
    ];
    observed.trace(&run, &called).await?;
    let health = observed.arrived("span").into_iter();
    let health: Vec<Value> = health
        .filter(|span| {
            span["name"]
                .as_str()
                .is_some_and(|name| name.contains("Health"))
        })
        .collect();
    assert!(health.is_empty(), "{health:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_invoke_text_to_the_script() -> anyhow::Result<()> {
    let observed = Observed::start(Stack::builder()).await?;
    let call = "<ACTION><CodeInterpreter:execute><language>python</language>\
                <code>import os; print(os.environ['TRACEPARENT'])</code></CodeInterpreter:execute></ACTION>";
    let run = invoke(&observed.stack.gateway(), model_text(call)).await?;
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
        let spans = observed.spans(&trace_id);
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
    // Its audit record is found from the trace, and the other way round.
    eventually("the log of the script", || async {
        let mut logs = observed.arrived("log").into_iter();
        let span_of = |log: &Value| spans.contains_key(log["span_id"].as_str()?).then_some(());
        logs.find(|log| {
            log["service"] == "script-sandbox"
                && log["trace_id"] == trace_id.as_str()
                && span_of(log).is_some()
        })
    })
    .await?;
    Ok(())
}

/// Returns a span and the spans above it, as far as they have arrived; the root is the last.
fn up_from<'a>(spans: &'a HashMap<String, Value>, span: &'a Value) -> Vec<&'a Value> {
    let parent = |span: &&'a Value| spans.get(span["parent_span_id"].as_str()?);
    std::iter::successors(Some(span), parent).collect()
}

/// Returns the root above a span.
fn root_of<'a>(spans: &'a HashMap<String, Value>, span: &'a Value) -> &'a Value {
    up_from(spans, span).last().unwrap_or(&span)
}
