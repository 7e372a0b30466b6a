//! Drives one script from its plan to its verdict.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sandbox_launcher::{
    plan::{
        Area, DeliveredFile, Delivery, LaunchPlan, OutsideUser, ProcessLimits, RESULT_FD, Start,
    },
    report::{Failure, Layer},
};
use tokio::sync::oneshot;

use crate::{
    backend::{Backend, Place, Wanted},
    census,
    cgroup::{Cgroup, Cgroups},
    domain::{
        isolation::{IsolationLevel, MemoryEnforcement, MissingLayer},
        limits::Limits,
        outcome::{Outcome, ScriptResult, Usage},
        profile::Profile,
        request::{Program, Script},
        verdict::{Facts, Verdict},
    },
    launch::Launcher,
    runtimes::Interpreter,
};

pub(crate) mod attend;
pub(crate) mod feed;
mod gauge;
mod output;
mod watch;

use attend::Attendant;
use gauge::Gauge;

/// What every run of a sandbox shares.
#[derive(Clone, Debug)]
pub struct Tools {
    /// Starts launchers.
    pub launcher: Launcher,
    /// Makes the isolation level.
    pub backend: Arc<dyn Backend>,
    /// The host's cgroups, if they are used.
    pub cgroups: Option<Cgroups>,
    /// The least enforcement that is allowed.
    pub lowest_enforcement: MemoryEnforcement,
    /// How many scripts may run at once.
    pub concurrent_scripts: u32,
}

/// One script with what was decided about it.
#[derive(Debug)]
pub struct Job {
    /// What to run.
    pub script: Arc<Script>,
    /// How scripts of its language are run.
    pub profile: Profile,
    /// With which program.
    pub interpreter: Interpreter,
    /// The user that it gets, when the service is root.
    pub user: Option<u32>,
    /// When it was accepted.
    pub accepted: Instant,
}

/// Runs one script. When `cancel` fires or its sender is dropped, every process of it is ended and
/// the outcome says so.
pub(crate) async fn run(
    tools: &Tools,
    job: Job,
    attendant: Box<dyn Attendant>,
    cancel: oneshot::Receiver<()>,
) -> Outcome {
    let level = tools.backend.level();
    let mut outcome = Outcome {
        verdict: Verdict::Cancelled {
            after: Duration::ZERO,
        },
        stdout: Default::default(),
        stderr: Default::default(),
        result: ScriptResult::None,
        usage: Usage::default(),
        isolation: None,
        missing: level.missing(),
        enforcement: MemoryEnforcement::Sampled,
        limits: job.script.limits,
    };
    let cgroup = match make_cgroup(tools, &job, &mut outcome) {
        Ok(cgroup) => cgroup,
        Err(verdict) => {
            return Outcome {
                verdict: *verdict,
                ..outcome
            };
        }
    };
    let wanted = Wanted {
        mounts: &job.interpreter.mounts,
        limits: &job.script.limits,
        user: job.user,
    };
    let place = match tools.backend.place(&wanted) {
        Ok(place) => place,
        Err(error) => {
            let verdict = launch_failed(Layer::Files, "making the working directory", &error);
            return Outcome { verdict, ..outcome };
        }
    };
    let mut prepared = prepare(&job, place, cgroup.as_ref());
    if level == IsolationLevel::Reduced && job.user.is_none() {
        share_user(&mut prepared.plan.limits, tools.concurrent_scripts);
    }
    let launched = match tools.launcher.launch(&prepared.plan).await {
        Ok(launched) => launched,
        Err(error) => {
            let verdict = launch_failed(Layer::Launch, "starting the launcher", &error);
            return Outcome { verdict, ..outcome };
        }
    };
    let gauge = Gauge::new(
        cgroup,
        launched.supervisor.id(),
        prepared.place.scratch.clone(),
    );
    let watched = watch::watch(launched, &prepared, &job, gauge, attendant, cancel).await;
    // The working directory may hold a great many files, whose removal blocks.
    let removed = tokio::task::spawn_blocking(move || drop(prepared)).await;
    if let Err(error) = removed {
        tracing::error!(%error, "removing a working directory panicked");
    }
    conclude(watched, outcome, level)
}

