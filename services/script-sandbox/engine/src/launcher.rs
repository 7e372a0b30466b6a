//! Starts launcher programs, and waits for their ends, from one thread that lives as long as the sandbox.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use rustix::{
    fs::{Gid, Uid},
    pipe::PipeFlags,
    process::{Resource, Rlimit},
};
use sandbox_protocol::{
    channel::{self, ScriptDescriptors},
    plan::{LaunchPlan, Start},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe},
    sync::oneshot,
};

use crate::{cgroup::Cgroup, error::BuildError};

/// The launcher's file name.
const PROGRAM: &str = "sandbox-launcher";

/// The longest time that a launcher may take to accept its plan.
const PLAN_TIME: Duration = Duration::from_secs(20);

/// Starts launchers.
#[derive(Clone, Debug)]
pub struct Launcher {
    spawner: mpsc::Sender<SpawnerOrder>,
}

/// A launcher that has its plan, with the service's ends of all channels. Dropping it ends all its
/// processes.
#[derive(Debug)]
pub struct Launched {
    /// The supervisor process.
    pub supervisor: Supervisor,
    /// The launcher's reports, a line each.
    pub reports: Lines<BufReader<OwnedReadHalf>>,
    /// The launcher's control channel. Shutting it down orders the end of every process.
    pub say: OwnedWriteHalf,
    /// The script's working directory.
    pub work: WorkDirectory,
    /// The script's channels.
    pub io: ScriptIo,
}

/// The service's ends of a script's channels.
#[derive(Debug)]
pub struct ScriptIo {
    /// Accepts deliveries of files and signals; dropping it ends the deliveries.
    pub files: tokio::net::UnixStream,
    /// The script's standard input.
    pub stdin: pipe::Sender,
    /// The script's standard output.
    pub stdout: pipe::Receiver,
    /// The script's standard error.
    pub stderr: pipe::Receiver,
    /// The script's result channel.
    pub result: pipe::Receiver,
    /// The progress that the script reports.
    pub progress: pipe::Receiver,
    /// The other end of the script's job channel, if the plan has one.
    pub job: Option<tokio::net::UnixStream>,
}

/// The script's working directory, opened by the launcher before the script began. It is available
/// once the launcher has started the script, and stays readable after the end of every process. The
/// files exist until all copies of this value and the descriptor are dropped.
#[derive(Clone, Debug)]
pub struct WorkDirectory {
    socket: Arc<UnixStream>,
    /// Locked while the descriptor is received.
    directory: Arc<Mutex<Option<Arc<OwnedFd>>>>,
}

impl WorkDirectory {
    fn over(socket: UnixStream) -> Self {
        Self {
            socket: Arc::new(socket),
            directory: Arc::default(),
        }
    }

    /// Returns the descriptor. Never blocks.
    ///
    /// # Errors
    /// Fails when the descriptor has not arrived.
    pub fn open(&self) -> io::Result<Arc<OwnedFd>> {
        let poisoned = |_| io::Error::other("receiving the descriptor panicked");
        let mut directory = self.directory.lock().map_err(poisoned)?;
        if let Some(directory) = &*directory {
            return Ok(directory.clone());
        }
        let received = Arc::new(channel::take_descriptor(&self.socket)?);
        Ok(directory.insert(received).clone())
    }
}

/// A launcher that waits for its plan.
#[derive(Debug)]
pub struct Spawned {
    /// The supervisor process.
    pub supervisor: Supervisor,
    /// Accepts the plan.
    pub control: tokio::net::UnixStream,
}

/// A supervisor process, reaped when it is dropped: it ends, and every process of its script with
/// it, when the other end of its socket is closed.
#[derive(Debug)]
pub struct Supervisor {
    child: Option<Child>,
    cgroup: Option<Arc<Cgroup>>,
    spawner: mpsc::Sender<SpawnerOrder>,
}

impl Supervisor {
    /// Keeps the cgroup of the supervisor until the supervisor has ended.
    pub(crate) fn hold(&mut self, cgroup: Arc<Cgroup>) {
        self.cgroup = Some(cgroup);
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            // Without a spawner this process itself is ending, and the kernel does the rest.
            let order = SpawnerOrder::Collect(child, self.cgroup.take());
            let _ = self.spawner.send(order);
        }
    }
}

