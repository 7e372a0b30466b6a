//! Scripts in the sandbox, compared with the bare interpreter with the same program.
//!
//! The first thing that a script does is to look at the clock, so that the way to it can be separated
//! from the way back.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use contracts::tavern::sandbox::v1::execute_request::Program;
use contracts::tavern::sandbox::v1::script_sandbox_service_client::ScriptSandboxServiceClient;
use contracts::tavern::sandbox::v1::verdict::Kind;
use contracts::tavern::sandbox::v1::{ExecuteRequest, ExecuteResponse};
use grpc_kit::Outbound;
use rustix::time::{ClockId, clock_gettime};
use sandbox_engine::domain::isolation::IsolationLevel;
use sandbox_engine::runtimes::Runtime;
use script_sandbox::SandboxSettings;

use crate::harness::{Effort, at_once};
use crate::series::{Series, Unit};
use crate::support::{processes, served};
use crate::table::Figure;

/// The scripts at once where the rate is measured.
const AT_ONCE: usize = 4;

/// The goal for the seconds that full isolation adds to the start of a new interpreter.
const ISOLATION_GOAL: f64 = 10e-3;

/// The goal for the median seconds until a script begins whose interpreter has waited for it.
const WARM_GOAL: f64 = 3e-3;

/// The goal for the 99th percentile of the same.
const WARM_TAIL_GOAL: f64 = 10e-3;

/// The longest wait for interpreters.
const PATIENCE: Duration = Duration::from_secs(60);

/// The goal for the seconds from a cancel until no process of a script is left.
const KILL_GOAL: f64 = 250e-3;

pub(super) type Sandbox = ScriptSandboxServiceClient<Outbound>;

/// A sandbox with its client.
struct Host {
    sandbox: Arc<script_sandbox::Sandbox>,
    client: Sandbox,
    level: &'static str,
}

impl Host {
    async fn new(warm_interpreters: u32) -> anyhow::Result<Self> {
        let settings = SandboxSettings {
            lowest_isolation: IsolationLevel::Reduced,
            warm_interpreters,
            ..SandboxSettings::default()
        };
        let sandbox = script_sandbox::build(settings).await?;
        let level = sandbox
            .report()
            .level
            .map_or("no isolation", |level| level.name());
        let services = script_sandbox::services(sandbox.clone());
        Ok(Self {
            sandbox,
            client: Sandbox::new(grpc_kit::local(&services).outermost()),
            level,
        })
    }

    fn runtime(&self, name: &str) -> anyhow::Result<&Runtime> {
        let mut runtimes = self.sandbox.runtimes().iter();
        let found = runtimes.find(|runtime| runtime.profile.name == name);
        found.with_context(|| format!("there is no runtime {name}"))
    }
}

/// A language, with the measured programs.
struct Language {
    name: &'static str,
    /// Prints the seconds of the monotonic clock as the first thing.
    clock: &'static str,
    /// Prints the path of the interpreter.
    path: &'static str,
    /// Arguments with which the bare interpreter reads a program from the command line.
    bare: &'static [&'static str],
}

const PYTHON: Language = Language {
    name: "python3",
    clock: "import time; print(time.monotonic())",
    path: "import os, sys; print(os.path.realpath(sys.executable))",
    bare: &["-I", "-c"],
};

const NODE: Language = Language {
    name: "node",
    clock: "console.log(Number(process.hrtime.bigint()) / 1e9)",
    path: "console.log(process.execPath)",
    bare: &["-e"],
};

/// Two processes that ignore a request to end.
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
    let mut figures = Vec::new();
    let cold = Host::new(0).await?;
    for language in [&PYTHON, &NODE] {
        figures.extend(start(&cold.client, language, cold.level, effort).await?);
    }
    figures.push(kill(&cold.client, effort).await?);
    cold.sandbox.shutdown().await;
    for language in [&PYTHON, &NODE] {
        // A host for each, so that one pool's refilling does not meet the other's figures.
        let host = Host::new(SandboxSettings::default().warm_interpreters).await?;
        figures.extend(warm(&host, language, effort).await?);
        if language.name == PYTHON.name {
            figures.push(rate(&host.client, host.level, effort).await?);
        }
        host.sandbox.shutdown().await;
    }
    Ok(figures)
}

