//! Nodes of a workflow in memory, compared with the bare functions of the same nodes.
//!
//! The graph has 100 chains of 100 additions, each of which needs the sum of its predecessor.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use contracts::tavern::common::v1::RunState;
use contracts::tavern::run::v1::{GetRunRequest, run_service_client::RunServiceClient};
use contracts::tavern::workflow::v1::StartRunRequest;
use contracts::tavern::workflow::v1::start_run_request::Target;
use contracts::tavern::workflow::v1::workflow_service_client::WorkflowServiceClient;
use core_types::{Clock, Durability, IdSource, RunOwner, SystemClock, SystemIds};
use grpc_kit::Outbound;
use run_log::{Created, NewEvent, NewRun, RunLogs};
use serde_json::{Map, Value, json};
use sql_store::SqliteOptions;
use workflow_domain::compile::compile_text;
use workflow_domain::data_flow::{Input, Values};
use workflow_domain::engine::{Engine, Outcome};
use workflow_domain::evaluate;
use workflow_domain::interface::{RunInputs, bind};
use workflow_domain::plan::Plan;
use workflow_domain::zone::run::ZoneRun;

use crate::harness::{Effort, seconds_of};
use crate::series::Series;
use crate::support::in_process::{self, InProcess};
use crate::table::Figure;

const CHAINS: usize = 100;
const LENGTH: usize = 100;
const NODES: f64 = (CHAINS * LENGTH) as f64;

/// Iterations of the loop.
const ITERATIONS: u32 = 100_000;

/// About the size of the event of a finished node.
const EVENT_BYTES: usize = 150;

/// The events that are appended together.
const EVENTS_PER_APPEND: usize = 250;

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let text = definition();
    let mut figures = pure(&text, effort)?;
    figures.push(looped(effort)?);
    figures.push(whole(&text, effort).await?);
    Ok(figures)
}

/// Loading and compiling, and the engine without a log.
fn pure(text: &str, effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let catalogue = workflow_nodes::builtin();
    let compile = || compile_text(text, &catalogue).map_err(|wrong| anyhow!("{wrong:?}"));
    let plan = Arc::new(compile()?);
    let inputs = bind(&[], &Map::new()).map_err(|wrong| anyhow!("{wrong:?}"))?;
    check(&plan, &inputs)?;
    let given = given(&plan);
    let (mut compiled, mut parsed) = (Vec::new(), Vec::new());
    let (mut driven, mut bare) = (Vec::new(), Vec::new());
    for round in 0..=effort.times(50) {
        let compile = seconds_of(compile);
        let parse = seconds_of(|| serde_json::from_str::<Value>(text));
        if round > 0 {
            compiled.push(compile);
            parsed.push(parse);
        }
    }
    // By themselves, so that both find the plan in the caches.
    for round in 0..=effort.times(50) {
        let drive = seconds_of(|| evaluate::run_pure(Arc::clone(&plan), Arc::clone(&inputs)));
        let call = seconds_of(|| call_all(&plan, &given));
        if round > 0 {
            driven.push(drive);
            bare.push(call);
        }
    }
    let per_node = |values| Series::seconds(values).divided_by(NODES);
    Ok(vec![
        Figure::new(
            "workflow of 10 K nodes, load and compile, per node",
            per_node(compiled),
        )
        .floor("serde_json, per node", per_node(parsed)),
        Figure::new("engine, per node", per_node(driven))
            .floor("the node's function alone", per_node(bare))
            .goal(2e-6),
    ])
}

