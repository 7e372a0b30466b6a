//! A tool call through gateway and registry, compared with a bare echo of tonic.
//!
//! The tool returns the time, so the figure covers the way to it and back: reading the text,
//! starting a run, checking the arguments, dispatching, recording events in memory and following
//! them to the end of the run. The floor for that is a stream of as many messages. The parts of the
//! way are measured by themselves as well, to show where the time goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contracts::tavern::common::v1::Durability;
use contracts::tavern::gateway::v1::ParseTextRequest;
use contracts::tavern::registry::v1::call_service_client::CallServiceClient;
use contracts::tavern::registry::v1::identity_service_client::IdentityServiceClient;
use contracts::tavern::registry::v1::{CallToolRequest, GetCallerRequest};
use grpc_kit::Transport;

use crate::harness::{Effort, at_once, one_by_one};
use crate::series::{Series, Unit};
use crate::support::echo;
use crate::support::in_process::{self, InProcess, TOOL};
use crate::table::Figure;

/// The callers at once where the rate is measured.
const CALLERS: usize = 64;

/// The size of an echoed message, about the size of an event.
const MESSAGE_BYTES: usize = 200;

/// The calls of a text with many calls.
const MANY: usize = 16;

/// The goals for the seconds of a call, in process and over loopback.
const TIME_GOALS: [f64; 2] = [200e-6, 300e-6];

/// The goal for the seconds that a call with a key takes longer.
const DOOR_GOAL: f64 = 20e-6;

/// The goal for the calls per second.
const RATE_GOAL: f64 = 15e3;

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let tavern = InProcess::start(effort).await?;
    let mut figures = parts(&tavern, effort).await?;
    for calls in [1, MANY] {
        figures.extend(in_memory(&tavern, calls, effort).await?);
    }
    figures.extend(over_socket(&tavern, effort).await?);
    tavern.stop().await;
    figures.push(with_key(effort).await?);
    Ok(figures)
}

/// A call of a client with a key that the door remembers, compared with the same call of a peer.
async fn with_key(effort: &Effort) -> anyhow::Result<Figure> {
    let tavern = InProcess::start(effort).await?;
    let ask = |way: &Transport| {
        let identities = IdentityServiceClient::new(way.outermost());
        move |_| {
            let mut identities = identities.clone();
            async move {
                identities.get_caller(GetCallerRequest {}).await?;
                Ok(())
            }
        }
    };
    let client = ask(&tavern.behind_door().await?);
    let peer = ask(&tavern.transport());
    let (ours, floor) = times(&client, &peer, effort).await?;
    tavern.stop().await;
    let goal = floor.median() + DOOR_GOAL;
    let figure = Figure::new("GetCaller in process, with a key", ours);
    Ok(figure.floor("the same call of a peer", floor).goal(goal))
}

/// The parts of the way, and the floor over a socket, each compared with an echo in process.
async fn parts(tavern: &InProcess, effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let socket = echo::over_socket().await?;
    let far = move |_| {
        let mut socket = socket.clone();
        async move {
            socket.list_models(echo::message(MESSAGE_BYTES)).await?;
            Ok(())
        }
    };
    let gateway = tavern.gateway();
    let parse = move |_| {
        let mut gateway = gateway.clone();
        async move {
            let text = in_process::model_text(1);
            let scope = Some(in_process::scope());
            let request = ParseTextRequest {
                text,
                scope,
                ..ParseTextRequest::default()
            };
            gateway.parse_text(request).await?;
            Ok(())
        }
    };
    let next_effect = Arc::new(AtomicU64::new(0));
    let plain = call_tool(tavern, String::new);
    let ledgered = call_tool(tavern, move || {
        format!("bench-{}", next_effect.fetch_add(1, Ordering::Relaxed))
    });
    Ok(vec![
        beside_echo("echo over loopback", far, effort).await?,
        beside_echo("ParseText in process", parse, effort).await?,
        beside_echo("CallTool in process", plain, effort).await?,
        beside_echo("CallTool in process, with an effect id", ledgered, effort).await?,
    ])
}

/// Returns a function that calls the tool once, without gateway and without a run of its own.
fn call_tool(
    tavern: &InProcess,
    effect_id: impl Fn() -> String,
) -> impl Fn(usize) -> std::pin::Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>> {
    let calls = CallServiceClient::new(tavern.transport().outermost());
    move |_| {
        let mut calls = calls.clone();
        let request = CallToolRequest {
            tool_id: TOOL.to_owned(),
            arguments_json: "{}".to_owned(),
            effect_id: effect_id(),
            durability: Durability::Memory.into(),
            ..CallToolRequest::default()
        };
        Box::pin(async move {
            let mut answers = calls.call_tool(request).await?.into_inner();
            while let Some(answer) = answers.message().await? {
                std::hint::black_box(answer);
            }
            Ok(())
        })
    }
}

