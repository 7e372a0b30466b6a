//! Many workflows in progress, with loops, maps, timers, signals and workflows below them, whose
//! process is killed at random points: none is lost, and no step is done twice.
//!
//! `TAVERN_TEST_KILLS` sets the number of kills; `make bars` sets 200 for 64 runs.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::run_event::Kind;
use contracts::tavern::common::v1::{Durability, RunEvent, RunOptions, RunState};
use contracts::tavern::registry::v1::CallDecision;
use contracts::tavern::run::v1::SignalRunRequest;
use contracts::tavern::workflow::v1::StartRunRequest;
use contracts::tavern::workflow::v1::start_run_request::Target;
use plugin_package::PluginFiles;
use serde_json::{Value, json};
use testkit::{Stack, collect, size};

use crate::doubt::Decider;
use crate::ledger::World;
use crate::plugins::{file, install, package};
use crate::workflows::edge;

/// Kills in `make test`.
const KILLS: usize = 4;

/// The fewest kills that each run of the full size sees.
const KILLS_PER_RUN: usize = 3;

fn kills() -> anyhow::Result<usize> {
    size("TAVERN_TEST_KILLS", KILLS)
}

/// A workflow that appends a note to the ledger.
pub(crate) fn child() -> Value {
    json!({
        "name": "Note",
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            {"id": "append", "type": "core:ExecuteTool", "inputValues": {"key": "k", "delay_ms": 2}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("in", "tool", "append", "tool_id"),
            edge("in", "note", "append", "note"),
            edge("append", "status", "out", "status"),
        ],
        "interfaceInputs": {
            "tool": {"dataFlowType": "STRING", "required": true},
            "note": {"dataFlowType": "STRING", "required": true},
        },
        "interfaceOutputs": {"status": {"dataFlowType": "STRING"}},
    })
}

/// After a signal, two rounds of three items, each of which appends a note by itself after a while and
/// one by a workflow below.
pub(crate) fn parent() -> Value {
    let inside = |zone: &str, id: &str, full_type: &str, presets: Value, config: Value| json!({"id": id, "type": full_type, "parentNode": zone, "inputValues": presets, "configValues": config});
    json!({
        "name": "Notes",
        "nodes": [
            {"id": "in", "type": "core:GroupInput"},
            {"id": "go", "type": "core:WaitSignal", "configValues": {"name": "go"}},
            {"id": "loop", "type": "core:LoopZone", "inputValues": {"count": 2},
                "configValues": {"collect": [{"key": "statuses"}]}},
            inside("loop", "loop_in", "core:ZoneInput", json!({}), json!({})),
            inside("loop", "map", "core:MapList", json!({"items": ["a", "b", "c"]}), json!({"concurrency": 3})),
            inside("map", "map_in", "core:ZoneInput", json!({}), json!({})),
            inside("map", "timer", "core:Timer", json!({}), json!({"duration": "20ms"})),
            inside("map", "own", "core:FormatPrompt", json!({"template": "{name}-{round}-{item}-own"}), json!({})),
            inside("map", "append", "core:ExecuteTool", json!({"key": "k", "delay_ms": 2}), json!({})),
            inside("map", "below", "core:FormatPrompt", json!({"template": "{name}-{round}-{item}-below"}), json!({})),
            inside("map", "run", "core:RunWorkflow", json!({}), json!({"workflowId": "note"})),
            inside("map", "map_out", "core:ZoneOutput", json!({}), json!({})),
            inside("loop", "loop_out", "core:ZoneOutput", json!({}), json!({})),
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            edge("in", "name", "go", "value"),
            edge("go", "value", "own", "name"), edge("go", "value", "below", "name"),
            edge("loop_in", "index", "own", "round"), edge("loop_in", "index", "below", "round"),
            edge("map_in", "item", "timer", "value"), edge("timer", "value", "own", "item"), edge("map_in", "item", "below", "item"),
            edge("in", "tool", "append", "tool_id"), edge("own", "prompt", "append", "note"),
            edge("in", "tool", "run", "tool"), edge("below", "prompt", "run", "note"),
            edge("append", "status", "map_out", "result"),
            edge("map", "results", "loop_out", "statuses"),
            edge("loop", "statuses", "out", "statuses"),
        ],
        "interfaceInputs": {
            "tool": {"dataFlowType": "STRING", "required": true},
            "name": {"dataFlowType": "STRING", "required": true},
        },
        "interfaceOutputs": {"statuses": {"dataFlowType": "ARRAY"}},
    })
}

