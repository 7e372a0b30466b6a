//! Invariants of the machine and of the service once a hostile program has ended.
//!
//! The oracles are numbered as in the list of hostile programs: O1 files outside, O2 secrets, O3
//! leftovers, O4 the service itself, O5 its other callers, O8 the machine. O6, the verdict, is each
//! test's own, and O7, the audit record, is checked with each answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use contracts::tavern::sandbox::v1::{ExecuteResponse, GetIsolationRequest};

use crate::support::{Host, eventually, expect_output, processes_with, request};

/// The variable with the secret in the environment of a round, where the service reads it like any
/// other.
pub(crate) const SECRET: &str = "TAVERN_TEST_SECRET";

/// The secret that no script may ever learn.
pub(crate) fn secret() -> String {
    std::env::var(SECRET).unwrap_or_else(|_| format!("canary-{}", std::process::id()))
}

/// O2: no output of a script has the secret.
#[track_caller]
pub(crate) fn tells_no_secret(response: &ExecuteResponse) {
    let secret = secret();
    for (name, bytes) in [
        ("stdout", &response.stdout[..]),
        ("stderr", &response.stderr),
        ("result", response.result_json.as_bytes()),
    ] {
        let leaked = bytes
            .windows(secret.len())
            .any(|window| window == secret.as_bytes());
        assert!(!leaked, "O2: {name} has the secret");
    }
}

/// Files with the secret that any user on the host may read, so that only the sandbox protects
/// them.
pub(crate) struct Canaries {
    directory: tempfile::TempDir,
}

impl Canaries {
    /// Writes them.
    pub(crate) fn plant() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        set(directory.path(), 0o755);
        for (name, mode) in [
            ("service.toml", 0o644),
            ("runs.db", 0o666),
            ("tls.key", 0o644),
            ("nats.creds", 0o644),
            ("audit.key", 0o640),
            ("program", 0o755),
        ] {
            let path = directory.path().join(name);
            fs::write(&path, secret()).unwrap();
            set(&path, mode);
        }
        let open = directory.path().join("open-to-all");
        fs::create_dir(&open).unwrap();
        set(&open, 0o1777);
        Self { directory }
    }

    /// Their directory.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// The state of the host and the service before a program.
pub(crate) struct Before {
    canaries: Canaries,
    tree: BTreeMap<PathBuf, Vec<i64>>,
    left: Left,
    open_files: usize,
    threads: usize,
    resident_bytes: u64,
    machine: Vec<(&'static str, String)>,
    clock: (SystemTime, Instant),
}

/// O3: the possible leftovers of a script, as far as they can be distinguished from those of other
/// programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    launchers: usize,
    directories: usize,
    mounts: usize,
    ipc_objects: usize,
    keyrings: usize,
    network_namespaces: usize,
}

impl Before {
    /// Records everything, after the host has run a script and holds its usual resources.
    pub(crate) async fn look(host: &Host) -> Self {
        let (one, other) = tokio::join!(neighbour(host), neighbour(host));
        assert_eq!((one, other), ((), ()));
        let canaries = Canaries::plant();
        Self {
            tree: tree(canaries.path()),
            canaries,
            left: Left::look(),
            open_files: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            resident_bytes: resident_bytes(),
            machine: machine(),
            clock: (SystemTime::now(), Instant::now()),
        }
    }

    /// The directory of the canaries.
    pub(crate) fn canaries(&self) -> &Path {
        self.canaries.path()
    }

    /// Compares the present state with the recorded one.
    pub(crate) async fn compare(self, host: &Host) {
        assert_eq!(tree(self.canaries.path()), self.tree, "O1: the canaries");
        neighbour(host).await;
        // Users of scripts and threads of the runtime may have been added; a leak grows without
        // end.
        const SLACK: usize = 48;
        const SLACK_BYTES: u64 = 48 << 20;
        eventually("O4: descriptors and threads are back", || {
            entries("/proc/self/fd") <= self.open_files + SLACK
                && entries("/proc/self/task") <= self.threads + SLACK
        })
        .await;
        let resident = resident_bytes();
        assert!(
            resident <= self.resident_bytes + SLACK_BYTES,
            "O4: {} bytes of memory before, {resident} after",
            self.resident_bytes
        );
        // The test's own caller that waits for a script is not part of the program.
        host.sandbox.shutdown().await;
        let before = &self.left;
        eventually("O3: nothing is left behind", || {
            Left::look().is_within(before)
        })
        .await;
        assert_eq!(machine(), self.machine, "O8: the machine");
        let (time, moment) = self.clock;
        let passed = moment.elapsed();
        let shown = SystemTime::now().duration_since(time).unwrap_or_default();
        assert!(
            shown.abs_diff(passed) < Duration::from_secs(60),
            "O8: the clock was set: {shown:?} in {passed:?}"
        );
    }
}

/// O5: another caller is served: its script ends well, and the service reports its state.
pub(crate) async fn neighbour(host: &Host) {
    let mut asked = request("bash", "echo alive");
    asked.environment.insert("TOKEN".to_owned(), secret());
    asked.stdin = secret().into_bytes();
    expect_output(&host.run(asked).await, "alive\n");
    let mut client = host.client.clone();
    let isolation = client.get_isolation(GetIsolationRequest {}).await;
    assert!(isolation.unwrap().get_ref().ready, "O5");
}