/// A loop round one addition, without a log.
fn looped(effort: &Effort) -> anyhow::Result<Figure> {
    let plan = compile_text(&loop_definition(), &workflow_nodes::builtin());
    let plan = Arc::new(plan.map_err(|wrong| anyhow!("{wrong:?}"))?);
    let inputs: RunInputs = bind(&[], &Map::new()).map_err(|wrong| anyhow!("{wrong:?}"))?;
    let engine = Engine::start(Arc::clone(&plan), inputs, &mut Vec::new());
    let planned = plan.nodes.first().context("the plan has no node")?;
    let inputs = engine.inputs_of(0).map_err(|wrong| anyhow!("{wrong:?}"))?;
    let inputs: Values = inputs
        .into_iter()
        .map(|input| input.map(Cow::into_owned))
        .collect();
    let body = planned.body.as_ref().context("the loop has no body")?;
    let add = body.nodes.get(1).context("the body has no addition")?;
    let given = &self::given(body)[1];
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..=effort.times(10) {
        let mut zone = ZoneRun::begin(planned, 0, &inputs).map_err(|wrong| anyhow!("{wrong:?}"))?;
        let loop_time = seconds_of(|| while zone.advance(64).is_none() {});
        let additions = seconds_of(|| {
            for _ in 0..ITERATIONS {
                let _ = std::hint::black_box(add.node.run(add.call(given)));
            }
        });
        if round > 0 {
            ours.push(loop_time);
            bare.push(additions);
        }
    }
    let per_iteration = |values| Series::seconds(values).divided_by(f64::from(ITERATIONS));
    Ok(Figure::new("LoopZone, per iteration", per_iteration(ours))
        .floor("the addition's function alone", per_iteration(bare))
        .goal(10e-6))
}

/// The whole service with durability *memory*: every node's end is an event of its run.
async fn whole(text: &str, effort: &Effort) -> anyhow::Result<Figure> {
    let tavern = InProcess::start(effort).await?;
    let directory = effort.fresh_directory()?;
    let floor_log = RunLogs::open(SqliteOptions::new(directory.path().join("floor.db"))).await?;
    let mut client = WorkflowServiceClient::new(tavern.transport().outermost());
    let mut runs = RunServiceClient::new(tavern.transport().outermost());
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for round in 0..=effort.times(20) {
        let run = run_to_the_end(&mut client, &mut runs, text).await?;
        let log = append_all(&floor_log).await?;
        if round > 0 {
            ours.push(run);
            floor.push(log);
        }
    }
    floor_log.close().await;
    tavern.stop().await;
    let per_node = |values| Series::seconds(values).divided_by(NODES);
    Ok(Figure::new(
        "whole run with its events in memory, per node",
        per_node(ours),
    )
    .floor(
        "the same number of events appended in memory",
        per_node(floor),
    ))
}

/// Runs a definition and returns the seconds between the run's beginning and end, by
/// its own record.
pub(super) async fn run_to_the_end(
    client: &mut WorkflowServiceClient<Outbound>,
    runs: &mut RunServiceClient<Outbound>,
    text: &str,
) -> anyhow::Result<f64> {
    let request = StartRunRequest {
        target: Some(Target::DefinitionJson(text.to_owned())),
        options: Some(in_process::in_memory()),
        ..StartRunRequest::default()
    };
    let started = client.start_run(request).await?.into_inner();
    let run_id = started.run.context("the answer has no run")?.run_id;
    loop {
        let request = GetRunRequest {
            run_id: run_id.clone(),
        };
        let run = runs
            .get_run(request)
            .await?
            .into_inner()
            .run
            .context("the answer has no run")?;
        match run.state() {
            RunState::Running => tokio::time::sleep(Duration::from_millis(1)).await,
            RunState::Succeeded => {
                let nanos = |time: Option<prost_types::Timestamp>| {
                    let time = time.context("the run has no time")?;
                    anyhow::Ok(i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos))
                };
                return Ok((nanos(run.finish_time)? - nanos(run.create_time)?) as f64 / 1e9);
            }
            state => bail!(
                "the run ended as {}: {:?}",
                state.as_str_name(),
                run.outcome
            ),
        }
    }
}

