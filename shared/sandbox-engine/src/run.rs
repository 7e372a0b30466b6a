//! Drives one script from its request to its verdict.

use std::{
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use blob_store::Caller;
use sandbox_launcher::plan::Start;
use tokio::sync::oneshot;

use crate::{
    backend::Place,
    domain::{
        collect::Collected,
        isolation::{IsolationLevel, MemoryEnforcement, MissingLayer},
        limits::Limits,
        outcome::{Captured, Outcome, ScriptResult},
        profile::Profile,
        script::{Network, Script},
        usage::Usage,
        verdict::{Facts, Stopped, Verdict},
    },
    input_files::{HeldBlobs, INPUT_NAME, InputFiles},
    launcher::WorkDirectory,
    output_files::Collection,
    pool::WarmInterpreter,
    runtimes::Interpreter,
    slot::{
        Invocation, NotStarted, PROGRESS_VARIABLE, RESULT_VARIABLE, SandboxedProcess, Slot, Tools,
        base_environment, set_variable,
    },
    users::User,
};

pub mod capture;
mod feed;
pub mod io_handler;
pub mod progress;
mod usage_monitor;
mod watch;

use io_handler::IoHandler;
use usage_monitor::UsageMonitor;

/// One script with what was decided about it.
#[derive(Debug)]
pub struct Job {
    /// What to run.
    pub script: Arc<Script>,
    /// How scripts of its language are run.
    pub profile: Profile,
    /// With which program.
    pub interpreter: Interpreter,
    /// Where its interpreter comes from.
    pub origin: Origin,
    /// The blobs that it is given.
    pub blobs: HeldBlobs,
    /// When it was accepted.
    pub accepted: Instant,
}

/// Where the interpreter of a script comes from.
#[derive(Debug)]
pub enum Origin {
    /// It is started for the script, as this user when the service is root.
    Cold(Option<User>),
    /// It has waited for a script.
    Warm(Box<WarmInterpreter>),
    /// It is started with the driver of a session, and its I/O handler delivers the files.
    Driver(Option<User>),
}

/// Runs one script. When `cancel` fires or its sender is dropped, every process of it is ended and
/// the outcome says so.
pub async fn run(
    tools: &Tools,
    job: Job,
    handler: Box<dyn IoHandler>,
    cancel: oneshot::Receiver<()>,
) -> Outcome {
    let Job {
        script,
        profile,
        interpreter,
        origin,
        blobs,
        accepted,
    } = job;
    let script_path = script.path(&profile.file_suffix);
    let begin = async |opening, user| {
        let started = start(tools, &script, opening, &profile, &interpreter, user).await;
        started.map(|process| (process, None))
    };
    let opened = match origin {
        Origin::Cold(user) => begin(Opening::Script(&script_path), user).await,
        Origin::Warm(warm) => {
            let environment = |place: &Place| environment(&script, &profile, &interpreter, place);
            let (process, assignment) = warm.assign(&script.arguments, environment);
            Ok((process, Some(assignment)))
        }
        Origin::Driver(user) => begin(Opening::Driver, user).await,
    };
    let (process, assignment) = match opened {
        Ok(opened) => opened,
        Err(not_started) => {
            let NotStarted { verdict, missing } = *not_started;
            return Outcome {
                verdict,
                missing,
                ..nothing_ran(script.limits)
            };
        }
    };
    let known = Outcome {
        missing: process.slot.missing.clone(),
        enforcement: process.slot.enforcement,
        ..nothing_ran(script.limits)
    };
    let input_files = InputFiles::of(script.clone(), &script_path, &blobs);
    let work = process.work.clone();
    let request = watch::RunRequest {
        delivery: input_files.clone(),
        script: script.clone(),
        accepted,
        assignment,
    };
    let (mut watched, slot) = watch::watch(process, request, handler, cancel).await;
    let collected = gather(tools, &script, input_files, work.clone(), &watched).await;
    clean_up(work, slot, watched.monitor.take()).await;
    Outcome {
        collected,
        ..conclude(watched, known, tools.backend.level())
    }
}

/// What is answered for a script of which nothing ran.
fn nothing_ran(limits: Limits) -> Outcome {
    Outcome {
        verdict: Verdict::Cancelled {
            after: Duration::ZERO,
        },
        stdout: Captured::default(),
        stderr: Captured::default(),
        result: ScriptResult::None,
        usage: Usage::default(),
        isolation: None,
        missing: Vec::new(),
        enforcement: MemoryEnforcement::Sampled,
        limits,
        collected: None,
    }
}

/// Removes the place of a script. A directory on the host may hold a great many files and is gone with
/// the answer. The kernel takes its time for a cgroup and for a file system in memory, for which the
/// answer does not wait.
async fn clean_up(work: WorkDirectory, slot: Slot, monitor: Option<UsageMonitor>) {
    let waits = slot.place.scratch.is_some();
    let removed = tokio::task::spawn_blocking(move || drop((work, slot, monitor)));
    if waits && let Err(error) = removed.await {
        tracing::error!(%error, "removing a working directory panicked");
    }
}

/// Collects what the script has left, if the request asks for it, the script has started and was not
/// cancelled.
async fn gather(
    tools: &Tools,
    script: &Script,
    input_files: InputFiles,
    work: WorkDirectory,
    watched: &watch::Watched,
) -> Option<Collected> {
    let wanted = script.collect.clone()?;
    if !watched.started || watched.facts.stopped == Some(Stopped::Cancelled) {
        return None;
    }
    if !watched.all_gone {
        return Some(Collected::not_ended());
    }
    let (blobs, caller) = (tools.blobs.clone(), Caller::named(&script.caller));
    let collecting = tokio::task::spawn_blocking(move || {
        let work = work.open()?;
        let collection = Collection {
            wanted,
            placed: input_files.placed(),
            blobs,
            caller,
        };
        std::io::Result::Ok(collection.collect(work.as_fd()))
    });
    let collected = collecting.await.map_err(std::io::Error::other).flatten();
    Some(collected.unwrap_or_else(|error| {
        tracing::error!(%error, "a script's working directory could not be looked at");
        Collected::not_ended()
    }))
}

/// What a freshly started interpreter runs.
enum Opening<'a> {
    /// The script, which lies at this path of the working directory.
    Script(&'a str),
    /// The driver of a session.
    Driver,
}

/// Starts an interpreter.
async fn start(
    tools: &Tools,
    script: &Script,
    opening: Opening<'_>,
    profile: &Profile,
    interpreter: &Interpreter,
    user: Option<User>,
) -> Result<SandboxedProcess, Box<NotStarted>> {
    let slot = tools.slot(interpreter, &script.limits, user).await?;
    let executable = interpreter.executable.display().to_string();
    let mut environment = environment(script, profile, interpreter, &slot.place);
    let invocation = match opening {
        Opening::Script(path) => {
            let full_path = slot.place.work.join(path).display().to_string();
            Invocation {
                command: profile.command(&executable, &full_path, &script.arguments),
                environment,
                start: Start::AfterFiles,
                tell_network: script.network == Network::End,
            }
        }
        Opening::Driver => {
            // The result channel is the driver's own, and a session has no progress.
            environment
                .retain(|(name, _)| ![RESULT_VARIABLE, PROGRESS_VARIABLE].contains(&name.as_str()));
            let session = profile.session.as_ref();
            Invocation {
                command: session.map_or_else(Vec::new, |session| session.command(&executable)),
                environment,
                start: Start::AtOnce,
                tell_network: false,
            }
        }
    };
    tools.start(slot, invocation).await
}

fn conclude(watched: watch::Watched, outcome: Outcome, level: IsolationLevel) -> Outcome {
    let watch::Watched {
        facts,
        stdout,
        stderr,
        result,
        started,
        missing,
        all_gone: _,
        monitor: _,
    } = watched;
    let mut all = outcome.missing;
    all.extend(missing.into_iter().map(MissingLayer::reported));
    Outcome {
        verdict: Facts::verdict(&facts),
        stdout,
        stderr,
        result: ScriptResult::read(result),
        usage: facts.usage,
        isolation: started.then_some(level),
        missing: all,
        ..outcome
    }
}

/// The script's whole environment.
fn environment(
    script: &Script,
    profile: &Profile,
    interpreter: &Interpreter,
    place: &Place,
) -> Vec<(String, String)> {
    let mut variables = base_environment(profile, interpreter, place);
    let mut set = |name: &str, value: String| set_variable(&mut variables, name, value);
    for (name, value) in &script.environment {
        set(name, value.clone());
    }
    if !script.input_json.is_empty() {
        let path = place.input.join(INPUT_NAME);
        set("TAVERN_INPUT_PATH", path.display().to_string());
    }
    if !script.effect_id.is_empty() {
        set("TAVERN_EFFECT_ID", script.effect_id.clone());
    }
    if !script.conversation_id.is_empty() {
        set("TAVERN_CONVERSATION_ID", script.conversation_id.clone());
    }
    if !script.traceparent.is_empty() {
        set("TRACEPARENT", script.traceparent.clone());
    }
    variables
}