/// Measures something one by one, in turn with the echo in process.
async fn beside_echo<F, Fut>(what: &str, ours: F, effort: &Effort) -> anyhow::Result<Figure>
where
    F: Fn(usize) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let floor = |_| {
        let mut echo = echo::local();
        async move {
            echo.list_models(echo::message(MESSAGE_BYTES)).await?;
            Ok(())
        }
    };
    let (times, floor_times) = times(&ours, &floor, effort).await?;
    Ok(Figure::new(what, times).floor("echo in process", floor_times))
}

/// Invocations in this process, compared with a stream in this process.
async fn in_memory(
    tavern: &InProcess,
    calls: usize,
    effort: &Effort,
) -> anyhow::Result<Vec<Figure>> {
    let gateway = tavern.gateway();
    let invoke = move |_| {
        let mut gateway = gateway.clone();
        async move {
            let stream = gateway.invoke_text(in_process::invocation(calls)).await?;
            in_process::follow(stream.into_inner()).await
        }
    };
    let records = invoke(0).await?;
    let floor = move |_| async move {
        let answers = echo::local()
            .generate(echo::messages(records, MESSAGE_BYTES))
            .await?;
        echo::drain(answers.into_inner()).await
    };
    let invoke = move |caller| {
        let invocation = invoke(caller);
        async move { invocation.await.map(drop) }
    };
    let what = match calls {
        1 => "InvokeText in process".to_owned(),
        _ => format!("InvokeText of {calls} calls in process, per call"),
    };
    let floor_name = format!("stream of {records} in process");
    let what = (what.as_str(), TIME_GOALS[0]);
    compare(what, calls, invoke, &floor_name, floor, effort).await
}

/// Invocations over a loopback socket, compared with a stream over a loopback socket.
async fn over_socket(tavern: &InProcess, effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let gateway = tavern.gateway_over_socket().await?;
    let invoke = move |_| {
        let mut gateway = gateway.clone();
        async move {
            let stream = gateway.invoke_text(in_process::invocation(1)).await?;
            in_process::follow(stream.into_inner()).await
        }
    };
    let records = invoke(0).await?;
    let socket = echo::over_socket().await?;
    let floor = move |_| {
        let mut socket = socket.clone();
        async move {
            let answers = socket
                .generate(echo::messages(records, MESSAGE_BYTES))
                .await?;
            echo::drain(answers.into_inner()).await
        }
    };
    let invoke = move |caller| {
        let invocation = invoke(caller);
        async move { invocation.await.map(drop) }
    };
    let floor_name = format!("stream of {records} over loopback");
    compare(
        ("InvokeText over loopback", TIME_GOALS[1]),
        1,
        invoke,
        &floor_name,
        floor,
        effort,
    )
    .await
}

/// Measures the time of one and the rate of many, ours and the floor's in turn, for each of the
/// `calls` of an invocation.
async fn compare<F, Fut, G, Gut>(
    (what, time_goal): (&str, f64),
    calls: usize,
    ours: F,
    floor_name: &str,
    floor: G,
    effort: &Effort,
) -> anyhow::Result<Vec<Figure>>
where
    F: Fn(usize) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
    G: Fn(usize) -> Gut + Clone + Send + 'static,
    Gut: Future<Output = anyhow::Result<()>> + Send,
{
    let (times, floor_times) = times(&ours, &floor, effort).await?;
    let (mut rates, mut floor_rates) = (Vec::new(), Vec::new());
    for round in 0..=effort.times(10) {
        let measured = at_once(CALLERS, 40, ours.clone()).await?;
        let bare = at_once(CALLERS, 40, floor.clone()).await?;
        if round > 0 {
            rates.push(measured * calls as f64);
            floor_rates.push(bare * calls as f64);
        }
    }
    let rate = |values| Series::new(Unit::PerSecond, values);
    Ok(vec![
        Figure::new(what, times.divided_by(calls as f64))
            .floor(floor_name, floor_times.divided_by(calls as f64))
            .goal(time_goal),
        Figure::new(format!("{what}, {CALLERS} at once"), rate(rates))
            .floor(floor_name, rate(floor_rates))
            .goal(RATE_GOAL),
    ])
}

/// Measures the times of two things one by one, in turn.
async fn times<F, Fut, G, Gut>(
    ours: &F,
    floor: &G,
    effort: &Effort,
) -> anyhow::Result<(Series, Series)>
where
    F: Fn(usize) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
    G: Fn(usize) -> Gut,
    Gut: Future<Output = anyhow::Result<()>>,
{
    let (mut times, mut floor_times) = (Vec::new(), Vec::new());
    for round in 0..=effort.times(20) {
        let measured = one_by_one(200, || ours(0)).await?;
        let bare = one_by_one(200, || floor(0)).await?;
        if round > 0 {
            times.extend(measured);
            floor_times.extend(bare);
        }
    }
    Ok((Series::seconds(times), Series::seconds(floor_times)))
}
