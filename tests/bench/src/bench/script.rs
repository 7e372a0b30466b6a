//! Scripts in the sandbox, beside the bare interpreter with the same program.
//!
//! The first thing that a script does is to look at the clock, so that the way to it can be told
//! from the way back.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use contracts::tavern::sandbox::v1::execute_request::Program;
use contracts::tavern::sandbox::v1::script_sandbox_service_client::ScriptSandboxServiceClient;
use contracts::tavern::sandbox::v1::verdict::Kind;
use contracts::tavern::sandbox::v1::{ExecuteRequest, ExecuteResponse};
use grpc_kit::Transport;
use script_sandbox::SandboxSettings;
use script_sandbox::domain::isolation::IsolationLevel;

use crate::harness::{Effort, at_once};
use crate::series::{Series, Unit};
use crate::support::{processes, served};
use crate::table::Figure;

/// How many scripts run at once where the rate is measured.
const AT_ONCE: usize = 4;

/// What full isolation may add to the start of an interpreter that was not started beforehand.
const ISOLATION_GOAL: f64 = 10e-3;

/// How soon after a cancel no process of a script may be left.
const KILL_GOAL: f64 = 250e-3;

type Sandbox = ScriptSandboxServiceClient<Transport>;

/// A language, and how to do in it what is measured.
struct Language {
    name: &'static str,
    /// Prints the seconds since 1970 as the first thing.
    clock: &'static str,
    /// Prints the path of the interpreter.
    path: &'static str,
    /// Arguments with which the bare interpreter takes a program from the command line.
    bare: &'static [&'static str],
}

const PYTHON: Language = Language {
    name: "python3",
    clock: "import time; print(time.time())",
    path: "import os, sys; print(os.path.realpath(sys.executable))",
    bare: &["-I", "-c"],
};

const NODE: Language = Language {
    name: "node",
    clock: "console.log((performance.timeOrigin + performance.now()) / 1000)",
    path: "console.log(process.execPath)",
    bare: &["-e"],
};

/// Two processes that will not go when asked to.
const STUBBORN: &str = "import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
while True:
    time.sleep(1)
";

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    // Without it the sandbox could not start anything, and the message would come later.
    served::program("sandbox-launcher")?;
    let settings = SandboxSettings {
        lowest_isolation: IsolationLevel::Reduced,
        ..SandboxSettings::default()
    };
    let sandbox = script_sandbox::build(settings).await?;
    let level = sandbox
        .report()
        .level
        .map_or("no isolation", |level| level.name());
    let client = Sandbox::new(grpc_kit::local(&script_sandbox::rpc::services(
        sandbox.clone(),
    )));
    let mut figures = Vec::new();
    for language in [&PYTHON, &NODE] {
        figures.extend(start(&client, language, level, effort).await?);
    }
    figures.push(rate(&client, level, effort).await?);
    figures.push(kill(&client, effort).await?);
    Ok(figures)
}

/// The time to the script's first instruction, and to its end.
async fn start(
    client: &Sandbox,
    language: &Language,
    level: &str,
    effort: &Effort,
) -> anyhow::Result<Vec<Figure>> {
    let interpreter = interpreter(client, language).await?;
    let (mut first, mut whole) = (Vec::new(), Vec::new());
    let (mut bare_first, mut bare_whole) = (Vec::new(), Vec::new());
    for round in 0..effort.times(100) + 3 {
        let (began, begin) = (seconds_since_1970(), Instant::now());
        let response = execute(client, language.name, language.clock).await?;
        let took = begin.elapsed().as_secs_f64();
        let clock: f64 = printed(&response)?
            .parse()
            .context("the script printed no time")?;

        let (bare_began, bare_begin) = (seconds_since_1970(), Instant::now());
        let mut command = Command::new(&interpreter);
        // The sandbox gives no environment either, and some variables make a start slow.
        let output = command
            .env_clear()
            .args(language.bare)
            .arg(language.clock)
            .output()?;
        let bare_took = bare_begin.elapsed().as_secs_f64();
        let bare_clock: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
        // The first ones bring files into memory.
        if round >= 3 {
            first.push(clock - began);
            whole.push(took);
            bare_first.push(bare_clock - bare_began);
            bare_whole.push(bare_took);
        }
    }
    let floor = format!("bare {} {}", language.name, language.bare[0]);
    let (bare_first, bare_whole) = (Series::seconds(bare_first), Series::seconds(bare_whole));
    let goal = bare_first.median() + ISOLATION_GOAL;
    let name = language.name;
    Ok(vec![
        Figure::new(
            format!("{name} to its first instruction, {level}"),
            Series::seconds(first),
        )
        .floor(&floor, bare_first)
        .goal(goal),
        Figure::new(
            format!("{name} to its end, {level}"),
            Series::seconds(whole),
        )
        .floor(&floor, bare_whole),
    ])
}

