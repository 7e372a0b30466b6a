//! The self-test: which level works here, proven by real scripts.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use blob_store::BlobStore;
use sandbox_launcher::report::{Failure, Layer};
use tokio::{
    sync::{Semaphore, oneshot},
    task::JoinSet,
};

use crate::{
    backend::{HostSystem, backend},
    cgroup::Cgroups,
    domain::{
        isolation::{IsolationLevel, MissingLayer},
        limits::Limits,
        outcome::Outcome,
        profile::Profile,
        script::Script,
        verdict::Verdict,
    },
    engine_settings::EngineSettings,
    input_files::HeldBlobs,
    launcher::Launcher,
    launcher_pool::LauncherPool,
    run::{self, Job, Origin, io_handler::Collector},
    runtimes::{Interpreter, Runtime},
    slot::Tools,
    users::Users,
};

/// Why a level does not work.
#[derive(Clone, Debug)]
pub struct LevelFailure {
    /// The level.
    pub level: IsolationLevel,
    /// What failed.
    pub failure: Failure,
}

/// What the self-test found.
pub(crate) struct Tested {
    pub(crate) level: Option<IsolationLevel>,
    pub(crate) tools: Option<Tools>,
    pub(crate) failures: Vec<LevelFailure>,
    pub(crate) runtimes: Vec<Runtime>,
    pub(crate) missing: Vec<MissingLayer>,
}

/// Tries the levels from the strongest on, and at the first that works every runtime.
pub(crate) async fn run(
    settings: &EngineSettings,
    launcher: &Launcher,
    cgroups: Option<&Cgroups>,
    blobs: &BlobStore,
    users: &Users,
    runtimes: Vec<Runtime>,
) -> Tested {
    let room = &Arc::new(Semaphore::new(settings.concurrent_scripts as usize));
    let host = Arc::new(HostSystem::look());
    let mut failures = Vec::new();
    let levels = IsolationLevel::STRONGEST_FIRST;
    for level in levels
        .into_iter()
        .filter(|level| *level <= settings.highest_isolation)
    {
        let tools = Tools {
            launchers: LauncherPool::new(
                launcher.clone(),
                cgroups.cloned(),
                level != IsolationLevel::Reduced,
            ),
            backend: backend(level, host.clone(), settings.scratch_directory.clone()),
            cgroups: cgroups.cloned(),
            blobs: blobs.clone(),
            users: users.clone(),
            // Those that wait are there as well; each runtime has some. So are sessions.
            concurrent_scripts: settings
                .concurrent_scripts
                .saturating_add(settings.warm_interpreters.saturating_mul(4))
                .saturating_add(settings.sessions),
        };
        match try_level(&tools, room, &runtimes).await {
            Ok(missing) => {
                let runtimes = prove(&tools, room, runtimes).await;
                return Tested {
                    level: Some(level),
                    tools: Some(tools),
                    failures,
                    runtimes,
                    missing,
                };
            }
            Err(failure) => failures.push(LevelFailure { level, failure }),
        }
    }
    Tested {
        level: None,
        tools: None,
        failures,
        runtimes,
        missing: Vec::new(),
    }
}

/// A level works if a script of any runtime does. The quickest to start is tried first.
async fn try_level(
    tools: &Tools,
    room: &Arc<Semaphore>,
    runtimes: &[Runtime],
) -> Result<Vec<MissingLayer>, Failure> {
    let mut failure = Failure {
        layer: Layer::Exec,
        message: "no interpreter was found to try the level with".to_owned(),
        errno: 0,
    };
    for runtime in runtimes {
        let mut runtime = runtime.clone();
        while let Ok(interpreter) = runtime.interpreter.clone() {
            match run_proof(tools, room, &runtime.profile, &interpreter).await {
                Some(Outcome {
                    verdict: Verdict::Exited { code: 0 },
                    missing,
                    ..
                }) => return Ok(missing),
                Some(outcome) => failure = into_failure(&outcome),
                None => {}
            }
            // Another interpreter helps only against what this one has brought about.
            if failure.layer != Layer::Exec {
                return Err(failure);
            }
            runtime.next();
        }
    }
    Err(failure)
}

