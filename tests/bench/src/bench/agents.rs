//! Turns and scenes of agents, with models that answer at once.

use std::time::Instant;

use anyhow::{Context, ensure};
use axum::http::header::CONTENT_TYPE;
use contracts::tavern::agent::v1::{
    PutSceneRequest, StartSceneRequest, StartTurnRequest, agent_service_client::AgentServiceClient,
    scene_service_client::SceneServiceClient, start_turn_request::Input,
};
use contracts::tavern::common::v1::{RunState, watch_record::Record};
use contracts::tavern::run::v1::{WatchRunRequest, run_service_client::RunServiceClient};
use grpc_kit::{Outbound, Transport};
use serde_json::{Value, json};

use crate::harness::Effort;
use crate::series::{Series, Unit};
use crate::support::in_process::{InProcess, TOOL};
use crate::support::processes::resident_mebibytes;
use crate::table::Figure;

/// The calls of the model in one turn, one after the other.
const CALLS: usize = 20;
/// The turns at once.
const TURNS: usize = 1_000;
/// The agents of a scene.
const INSTANCES: usize = 100;
/// The scenes that run.
const SCENES: usize = 100;

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let endpoint = endpoint().await?;
    let models = format!(
        "max_turns = {TURNS}\n[models.script]\nprovider = \"scripted\"\nscript = \"rounds.json\"\n\
         [models.endpoint]\nprovider = \"openai\"\nbase_url = \"{endpoint}\"\nmodel = \"any\"\n\
         max_concurrent = {TURNS}\n"
    );
    let files = [
        ("agent-runtime.toml", models),
        ("agents/caller.json", profile("caller", "script")),
        ("agents/talker.json", profile("talker", "endpoint")),
        ("models/rounds.json", script()),
    ];
    let tavern = InProcess::start_with(effort, &files).await?;
    let transport = tavern.transport();
    // First, as memory that the others leave to the allocator would be used again.
    let idle = idle_instances(&transport, effort).await?;
    let mut figures = vec![rounds(&transport, effort).await?];
    figures.extend(turns_at_once(&transport, effort).await?);
    figures.push(idle);
    tavern.stop().await;
    Ok(figures)
}

fn profile(id: &str, model: &str) -> String {
    let tavern = json!({"model": model});
    json!({"id": id, "tool_ids_inventory": [TOOL], "custom_metadata": {"tavern": tavern}})
        .to_string()
}

/// A model that makes one call after the other, and then ends with text.
fn script() -> String {
    // The same call again and again would end the turn.
    let call = |number: usize| {
        let call = format!("<{TOOL}><utc_offset>+{number:02}:00</utc_offset></{TOOL}>");
        json!({"answer": {"text": format!("<ACTION>{call}</ACTION>")}})
    };
    let mut turns: Vec<Value> = (0..CALLS).map(call).collect();
    turns.push(json!({"answer": {"text": "Done."}}));
    json!({ "turns": turns }).to_string()
}

/// Serves an endpoint that answers at once, and returns its address.
async fn endpoint() -> anyhow::Result<String> {
    const ANSWER: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Done.\"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let answer = || async { ([(CONTENT_TYPE, "text/event-stream")], ANSWER) };
    let router = axum::Router::new().route("/v1/chat/completions", axum::routing::post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    // It ends with the process.
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}/v1"))
}

/// Plays a turn to its end.
async fn play(transport: Transport, profile: &str) -> anyhow::Result<()> {
    let request = StartTurnRequest {
        profile_id: profile.to_owned(),
        input: Some(Input::UserMessage("Begin.".to_owned())),
        ..StartTurnRequest::default()
    };
    let mut agents = AgentServiceClient::new(transport.clone().outermost());
    let started = agents.start_turn(request).await?.into_inner();
    let run_id = started.run.context("the answer has no run")?.run_id;
    let request = WatchRunRequest {
        run_id,
        after_sequence: 0,
    };
    let mut runs = RunServiceClient::new(transport.outermost());
    let mut records = runs.watch_run(request).await?.into_inner();
    while let Some(answer) = records.message().await? {
        if let Some(Record::Terminal(terminal)) = contracts::watch::decode(answer.record)? {
            let run = terminal.run.context("the terminal record names no run")?;
            ensure!(run.state() == RunState::Succeeded, "{:?}", run.outcome);
            return Ok(());
        }
    }
    anyhow::bail!("the stream ended before the run did")
}

