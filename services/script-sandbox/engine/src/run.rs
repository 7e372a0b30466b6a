//! Drives one script from its request to its verdict.

use std::{os::fd::AsFd, sync::Arc, time::Instant};

use blob_store::Caller;
use sandbox_protocol::plan::Start;
use tokio::sync::oneshot;

use crate::{
    backend::ScriptRoot,
    domain::{
        collect::Collected,
        outcome::{Outcome, ScriptResult},
        profile::Profile,
        script::{Network, PlacedWorkspace, Script},
        verdict::Stopped,
        workspace::WorkspaceChanges,
    },
    input_files::{HeldBlobs, InputFiles},
    launcher::WorkDirectory,
    output_files::Collection,
    packages::HeldPackages,
    pool::{Assignment, WarmInterpreter},
    runtimes::Interpreter,
    slot::{
        HostResources, Invocation, Libraries, NotStarted, PROGRESS_VARIABLE, RESULT_VARIABLE,
        SandboxedProcess, base_environment, set_variable,
    },
    users::User,
    workspace::SyncedFiles,
};

pub mod capture;
pub mod io_handler;
pub mod progress;
mod usage_monitor;
mod watch;

use io_handler::IoHandler;
use watch::{Seen, watch};

/// One script with the decisions about its run.
#[derive(Debug)]
pub struct Job {
    /// The script.
    pub script: Arc<Script>,
    /// The profile of its language.
    pub profile: Profile,
    /// The interpreter that runs it.
    pub interpreter: Interpreter,
    /// The package set that it can import.
    pub packages: Option<HeldPackages>,
    /// The origin of the interpreter.
    pub origin: Origin,
    /// The blobs that it reads.
    pub blobs: HeldBlobs,
    /// The time of its acceptance.
    pub accepted: Instant,
}

/// The origin of a script's interpreter.
#[derive(Debug)]
pub enum Origin {
    /// Started for the script, as this user when the service is root.
    Cold(Option<User>),
    /// Waiting for a script.
    Warm(Box<WarmInterpreter>),
    /// Started with the driver of a session; its I/O handler delivers the files.
    Driver(Option<User>),
}

/// Runs one script. When `cancel` fires or its sender is dropped, all its processes are ended and
/// the outcome reports the cancellation.
pub async fn run(
    tools: &HostResources,
    mut job: Job,
    handler: Box<dyn IoHandler>,
    cancel: oneshot::Receiver<()>,
) -> Outcome {
    let limits = job.script.limits;
    let (seen, left) = match job.open(tools).await {
        Err(not_started) => (Seen::nothing(*not_started, limits), Left::default()),
        Ok((process, assignment)) => {
            let path = job.script.path(&job.profile.file_suffix);
            let delivery = InputFiles::of(job.script.clone(), &path, &job.blobs);
            let work = process.launched.work.clone();
            let on_host = process.slot.place.scratch.is_some();
            let opened = (process, assignment);
            let (seen, remains) = watch(opened, &job, delivery.clone(), handler, cancel).await;
            let left = gather(tools, &job.script, delivery, work.clone(), &seen).await;
            // A directory on the host may hold very many files and is useless after the answer. The
            // kernel takes its time to remove a cgroup and a file system in memory; no answer waits
            // for that.
            let removed = tokio::task::spawn_blocking(move || drop((work, remains)));
            if on_host && let Err(error) = removed.await {
                tracing::error!(%error, "removing a working directory panicked");
            }
            (seen, left)
        }
    };
    let [stdout, stderr, result] = seen.outputs;
    Outcome {
        verdict: seen.facts.verdict(),
        stdout,
        stderr,
        result: ScriptResult::read(result),
        usage: seen.facts.usage,
        isolation: seen.started.then_some(tools.backend.level),
        missing: seen.missing,
        enforcement: seen.enforcement,
        limits,
        collected: left.collected,
        workspace: left.workspace,
    }
}

/// The files that a script has left.
#[derive(Debug, Default)]
struct Left {
    collected: Option<Collected>,
    workspace: Option<WorkspaceChanges>,
}