#[derive(Debug)]
enum SpawnerOrder {
    Spawn {
        socket: OwnedFd,
        answer: oneshot::Sender<io::Result<Child>>,
    },
    /// Answers when all earlier orders are done.
    Answer(oneshot::Sender<()>),
    /// Waits for the end of a supervisor, then removes its cgroup, if no other owner holds it.
    Collect(Child, Option<Arc<Cgroup>>),
}

impl Launcher {
    /// Finds the program and starts the thread.
    ///
    /// # Errors
    /// Fails when the program is missing or the thread cannot be started.
    pub fn new(setting: &Path) -> Result<Self, BuildError> {
        let program = find(setting)?;
        raise_open_files();
        let (spawner, orders) = mpsc::channel();
        std::thread::Builder::new()
            .name("sandbox-spawner".to_owned())
            .spawn(move || serve(&program, &orders))
            .map_err(BuildError::Spawner)?;
        Ok(Self { spawner })
    }

    /// Starts a launcher, which waits for its plan.
    ///
    /// # Errors
    /// Fails when no process can be made.
    pub async fn spawn(&self) -> io::Result<Spawned> {
        let (control, launcher_control) = UnixStream::pair()?;
        let (answer, child) = oneshot::channel();
        let gone = || io::Error::other("the spawning thread has ended");
        let socket = launcher_control.into();
        let order = SpawnerOrder::Spawn { socket, answer };
        self.spawner.send(order).map_err(|_| gone())?;
        let child = child.await.map_err(|_| gone())??;
        let supervisor = Supervisor {
            child: Some(child),
            cgroup: None,
            spawner: self.spawner.clone(),
        };
        Ok(Spawned {
            supervisor,
            control: convert(control)?,
        })
    }

    /// Waits until every launcher that was dropped before has been collected.
    pub async fn collected(&self) {
        let (answer, answered) = oneshot::channel();
        // Without the thread no launcher is left to be collected.
        if self.spawner.send(SpawnerOrder::Answer(answer)).is_ok() {
            let _ = answered.await;
        }
    }
}

impl Spawned {
    /// Sends the plan and the script's descriptors.
    ///
    /// # Errors
    /// Fails when a pipe cannot be made or the launcher has ended.
    pub async fn launch(self, plan: &LaunchPlan) -> io::Result<Launched> {
        let Self {
            supervisor,
            mut control,
        } = self;
        let frame = channel::frame(plan)?;
        let (head, rest) = frame.split_at(4);
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
        let (script_stdin, stdin) = pipe()?;
        let (stdout, script_stdout) = pipe()?;
        let (stderr, script_stderr) = pipe()?;
        let (result, script_result) = pipe()?;
        let (progress, script_progress) = pipe()?;
        let (files, init_files) = UnixStream::pair()?;
        let (job, script_job) = match plan.start {
            Start::AfterFiles => (None, OwnedFd::from(std::fs::File::open("/dev/null")?)),
            Start::AtOnce | Start::Waiting => {
                let (job, script_job) = UnixStream::pair()?;
                (Some(job), script_job.into())
            }
        };
        let script = [
            script_stdin,
            script_stdout,
            script_stderr,
            script_result,
            script_progress,
            script_job,
        ];
        if let Some(user) = plan.outside_user {
            give_to(user, &script[..5])?;
        }
        let files_end = init_files.into();
        let descriptors = ScriptDescriptors {
            script,
            files: files_end,
        };
        channel::send_head(control.as_fd(), head, &descriptors)?;
        drop(descriptors);
        let io = ScriptIo {
            files: convert(files.try_clone()?)?,
            stdin: pipe::Sender::from_owned_fd(stdin)?,
            stdout: pipe::Receiver::from_owned_fd(stdout)?,
            stderr: pipe::Receiver::from_owned_fd(stderr)?,
            result: pipe::Receiver::from_owned_fd(result)?,
            progress: pipe::Receiver::from_owned_fd(progress)?,
            job: job.map(convert).transpose()?,
        };
        // The plan is small enough for the socket to accept it at once. A launcher that has died
        // already is recognized by its missing reports.
        let _ = tokio::time::timeout(PLAN_TIME, control.write_all(rest)).await;
        let (reports, say) = control.into_split();
        Ok(Launched {
            supervisor,
            reports: BufReader::new(reports).lines(),
            say,
            work: WorkDirectory::over(files),
            io,
        })
    }
}

