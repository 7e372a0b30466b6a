//! Scenes over the wire: their workflows, and their events after the process is killed.
//!
//! `TAVERN_TEST_SCENE_KILLS` sets the number of kills; `make bars` sets 200.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use contracts::tavern::agent::v1::{
    EndSceneRequest, GetSceneStatusRequest, GetWorldStateRequest, PublishEventRequest,
    StartSceneRequest, get_world_state_request, publish_event_request,
    scene_service_client::SceneServiceClient, state_service_client::StateServiceClient,
};
use contracts::tavern::common::v1::{RunEvent, RunState, run_event::Kind};
use grpc_kit::Transport;
use serde_json::{Value, json};
use testkit::{Stack, collect, eventually, size};

/// Kills in `make test`.
const KILLS: usize = 4;
/// Events between two kills.
const EVENTS: usize = 6;

fn transport(stack: &Stack) -> anyhow::Result<Transport> {
    Ok(grpc_kit::remote(&grpc_kit::ClientSettings::to(
        stack.address(),
    ))?)
}

pub(crate) async fn start(stack: &Stack, scene_id: &str) -> anyhow::Result<String> {
    let request = StartSceneRequest {
        scene_id: scene_id.to_owned(),
        ..StartSceneRequest::default()
    };
    let mut scenes = SceneServiceClient::new(transport(stack)?.outermost());
    let started = scenes.start_scene(request).await?.into_inner();
    Ok(started.run.context("the answer has no run")?.run_id)
}

async fn publish(
    stack: &Stack,
    run_id: &str,
    event_type: &str,
    request_id: &str,
) -> anyhow::Result<()> {
    let request = PublishEventRequest {
        scene: Some(publish_event_request::Scene::RunId(run_id.to_owned())),
        r#type: event_type.to_owned(),
        request_id: request_id.to_owned(),
        source_id: "mara".to_owned(),
        ..PublishEventRequest::default()
    };
    let mut scenes = SceneServiceClient::new(transport(stack)?.outermost());
    scenes.publish_event(request).await?;
    Ok(())
}

async fn world(stack: &Stack, run_id: &str, path: &str) -> anyhow::Result<Value> {
    let request = GetWorldStateRequest {
        scene: Some(get_world_state_request::Scene::RunId(run_id.to_owned())),
        path: path.to_owned(),
        version: 0,
    };
    let mut states = StateServiceClient::new(transport(stack)?.outermost());
    let read = states.get_world_state(request).await?.into_inner();
    Ok(serde_json::from_str(&read.value_json)?)
}

async fn end(stack: &Stack, run_id: &str) -> anyhow::Result<()> {
    let request = EndSceneRequest {
        run_id: run_id.to_owned(),
        reason: String::new(),
    };
    let mut scenes = SceneServiceClient::new(transport(stack)?.outermost());
    scenes.end_scene(request).await?;
    Ok(())
}