/// The notes of a run.
fn notes(name: &str) -> Vec<String> {
    let mut notes = Vec::new();
    for round in 0..2 {
        for item in ["a", "b", "c"] {
            for from in ["own", "below"] {
                notes.push(format!("{name}-{round}-{item}-{from}"));
            }
        }
    }
    notes
}

/// Every other run is batched.
pub(crate) fn durability_of(at: usize) -> Durability {
    match at % 2 {
        0 => Durability::Batched,
        _ => Durability::Sync,
    }
}

pub(crate) async fn start(
    stack: &Stack,
    name: &str,
    tool: &str,
    durability: Durability,
) -> anyhow::Result<String> {
    let request = StartRunRequest {
        target: Some(Target::WorkflowId("notes".to_owned())),
        inputs_json: json!({"name": name, "tool": tool}).to_string(),
        request_id: name.to_owned(),
        options: Some(RunOptions {
            durability: durability.into(),
            ..RunOptions::default()
        }),
        ..StartRunRequest::default()
    };
    let started = stack.workflow().start_run(request).await?.into_inner();
    let run_id = started.run.context("the answer has no run")?.run_id;
    // Once it is acknowledged, it is not lost.
    let signal = SignalRunRequest {
        run_id: run_id.clone(),
        name: "go".to_owned(),
        signal_id: name.to_owned(),
        ..SignalRunRequest::default()
    };
    match stack.runs().signal_run(signal).await {
        // A repeat may find that the run took it, and has ended.
        Err(refusal) if refusal.code() == tonic::Code::FailedPrecondition => Ok(run_id),
        answer => answer.map(|_| run_id).map_err(Into::into),
    }
}

/// Kills the process at a random point, `times` times, and starts it again.
async fn kill(world: &mut World, times: usize, random: &mut fastrand::Rng) -> anyhow::Result<()> {
    for _ in 0..times {
        // Any point is fine, so there is no condition to wait for.
        tokio::time::sleep(Duration::from_micros(random.u64(0..60_000))).await;
        world.stack.kill()?;
        world.stack.restart().await?;
    }
    Ok(())
}

/// Every recorded step, with its number of records.
fn settled(events: &[RunEvent]) -> HashMap<String, usize> {
    let mut steps = HashMap::new();
    for event in events {
        let step = match &event.kind {
            Some(Kind::NodeFinished(node)) => format!("{} node {}", event.run_id, node.node_id),
            Some(Kind::IterationFinished(zone)) => {
                format!("{} {}#{}", event.run_id, zone.node_id, zone.index)
            }
            Some(Kind::NodeWoken(woken)) => format!("{} wait {}", event.run_id, woken.wait_id),
            Some(Kind::CallSettled(call)) => {
                let call = call.result.as_ref().map(|result| result.effect_id.as_str());
                format!("{} call {}", event.run_id, call.unwrap_or_default())
            }
            _ => continue,
        };
        *steps.entry(step).or_default() += 1;
    }
    steps
}

/// Checks the run `name` once it has ended; returns its state.
pub(crate) async fn check(world: &World, run_id: &str, name: &str) -> anyhow::Result<RunState> {
    let (state, missing) = check_once(world, run_id, name).await?;
    ensure!(
        missing.is_empty(),
        "{missing:?} are lost of {name}, {state:?}"
    );
    Ok(state)
}

