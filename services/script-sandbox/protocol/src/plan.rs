//! The service's orders to the launcher.
//!
//! The plan holds everything except the content of files, and is the only input: the launcher reads
//! no arguments, no environment and no configuration of its own.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Number of the descriptor on which the script finds its result channel.
pub const RESULT_FD: i32 = 3;

/// Number of the descriptor to which the script writes its progress.
pub const PROGRESS_FD: i32 = 4;

/// Number of the descriptor from which a warm interpreter reads its job.
pub const JOB_FD: i32 = 5;

/// User and group id of the script as it sees itself inside a user namespace.
pub const INSIDE_ID: u32 = 1000;

/// The working directory inside the script's own root.
pub const WORK_DIRECTORY: &str = "/work";

/// The directory of the script's input inside the script's own root.
pub const INPUT_DIRECTORY: &str = "/input";

/// The largest plan that the launcher reads, in bytes.
pub const MAX_PLAN_BYTES: usize = 4 << 20;

/// The plan of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchPlan {
    /// The confinement of the script.
    pub confinement: Confinement,
    /// The user outside of the script's namespace as which it runs, and the group of that number;
    /// it owns no file. `None` when the launcher is not root: the script then keeps the launcher's
    /// own user.
    pub outside_user: Option<u32>,
    /// The program and its arguments; the first one is an absolute path inside the script's root.
    pub command: Vec<String>,
    /// The script's whole environment.
    pub environment: Vec<(String, String)>,
    /// Limits that the kernel enforces for each process.
    pub limits: ProcessLimits,
    /// The `cgroup.procs` files to which the id of the script's first process is written. Empty if
    /// the launcher is in the cgroups already.
    pub cgroups: Vec<PathBuf>,
    /// The condition for the start of the interpreter.
    pub start: Start,
    /// Whether the first attempt to use a network ends the script.
    #[serde(default)]
    pub report_network: bool,
    /// The number of watches by epoll that the script may add, where the kernel counts them
    /// together with those of the service. `None` if the script has a user of its own.
    #[serde(default)]
    pub epoll_watches: Option<u64>,
    /// Symbolic links in the script's own directories with their targets, made before it starts.
    #[serde(default)]
    pub links: Vec<(PathBuf, PathBuf)>,
}

/// The confinement of a script.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confinement {
    /// In namespaces with a root of its own.
    Namespaces(RootPlan),
    /// In the host's root, restricted by landlock and seccomp.
    Reduced(ReducedPlan),
}

/// The root that is built for a script.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RootPlan {
    /// Whether a fresh /proc is mounted.
    pub proc: bool,
    /// Host paths that appear read-only in the same place, with everything below them.
    pub binds: Vec<PathBuf>,
    /// Host paths that appear read-only in another place, with everything below them.
    #[serde(default)]
    pub moved: Vec<(PathBuf, PathBuf)>,
    /// Symbolic links of the root, such as `/bin`, with their targets.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Small files of the root, such as `/etc/passwd`, with their content.
    pub files: Vec<(PathBuf, String)>,
    /// Size of the scratch file system that carries /work, /tmp and /dev/shm, in bytes.
    pub scratch_bytes: u64,
    /// Number of files and directories of the scratch file system.
    pub scratch_files: u64,
}

/// The part of the host's own root that a script may see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReducedPlan {
    /// The working directory, empty and owned by the script's user.
    pub work: PathBuf,
    /// The directory for the script's input, empty and owned by the script's user.
    pub input: PathBuf,
    /// The directory for temporary files, empty and owned by the script's user.
    pub temporary: PathBuf,
    /// Paths that may be read and executed.
    pub readable: Vec<PathBuf>,
}

/// Limits that the kernel enforces for each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// Processor seconds of one process.
    pub cpu_seconds: u64,
    /// Size of one file, in bytes.
    pub file_bytes: u64,
    /// Open files.
    pub open_files: u64,
    /// Processes and threads of the user.
    pub processes: u64,
    /// Private writable memory of one process, in bytes.
    pub data_bytes: u64,
}

/// The condition for the start of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// After the first delivery of files.
    AfterFiles,
    /// At once; it then reads its job from [`JOB_FD`], and files may come at any time.
    AtOnce,
    /// After the first delivery of files, which holds everything needed to wait; it then reads its
    /// job from [`JOB_FD`], and more files may come at any time.
    Waiting,
}

/// The head of a delivery of files; the contents follow in the same order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The files.
    pub files: Vec<DeliveredFile>,
    /// A signal for the script's process group, once the files are in place. A delivery with only a
    /// signal is not reported.
    #[serde(default)]
    pub signal: Option<i32>,
    /// Paths in the working directory to remove before the files are placed. A path without a file,
    /// or of a directory, is passed over.
    #[serde(default)]
    pub removals: Vec<String>,
    /// Directories in the working directory that are made if they are not there.
    #[serde(default)]
    pub directories: Vec<String>,
    /// Whether a file that cannot be placed is reported and left out.
    #[serde(default)]
    pub may_fail: bool,
}

/// One file of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveredFile {
    /// Its directory.
    pub area: Area,
    /// The path below that directory.
    pub path: String,
    /// The number of bytes that follow for it.
    pub size: u64,
    /// Whether it may be executed.
    pub executable: bool,
}

/// A directory that files are delivered to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// The working directory.
    Work,
    /// The input directory, which the script can only read.
    Input,
}
