//! One interpreter that waits, from its start to its script.

use std::{
    collections::BTreeSet,
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use core_types::Tenant;
use sandbox_protocol::{
    channel,
    plan::{Area, DeliveredFile, Delivery, Start},
    report::{Layer, Report},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::{UnixStream, unix::OwnedReadHalf},
};

use crate::{
    backend::ScriptRoot,
    domain::{
        limits::Limits,
        profile::{BOOT, Profile, WarmProfile},
    },
    packages::Packages,
    proc_usage::ProcTree,
    runtimes::Interpreter,
    slot::{
        HostResources, Invocation, Libraries, SandboxedProcess, Slot, base_environment,
        set_variable,
    },
};

/// The longest time that an interpreter may take until it waits.
const WARM_UP_TIME: Duration = Duration::from_secs(20);

/// The longest wait for the end of an unneeded interpreter.
const RETIRE_TIME: Duration = Duration::from_secs(6);

/// The directory of a boot program, below the working directory.
const BOOT_DIRECTORY: &str = ".tavern-boot";

/// The most bytes that a boot program writes before it waits.
const MAX_READY_BYTES: usize = 64 << 10;

/// The most bytes that are kept of the error output of a failed interpreter.
const MAX_COMPLAINT_BYTES: usize = 4096;

/// An interpreter that waits for a script, fully confined. Dropping it ends it.
#[derive(Debug)]
pub struct WarmInterpreter {
    process: SandboxedProcess,
    /// The channel from which it reads its assignment.
    job: UnixStream,
    /// Names that no file of a script may have.
    loaded: BTreeSet<String>,
    /// Processor time that it has used so far.
    used: Duration,
    /// The memory that it keeps, in bytes.
    memory: u64,
    /// Layers that it does not have.
    missing: Vec<Layer>,
    /// The path of its script below the working directory.
    script_path: String,
}

/// The assignment of a script to a waiting interpreter.
#[derive(Debug)]
pub struct Assignment {
    /// The channel from which the interpreter reads.
    pub(crate) job: UnixStream,
    /// The text that it reads.
    pub(crate) text: Vec<u8>,
    /// Processor time that is not the script's.
    pub(crate) used: Duration,
    /// Layers that the run does not have.
    pub(crate) missing: Vec<Layer>,
}

/// The kind of a waiting interpreter: runtime, package set and script path, and for a chosen path the tenant.
#[derive(Clone, Debug)]
pub(super) struct PoolKey {
    /// The tenant whose scripts have the path; `None` for the path of scripts that choose none. A chosen path is a name
    /// of a client, which no other tenant notices.
    pub(super) tenant: Option<Tenant>,
    pub(super) profile: Profile,
    pub(super) warm: WarmProfile,
    pub(super) interpreter: Interpreter,
    /// The package set, of which it has imported the modules that the set names.
    pub(super) packages: Option<Arc<Packages>>,
    pub(super) script_path: String,
    pub(super) limits: Limits,
}

/// The names of a [`PoolKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind<'a> {
    pub(super) runtime: &'a str,
    /// The digest of the package set, and the number of its directory: an interpreter that waits sees the directory that
    /// was there.
    pub(super) packages: Option<(&'a str, u64)>,
    pub(super) script_path: &'a str,
    pub(super) tenant: Option<Tenant>,
}

impl PoolKey {
    pub(super) fn kind(&self) -> Kind<'_> {
        Kind {
            runtime: &self.profile.name,
            packages: (self.packages.as_deref()).map(Packages::identity),
            script_path: &self.script_path,
            tenant: self.tenant,
        }
    }

    pub(super) fn libraries(&self) -> Libraries<'_> {
        Libraries {
            profile: &self.profile,
            interpreter: &self.interpreter,
            packages: self.packages.as_deref(),
        }
    }

    fn boot(&self) -> String {
        let modules = (self.packages.as_ref()).map_or(&[][..], |packages| &packages.set.warm);
        self.warm.boot(modules)
    }

    fn invocation(&self, place: &ScriptRoot) -> Invocation {
        let shown = |path: &Path| path.display().to_string();
        let boot = shown(&place.work.join(BOOT_DIRECTORY));
        let script = shown(&place.work.join(&self.script_path));
        let libraries = self.libraries();
        let mut environment = base_environment(libraries, &self.limits, place);
        for (name, value) in &self.warm.environment {
            let value = libraries.extended(name, &value.replace(BOOT, &boot), place);
            set_variable(&mut environment, name, value);
        }
        let interpreter = shown(&self.interpreter.executable);
        Invocation {
            command: self.warm.command(&interpreter, &boot, &script),
            environment,
            start: Start::Waiting,
            report_network: false,
        }
    }
}