/// Checks that the run `name` did nothing twice, once it has ended. Returns its state and the notes that it did not write.
pub(crate) async fn check_once(
    world: &World,
    run_id: &str,
    name: &str,
) -> anyhow::Result<(RunState, Vec<String>)> {
    let ended = collect(&world.stack.runs(), run_id, 0).await?;
    let twice: Vec<(String, usize)> = settled(&ended.events)
        .into_iter()
        .filter(|(_, times)| *times > 1)
        .collect();
    ensure!(twice.is_empty(), "recorded more than once: {twice:?}");
    let mut missing = Vec::new();
    for note in notes(name) {
        let effects = world.effects(&note)?;
        let mut ids: Vec<&Value> = effects.iter().map(|effect| &effect["effect_id"]).collect();
        ids.dedup();
        ensure!(ids.len() <= 1, "{note} has several effects: {effects:?}");
        if ids.is_empty() {
            missing.push(note);
        }
    }
    Ok((ended.run.state(), missing))
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_repeatable_tools_survive_every_kill() -> anyhow::Result<()> {
    let kills = kills()?;
    let (runs, seed) = ((kills / KILLS_PER_RUN).clamp(8, 64), fastrand::u64(..));
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut world = World::new(Stack::all_in_one().await?).await?;
    world.put_workflow("note", &child()).await?;
    world.put_workflow("notes", &parent()).await?;
    let mut begun = Vec::new();
    for at in 0..runs {
        let name = format!("run{at}");
        let run_id = start(
            &world.stack,
            &name,
            "ledger.append_idempotent",
            durability_of(at),
        )
        .await?;
        begun.push((run_id, name));
        // Kills fall on runs of every age.
        let times = kills * (at + 1) / runs - kills * at / runs;
        kill(&mut world, times, &mut random).await?;
    }
    for (run_id, name) in begun {
        let state = check(&world, &run_id, &name).await?;
        ensure!(state == RunState::Succeeded, "{name} ended as {state:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_other_tools_lose_and_repeat_nothing_once_what_is_in_doubt_is_decided()
-> anyhow::Result<()> {
    let world = World::new(Stack::all_in_one().await?).await?;
    let random = fastrand::Rng::new();
    println!("seed {}", random.get_seed());
    lose_and_repeat_nothing(world, random, |workflow| workflow).await
}

#[tokio::test(flavor = "multi_thread")]
async fn r116_runs_of_nodes_of_plugins_lose_and_repeat_nothing() -> anyhow::Result<()> {
    let world = World::new(Stack::all_in_one().await?).await?;
    install(&world.stack, &appending()?).await?;
    let random = fastrand::Rng::new();
    println!("seed {}", random.get_seed());
    lose_and_repeat_nothing(world, random, with_nodes_of_plugin).await
}

/// Checks that runs of workflows as `made` makes them lose nothing by kills, and repeat nothing.
async fn lose_and_repeat_nothing(
    mut world: World,
    mut random: fastrand::Rng,
    made: fn(Value) -> Value,
) -> anyhow::Result<()> {
    let kills = kills()?.div_ceil(2);
    world.put_workflow("note", &made(child())).await?;
    world.put_workflow("notes", &made(parent())).await?;
    let happened = world.happened();
    let _decider = Decider::start(&world.stack, move |call| match happened(&call.effect_id) {
        true => CallDecision::TookEffect,
        false => CallDecision::Repeat,
    });
    for at in 0..kills {
        let name = format!("run{at}");
        let run_id = start(&world.stack, &name, "ledger.append", durability_of(at)).await?;
        kill(&mut world, 1, &mut random).await?;
        let state = check(&world, &run_id, &name).await?;
        ensure!(state == RunState::Succeeded, "{name} ended as {state:?}");
        for note in notes(&name) {
            let effects = world.effects(&note)?;
            ensure!(effects.len() == 1, "{note} was repeated: {effects:?}");
        }
    }
    Ok(())
}

/// A plugin with a node type that appends a note to the ledger.
fn appending() -> anyhow::Result<PluginFiles> {
    let tool = json!({
        "id": "notes:append",
        "description": "Appends a note to the ledger.",
        "implementation": {"type": "service", "service": "ledger", "method": "tavern.test.v1.Ledger/Append"},
        "parameters": {"type": "object", "additionalProperties": true},
    });
    let node = json!({
        "type": "Append",
        "inputs": {
            "key": {"dataFlowType": "STRING"},
            "note": {"dataFlowType": "STRING", "required": true},
            "delay_ms": {"dataFlowType": "INTEGER"},
        },
        "outputs": {
            "index": {"dataFlowType": "INTEGER"},
            "effectId": {"dataFlowType": "STRING"},
            "appended": {"dataFlowType": "BOOLEAN"},
        },
        "handler": {"tool": "notes:append"},
    });
    let manifest = "name: notes\nversion: 1.0.0\ntools: {entry: tools}\nnodes: {entry: nodes}\n";
    package(vec![
        file("plugin.yaml", manifest),
        file("tools/append.tool.json", tool.to_string()),
        file("nodes/append.node.json", node.to_string()),
    ])
}

/// Returns a workflow with a node of the plugin in the place of each call of a tool.
fn with_nodes_of_plugin(mut workflow: Value) -> Value {
    for node in workflow["nodes"].as_array_mut().into_iter().flatten() {
        if node["type"] == "core:ExecuteTool" {
            node["type"] = json!("notes:Append");
        }
    }
    if let Some(edges) = workflow["edges"].as_array_mut() {
        edges.retain(|edge| edge["targetHandle"] != "tool_id");
        for edge in edges.iter_mut().filter(|edge| edge["source"] == "append") {
            edge["sourceHandle"] = json!("effectId");
        }
    }
    workflow
}

/// Appends 200 notes, one after the other.
fn counting() -> Value {
    let inside = |id: &str, full_type: &str, presets: Value| json!({"id": id, "type": full_type, "parentNode": "loop", "inputValues": presets});
    json!({
        "nodes": [
            {"id": "loop", "type": "core:LoopZone", "inputValues": {"count": 200},
                "configValues": {"maxIterations": 200}},
            inside("begin", "core:ZoneInput", json!({})),
            inside("note", "core:FormatPrompt", json!({"template": "note-{index}"})),
            inside("append", "core:ExecuteTool",
                json!({"tool_id": "ledger.append_idempotent", "key": "k", "delay_ms": 10})),
            inside("end", "core:ZoneOutput", json!({})),
        ],
        "edges": [
            edge("begin", "index", "note", "index"),
            edge("note", "prompt", "append", "note"),
        ],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batched_run_loses_at_most_the_last_second() -> anyhow::Result<()> {
    let mut world = World::new(Stack::all_in_one().await?).await?;
    let request = StartRunRequest {
        target: Some(Target::DefinitionJson(counting().to_string())),
        options: Some(RunOptions {
            durability: Durability::Batched.into(),
            ..RunOptions::default()
        }),
        ..StartRunRequest::default()
    };
    let started = world.stack.workflow().start_run(request).await?;
    let run_id = started.into_inner().run.unwrap_or_default().run_id;
    world.await_effect("note-150").await?;
    let killed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    world.stack.kill()?;
    world.stack.restart().await?;
    let ended = collect(&world.stack.runs(), &run_id, 0).await?;
    ensure!(ended.run.state() == RunState::Succeeded, "{:?}", ended.run);
    let mut recorded = HashMap::new();
    for event in ended.events {
        if let Some(Kind::CallSettled(settled)) = event.kind {
            let effect_id = settled.result.unwrap_or_default().effect_id;
            let time = event.time.unwrap_or_default();
            recorded.insert(
                effect_id,
                Duration::new(time.seconds.unsigned_abs(), time.nanos.unsigned_abs()),
            );
        }
    }
    let mut kept = 0;
    for at in 0..200 {
        let effects = world.effects(&format!("note-{at}"))?;
        let first = effects.first().context("a note is lost")?;
        let same = effects
            .iter()
            .all(|effect| effect["effect_id"] == first["effect_id"]);
        ensure!(same, "several effects: {effects:?}");
        let happened = Duration::from_nanos(first["time_ns"].as_u64().context("no time")?);
        if happened + Duration::from_secs(1) < killed {
            let effect_id = first["effect_id"].as_str().context("no id")?;
            ensure!(recorded[effect_id] < killed, "{at} was lost");
            ensure!(effects.len() == 1, "{at} was repeated");
            kept += 1;
        }
    }
    ensure!(kept > 0, "the run was killed too early");
    Ok(())
}