/// Waits until no agent has anything to do.
async fn until_quiet(stack: &Stack, run_id: &str) -> anyhow::Result<()> {
    let scenes = SceneServiceClient::new(transport(stack)?.outermost());
    eventually("the agents to have nothing to do", || {
        let (mut scenes, run_id) = (scenes.clone(), run_id.to_owned());
        async move {
            let status = scenes
                .get_scene_status(GetSceneStatusRequest { run_id })
                .await;
            let status = status.ok()?.into_inner();
            let mut instances = status.instances.iter();
            instances
                .all(|one| !one.is_busy && one.waiting.is_empty())
                .then_some(())
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn g109_workflows_change_the_world_at_the_start_the_end_and_on_an_event_in_five_processes()
-> anyhow::Result<()> {
    let stack = Stack::builder().separate().start().await?;
    let run_id = start(&stack, "whisperwood_edge").await?;
    publish(&stack, &run_id, "player.enters_wood", "e-1").await?;
    eventually("the player to be in the wood", || async {
        let flag = world(&stack, &run_id, "flags.player_in_wood").await;
        flag.ok().filter(|flag| *flag == json!(true))
    })
    .await?;
    end(&stack, &run_id).await?;
    let followed = collect(&stack.runs(), &run_id, 0).await?;
    let (events, run) = (followed.events, followed.run);
    ensure!(run.state() == RunState::Succeeded, "{run:?}");
    let ended: Vec<(&str, &str)> = events
        .iter()
        .filter_map(|event| match &event.kind {
            Some(Kind::SceneWorkflowEnded(ended)) => {
                Some((ended.moment.as_str(), ended.error.as_str()))
            }
            _ => None,
        })
        .collect();
    ensure!(
        ended
            == [
                ("on_scene_start", ""),
                ("on_player_enters_wood_event", ""),
                ("on_scene_end", "")
            ],
        "{ended:?}"
    );
    ensure!(world(&stack, &run_id, "places.path.lit").await? == json!(true));
    ensure!(world(&stack, &run_id, "flags.story_over").await? == json!(true));
    Ok(())
}

/// An agent that makes the same call in each turn, with a budget of one iteration.
fn agent(id: &str, hears: &str, tool: &str) -> Value {
    json!({
        "id": id,
        "name": id,
        "tool_ids_inventory": [tool],
        "subscribed_event_types": [hears],
        "custom_metadata": {"tavern": {"model": id, "budgets": {"iterations": 1}}},
    })
}

fn calls(text: &str) -> Value {
    json!({"turns": [], "otherwise": {"answer": {"text": format!("<ACTION>{text}</ACTION>")}}})
}

/// Writes a scene in which `scribe` publishes an event for each note that it hears of, and `counter` counts
/// these events in the world state.
fn prepare(deploy: &Path) -> anyhow::Result<()> {
    let write = |path: &str, value: &Value| -> anyhow::Result<()> {
        let path = deploy.join(path);
        std::fs::create_dir_all(path.parent().context("the path has no parent")?)?;
        Ok(std::fs::write(path, value.to_string())?)
    };
    for empty in ["plugins", "workflows"] {
        std::fs::create_dir(deploy.join(empty))?;
    }
    write(
        "agents/scribe.json",
        &agent("scribe", "note.add", "PublishEventTool"),
    )?;
    write(
        "agents/counter.json",
        &agent("counter", "note.written", "RequestWorldStateUpdateTool"),
    )?;
    write(
        "models/scribe.script.json",
        &calls("<PublishEventTool><event_type>note.written</event_type></PublishEventTool>"),
    )?;
    write(
        "models/counter.script.json",
        &calls(
            "<RequestWorldStateUpdateTool><path>count</path><operation>increment</operation>\
             <value>1</value></RequestWorldStateUpdateTool>",
        ),
    )?;
    write(
        "scenes/notes.json",
        &json!({
            "id": "notes",
            "agent_instances": [
                {"instance_id": "scribe", "profile_id": "scribe"},
                {"instance_id": "counter", "profile_id": "counter"},
            ],
            "initial_world_state": {"count": 0},
        }),
    )?;
    let models = "[models.scribe]\nprovider = \"scripted\"\nscript = \"scribe.script.json\"\n\
                  [models.counter]\nprovider = \"scripted\"\nscript = \"counter.script.json\"\n";
    Ok(std::fs::write(deploy.join("agent-runtime.toml"), models)?)
}

/// The log's records of the events of one agent.
#[derive(Debug, Default)]
struct Deliveries {
    delivered: Vec<String>,
    taken: Vec<String>,
    turns: usize,
}

fn deliveries(events: &[RunEvent], run_id: &str) -> HashMap<String, Deliveries> {
    let mut all: HashMap<String, Deliveries> = HashMap::new();
    for event in events.iter().filter(|event| event.run_id == run_id) {
        match &event.kind {
            Some(Kind::EventPublished(published)) => {
                let id = published.event.clone().unwrap_or_default().event_id;
                for instance in &published.delivered_to {
                    let deliveries = all.entry(instance.clone()).or_default();
                    deliveries.delivered.push(id.clone());
                }
            }
            Some(Kind::EventsTaken(taken)) => {
                let deliveries = all.entry(taken.instance_id.clone()).or_default();
                deliveries.taken.extend(taken.event_ids.clone());
                deliveries.turns += 1;
            }
            _ => {}
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kills_every_event_is_taken_once_and_every_turn_has_its_effect_once()
-> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    prepare(deploy.path())?;
    let mut stack = Stack::builder().deploy(deploy.path()).start().await?;
    let run_id = start(&stack, "notes").await?;
    let kills = size("TAVERN_TEST_SCENE_KILLS", KILLS)?;
    for kill in 0..kills {
        for number in 0..EVENTS {
            let name = format!("{kill}-{number}");
            publish(&stack, &run_id, "note.add", &name).await?;
        }
        // Some turns are in progress, at any point.
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..250))).await;
        stack.kill()?;
        stack.restart().await?;
        if kill % 5 == 4 {
            // So that no queue becomes full, and events are dropped.
            until_quiet(&stack, &run_id).await?;
        }
    }
    until_quiet(&stack, &run_id).await?;
    end(&stack, &run_id).await?;
    let followed = collect(&stack.runs(), &run_id, 0).await?;
    let (events, run) = (followed.events, followed.run);
    ensure!(run.state() == RunState::Succeeded, "{run:?}");
    let all = deliveries(&events, &run_id);
    for (agent, deliveries) in &all {
        let taken: HashSet<&String> = deliveries.taken.iter().collect();
        let delivered: HashSet<&String> = deliveries.delivered.iter().collect();
        let differing: Vec<_> = taken.symmetric_difference(&delivered).collect();
        ensure!(differing.is_empty(), "{agent}: {differing:?}");
        ensure!(
            taken.len() == deliveries.taken.len(),
            "{agent} took an event twice"
        );
    }
    let (scribe, counter) = (&all["scribe"], &all["counter"]);
    ensure!(scribe.delivered.len() == kills * EVENTS);
    let (written, turns) = (counter.delivered.len(), scribe.turns);
    ensure!(written == turns, "{written} events of {turns} turns");
    let count = world(&stack, &run_id, "count").await?;
    let turns = counter.turns;
    ensure!(count == json!(turns), "{count} changes of {turns} turns");
    Ok(())
}