/// Scripts in a second, as many at once as keep two cores busy.
async fn rate(client: &Sandbox, level: &str, effort: &Effort) -> anyhow::Result<Figure> {
    let interpreter = interpreter(client, &PYTHON).await?;
    let sandboxed = {
        let client = client.clone();
        move |_| {
            let client = client.clone();
            async move { execute(&client, PYTHON.name, PYTHON.clock).await.map(drop) }
        }
    };
    let bare = move |_| {
        let interpreter = interpreter.clone();
        async move {
            let mut command = tokio::process::Command::new(interpreter);
            let output = command
                .env_clear()
                .args(PYTHON.bare)
                .arg(PYTHON.clock)
                .output()
                .await?;
            ensure!(output.status.success(), "the bare interpreter failed");
            Ok(())
        }
    };
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for round in 0..=effort.times(20) {
        let executed = at_once(AT_ONCE, 10, sandboxed.clone()).await?;
        let started = at_once(AT_ONCE, 10, bare.clone()).await?;
        if round > 0 {
            ours.push(executed);
            floor.push(started);
        }
    }
    let rate = |values| Series::new(Unit::PerSecond, values);
    let figure = Figure::new(
        format!("python3 scripts, {AT_ONCE} at once, {level}"),
        rate(ours),
    );
    Ok(figure.floor("bare python3 -I", rate(floor)))
}

/// From the cancel of a call until no process of its script is left.
async fn kill(client: &Sandbox, effort: &Effort) -> anyhow::Result<Figure> {
    let mut killed = Vec::new();
    for _ in 0..effort.times(30) {
        let call = {
            let client = client.clone();
            tokio::spawn(async move { execute(&client, PYTHON.name, STUBBORN).await })
        };
        let left = loop {
            let children = processes::descendants(std::process::id());
            let scripts = children
                .iter()
                .filter(|child| processes::name(**child).starts_with("python"));
            if scripts.count() >= 2 {
                break children;
            }
            ensure!(
                !call.is_finished(),
                "the script ended by itself: {:?}",
                call.await?
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let begin = Instant::now();
        call.abort();
        while left.iter().any(|process| processes::is_alive(*process)) {
            ensure!(
                begin.elapsed() < Duration::from_secs(60),
                "a process of a script is left"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        killed.push(begin.elapsed().as_secs_f64());
    }
    let figure = Figure::new(
        "cancel until all processes are gone",
        Series::seconds(killed),
    );
    Ok(figure.goal_of_tail(KILL_GOAL))
}

/// Returns the interpreter that the sandbox uses, which may stand behind a slow shim.
async fn interpreter(client: &Sandbox, language: &Language) -> anyhow::Result<String> {
    let response = execute(client, language.name, language.path).await?;
    Ok(printed(&response)?.to_owned())
}

async fn execute(client: &Sandbox, runtime: &str, source: &str) -> anyhow::Result<ExecuteResponse> {
    let request = ExecuteRequest {
        runtime: runtime.to_owned(),
        program: Some(Program::SourceText(source.to_owned())),
        ..ExecuteRequest::default()
    };
    let response = client.clone().execute(request).await?.into_inner();
    let verdict = response
        .verdict
        .as_ref()
        .and_then(|verdict| verdict.kind.as_ref());
    ensure!(
        matches!(verdict, Some(Kind::Exited(exited)) if exited.code == 0),
        "the script ended with {verdict:?}: {}",
        String::from_utf8_lossy(&response.stderr)
    );
    Ok(response)
}

fn printed(response: &ExecuteResponse) -> anyhow::Result<&str> {
    Ok(std::str::from_utf8(&response.stdout)?.trim())
}

fn seconds_since_1970() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}
