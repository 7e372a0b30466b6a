//! The cost of hooks of plugins, each compared with a server that has no plugin.

use std::time::{Duration, Instant};

use anyhow::Context;
use contracts::tavern::common::v1::Durability;
use contracts::tavern::plugin::v1::{
    ApplyRequest, ApplyResponse,
    hook_service_server::{HookService, HookServiceServer},
};
use contracts::tavern::registry::v1::{
    CallToolRequest, InstallPluginRequest, PlanPluginHeader, PlanPluginRequest, PutBackendRequest,
    call_service_client::CallServiceClient, plan_plugin_request::Part,
    plugin_service_client::PluginServiceClient,
    tool_registry_service_client::ToolRegistryServiceClient,
};
use contracts::tavern::run::v1::run_service_client::RunServiceClient;
use contracts::tavern::workflow::v1::workflow_service_client::WorkflowServiceClient;
use grpc_kit::Transport;
use tonic::{Request, Response, Status};

use super::workflow;
use crate::harness::Effort;
use crate::series::Series;
use crate::support::in_process::{InProcess, TOOL};
use crate::table::Figure;

/// The goals for the seconds that a hook adds to a call.
const SCRIPT_GOAL: f64 = 4e-3;
const GRPC_GOAL: f64 = 500e-6;

/// The pause behind a call with a script, in which the sandbox makes another interpreter wait.
const REFILL: Duration = Duration::from_millis(50);

/// The most that hooks at other points may add.
const ELSEWHERE: f64 = 1.01;

const CONTINUE: &str = r#"{"action": "continue"}"#;

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let plain = InProcess::start(effort).await?;
    let script = "{type: script, command: python3 hook.py}";
    let elsewhere = with_hook(effort, "approval:requested", script).await?;
    let by_script = with_hook(effort, "tool:before-call", script).await?;
    let by_grpc = with_hook(effort, "tool:before-call", "{type: grpc, backend: hooks}").await?;
    let rounds = effort.times(10);
    let (calls, bare) = in_turn(&elsewhere, &plain, (rounds, 1_000), Duration::ZERO).await?;
    let goal = bare.median() * ELSEWHERE;
    let mut figures = vec![
        Figure::new("CallTool with a hook at another point", calls)
            .floor("without plugins", bare)
            .goal(goal),
    ];
    figures.push(of_runs(&elsewhere, &plain, effort).await?);
    for (what, server, goal, pause) in [
        (
            "CallTool with a hook by script",
            &by_script,
            SCRIPT_GOAL,
            REFILL,
        ),
        (
            "CallTool with a hook by gRPC",
            &by_grpc,
            GRPC_GOAL,
            Duration::ZERO,
        ),
    ] {
        let (calls, bare) = in_turn(server, &plain, (rounds, 50), pause).await?;
        let goal = bare.median() + goal;
        figures.push(
            Figure::new(what, calls)
                .floor("without plugins", bare)
                .goal(goal),
        );
    }
    for server in [plain, elsewhere, by_script, by_grpc] {
        server.stop().await;
    }
    Ok(figures)
}

/// Starts a server with one hook.
async fn with_hook(effort: &Effort, point: &str, handler: &str) -> anyhow::Result<InProcess> {
    let manifest = format!(
        "name: bench\nversion: 1.0.0\nhooks:\n  - {{id: hook, point: '{point}', handler: {handler}}}\n\
         permissions:\n  hooks: ['hook:server:{point}']\n"
    );
    let hook = format!("print('{CONTINUE}')\n");
    let files = [
        ("plugins/bench/plugin.yaml", manifest),
        ("plugins/bench/hook.py", hook),
    ];
    let server = InProcess::start_with(effort, &files).await?;
    if handler.contains("grpc") {
        let mut registry = ToolRegistryServiceClient::new(server.transport().outermost());
        let request = PutBackendRequest {
            name: "hooks".to_owned(),
            endpoint: testkit::serve_backend(HookServiceServer::new(Nothing)).await?,
            ..PutBackendRequest::default()
        };
        registry.put_backend(request).await?;
    }
    let mut plugins = PluginServiceClient::new(server.transport().outermost());
    let header = PlanPluginHeader {
        directory: "bench".to_owned(),
    };
    let part = PlanPluginRequest {
        part: Some(Part::Header(header)),
    };
    let planned = plugins.plan_plugin(tokio_stream::iter([part])).await?;
    let plan = planned.into_inner().plan.context("there is no plan")?;
    let request = InstallPluginRequest {
        plan_digest: plan.plan_digest,
        ..InstallPluginRequest::default()
    };
    let installed = plugins.install_plugin(request).await;
    installed.with_context(|| plan.text)?;
    Ok(server)
}

/// Measures calls of two servers in turn, in rounds, the first of which is not counted. Behind each call there is a
/// pause.
async fn in_turn(
    ours: &InProcess,
    plain: &InProcess,
    (rounds, calls): (usize, usize),
    pause: Duration,
) -> anyhow::Result<(Series, Series)> {
    // A way to all services is costly to make, so that it is made once.
    let [ours, plain] = [ours, plain].map(|server| server.transport());
    let (mut measured, mut bare) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let of_ours = calls_of(&ours, calls, pause).await?;
        let of_plain = calls_of(&plain, calls, pause).await?;
        if round > 0 {
            measured.extend(of_ours);
            bare.extend(of_plain);
        }
    }
    Ok((Series::seconds(measured), Series::seconds(bare)))
}

/// Returns the seconds of calls, without the pauses.
async fn calls_of(way: &Transport, count: usize, pause: Duration) -> anyhow::Result<Vec<f64>> {
    let mut seconds = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        call(way).await?;
        seconds.push(begin.elapsed().as_secs_f64());
        tokio::time::sleep(pause).await;
    }
    Ok(seconds)
}

async fn call(way: &Transport) -> anyhow::Result<()> {
    let mut calls = CallServiceClient::new(way.outermost());
    let request = CallToolRequest {
        tool_id: TOOL.to_owned(),
        arguments_json: "{}".to_owned(),
        durability: Durability::Memory.into(),
        ..CallToolRequest::default()
    };
    let mut answers = calls.call_tool(request).await?.into_inner();
    while let Some(answer) = answers.message().await? {
        std::hint::black_box(answer);
    }
    Ok(())
}

/// Measures runs of 10 K nodes of two servers in turn.
async fn of_runs(ours: &InProcess, plain: &InProcess, effort: &Effort) -> anyhow::Result<Figure> {
    let text = workflow::definition();
    let (mut measured, mut bare) = (Vec::new(), Vec::new());
    for round in 0..=effort.times(20) {
        for (server, seconds) in [(ours, &mut measured), (plain, &mut bare)] {
            let way = server.transport();
            let mut client = WorkflowServiceClient::new(way.outermost());
            let mut runs = RunServiceClient::new(way.outermost());
            let took = workflow::run_to_the_end(&mut client, &mut runs, &text).await?;
            if round > 0 {
                seconds.push(took);
            }
        }
    }
    let bare = Series::seconds(bare);
    let goal = bare.median() * ELSEWHERE;
    let figure = Figure::new(
        "run of 10 K nodes with a hook at another point",
        Series::seconds(measured),
    );
    Ok(figure.floor("without plugins", bare).goal(goal))
}

/// Decides nothing.
struct Nothing;

#[tonic::async_trait]
impl HookService for Nothing {
    async fn apply(&self, _: Request<ApplyRequest>) -> Result<Response<ApplyResponse>, Status> {
        Ok(Response::new(ApplyResponse {
            decision_json: CONTINUE.to_owned(),
        }))
    }
}