/// Runs the proof of every runtime, side by side, and settles for the fastest interpreter that works.
async fn prove(tools: &Tools, room: &Arc<Semaphore>, runtimes: Vec<Runtime>) -> Vec<Runtime> {
    let mut proving = JoinSet::new();
    for mut runtime in runtimes {
        let (tools, room) = (tools.clone(), room.clone());
        proving.spawn(async move {
            let runs = if runtime.others.is_empty() { 1 } else { RUNS };
            let mut fastest: Option<(Duration, Interpreter)> = None;
            while let Ok(interpreter) = runtime.interpreter.clone() {
                match time_of(&tools, &room, &runtime.profile, &interpreter, runs).await {
                    Ok(time) => {
                        let path = interpreter.executable.display();
                        tracing::debug!(runtime = runtime.profile.name, %path, ?time, "measured");
                        if fastest.as_ref().is_none_or(|(least, _)| time < *least) {
                            fastest = Some((time, interpreter));
                        }
                        runtime.next();
                    }
                    Err(failure) => runtime.give_up(&failure.to_string()),
                }
            }
            if let Some((time, interpreter)) = fastest {
                let path = interpreter.executable.display();
                tracing::info!(runtime = runtime.profile.name, %path, ?time, "interpreter chosen");
                runtime.interpreter = Ok(interpreter);
            }
            runtime
        });
    }
    let mut runtimes = proving.join_all().await;
    runtimes.sort_by(|one, other| one.profile.name.cmp(&other.profile.name));
    runtimes
}

/// How often an interpreter is measured where there is a choice.
const RUNS: u32 = 3;

/// The least time that an interpreter takes for its proof.
async fn time_of(
    tools: &Tools,
    room: &Arc<Semaphore>,
    profile: &Profile,
    interpreter: &Interpreter,
    runs: u32,
) -> Result<Duration, Failure> {
    let mut least = Duration::MAX;
    for _ in 0..runs {
        // Without a user for it nothing is said about the interpreter.
        if let Some(outcome) = run_proof(tools, room, profile, interpreter).await {
            match outcome.verdict {
                Verdict::Exited { code: 0 } => least = least.min(outcome.usage.wall_time),
                _ => return Err(into_failure(&outcome)),
            }
        }
    }
    Ok(least)
}

async fn run_proof(
    tools: &Tools,
    room: &Arc<Semaphore>,
    profile: &Profile,
    interpreter: &Interpreter,
) -> Option<Outcome> {
    let (profile, interpreter) = (profile.clone(), interpreter.clone());
    let _place = room.acquire().await.ok()?;
    let (runtime, source) = (profile.name.clone(), profile.proof.clone());
    let script = Script::of(runtime, source, Limits::DEFAULT);
    let user = tools.users.take().ok()?;
    let job = Job {
        script: Arc::new(script),
        profile,
        interpreter,
        origin: Origin::Cold(user),
        blobs: HeldBlobs::default(),
        accepted: Instant::now(),
    };
    // Nothing cancels; the sender only has to live as long.
    let (_cancel, cancelled) = oneshot::channel();
    Some(run::run(tools, job, Box::new(Collector), cancelled).await)
}

fn into_failure(outcome: &Outcome) -> Failure {
    match &outcome.verdict {
        Verdict::LauncherFailure(failure) => failure.clone(),
        verdict => {
            let said = String::from_utf8_lossy(&outcome.stderr.bytes);
            let last = said.lines().next_back().unwrap_or_default();
            let message = format!("the proof script ended with {verdict:?}: {last}");
            Failure {
                layer: Layer::Exec,
                message,
                errno: 0,
            }
        }
    }
}
