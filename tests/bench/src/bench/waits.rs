//! Runs that wait for a time: their memory meanwhile, and the rate at which they are woken.
//!
//! Each run is one timer, and all of them are due at the same moment, when they have long left memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::RunState;
use contracts::tavern::run::v1::{ListRunsRequest, run_service_client::RunServiceClient};
use contracts::tavern::workflow::v1::StartRunRequest;
use contracts::tavern::workflow::v1::start_run_request::Target;
use contracts::tavern::workflow::v1::workflow_service_client::WorkflowServiceClient;
use grpc_kit::{Outbound, Services, Transport};
use serde_json::json;
use workflow_execution::{Peers, WorkflowExecution, WorkflowSettings};

use crate::harness::{Effort, at_once};
use crate::series::{Series, Unit};
use crate::support::processes::resident_mebibytes;
use crate::table::Figure;

/// The number of runs that wait.
const RUNS: usize = 100_000;

/// The number of starts at once.
const STARTS: usize = 64;

/// The expected starts per second, so that all runs wait when the first is due.
const STARTS_PER_SECOND: u32 = 1_000;

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let directory = effort.fresh_directory()?;
    let settings = WorkflowSettings {
        data_dir: directory.path().join("data"),
        workflows_dir: "".into(),
        ..WorkflowSettings::default()
    };
    // Timers need no other service.
    let nowhere = grpc_kit::local(&Services::new());
    let peers = Peers::over(nowhere.clone(), nowhere.clone(), nowhere);
    let service = workflow_execution::build(settings, peers).await?;
    service.recover().await?;
    let transport = grpc_kit::local(&service.services());
    let figures = measure(&service, transport, effort.times(RUNS)).await;
    service.shutdown().await;
    figures
}

async fn measure(
    service: &WorkflowExecution,
    transport: Transport,
    runs: usize,
) -> anyhow::Result<Vec<Figure>> {
    let budget = Duration::from_secs(10) + Duration::from_secs(runs as u64) / STARTS_PER_SECOND;
    // The memory that starting needs is there before.
    start_until(transport.clone(), STARTS * 20, Instant::now()).await?;
    until_out_of_memory(service, Instant::now() + budget).await?;
    let own = std::process::id();
    let before = resident_mebibytes(own).context("this process has memory")?;
    let runs = runs / STARTS * STARTS;
    let due = Instant::now() + budget;
    let started = start_until(transport.clone(), runs, due).await?;
    until_out_of_memory(service, due).await?;
    let added = resident_mebibytes(own).context("this process has memory")? - before;
    tokio::time::sleep_until(due.into()).await;
    until_none_waits(RunServiceClient::new(transport.outermost())).await?;
    let woken = runs as f64 / due.elapsed().as_secs_f64();
    let rate = |value| Series::new(Unit::PerSecond, vec![value]);
    let memory = Series::new(Unit::Mebibytes, vec![added]);
    Ok(vec![
        Figure::new(format!("memory that {runs} waiting runs add"), memory).goal(200.0),
        Figure::new(
            format!("waiting runs woken and ended, {runs} due at once"),
            rate(woken),
        )
        .floor("started until they wait", rate(started))
        .goal(5e3),
    ])
}

/// Starts runs that are due at one moment; returns the starts per second.
async fn start_until(transport: Transport, runs: usize, due: Instant) -> anyhow::Result<f64> {
    let client = WorkflowServiceClient::new(transport.outermost());
    let definition: Arc<str> = definition().into();
    at_once(STARTS, runs / STARTS, move |_| {
        let (mut client, definition) = (client.clone(), Arc::clone(&definition));
        async move {
            let left = due.saturating_duration_since(Instant::now());
            let request = StartRunRequest {
                target: Some(Target::DefinitionJson(definition.to_string())),
                inputs_json: json!({"seconds": left.as_secs_f64()}).to_string(),
                ..StartRunRequest::default()
            };
            client.start_run(request).await?;
            Ok(())
        }
    })
    .await
}

/// A timer alone.
fn definition() -> String {
    json!({
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            {"id": "wait", "type": "core:Timer"},
        ],
        "edges": [{"source": "in", "sourceHandle": "seconds", "target": "wait", "targetHandle": "duration"}],
        "interfaceInputs": {"seconds": {"dataFlowType": "FLOAT", "required": true}},
    })
    .to_string()
}

async fn until_out_of_memory(service: &WorkflowExecution, before: Instant) -> anyhow::Result<()> {
    while service.runs_in_memory() > 0 {
        ensure!(
            Instant::now() < before,
            "runs were due before all of them waited"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn until_none_waits(mut runs: RunServiceClient<Outbound>) -> anyhow::Result<()> {
    loop {
        let request = ListRunsRequest {
            state: RunState::Waiting.into(),
            page_size: 1,
            ..ListRunsRequest::default()
        };
        if runs.list_runs(request).await?.into_inner().runs.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
