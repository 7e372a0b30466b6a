//! The package set `data`: imports and figures, as the caller of a script sees them.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use contracts::tavern::sandbox::v1::execute_request::Program;
use contracts::tavern::sandbox::v1::{
    Collect, ExecuteRequest, ExecuteResponse, ListRuntimesRequest, PackageSet,
};
use sandbox_engine::domain::isolation::IsolationLevel;
use script_sandbox::SandboxSettings;

use super::script::{Sandbox, run_to_end};
use crate::harness::Effort;
use crate::series::{Series, Unit};
use crate::support::{processes, served};
use crate::table::Figure;

/// The name of the set.
const SET: &str = "data";

const IMPORT: &str = "import pandas, matplotlib.pyplot";

const FIGURE: &str = "import pandas, matplotlib.pyplot
pandas.DataFrame({'sum': [3, 1, 4, 1, 5]}).plot()
matplotlib.pyplot.savefig('figure.png')";

/// Goals for the seconds of an import from a waiting interpreter, and of the slowest.
const WARM_GOAL: (f64, f64) = (50e-3, 300e-3);

/// The goal for the seconds of an import by an interpreter that is started for it.
const COLD_GOAL: f64 = 2.5;

/// The goal for the seconds of a figure from a waiting interpreter.
const FIGURE_GOAL: f64 = 1.0;

/// Scripts at once, and how often a slow one may take as long as one that is started for its script.
const AT_ONCE: usize = 16;
const TAIL_RATIO: f64 = 1.5;

/// The longest wait for an interpreter.
const PATIENCE: Duration = Duration::from_secs(60);

/// The directory of the sets that make has built.
fn sets() -> anyhow::Result<PathBuf> {
    let launcher = served::program("sandbox-launcher")?;
    let target = launcher
        .ancestors()
        .nth(2)
        .context("the launcher is in no directory")?;
    Ok(target.join("packages"))
}

struct SetHost {
    sandbox: Arc<script_sandbox::Sandbox>,
    client: Sandbox,
}

impl SetHost {
    async fn new(warm_interpreters: u32) -> anyhow::Result<Self> {
        let settings = SandboxSettings {
            lowest_isolation: IsolationLevel::Reduced,
            warm_interpreters,
            packages_directory: sets()?,
            ..SandboxSettings::default()
        };
        let sandbox = script_sandbox::build(settings).await?;
        let services = script_sandbox::services(sandbox.clone());
        Ok(Self {
            sandbox,
            client: Sandbox::new(grpc_kit::local(&services).outermost()),
        })
    }

    async fn set(&self) -> anyhow::Result<Option<PackageSet>> {
        let runtimes = self
            .client
            .clone()
            .list_runtimes(ListRuntimesRequest {})
            .await?;
        let runtimes = runtimes.into_inner().runtimes.into_iter();
        let mut sets = runtimes.flat_map(|runtime| runtime.package_sets);
        Ok(sets.find(|set| set.name == SET && set.problem.is_empty()))
    }

