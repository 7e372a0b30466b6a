//! Starts confined interpreters: makes the root, the cgroup and the plan, and starts a launcher.
//!
//! The caller handles the running program: [`crate::run`] drives one script to its end.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

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
        package_set,
        profile::Profile,
    },
    launcher::Launched,
    launcher_pool::LauncherPool,
    packages::{Packages, threads},
    proc_usage,
    runtimes::Interpreter,
    users::{User, Users},
};

/// Names the descriptor of the result channel to a script.
pub(crate) const RESULT_VARIABLE: &str = "TAVERN_RESULT_FD";

/// Names the descriptor for progress to a script.
pub(crate) const PROGRESS_VARIABLE: &str = "TAVERN_PROGRESS_FD";

/// Names the directory of the package set to a script.
const PACKAGES_VARIABLE: &str = "TAVERN_PACKAGES_PATH";

/// The resources of the host that every run of a sandbox shares.
#[derive(Clone, Debug)]
pub struct HostResources {
    /// Starts launchers, some of them ahead.
    pub launchers: LauncherPool,
    /// Makes the isolation level.
    pub backend: Backend,
    /// The host's cgroups, if they are used.
    pub cgroups: Option<Cgroups>,
    /// Keeps the large files that scripts leave.
    pub blobs: BlobStore,
    /// Provides each script with a user.
    pub users: Users,
    /// The most scripts that run at once.
    pub concurrent_scripts: u32,
}

/// The slot of one script.
#[derive(Debug)]
pub struct Slot {
    /// The root that the script sees.
    pub place: ScriptRoot,
    /// Its cgroup. Removed on drop, which must be after the end of its last process.
    pub cgroup: Option<Arc<Cgroup>>,
    /// The user that is the script's alone, when the service is root.
    pub user: Option<User>,
    /// The limits that the slot was made for.
    pub limits: Limits,
    /// The mechanism that enforces the limits on memory and processes.
    pub enforcement: MemoryEnforcement,
    /// Layers that are known to be missing.
    pub missing: Vec<MissingLayer>,
}

/// A program to start in a slot.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its whole environment.
    pub environment: Vec<(String, String)>,
    /// The condition for its start.
    pub start: Start,
    /// Whether the first attempt to use a network ends it.
    pub report_network: bool,
}

/// A running program, and its slot.
#[derive(Debug)]
pub struct SandboxedProcess {
    /// Its launcher and its channels.
    pub launched: Launched,
    /// The slot.
    pub slot: Slot,
}

/// A failure to start a program.
#[derive(Debug)]
pub struct NotStarted {
    /// The cause.
    pub failure: Failure,
    /// Layers that are known to be missing.
    pub missing: Vec<MissingLayer>,
}

impl HostResources {
    /// Makes the slot of one script with these libraries, and starts the program of `invocation` there;
    /// `invocation` receives the slot.
    ///
    /// # Errors
    /// Fails when the root cannot be made, no cgroup can be made where cgroups are used (no script runs
    /// with less than the service reports), or the launcher cannot be started. Later failures are
    /// in its reports.
    pub async fn start(
        &self,
        libraries: Libraries<'_>,
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
            let mounts = &libraries.interpreter.mounts;
            let place = self.backend.place(mounts, libraries.packages(), limits, id);
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
            let mut plan = self.plan(&slot, invocation(&slot));
            plan.links = libraries.links(&slot.place);
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
            links: Vec::new(),
        }
    }
}

/// The runtime of a program, and the package set whose libraries it can import.
#[derive(Clone, Copy, Debug)]
pub struct Libraries<'a> {
    /// The profile of the runtime.
    pub profile: &'a Profile,
    /// The interpreter.
    pub interpreter: &'a Interpreter,
    /// The set; none if it imports only modules of the interpreter.
    pub packages: Option<&'a Packages>,
}

impl Libraries<'_> {
    /// The set, and the name of its directory that scripts find above their working directory.
    fn packages(&self) -> Option<(&Packages, &str)> {
        let profile = self.profile.packages.as_ref();
        let above = profile.map_or("", |profile| &profile.above);
        self.packages.map(|packages| (packages, above))
    }

    /// Every prepared file of the set, as the script finds it, and the file that it stands for.
    fn links(&self, place: &ScriptRoot) -> Vec<(PathBuf, PathBuf)> {
        let (Some(packages), Some(library)) = (self.packages, &place.library) else {
            return Vec::new();
        };
        let link = |path: &PathBuf| (place.temporary.join(path), library.caches.join(path));
        packages.set.caches.iter().map(link).collect()
    }

    /// The value of a variable, to which the libraries are added if it is the one by which the interpreter finds them.
    pub fn extended(&self, name: &str, value: &str, place: &ScriptRoot) -> String {
        let variable = (self.profile.packages.as_ref()).map(|packages| &*packages.path_variable);
        match &place.library {
            Some(library) if variable == Some(name) => {
                let separator = if value.is_empty() { "" } else { ":" };
                format!("{value}{separator}{}", library.tree.display())
            }
            _ => value.to_owned(),
        }
    }

    /// The variables that a package set brings.
    fn variables(&self, limits: &Limits, place: &ScriptRoot) -> Vec<(String, String)> {
        let (Some(packages), Some(library)) = (self.packages, &place.library) else {
            return Vec::new();
        };
        let shown = |path: &Path| path.display().to_string();
        let (tree, temporary) = (shown(&library.tree), shown(&place.temporary));
        let threads = threads(limits);
        let own = package_set::variables(&packages.set, threads, &tree, &temporary);
        let mut variables: Vec<(String, String)> =
            own.map(|(name, value)| (name.to_owned(), value)).collect();
        variables.push((PACKAGES_VARIABLE.to_owned(), tree.clone()));
        if let Some(profile) = &self.profile.packages
            && !profile.path_variable.is_empty()
        {
            let name = profile.path_variable.clone();
            let value = self.extended(&name, "", place);
            variables.push((name, value));
        }
        variables
    }
}

