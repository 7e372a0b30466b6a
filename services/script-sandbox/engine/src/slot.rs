//! Starts confined interpreters: makes the place, the cgroup and the plan, and starts a launcher.
//!
//! What is done with the running program is the caller's: [`crate::run`] drives one script to its end.

use std::{fs, path::Path, sync::Arc};

use blob_store::BlobStore;
use sandbox_protocol::{
    plan::{LaunchPlan, PROGRESS_FD, ProcessLimits, RESULT_FD, Start},
    report::{At, Failure, Layer, Step},
};

use crate::{
    backend::{Backend, ScriptRoot},
    cgroup::{Cgroup, Cgroups},
    domain::{
        isolation::{IsolationLevel, MemoryEnforcement, MissingLayer},
        limits::Limits,
        profile::Profile,
    },
    launcher::Launched,
    launcher_pool::LauncherPool,
    proc_usage,
    runtimes::Interpreter,
    users::{User, Users},
};

/// Names the descriptor of the result channel to a script.
pub(crate) const RESULT_VARIABLE: &str = "TAVERN_RESULT_FD";

/// Names to a script the descriptor for its progress.
pub(crate) const PROGRESS_VARIABLE: &str = "TAVERN_PROGRESS_FD";

/// What every run of a sandbox shares.
#[derive(Clone, Debug)]
pub struct Tools {
    /// Starts launchers, some of them ahead.
    pub launchers: LauncherPool,
    /// Makes the isolation level.
    pub backend: Backend,
    /// The host's cgroups, if they are used.
    pub cgroups: Option<Cgroups>,
    /// Keeps the large files that scripts leave.
    pub blobs: BlobStore,
    /// Gives each script a user.
    pub users: Users,
    /// How many scripts may run at once.
    pub concurrent_scripts: u32,
}

/// Room for one script.
#[derive(Debug)]
pub struct Slot {
    /// What the script sees.
    pub place: ScriptRoot,
    /// Removed when it is dropped, which must be after its last process.
    pub cgroup: Option<Arc<Cgroup>>,
    /// The user that is the script's alone, when the service is root.
    pub user: Option<User>,
    /// The limits that the room was made for.
    pub limits: Limits,
    /// What enforces the limits on memory and processes.
    pub enforcement: MemoryEnforcement,
    /// Layers that are known to be missing.
    pub missing: Vec<MissingLayer>,
}

/// What is started in a slot.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its whole environment.
    pub environment: Vec<(String, String)>,
    /// When it starts.
    pub start: Start,
    /// Whether the first attempt to use a network ends it.
    pub report_network: bool,
}

/// A program that runs, and the room that it sits in.
#[derive(Debug)]
pub struct SandboxedProcess {
    /// Its launcher and its channels.
    pub launched: Launched,
    /// The room.
    pub slot: Slot,
}

/// Why nothing was started.
#[derive(Debug)]
pub struct NotStarted {
    /// What failed.
    pub failure: Failure,
    /// Layers that are known to be missing.
    pub missing: Vec<MissingLayer>,
}

impl Tools {
    /// Makes room for one script, its place and its cgroup, and starts there what `invocation` names,
    /// which receives what the script will see.
    ///
    /// # Errors
    /// When the place cannot be made, no cgroup where cgroups are used (no script runs with less than
    /// the service reports), or the launcher cannot be started. What fails later is in its reports.
    pub async fn start(
        &self,
        interpreter: &Interpreter,
        limits: &Limits,
        user: Option<User>,
        invocation: impl FnOnce(&Slot) -> Invocation,
    ) -> Result<SandboxedProcess, Box<NotStarted>> {
        let mut missing = self.backend.level.missing();
        let starting = async {
            let launcher = self.launchers.take(limits).await?;
            if launcher.cgroup.is_none() {
                missing.push(MissingLayer::reported(Layer::CgroupLimits));
            }
            let id = user.as_ref().map(User::id);
            let place = self.backend.place(&interpreter.mounts, limits, id);
            let place = place.at(Layer::Files, "making the working directory")?;
            let enforcement = match (&self.cgroups, &launcher.cgroup) {
                (Some(cgroups), Some(_)) => cgroups.enforcement(),
                _ => MemoryEnforcement::Sampled,
            };
            let mut slot = Slot {
                place,
                cgroup: launcher.cgroup,
                user,
                limits: *limits,
                enforcement,
                missing: Vec::new(),
            };
            let plan = self.plan(&slot, invocation(&slot));
            let launched = launcher.spawned.launch(&plan).await;
            let launched = launched.at(Layer::Launch, "starting the launcher")?;
            slot.missing = std::mem::take(&mut missing);
            Step::Ok(SandboxedProcess { launched, slot })
        };
        let started = starting.await;
        started.map_err(|failure| Box::new(NotStarted { failure, missing }))
    }