/// The cgroup of the run. Where one is used but cannot be made, the run goes on without it only if
/// nobody demands it.
fn make_cgroup(
    tools: &Tools,
    job: &Job,
    outcome: &mut Outcome,
) -> Result<Option<Cgroup>, Box<Verdict>> {
    let demanded = job
        .script
        .minimum_enforcement
        .map_or(tools.lowest_enforcement, |least| {
            least.max(tools.lowest_enforcement)
        });
    match tools
        .cgroups
        .as_ref()
        .map(|cgroups| (cgroups, cgroups.make(&job.script.limits)))
    {
        Some((cgroups, Ok(cgroup))) => {
            outcome.enforcement = cgroups.enforcement();
            Ok(Some(cgroup))
        }
        Some((_, Err(error))) => {
            tracing::warn!(%error, "no cgroup could be made for a script");
            outcome
                .missing
                .push(MissingLayer::reported(Layer::CgroupLimits));
            if demanded > MemoryEnforcement::Sampled {
                return Err(Box::new(Verdict::Policy {
                    policy: "minimum_memory_enforcement",
                    wanted: demanded.name().to_owned(),
                    reached: MemoryEnforcement::Sampled.name().to_owned(),
                }));
            }
            Ok(None)
        }
        None => {
            outcome
                .missing
                .push(MissingLayer::reported(Layer::CgroupLimits));
            Ok(None)
        }
    }
}

fn launch_failed(layer: Layer, doing: &str, error: &std::io::Error) -> Verdict {
    Verdict::LauncherFailure(Failure {
        layer,
        message: format!("{doing}: {error}"),
        errno: error.raw_os_error().unwrap_or(0),
    })
}