impl WarmInterpreter {
    /// Starts an interpreter and waits until it is ready for a script.
    ///
    /// # Errors
    /// The reason for a failure, in words for the operator; all processes have ended then.
    pub(super) async fn up(tools: &HostResources, order: &PoolKey) -> Result<Self, String> {
        let user = tools.users.take().map_err(|_| "no user is free")?;
        let invocation = |slot: &Slot| {
            if let Some(cgroup) = &slot.cgroup {
                cgroup.lower_priority();
            }
            order.invocation(&slot.place)
        };
        let started = tools.start(order.libraries(), &order.limits, user, invocation);
        let started = started.await;
        let mut process = started.map_err(|not_started| not_started.failure.to_string())?;
        let warming = tokio::time::timeout(WARM_UP_TIME, wait(&mut process, order)).await;
        let warmed = warming.unwrap_or_else(|_| Err("it took too long".to_owned()));
        let (job, missing, loaded) = match warmed {
            Ok(warmed) => warmed,
            Err(problem) => {
                retire(process).await;
                return Err(problem);
            }
        };
        let (process, used, memory) = weigh(process).await?;
        Ok(Self {
            process,
            job,
            loaded,
            used,
            memory,
            missing,
            script_path: order.script_path.clone(),
        })
    }

    /// The memory that it keeps, in bytes.
    pub(super) fn memory(&self) -> u64 {
        self.memory
    }