/// Appends as many events as the run has nodes to a log in memory.
async fn append_all(log: &RunLogs) -> anyhow::Result<f64> {
    let run = SystemIds.next_run(RunOwner::Workflow);
    let now = SystemClock.now();
    let run = NewRun {
        durability: Durability::Memory,
        ..NewRun::new(run, "bench", now)
    };
    let Created::New(writer) = log.create(run, Vec::new()).await? else {
        bail!("the run was there before")
    };
    let payload = Bytes::from(vec![b'e'; EVENT_BYTES]);
    let begin = std::time::Instant::now();
    for _ in 0..CHAINS * LENGTH / EVENTS_PER_APPEND {
        let events = vec![NewEvent::new(now, 1, payload.clone()); EVENTS_PER_APPEND];
        writer.append(events).await?;
    }
    Ok(begin.elapsed().as_secs_f64())
}

type Given = Vec<Vec<Option<Input<'static>>>>;

/// Returns the inputs of each node: its defaults, and a number where there is none.
fn given(plan: &Plan) -> Given {
    let one = Arc::new(json!(1));
    let slots = plan.nodes.iter().map(|node| node.shape.inputs.iter());
    let value = |default: &Option<Arc<Value>>| {
        let value = default.clone().unwrap_or_else(|| Arc::clone(&one));
        Some(Cow::Owned(value))
    };
    slots
        .map(|slots| slots.map(|slot| value(&slot.default)).collect())
        .collect()
}

/// Makes sure that the measured run succeeds.
fn check(plan: &Arc<Plan>, inputs: &RunInputs) -> anyhow::Result<()> {
    let outcome = evaluate::run_pure(Arc::clone(plan), Arc::clone(inputs));
    match outcome.map_err(|node| anyhow!("node {node} is not pure"))? {
        Outcome::Succeeded(_) => Ok(()),
        other => bail!("the workflow did not succeed: {other:?}"),
    }
}

/// Calls every node's function once, without the engine.
fn call_all(plan: &Plan, given: &Given) {
    for (node, inputs) in plan.nodes.iter().zip(given) {
        let _ = std::hint::black_box(node.node.run(node.call(inputs)));
    }
}

fn loop_definition() -> String {
    let edge = |source: &str, from: &str, target: &str, to: &str| json!({"source": source, "sourceHandle": from, "target": target, "targetHandle": to});
    let sum = json!({"key": "sum", "dataFlowType": "FLOAT", "default": 0});
    json!({
        "nodes": [
            {"id": "loop", "type": "core:LoopZone", "inputValues": {"count": ITERATIONS},
                "configValues": {"variables": [sum], "maxIterations": ITERATIONS}},
            {"id": "begin", "type": "core:ZoneInput", "parentNode": "loop"},
            {"id": "add", "type": "core:MathOperation", "parentNode": "loop",
                "configValues": {"operationMode": "add"}, "inputValues": {"b": 1}},
            {"id": "end", "type": "core:ZoneOutput", "parentNode": "loop"},
        ],
        "edges": [edge("begin", "sum", "add", "a"), edge("add", "result", "end", "sum")],
    })
    .to_string()
}

pub(super) fn definition() -> String {
    let id = |chain: usize, at: usize| format!("n{chain}_{at}");
    let places = || (0..CHAINS).flat_map(|chain| (0..LENGTH).map(move |at| (chain, at)));
    let nodes: Vec<Value> = places()
        .map(|(chain, at)| {
            json!({"id": id(chain, at), "type": "core:MathOperation",
                "configValues": {"operationMode": "add"}, "inputValues": {"a": 1, "b": 1}})
        })
        .collect();
    let edges: Vec<Value> = places()
        .filter(|(_, at)| *at > 0)
        .map(|(chain, at)| {
            json!({"id": format!("e{chain}_{at}"), "source": id(chain, at - 1), "sourceHandle": "result",
                "target": id(chain, at), "targetHandle": "a"})
        })
        .collect();
    json!({"name": "sums", "nodes": nodes, "edges": edges}).to_string()
}