/// The environment of every program with these limits, before the variables of a request.
pub fn base_environment(
    libraries: Libraries<'_>,
    limits: &Limits,
    place: &ScriptRoot,
) -> Vec<(String, String)> {
    let mut path = "/usr/local/bin:/usr/bin:/bin".to_owned();
    let own = libraries.interpreter.executable.parent();
    if let Some(own) = own.filter(|own| !own.starts_with("/usr/bin")) {
        path = format!("{}:{path}", own.display());
    }
    let shown = |path: &Path| path.display().to_string();
    let mut variables: Vec<(String, String)> = vec![
        ("PATH".to_owned(), path),
        ("HOME".to_owned(), shown(&place.work)),
        ("TMPDIR".to_owned(), shown(&place.temporary)),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
        // The host's own file may exist and be unreadable, which libraries take for a broken
        // machine.
        ("OPENSSL_CONF".to_owned(), "/dev/null".to_owned()),
    ];
    for (name, value) in &libraries.profile.environment {
        set_variable(&mut variables, name, value.clone());
    }
    for (name, value) in libraries.variables(limits, place) {
        set_variable(&mut variables, &name, value);
    }
    set_variable(&mut variables, RESULT_VARIABLE, RESULT_FD.to_string());
    set_variable(&mut variables, PROGRESS_VARIABLE, PROGRESS_FD.to_string());
    variables
}

/// Sets a variable, replacing its previous value.
pub fn set_variable(variables: &mut Vec<(String, String)>, name: &str, value: String) {
    variables.retain(|(other, _)| other != name);
    variables.push((name.to_owned(), value));
}

/// Widens the kernel's limit on processes where a script has to share its user with the service and
/// with other scripts: the kernel counts all of them. The script's own limit is then enforced by
/// measuring.
fn share_user(limits: &mut ProcessLimits, concurrent_scripts: u32) {
    /// Launcher and init.
    const HELPERS: u64 = 2;
    let others = proc_usage::tasks_of(rustix::process::geteuid().as_raw());
    limits.processes = others + u64::from(concurrent_scripts) * (limits.processes + HELPERS);
}

/// The most watches that a script may add to epoll where it has the service's user, as the kernel
/// counts the watches of a user together. Half of them are left for the service.
fn epoll_watches(concurrent_scripts: u32) -> u64 {
    /// Far more than an honest script needs. Watches take memory that only a cgroup counts.
    const MOST: u64 = 16_384;
    let all = fs::read_to_string("/proc/sys/fs/epoll/max_user_watches").ok();
    let all: Option<u64> = all.and_then(|text| text.trim().parse().ok());
    let share = all.map(|all| all / 2 / u64::from(concurrent_scripts.max(1)));
    share.map_or(MOST, |share| share.min(MOST))
}

/// Returns the limit on open files of each process where no cgroup counts the memory that the
/// kernel keeps for them: all processes together then hold at most the limit on memory, in addition
/// to their memory itself.
fn uncounted_files(limits: &Limits) -> u64 {
    /// The most that the kernel keeps for one file, in bytes: half of a pipe above the limit on a
    /// user's large pipes.
    const EACH: u64 = 5 << 10;
    /// The least number that interpreters need.
    const LEAST: u64 = 32;
    let files = limits.memory as u64 / EACH / u64::from(limits.processes.max(1));
    files.max(LEAST)
}

/// The limits that the kernel enforces for each process. The limits of the whole script are
/// enforced elsewhere; these must only be no narrower.
fn process_limits(limits: &Limits) -> ProcessLimits {
    /// Room above the memory limit, so that the measurement of the whole script sees it passed and
    /// the script gets the verdict, instead of an error inside the interpreter. Reserved memory
    /// costs nothing until it is touched.
    const HEADROOM: u64 = 2 << 30;
    /// The sum over all processes is measured and has its verdict; the kernel's own limit, which is
    /// coarse, must only hold when measuring fails.
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