impl Left {
    /// Counts this process's launchers and directories, and the leftovers on the machine.
    pub(crate) fn look() -> Self {
        let users = own_users();
        // The columns of the owners.
        let ipc = [("shm", 7), ("sem", 4), ("msg", 7)];
        let dead: BTreeSet<u32> = users.iter().copied().filter(|it| !is_alive(*it)).collect();
        Self {
            launchers: own_launchers().len(),
            directories: left_behind().len(),
            mounts: lines("/proc/self/mountinfo", |line| {
                line.contains("tavern-script") || line.contains(" - tmpfs scratch ")
            }),
            ipc_objects: ipc
                .map(|(kind, column)| {
                    let path = format!("/proc/sysvipc/{kind}");
                    lines(&path, |line| is_of(line, column, &users))
                })
                .iter()
                .sum(),
            keyrings: lines("/proc/key-users", |line| is_of(line, 0, &dead)),
            network_namespaces: network_namespaces(),
        }
    }

    fn is_within(&self, before: &Self) -> bool {
        self.launchers <= before.launchers
            && self.directories <= before.directories
            && self.mounts <= before.mounts
            && self.ipc_objects <= before.ipc_objects
            && self.keyrings <= before.keyrings
            && self.network_namespaces <= before.network_namespaces
    }
}

/// The users that this process assigns to scripts: it holds their names in the abstract socket
/// namespace. Other services of this machine have others.
fn own_users() -> BTreeSet<u32> {
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let held: BTreeSet<PathBuf> = open
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .collect();
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let own = |line: &str| {
        let (rest, name) = line.rsplit_once(' ')?;
        let (_, inode) = rest.rsplit_once(' ')?;
        let user = name.strip_prefix("@tavern-script-user-")?.parse().ok();
        user.filter(|_| held.contains(Path::new(&format!("socket:[{inode}]"))))
    };
    sockets.lines().filter_map(own).collect()
}

/// Whether one of a line's columns, counted from zero, is one of these users.
fn is_of(line: &str, column: usize, users: &BTreeSet<u32>) -> bool {
    let field = line.split_whitespace().nth(column);
    let user = field.and_then(|field| field.trim_end_matches(':').parse().ok());
    user.is_some_and(|user| users.contains(&user))
}

/// Whether a user has a process.
fn is_alive(user: u32) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .into_iter()
        .any(|entry| entry.metadata().is_ok_and(|is| is.uid() == user))
}

fn lines(path: &str, counts: impl Fn(&str) -> bool) -> usize {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter(|line| counts(line)).count()
}

/// Network namespaces other than our own that this process keeps by a descriptor, by a mount, or by
/// a process among its launchers and their descendants. The kernel keeps none without an owner.
fn network_namespaces() -> usize {
    let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let own = network("self");
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let held = open
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("net:["));
    let mut family: BTreeSet<u32> = own_launchers().into_iter().collect();
    let mut found: BTreeSet<PathBuf> = held.collect();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        // A child usually has a higher number than its parent. The others are found when their
        // parents have ended, which is when they would be left behind.
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, fields)| fields.split_whitespace().nth(1)?.parse::<u32>().ok());
        if parent.is_some_and(|parent| family.contains(&parent)) {
            family.insert(pid);
        }
    }
    found.extend(family.iter().filter_map(|pid| network(&pid.to_string())));
    let mounted = lines("/proc/self/mountinfo", |line| line.contains(" - nsfs "));
    found.iter().filter(|it| Some(*it) != own.as_ref()).count() + mounted
}

/// The launchers that this process has started.
pub(crate) fn own_launchers() -> Vec<u32> {
    launchers_of(std::process::id())
}

/// The launchers that a service has started.
pub(crate) fn launchers_of(service: u32) -> Vec<u32> {
    let own = format!("PPid:\t{service}\n");
    processes_with("sandbox-launcher")
        .into_iter()
        .filter(|pid| {
            fs::read_to_string(format!("/proc/{pid}/status"))
                .is_ok_and(|status| status.contains(&own))
        })
        .collect()
}

/// Working directories and cgroups of this process's scripts.
pub(crate) fn left_behind() -> Vec<String> {
    left_behind_by(&std::env::temp_dir(), std::process::id())
}

/// Working directories and cgroups of a service's scripts.
pub(crate) fn left_behind_by(scratch: &Path, service: u32) -> Vec<String> {
    let own = format!("tavern-script-{service}-");
    let mut found = Vec::new();
    let mut open = vec![scratch.to_owned(), "/sys/fs/cgroup".into()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with(&own) {
                found.push(path.display().to_string());
            } else if path.starts_with("/sys/fs/cgroup") && path.is_dir() && !path.is_symlink() {
                open.push(path);
            }
        }
    }
    found
}

pub(crate) fn entries(directory: &str) -> usize {
    fs::read_dir(directory).unwrap().count()
}

fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// All metadata of each file of a tree, including the time of the last change, which no program can
/// set.
fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<i64>> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let is = fs::symlink_metadata(&path).unwrap();
        if is.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().flatten().map(|it| it.path()));
        }
        let mut kept = facts(&is);
        kept.extend([
            is.ctime(),
            is.ctime_nsec(),
            i64::try_from(is.nlink()).unwrap(),
        ]);
        found.insert(path, kept);
    }
    found
}

fn facts(is: &fs::Metadata) -> Vec<i64> {
    vec![
        i64::from(is.mode()),
        i64::from(is.uid()),
        i64::from(is.gid()),
        i64::try_from(is.size()).unwrap(),
        is.mtime(),
        is.mtime_nsec(),
    ]
}

/// O8: state that only an administrator of the machine changes, including its record of oopses.
fn machine() -> Vec<(&'static str, String)> {
    [
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/tainted",
        "/proc/sys/kernel/randomize_va_space",
        "/proc/sys/kernel/sysrq",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/net/ipv4/ip_forward",
    ]
    .map(|path| (path, fs::read_to_string(path).unwrap_or_default()))
    .to_vec()
}