/// The time of one round of a durable turn: the model request, and its call until its result is
/// back.
async fn rounds(transport: &Transport, effort: &Effort) -> anyhow::Result<Figure> {
    play(transport.clone(), "caller").await?;
    let mut seconds = Vec::new();
    for _ in 0..effort.times(50) {
        let begin = Instant::now();
        play(transport.clone(), "caller").await?;
        seconds.push(begin.elapsed().as_secs_f64() / (CALLS + 1) as f64);
    }
    let measured = Series::new(Unit::Seconds, seconds);
    let figure = Figure::new(
        format!("a round of a turn of {CALLS} calls, durable"),
        measured,
    );
    Ok(figure.goal(2e-3))
}

/// Turns that begin at once, each a request to an endpoint that answers at once.
async fn turns_at_once(transport: &Transport, effort: &Effort) -> anyhow::Result<[Figure; 2]> {
    play(transport.clone(), "talker").await?;
    let (mut seconds, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..effort.times(10) {
        let begin = Instant::now();
        let mut turns = tokio::task::JoinSet::new();
        for _ in 0..TURNS {
            let transport = transport.clone();
            turns.spawn(async move {
                play(transport, "talker").await?;
                anyhow::Ok(begin.elapsed().as_secs_f64())
            });
        }
        while let Some(ended) = turns.join_next().await {
            seconds.push(ended??);
        }
        rates.push(TURNS as f64 / begin.elapsed().as_secs_f64());
    }
    Ok([
        Figure::new(
            format!("turns, {TURNS} at once, each one request to an endpoint"),
            Series::new(Unit::PerSecond, rates),
        ),
        Figure::new(
            "such a turn, from the start of all to its end",
            Series::new(Unit::Seconds, seconds),
        ),
    ])
}

/// The memory of agents of scenes while they are idle.
async fn idle_instances(transport: &Transport, effort: &Effort) -> anyhow::Result<Figure> {
    let mut scenes = SceneServiceClient::new(transport.clone().outermost());
    let instance = |number: usize| {
        json!({"instance_id": format!("agent_{number}"), "profile_id": "talker",
               "initial_private_state_override": {"mood": "calm", "trust": number}})
    };
    let instances: Vec<Value> = (0..INSTANCES).map(instance).collect();
    let scene = json!({"id": "crowd", "agent_instances": instances});
    let request = PutSceneRequest {
        scene_json: scene.to_string(),
        ..PutSceneRequest::default()
    };
    scenes.put_scene(request).await?;
    let own = std::process::id();
    // The first scene allocates the parts that all of them share.
    start(&mut scenes).await?;
    let before = resident_mebibytes(own).context("this process has memory")?;
    let count = effort.times(SCENES);
    for _ in 0..count {
        start(&mut scenes).await?;
    }
    let added = resident_mebibytes(own).context("this process has memory")? - before;
    let figure = Figure::new(
        format!(
            "memory that {} idle agents of {count} scenes add",
            count * INSTANCES
        ),
        Series::new(Unit::Mebibytes, vec![added]),
    );
    Ok(figure.goal(200.0))
}

/// Starts a scene, and waits until its agents have their states.
async fn start(scenes: &mut SceneServiceClient<Outbound>) -> anyhow::Result<()> {
    let request = StartSceneRequest {
        scene_id: "crowd".to_owned(),
        ..StartSceneRequest::default()
    };
    let started = scenes.start_scene(request).await?.into_inner();
    let run_id = started.run.context("the answer has no run")?.run_id;
    let request = contracts::tavern::agent::v1::GetSceneStatusRequest { run_id };
    // A scene answers when it has begun.
    scenes.get_scene_status(request).await?;
    Ok(())
}
