//! Figures of the services arrive where telemetry is sent.

use std::path::Path;

use contracts::tavern::sandbox::v1::{ExecuteRequest, execute_request::Program};
use serde_json::{Value, json};
use testkit::{PythonServer, Stack, eventually};
use tonic::Code;

#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_tells_what_ran_waits_and_was_refused() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let out = directory.path().join("telemetry.jsonl");
    let receiver = PythonServer::start("otlp_receiver.py", &out, directory.path()).await?;
    let stack = Stack::builder()
        .separate()
        .env("TAVERN_SANDBOX__TELEMETRY__OTLP_ENDPOINT", receiver.uri())
        .env("TAVERN_SANDBOX__TELEMETRY__METRIC_INTERVAL", "200ms")
        .start()
        .await?;
    for source in ["print(1)", "print(2)", "raise SystemExit(3)"] {
        stack.sandbox().execute(script("python3", source)).await?;
    }
    let refused = stack.sandbox().execute(script("cobol", "x")).await;
    assert_eq!(
        refused.map(|_| ()).map_err(|status| status.code()),
        Err(Code::FailedPrecondition)
    );

    let what = "script";
    let of_python = |mut attributes: Value| {
        attributes["tavern.sandbox.runtime"] = json!("python3");
        attributes
    };
    let runs = json!({"tavern.sandbox.what": what, "tavern.sandbox.verdict": "exited"});
    let durations = json!({"tavern.sandbox.what": what});
    let refusals = json!({"tavern.sandbox.what": what, "error.type": "runtime_unavailable"});
    let ready = json!({"tavern.sandbox.state": "ready"});
    let waiting = json!({"tavern.sandbox.state": "waiting"});
    let expected = [
        ("tavern.sandbox.runs", of_python(runs), 3),
        ("tavern.sandbox.run.duration", of_python(durations), 3),
        ("tavern.sandbox.refusals", refusals, 1),
        ("tavern.sandbox.interpreters", of_python(ready), 1),
        ("tavern.sandbox.scripts", waiting, 0),
        ("tavern.sandbox.sessions", json!({}), 0),
    ];
    for (name, attributes, least) in expected {
        eventually(&format!("{name} {attributes} of {least}"), || async {
            let value = last(&out, name, &attributes)?;
            let value = value["value"].as_u64().or_else(|| {
                let seconds = value["sum"].as_f64()?;
                value["count"].as_u64().filter(|_| seconds > 0.0)
            })?;
            // Only the number of interpreters that wait is up to the sandbox.
            let exact = name != "tavern.sandbox.interpreters";
            (value == least || value > least && !exact).then_some(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_service_reports_the_time_that_its_certificate_has_left() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let out = directory.path().join("telemetry.jsonl");
    let receiver = PythonServer::start("otlp_receiver.py", &out, directory.path()).await?;
    let services = ["GATEWAY", "REGISTRY", "WORKFLOW", "SANDBOX", "AGENT"];
    let mut builder = Stack::builder().proven();
    for service in services {
        let setting = |name: &str| format!("TAVERN_{service}__TELEMETRY__{name}");
        builder = builder.env(setting("OTLP_ENDPOINT"), receiver.uri());
        builder = builder.env(setting("METRIC_INTERVAL"), "200ms");
    }
    let stack = builder.start().await?;
    for service in services {
        let file = format!("{}.pem", service.to_lowercase());
        let file = stack.certificates().path().join(file);
        let attributes = json!({"tavern.tls.file": file.display().to_string()});
        let what = format!("the time left of {}", file.display());
        let left = eventually(&what, || async {
            last(&out, "tavern.tls.certificate.left", &attributes)?["value"].as_i64()
        });
        let left = left.await?;
        let days = left / (24 * 60 * 60);
        assert!((29..=30).contains(&days), "{left} s of {}", file.display());
    }
    Ok(())
}

fn script(runtime: &str, source: &str) -> ExecuteRequest {
    ExecuteRequest {
        runtime: runtime.to_owned(),
        program: Some(Program::SourceText(source.to_owned())),
        ..ExecuteRequest::default()
    }
}

/// The last point of a metric with these attributes that has arrived.
fn last(out: &Path, name: &str, attributes: &Value) -> Option<Value> {
    let lines = std::fs::read_to_string(out).ok()?;
    let parsed = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    parsed
        .filter(|line| line["kind"] == "metric" && line["name"] == name)
        .flat_map(|line| line["points"].as_array().cloned().unwrap_or_default())
        .rfind(|point| point["attributes"] == *attributes)
}