/// The figures of waiting interpreters: their rate of start, their memory, the time until a script
/// begins.
async fn warm(host: &Host, language: &Language, effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let name = language.name;
    let most = SandboxSettings::default().warm_interpreters;
    let begin = Instant::now();
    while host
        .sandbox
        .pool_state(host.runtime(name)?, None, None)
        .target
        < most
    {
        ensure!(
            begin.elapsed() < PATIENCE,
            "the pool of {name} does not grow"
        );
        let client = host.client.clone();
        let clock = language.clock;
        let work = move |_| {
            let client = client.clone();
            async move { execute(&client, name, clock).await.map(drop) }
        };
        at_once(most as usize * 2, 1, work).await?;
    }
    filled(host, name, most).await?;
    let kept = memory_of_waiting(name)?;

    let mut refills = Vec::new();
    for _ in 0..effort.times(20) {
        filled(host, name, most).await?;
        for _ in 0..most {
            execute(&host.client, name, language.clock).await?;
        }
        let missing = most
            - host
                .sandbox
                .pool_state(host.runtime(name)?, None, None)
                .ready
                .min(most - 1);
        let begin = Instant::now();
        filled(host, name, most).await?;
        refills.push(f64::from(missing) / begin.elapsed().as_secs_f64());
    }
    let refills = Series::new(Unit::PerSecond, refills);

    let pause = Duration::from_secs_f64(2.0 / refills.median());
    let mut ticks = tokio::time::interval(pause);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..effort.times(300) {
        ticks.tick().await;
        let (client, clock) = (host.client.clone(), language.clock);
        calls.spawn(async move {
            let began = monotonic_seconds();
            let response = execute(&client, name, clock).await?;
            let clock: f64 = printed(&response)?.parse()?;
            anyhow::Ok(clock - began)
        });
    }
    let mut first = Vec::new();
    while let Some(call) = calls.join_next().await {
        first.push(call??);
    }
    let level = host.level;
    let what = format!("{name} to its first instruction, waiting, half the refill rate, {level}");
    Ok(vec![
        Figure::new(what.clone(), Series::seconds(first.clone())).goal(WARM_GOAL),
        Figure::new(what, Series::seconds(first)).goal_of_tail(WARM_TAIL_GOAL),
        Figure::new(
            format!("{name} interpreters made to wait, {level}"),
            refills,
        ),
        Figure::new(
            format!("memory of one waiting {name}, its init and launcher"),
            Series::new(Unit::Mebibytes, kept),
        ),
    ])
}

/// Waits until `most` interpreters wait.
async fn filled(host: &Host, name: &str, most: u32) -> anyhow::Result<()> {
    let begin = Instant::now();
    while host
        .sandbox
        .pool_state(host.runtime(name)?, None, None)
        .ready
        < most
    {
        ensure!(
            begin.elapsed() < PATIENCE,
            "the pool of {name} is not filled"
        );
        if host
            .sandbox
            .pool_state(host.runtime(name)?, None, None)
            .target
            < most
        {
            // No script came for a while, so fewer are kept.
            return Ok(());
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    Ok(())
}

/// Returns the memory of each waiting interpreter of a language, in MiB.
fn memory_of_waiting(name: &str) -> anyhow::Result<Vec<f64>> {
    let families = families(name.trim_end_matches(char::is_numeric)).into_iter();
    let kept: Vec<f64> = families
        .map(|family| {
            let each = family.into_iter();
            each.filter_map(processes::proportional_mebibytes).sum()
        })
        .collect();
    ensure!(!kept.is_empty(), "no {name} waits");
    Ok(kept)
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
        let (began, begin) = (monotonic_seconds(), Instant::now());
        let response = execute(client, language.name, language.clock).await?;
        let took = begin.elapsed().as_secs_f64();
        let clock: f64 = printed(&response)?
            .parse()
            .context("the script printed no time")?;

        let (bare_began, bare_begin) = (monotonic_seconds(), Instant::now());
        let mut command = Command::new(&interpreter);
        // The sandbox passes no environment either, and some variables make a start slow.
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
            format!("{name} to its first instruction, started for it, {level}"),
            Series::seconds(first),
        )
        .floor(&floor, bare_first)
        .goal(goal),
        Figure::new(
            format!("{name} to its end, started for it, {level}"),
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

/// Returns the processes beneath this one whose name begins with `name`, each with its init and its
/// launcher.
fn families(name: &str) -> Vec<Vec<u32>> {
    let own = std::process::id();
    let named = processes::descendants(own)
        .into_iter()
        .filter(|process| processes::name(*process).starts_with(name));
    named
        .map(|process| {
            let above = std::iter::successors(Some(process), |below| processes::parent(*below));
            above.take_while(|process| *process != own).collect()
        })
        .collect()
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
            let scripts = families("python");
            if scripts.len() >= 2 {
                break scripts.concat();
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

/// Returns the interpreter that the sandbox uses, which may be behind a slow shim.
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
    run_to_end(client, request).await
}

/// Runs a script that has to succeed.
pub(super) async fn run_to_end(
    client: &Sandbox,
    request: ExecuteRequest,
) -> anyhow::Result<ExecuteResponse> {
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

/// The monotonic clock, which scripts share with the service.
fn monotonic_seconds() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