/// Collects the files that the script has left, if the request wants that and the script has
/// started and was not cancelled.
async fn gather(
    tools: &HostResources,
    script: &Script,
    delivery: InputFiles,
    work: WorkDirectory,
    seen: &Seen,
) -> Left {
    let wanted = script.collect.clone();
    let workspace = script.workspace.clone();
    let has_left = seen.started && seen.facts.stopped != Some(Stopped::Cancelled);
    if !has_left || (wanted.is_none() && workspace.is_none()) {
        return Left::default();
    }
    if !seen.all_gone {
        return Left {
            collected: wanted.map(|_| Collected::not_ended()),
            workspace: None,
        };
    }
    let tenant = script.owner.principal().tenant();
    let caller = Caller::named(tenant, &script.owner.name());
    let blobs = tools.blobs.clone();
    let collecting = tokio::task::spawn_blocking(move || {
        let work = work.open()?;
        let workspace = workspace.map(|workspace| {
            let mut files = SyncedFiles::placed(&delivery.placed());
            let PlacedWorkspace {
                caps, directories, ..
            } = &workspace;
            let mut changes =
                files.take_changes((work.as_fd(), directories), caps, (&blobs, &caller));
            changes.leave_out(&delivery.of_no_workspace());
            changes
        });
        let collected = wanted.map(|wanted| {
            let placed = delivery.placed();
            let collection = Collection {
                wanted,
                placed,
                blobs,
                caller,
            };
            collection.collect(work.as_fd())
        });
        std::io::Result::Ok(Left {
            collected,
            workspace,
        })
    });
    let left = collecting.await.map_err(std::io::Error::other).flatten();
    left.unwrap_or_else(|error| {
        tracing::error!(%error, "a script's working directory could not be looked at");
        Left {
            collected: script.collect.as_ref().map(|_| Collected::not_ended()),
            workspace: None,
        }
    })
}

impl Job {
    /// Starts the interpreter, or takes the waiting one and its assignment.
    async fn open(
        &mut self,
        tools: &HostResources,
    ) -> Result<(SandboxedProcess, Option<Assignment>), Box<NotStarted>> {
        let (user, driver) = match std::mem::replace(&mut self.origin, Origin::Cold(None)) {
            Origin::Cold(user) => (user, false),
            Origin::Driver(user) => (user, true),
            Origin::Warm(warm) => {
                let environment = |place: &ScriptRoot| self.environment(place);
                let (process, assignment) = warm.assign(&self.script.arguments, environment);
                return Ok((process, Some(assignment)));
            }
        };
        let started = tools.start(
            self.libraries(),
            &self.script.limits,
            user,
            |slot| match driver {
                true => self.driver(&slot.place),
                false => self.invocation(&slot.place),
            },
        );
        Ok((started.await?, None))
    }

    fn libraries(&self) -> Libraries<'_> {
        Libraries {
            profile: &self.profile,
            interpreter: &self.interpreter,
            packages: (self.packages.as_ref()).map(|held| &**held.packages()),
        }
    }

    /// The invocation of a script.
    fn invocation(&self, place: &ScriptRoot) -> Invocation {
        let path = self.script.path(&self.profile.file_suffix);
        let path = place.work.join(path).display().to_string();
        let executable = self.interpreter.executable.display().to_string();
        Invocation {
            command: (self.profile).command(&executable, &path, &self.script.arguments),
            environment: self.environment(place),
            start: Start::AfterFiles,
            report_network: self.script.network == Network::End,
        }
    }

    /// The invocation of a session's driver.
    fn driver(&self, place: &ScriptRoot) -> Invocation {
        let executable = self.interpreter.executable.display().to_string();
        let session = self.profile.session.as_ref();
        let mut environment = self.environment(place);
        // The result channel is the driver's own, and a session reports no progress.
        environment
            .retain(|(name, _)| ![RESULT_VARIABLE, PROGRESS_VARIABLE].contains(&name.as_str()));
        Invocation {
            command: session.map_or_else(Vec::new, |session| session.command(&executable)),
            environment,
            start: Start::AtOnce,
            report_network: false,
        }
    }

    /// The script's whole environment.
    fn environment(&self, place: &ScriptRoot) -> Vec<(String, String)> {
        let script = &self.script;
        let libraries = self.libraries();
        let mut variables = base_environment(libraries, &script.limits, place);
        for (name, value) in &script.environment {
            set_variable(&mut variables, name, libraries.extended(name, value, place));
        }
        for (name, variable, _) in script.values() {
            let path = place.input.join(name).display().to_string();
            set_variable(&mut variables, variable, path);
        }
        for name in script.directories() {
            let path = place.work.join(name).display().to_string();
            set_variable(
                &mut variables,
                &format!("TAVERN_{}", name.to_uppercase()),
                path,
            );
        }
        for (name, value) in [
            ("TAVERN_EFFECT_ID", &script.effect_id),
            ("TAVERN_CONVERSATION_ID", &script.conversation_id),
            ("TRACEPARENT", &script.traceparent),
        ] {
            if !value.is_empty() {
                set_variable(&mut variables, name, value.clone());
            }
        }
        variables
    }
}