fn conclude(watched: watch::Watched, outcome: Outcome, level: IsolationLevel) -> Outcome {
    let watch::Watched {
        facts,
        stdout,
        stderr,
        result,
        started,
        missing,
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

/// A plan with what has to be delivered for it.
#[derive(Debug)]
struct Prepared {
    plan: LaunchPlan,
    place: Place,
    delivery: Delivery,
}

/// Turns a job into a plan.
fn prepare(job: &Job, place: Place, cgroup: Option<&Cgroup>) -> Prepared {
    let Job {
        script,
        profile,
        interpreter,
        user,
        ..
    } = job;
    let script_path = match &script.program {
        Program::Source(_) => free_name(script, &profile.file_suffix),
        Program::Entry(path) => path.clone(),
    };
    let executable = interpreter.executable.display().to_string();
    let full_path = place.work.join(&script_path).display().to_string();
    let plan = LaunchPlan {
        confinement: place.confinement.clone(),
        outside_user: user.map(|id| OutsideUser { id }),
        command: profile.command(&executable, &full_path, &script.arguments),
        environment: environment(job, &place),
        limits: process_limits(&script.limits),
        cgroups: cgroup.map(Cgroup::procs).unwrap_or_default(),
        start: Start::AfterFiles,
    };
    Prepared {
        delivery: delivery(script, &script_path),
        plan,
        place,
    }
}

/// A name for the script that none of its files has.
fn free_name(script: &Script, suffix: &str) -> String {
    let taken = |name: &String| script.files.iter().any(|file| file.path == *name);
    let numbered = (1..).map(|number| format!("main-{number}{suffix}"));
    std::iter::once(format!("main{suffix}"))
        .chain(numbered)
        .find(|name| !taken(name))
        .expect("there are more numbers than files")
}

fn environment(job: &Job, place: &Place) -> Vec<(String, String)> {
    let Job {
        script,
        profile,
        interpreter,
        ..
    } = job;
    let mut path = "/usr/local/bin:/usr/bin:/bin".to_owned();
    if let Some(own) = interpreter
        .executable
        .parent()
        .filter(|own| !own.starts_with("/usr/bin"))
    {
        path = format!("{}:{path}", own.display());
    }
    let shown = |path: &std::path::Path| path.display().to_string();
    let mut variables: Vec<(String, String)> = vec![
        ("PATH".to_owned(), path),
        ("HOME".to_owned(), shown(&place.work)),
        ("TMPDIR".to_owned(), shown(&place.temporary)),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
        // The host's own may exist and be unreadable, which libraries take for a broken machine.
        ("OPENSSL_CONF".to_owned(), "/dev/null".to_owned()),
    ];
    let mut set = |name: &str, value: String| {
        variables.retain(|(other, _)| other != name);
        variables.push((name.to_owned(), value));
    };
    for (name, value) in &profile.environment {
        set(name, value.clone());
    }
    for (name, value) in &script.environment {
        set(name, value.clone());
    }
    set("TAVERN_RESULT_FD", RESULT_FD.to_string());
    if !script.input_json.is_empty() {
        set("TAVERN_INPUT_PATH", shown(&place.input.join(INPUT_NAME)));
    }
    if !script.effect_id.is_empty() {
        set("TAVERN_EFFECT_ID", script.effect_id.clone());
    }
    if !script.traceparent.is_empty() {
        set("TRACEPARENT", script.traceparent.clone());
    }
    variables
}

const INPUT_NAME: &str = "input.json";

fn delivery(script: &Script, script_path: &str) -> Delivery {
    let file = |area, path: &str, content: &[u8], executable| DeliveredFile {
        area,
        path: path.to_owned(),
        size: content.len() as u64,
        executable,
    };
    let mut files: Vec<DeliveredFile> = script
        .files
        .iter()
        .map(|each| file(Area::Work, &each.path, &each.content, each.executable))
        .collect();
    if let Program::Source(source) = &script.program {
        files.push(file(Area::Work, script_path, source.as_bytes(), false));
    }
    if !script.input_json.is_empty() {
        files.push(file(
            Area::Input,
            INPUT_NAME,
            script.input_json.as_bytes(),
            false,
        ));
    }
    Delivery {
        files,
        signal: None,
    }
}

/// Widens the kernel's limit on processes where a script has to share its user with the service and
/// with other scripts: the kernel counts them all. What the script itself may have is then measured.
fn share_user(limits: &mut ProcessLimits, concurrent_scripts: u32) {
    /// Launcher and keeper.
    const HELPERS: u64 = 2;
    let others = census::tasks_of(rustix::process::geteuid().as_raw());
    limits.processes = others + u64::from(concurrent_scripts) * (limits.processes + HELPERS);
}

/// What the kernel keeps for each process. The limits of the whole script are kept elsewhere; these
/// only have to be no narrower.
fn process_limits(limits: &Limits) -> ProcessLimits {
    /// Room above the memory limit, so that passing it is seen by what measures the whole script
    /// and gets its verdict, instead of an error inside the interpreter. What is reserved and not
    /// touched costs nothing.
    const HEADROOM: u64 = 2 << 30;
    /// The sum over all processes is measured and has its verdict; the kernel's own limit, which is
    /// coarse, only has to hold when measuring does not.
    const CPU_SLACK_SECONDS: u64 = 2;
    /// The keeper belongs to the script's user as well.
    const KEEPER: u64 = 1;
    ProcessLimits {
        cpu_seconds: limits.cpu_time.as_secs() + CPU_SLACK_SECONDS,
        file_bytes: limits.file as u64,
        open_files: u64::from(limits.open_files),
        processes: u64::from(limits.processes) + KEEPER,
        data_bytes: limits.memory as u64 + HEADROOM,
    }
}