    /// Returns whether it still waits.
    pub(super) fn is_alive(&mut self) -> bool {
        // A waiting interpreter sends no report. A byte that is read here is lost, and the
        // interpreter with it.
        let reports = self.process.launched.reports.get_ref().get_ref();
        let silent = |read: io::Result<usize>| {
            read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        silent(reports.try_read(&mut [0]))
    }

    /// Returns whether a file of that path would be overlooked because a module of its name is
    /// loaded.
    pub(super) fn shadows(&self, path: &str) -> bool {
        let beside = Path::new(&self.script_path).parent();
        let below = beside.and_then(|beside| Path::new(path).strip_prefix(beside).ok());
        let first = below.and_then(|below| below.components().next());
        let name = first.and_then(|first| first.as_os_str().to_str());
        name.and_then(|name| name.split('.').next())
            .is_some_and(|stem| self.loaded.contains(stem))
    }

    /// Applies the limits of a script, which are no wider.
    ///
    /// # Errors
    /// Fails when the kernel refuses; the script cannot use the interpreter then.
    pub(super) fn apply_limits(&mut self, limits: &Limits) -> io::Result<()> {
        if let Some(cgroup) = &self.process.slot.cgroup {
            let made = &self.process.slot.limits;
            if (made.memory, made.processes) != (limits.memory, limits.processes) {
                cgroup.limit(limits)?;
            }
            cgroup.restore_priority();
        }
        self.process.slot.limits = *limits;
        Ok(())
    }

    /// Takes it apart for its script. The first of `arguments` is computed from the script's path.
    pub(crate) fn assign(
        self,
        arguments: &[String],
        environment: impl FnOnce(&ScriptRoot) -> Vec<(String, String)>,
    ) -> (SandboxedProcess, Assignment) {
        let process = self.process;
        let script = process.slot.place.work.join(&self.script_path);
        let mut text = format!("{}\0{}\0", arguments.len() + 1, script.display()).into_bytes();
        for argument in arguments {
            text.extend(argument.as_bytes());
            text.push(0);
        }
        for (name, value) in environment(&process.slot.place) {
            text.extend(format!("{name}={value}\0").into_bytes());
        }
        let assignment = Assignment {
            job: self.job,
            text,
            used: self.used,
            missing: self.missing,
        };
        (process, assignment)
    }

    /// Ends it and waits until all its processes have ended.
    pub(super) async fn retire(self) {
        retire(self.process).await;
    }
}

/// Delivers the boot program and waits for its line; returns the missing layers and the loaded
/// names.
async fn wait(
    process: &mut SandboxedProcess,
    order: &PoolKey,
) -> Result<(UnixStream, Vec<Layer>, BTreeSet<String>), String> {
    let boot = order.boot();
    let delivery = Delivery {
        files: vec![DeliveredFile {
            area: Area::Work,
            path: format!("{BOOT_DIRECTORY}/{}", order.warm.boot_file),
            size: boot.len() as u64,
            executable: false,
        }],
        ..Delivery::default()
    };
    let mut bytes = channel::frame(&delivery).map_err(|error| error.to_string())?;
    bytes.extend(boot.as_bytes());
    let delivered = process.launched.io.files.write_all(&bytes).await;
    // A launcher that failed before this point reports the reason.
    let missing = started(&mut process.launched.reports).await?;
    delivered.map_err(|error| format!("delivering the boot program: {error}"))?;
    let mut job = process
        .launched
        .io
        .job
        .take()
        .ok_or("it has no job channel")?;
    let said = word(&mut job).await.map_err(|error| error.to_string())?;
    let complaint = complaint(process);
    if !complaint.is_empty() {
        return Err(format!("it said: {complaint}"));
    }
    let loaded = said.ok_or("it ended before it waited")?;
    let loaded = loaded.split_whitespace().map(str::to_owned).collect();
    Ok((job, missing, loaded))
}

async fn started(reports: &mut Lines<BufReader<OwnedReadHalf>>) -> Result<Vec<Layer>, String> {
    loop {
        let line = reports.next_line().await.map_err(|error| error.to_string());
        let line = line?.ok_or("the launcher has ended")?;
        match serde_json::from_str(&line) {
            Ok(Report::Started { missing }) => return Ok(missing),
            Ok(Report::Failed(failure)) => return Err(failure.to_string()),
            Ok(Report::Placed { .. }) => {}
            other => return Err(format!("the launcher reports {other:?}")),
        }
    }
}

/// The line that a boot program writes when it waits; `None` if it ended instead.
async fn word(job: &mut UnixStream) -> io::Result<Option<String>> {
    let mut said = Vec::new();
    let mut chunk = [0; 4096];
    while said.last() != Some(&b'\n') {
        let read = job.read(&mut chunk).await?;
        if read == 0 {
            return Ok(None);
        }
        said.extend_from_slice(&chunk[..read]);
        if said.len() > MAX_READY_BYTES {
            return Err(io::Error::other("its boot program says too much"));
        }
    }
    Ok(Some(String::from_utf8_lossy(&said).into_owned()))
}

/// The text that it has printed, which would get into the output of a script.
fn complaint(process: &SandboxedProcess) -> String {
    let mut said = vec![0; MAX_COMPLAINT_BYTES];
    let mut read = process.launched.io.stderr.try_read(&mut said).unwrap_or(0);
    if read == 0 {
        read = process.launched.io.stdout.try_read(&mut said).unwrap_or(0);
    }
    said.truncate(read);
    String::from_utf8_lossy(&said).trim().to_owned()
}

/// Measures the processor time and the memory used so far, on a thread that may block. The memory is that of its
/// processes alone: a cgroup also counts the files that it was the first to read, which stay when it ends.
async fn weigh(process: SandboxedProcess) -> Result<(SandboxedProcess, Duration, u64), String> {
    let weighing = tokio::task::spawn_blocking(move || {
        let tree = ProcTree::below(process.launched.supervisor.id()).sample(u64::MAX, None);
        let cpu = match &process.slot.cgroup {
            Some(cgroup) => cgroup.sample().cpu,
            None => tree.cpu,
        };
        (process, cpu, tree.memory)
    });
    weighing.await.map_err(|error| error.to_string())
}

/// Ends every process of a launcher and waits for the end of its reports.
async fn retire(process: SandboxedProcess) {
    let SandboxedProcess { launched, slot } = process;
    let (mut reports, mut say) = (launched.reports, launched.say);
    // An error means that it has ended already.
    let _ = say.shutdown().await;
    let until = Instant::now() + RETIRE_TIME;
    let ended = async { while let Ok(Some(_)) = reports.next_line().await {} };
    // A launcher that does not end is killed with its supervisor.
    let _ = tokio::time::timeout_at(until.into(), ended).await;
    drop(launched.supervisor);
    let _ = tokio::task::spawn_blocking(move || drop(slot)).await;
}