    fn plan(&self, slot: &Slot, invocation: Invocation) -> LaunchPlan {
        let mut limits = process_limits(&slot.limits);
        if slot.enforcement == MemoryEnforcement::Sampled {
            limits.open_files = limits.open_files.min(uncounted_files(&slot.limits));
        }
        if self.backend.level == IsolationLevel::Reduced && slot.user.is_none() {
            share_user(&mut limits, self.concurrent_scripts);
        }
        LaunchPlan {
            confinement: slot.place.confinement.clone(),
            outside_user: slot.user.as_ref().map(User::id),
            command: invocation.command,
            environment: invocation.environment,
            limits,
            cgroups: (slot.cgroup.as_ref()).map_or_else(Vec::new, |cgroup| cgroup.to_join()),
            start: invocation.start,
            report_network: invocation.report_network,
            epoll_watches: (slot.user.is_none()).then(|| epoll_watches(self.concurrent_scripts)),
        }
    }
}

/// The environment that every program of a runtime starts with, before anything of a request.
pub fn base_environment(
    profile: &Profile,
    interpreter: &Interpreter,
    place: &ScriptRoot,
) -> Vec<(String, String)> {
    let mut path = "/usr/local/bin:/usr/bin:/bin".to_owned();
    let own = interpreter.executable.parent();
    if let Some(own) = own.filter(|own| !own.starts_with("/usr/bin")) {
        path = format!("{}:{path}", own.display());
    }
    let shown = |path: &Path| path.display().to_string();
    let mut variables: Vec<(String, String)> = vec![
        ("PATH".to_owned(), path),
        ("HOME".to_owned(), shown(&place.work)),
        ("TMPDIR".to_owned(), shown(&place.temporary)),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
        // The host's own may exist and be unreadable, which libraries take for a broken machine.
        ("OPENSSL_CONF".to_owned(), "/dev/null".to_owned()),
    ];
    for (name, value) in &profile.environment {
        set_variable(&mut variables, name, value.clone());
    }
    set_variable(&mut variables, RESULT_VARIABLE, RESULT_FD.to_string());
    set_variable(&mut variables, PROGRESS_VARIABLE, PROGRESS_FD.to_string());
    variables
}

/// Sets a variable, which may be set already.
pub fn set_variable(variables: &mut Vec<(String, String)>, name: &str, value: String) {
    variables.retain(|(other, _)| other != name);
    variables.push((name.to_owned(), value));
}

/// Widens the kernel's limit on processes where a script has to share its user with the service and
/// with other scripts: the kernel counts them all. What the script itself may have is then measured.
fn share_user(limits: &mut ProcessLimits, concurrent_scripts: u32) {
    /// Launcher and init.
    const HELPERS: u64 = 2;
    let others = proc_usage::tasks_of(rustix::process::geteuid().as_raw());
    limits.processes = others + u64::from(concurrent_scripts) * (limits.processes + HELPERS);
}

/// How many watches a script may add to epoll that has the service's user, as the kernel counts those of
/// a user together. Half of them stay for the service.
fn epoll_watches(concurrent_scripts: u32) -> u64 {
    /// What no honest script comes near. Watches take memory that only a cgroup counts.
    const MOST: u64 = 16_384;
    let all = fs::read_to_string("/proc/sys/fs/epoll/max_user_watches").ok();
    let all: Option<u64> = all.and_then(|text| text.trim().parse().ok());
    let share = all.map(|all| all / 2 / u64::from(concurrent_scripts.max(1)));
    share.map_or(MOST, |share| share.min(MOST))
}

/// Returns the number of files that each process may have open where no cgroup counts the memory that the
/// kernel keeps of them: all processes together hold no more than the limit on memory, beside their memory
/// itself.
fn uncounted_files(limits: &Limits) -> u64 {
    /// The most that the kernel keeps of one, in bytes: half of a pipe beyond those of a user that may be larger.
    const EACH: u64 = 5 << 10;
    /// The least that interpreters need.
    const LEAST: u64 = 32;
    let files = limits.memory as u64 / EACH / u64::from(limits.processes.max(1));
    files.max(LEAST)
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
    /// The init belongs to the script's user as well.
    const INIT: u64 = 1;
    ProcessLimits {
        cpu_seconds: limits.cpu_time.as_secs() + CPU_SLACK_SECONDS,
        file_bytes: limits.file as u64,
        open_files: u64::from(limits.open_files),
        processes: u64::from(limits.processes) + INIT,
        data_bytes: limits.memory as u64 + HEADROOM,
    }
}