/// Raises the limit on open files of this process to the maximum. The kernel counts descriptors in
/// transit through sockets by user, and lets none be sent while they exceed this limit. The
/// descriptors of scripts, whose limits are lower, must not keep the service from sending a plan.
fn raise_open_files() {
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let current = maximum;
    let raised = rustix::process::setrlimit(Resource::Nofile, Rlimit { current, maximum });
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit on open files could not be raised");
    }
}

/// Makes the script the owner of its pipes, as it is where it has the service's user, so that it
/// can open them again by a name such as /dev/stdin. Both ends of each pipe lead to script and
/// service only.
fn give_to(user: u32, pipes: &[OwnedFd]) -> io::Result<()> {
    let (owner, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(user)));
    let mut pipes = pipes.iter();
    Ok(pipes.try_for_each(|pipe| rustix::fs::fchown(pipe, owner, group))?)
}

fn convert(stream: UnixStream) -> io::Result<tokio::net::UnixStream> {
    stream.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(stream)
}

fn serve(program: &Path, orders: &mpsc::Receiver<SpawnerOrder>) {
    let mut ending = ReapQueue::default();
    loop {
        let order = if ending.0.is_empty() {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            orders.recv_timeout(STEP)
        };
        ending.reap();
        let order = match order {
            Ok(order) => order,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        match order {
            SpawnerOrder::Spawn { socket, answer } => {
                let child = Command::new(program)
                    .env_clear()
                    .current_dir("/")
                    .stdin(Stdio::from(socket))
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn();
                // A caller that has gone leaves a launcher without a plan. The launcher ends by
                // itself, but must be reaped.
                if let Err(Ok(child)) = answer.send(child) {
                    ending.wait_for(child, None);
                }
            }
            SpawnerOrder::Answer(answer) => {
                while !ending.0.is_empty() {
                    std::thread::sleep(STEP);
                    ending.reap();
                }
                // The caller may have gone.
                let _ = answer.send(());
            }
            SpawnerOrder::Collect(child, cgroup) => ending.wait_for(child, cgroup),
        }
    }
}

/// The interval at which ending supervisors are polled.
const STEP: Duration = Duration::from_millis(2);

/// The longest time that a supervisor may take to end every process before it is killed. Longer
/// than the supervisor's own bound.
const PATIENCE: Duration = Duration::from_secs(35);

/// Supervisors whose sockets are closed, each with its cgroup and the deadline of its end.
#[derive(Default)]
struct ReapQueue(Vec<(Child, Option<Arc<Cgroup>>, Instant)>);

impl ReapQueue {
    fn wait_for(&mut self, child: Child, cgroup: Option<Arc<Cgroup>>) {
        self.0.push((child, cgroup, Instant::now() + PATIENCE));
        self.reap();
    }

    fn reap(&mut self) {
        self.0.retain_mut(|(child, _, end)| {
            if Instant::now() > *end {
                tracing::error!("a launcher does not end");
                let _ = child.kill();
            }
            match child.try_wait() {
                Ok(status) => status.is_none(),
                Err(error) => {
                    tracing::error!(%error, "a launcher could not be waited for");
                    false
                }
            }
        });
    }
}

fn find(setting: &Path) -> Result<PathBuf, BuildError> {
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.ancestors().skip(1).take(2);
    let tried: Vec<PathBuf> = match setting.as_os_str().is_empty() {
        true => beside.map(|directory| directory.join(PROGRAM)).collect(),
        false => vec![setting.to_owned()],
    };
    match tried.iter().find(|path| path.is_file()) {
        Some(program) => Ok(program.clone()),
        None => Err(BuildError::NoLauncher { tried }),
    }
}
