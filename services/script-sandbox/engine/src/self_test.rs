//! The self-test: proves by real scripts that a level works on this host.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sandbox_protocol::report::{Failure, Layer};
use tokio::{
    sync::{Semaphore, oneshot},
    task::JoinSet,
};

use crate::{
    domain::{
        isolation::MissingLayer,
        limits::Limits,
        outcome::Outcome,
        profile::Profile,
        script::{Program, Script, ScriptSpec},
        verdict::Verdict,
    },
    input_files::HeldBlobs,
    run::{self, Job, Origin, io_handler::Collector},
    runtimes::{Interpreter, Runtime},
    slot::HostResources,
};

/// The number of proofs that each interpreter runs where there is a choice.
const RUNS: u32 = 3;

/// Runs the proof of every runtime, so many at once, and selects the fastest working interpreter of
/// each. Returns the layers that are missing for all scripts.
///
/// # Errors
/// The failure of the level, where the proof of no runtime works; the runtimes are unchanged then.
pub(crate) async fn prove(
    tools: &HostResources,
    at_once: u32,
    runtimes: &mut Vec<Runtime>,
) -> Result<Vec<MissingLayer>, Failure> {
    let room = Arc::new(Semaphore::new(at_once as usize));
    let mut proving = JoinSet::new();
    for runtime in runtimes.iter().cloned() {
        proving.spawn(prove_one(tools.clone(), room.clone(), runtime));
    }
    let mut proven = proving.join_all().await;
    proven.sort_by(|(one, _), (other, _)| one.profile.name.cmp(&other.profile.name));
    let (proven, seen): (Vec<Runtime>, Vec<_>) = proven.into_iter().unzip();
    let mut failure = fail("no interpreter was found to try the level with");
    for seen in seen {
        match seen {
            Ok(missing) => {
                *runtimes = proven;
                return Ok(missing);
            }
            // A failure that an interpreter has caused itself is the least informative.
            Err(other) if failure.layer == Layer::Exec => failure = other,
            Err(_) => {}
        }
    }
    Err(failure)
}

/// Tries every interpreter of a runtime.
async fn prove_one(
    tools: HostResources,
    room: Arc<Semaphore>,
    mut runtime: Runtime,
) -> (Runtime, Result<Vec<MissingLayer>, Failure>) {
    let runs = if runtime.others.is_empty() { 1 } else { RUNS };
    let mut fastest: Option<(Duration, Interpreter)> = None;
    let mut seen = Err(fail("no interpreter was found"));
    while let Ok(interpreter) = runtime.interpreter.clone() {
        match time_of(&tools, &room, &runtime.profile, &interpreter, runs).await {
            Ok((time, missing)) => {
                seen = Ok(missing);
                runtime.proven.push(interpreter.clone());
                if fastest.as_ref().is_none_or(|(least, _)| time < *least) {
                    fastest = Some((time, interpreter));
                }
                runtime.next();
            }
            Err(failure) => {
                runtime.give_up(&failure.to_string());
                seen = seen.map_err(|_| failure);
            }
        }
    }
    if let Some((time, interpreter)) = fastest {
        let path = interpreter.executable.display();
        tracing::info!(runtime = runtime.profile.name, %path, ?time, "interpreter chosen");
        runtime.interpreter = Ok(interpreter);
    }
    (runtime, seen)
}

/// The least time of an interpreter for its proof, and its missing layers.
async fn time_of(
    tools: &HostResources,
    room: &Semaphore,
    profile: &Profile,
    interpreter: &Interpreter,
    runs: u32,
) -> Result<(Duration, Vec<MissingLayer>), Failure> {
    let (mut least, mut missing) = (Duration::MAX, Vec::new());
    for _ in 0..runs {
        let outcome = run_proof(tools, room, profile, interpreter).await?;
        match outcome.verdict {
            Verdict::Exited { code: 0 } => {
                least = least.min(outcome.usage.wall_time);
                missing = outcome.missing;
            }
            Verdict::LauncherFailure(failure) => return Err(failure),
            verdict => {
                let said = String::from_utf8_lossy(&outcome.stderr.bytes);
                let last = said.lines().next_back().unwrap_or_default();
                let ended = format!("the proof script ended with {verdict:?}: {last}");
                return Err(fail(&ended));
            }
        }
    }
    Ok((least, missing))
}

async fn run_proof(
    tools: &HostResources,
    room: &Semaphore,
    profile: &Profile,
    interpreter: &Interpreter,
) -> Result<Outcome, Failure> {
    let _place = room.acquire().await;
    let program = Program::Source(profile.proof.clone());
    let spec = ScriptSpec::of(profile.name.clone(), program, Limits::DEFAULT);
    let script = Script::new(spec, Vec::new()).expect("the proof of a profile is sound");
    let job = Job {
        script: Arc::new(script),
        profile: profile.clone(),
        interpreter: interpreter.clone(),
        packages: None,
        origin: Origin::Cold(tools.users.take().map_err(|_| fail("no user is free"))?),
        blobs: HeldBlobs::default(),
        accepted: Instant::now(),
    };
    // The proof is never cancelled; the sender only has to live as long.
    let (_cancel, cancelled) = oneshot::channel();
    Ok(run::run(tools, job, Box::new(Collector), cancelled).await)
}

fn fail(message: &str) -> Failure {
    Failure::new(Layer::Exec, message, 0)
}