    /// Waits until an interpreter waits with the set.
    async fn ready(&self) -> anyhow::Result<()> {
        let begin = Instant::now();
        while self.set().await?.is_none_or(|set| set.warm_ready == 0) {
            ensure!(begin.elapsed() < PATIENCE, "no interpreter waits");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }
}

pub(super) async fn run(effort: &Effort) -> anyhow::Result<Vec<Figure>> {
    let cold = SetHost::new(0).await?;
    if cold.set().await?.is_none() {
        anyhow::bail!("the set `{SET}` is not built; make packages-data builds it");
    }
    let mut figures = vec![started(&cold, effort).await?];
    let loaded = crowd(&cold.client, effort).await?;
    cold.sandbox.shutdown().await;

    let warm = SetHost::new(SandboxSettings::default().warm_interpreters).await?;
    execute(&warm.client, IMPORT).await?;
    for (what, source, goal, tail) in [
        (
            "import of pandas and pyplot, waiting",
            IMPORT,
            WARM_GOAL.0,
            WARM_GOAL.1,
        ),
        (
            "first figure as PNG, waiting",
            FIGURE,
            FIGURE_GOAL,
            FIGURE_GOAL,
        ),
    ] {
        let mut took = Vec::new();
        for _ in 0..effort.times(100) {
            warm.ready().await?;
            let begin = Instant::now();
            execute(&warm.client, source).await?;
            took.push(begin.elapsed().as_secs_f64());
        }
        let took = Series::seconds(took);
        figures.push(Figure::new(what, took.clone()).goal(goal));
        figures.push(Figure::new(what, took).goal_of_tail(tail));
    }
    let most = most_waiting(&warm, effort).await?;
    let (crowded, waiting) = most;
    let slowest = loaded.tail() * TAIL_RATIO;
    let what = format!("imports, {AT_ONCE} at once");
    let crowded = Figure::new(what, crowded).floor("each started for its script", loaded);
    figures.push(crowded.goal_of_tail(slowest));
    let limit = (SandboxSettings::default().warm_memory >> 20) as f64;
    let waiting = Series::new(Unit::Mebibytes, vec![waiting]);
    figures.push(Figure::new("memory of all interpreters that wait, at most", waiting).goal(limit));
    warm.sandbox.shutdown().await;
    Ok(figures)
}

/// An import by an interpreter that is started for it, beside one outside of the sandbox.
async fn started(host: &SetHost, effort: &Effort) -> anyhow::Result<Figure> {
    let tree = "import os, sys; print(os.path.realpath(sys.executable))";
    let interpreter = execute(&host.client, tree).await?;
    let interpreter = String::from_utf8(interpreter.stdout)?.trim().to_owned();
    let tree = sets()?.join(SET).join("tree");
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..effort.times(20) + 1 {
        let begin = Instant::now();
        execute(&host.client, IMPORT).await?;
        let took = begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        let mut command = Command::new(&interpreter);
        command
            .env_clear()
            .env("PYTHONPATH", &tree)
            .args(["-s", "-B", "-c", IMPORT]);
        ensure!(
            command.output()?.status.success(),
            "the bare interpreter failed"
        );
        // The first ones bring files into memory.
        if round > 0 {
            ours.push(took);
            bare.push(begin.elapsed().as_secs_f64());
        }
    }
    let figure = Figure::new(
        "import of pandas and pyplot, started for it",
        Series::seconds(ours),
    );
    Ok(figure
        .floor("bare python3 with the set", Series::seconds(bare))
        .goal(COLD_GOAL))
}

/// The seconds of each of many imports, some at once.
async fn crowd(client: &Sandbox, effort: &Effort) -> anyhow::Result<Series> {
    let each = effort.times(100).div_ceil(AT_ONCE);
    let mut set = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let client = client.clone();
        set.spawn(async move {
            let mut took = Vec::new();
            for _ in 0..each {
                let begin = Instant::now();
                execute(&client, IMPORT).await?;
                took.push(begin.elapsed().as_secs_f64());
            }
            anyhow::Ok(took)
        });
    }
    let mut took = Vec::new();
    while let Some(ended) = set.join_next().await {
        took.extend(ended??);
    }
    Ok(Series::seconds(took))
}

/// The crowd on a host with waiting interpreters, and the most memory of these that was seen meanwhile and after it, in
/// MiB: as the pool knows it, and as the kernel reports it when no script runs.
async fn most_waiting(host: &SetHost, effort: &Effort) -> anyhow::Result<(Series, f64)> {
    let done = Arc::new(AtomicBool::new(false));
    let watching = {
        let (sandbox, done) = (Arc::clone(&host.sandbox), Arc::clone(&done));
        tokio::spawn(async move {
            let mut most = 0.0_f64;
            while !done.load(Ordering::Relaxed) {
                most = most.max(waiting(&sandbox));
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            most
        })
    };
    let took = crowd(&host.client, effort).await?;
    // Interpreters are made to wait for a while after the last script.
    tokio::time::sleep(Duration::from_secs(5)).await;
    done.store(true, Ordering::Relaxed);
    let after: f64 = processes::descendants(std::process::id())
        .into_iter()
        .filter_map(processes::proportional_mebibytes)
        .sum();
    Ok((took, watching.await?.max(after)))
}

/// The memory that the interpreters of all runtimes keep that wait, with sets and without, in MiB.
fn waiting(sandbox: &script_sandbox::Sandbox) -> f64 {
    let runtimes = sandbox.runtimes().iter();
    let memory = runtimes.map(|runtime| sandbox.pool_state(runtime, None, None).memory);
    memory.sum::<u64>() as f64 / f64::from(1 << 20)
}

async fn execute(client: &Sandbox, source: &str) -> anyhow::Result<ExecuteResponse> {
    let request = ExecuteRequest {
        runtime: "python3".to_owned(),
        packages: SET.to_owned(),
        program: Some(Program::SourceText(source.to_owned())),
        collect: Some(Collect::default()),
        ..ExecuteRequest::default()
    };
    run_to_end(client, request).await
}
