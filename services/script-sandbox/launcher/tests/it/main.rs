//! The launcher when a layer cannot be set up: it reports the layer, and no program runs.
//!
//! Failures are real: the launcher is started under a filter that makes one system call fail, as a
//! poorer kernel or a stricter container would.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    unsafe_code,
    reason = "a filter has to be installed between fork and exec"
)]

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    ops::Range,
    os::{
        fd::{AsFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::{
            net::{SocketAddr, UnixListener, UnixStream},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use sandbox_protocol::{
    channel::{self, ScriptDescriptors},
    plan::{Confinement, Delivery, LaunchPlan, ProcessLimits, ReducedPlan, RootPlan, Start},
    report::{End, Layer, Report},
};

/// A system call that fails if one argument has certain bits.
#[derive(Clone, Copy)]
struct Fault {
    number: i64,
    argument: u32,
    bits: u32,
    errno: i32,
}

impl Fault {
    fn always(number: i64, errno: i32) -> Fault {
        Fault {
            number,
            argument: 0,
            bits: 0,
            errno,
        }
    }

    fn with_bits(number: i64, argument: u32, bits: i32, errno: i32) -> Fault {
        Fault {
            number,
            argument,
            bits: bits as u32,
            errno,
        }
    }

    /// The filter: compare the number, compare the bits, fail or allow.
    fn program(self) -> Vec<libc::sock_filter> {
        let step = |code: u32, jt, jf, k| libc::sock_filter {
            code: code as u16,
            jt,
            jf,
            k,
        };
        let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        vec![
            step(load, 0, 0, 0),
            step(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                0,
                4,
                self.number as u32,
            ),
            step(load, 0, 0, 16 + 8 * self.argument),
            step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, self.bits),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, self.bits),
            step(
                libc::BPF_RET | libc::BPF_K,
                0,
                0,
                libc::SECCOMP_RET_ERRNO | self.errno as u32,
            ),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ]
    }
}

/// Users of this process alone: ending a script without namespaces ends all processes of its user.
/// The name that reserves a user is free again when the process has ended.
static USER: LazyLock<(u32, UnixListener)> = LazyLock::new(|| lease(61_000..62_000));
static REDUCED_USER: LazyLock<(u32, UnixListener)> = LazyLock::new(|| lease(62_000..63_000));

fn lease(mut users: Range<u32>) -> (u32, UnixListener) {
    users
        .find_map(|user| {
            let name = format!("tavern-launcher-test-user-{user}");
            let address = SocketAddr::from_abstract_name(name).ok()?;
            Some((user, UnixListener::bind_addr(&address).ok()?))
        })
        .unwrap()
}

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

fn plan() -> LaunchPlan {
    let shown = ["/usr/bin", "/usr/lib", "/usr/lib64"].map(PathBuf::from);
    let links = ["/bin", "/lib", "/lib64"].map(Path::new).into_iter();
    let root_plan = RootPlan {
        proc: true,
        binds: shown.into_iter().filter(|path| path.is_dir()).collect(),
        links: links
            .filter_map(|path| {
                let target = std::fs::read_link(path).ok()?;
                Some((path.to_owned(), target))
            })
            .collect(),
        moved: Vec::new(),
        files: Vec::new(),
        scratch_bytes: 1 << 20,
        scratch_files: 100,
    };
    LaunchPlan {
        confinement: Confinement::Namespaces(root_plan),
        outside_user: root().then(|| USER.0),
        command: vec!["/usr/bin/echo".to_owned(), "ran".to_owned()],
        environment: Vec::new(),
        limits: ProcessLimits {
            cpu_seconds: 5,
            file_bytes: 1 << 20,
            open_files: 64,
            processes: 16,
            data_bytes: 1 << 30,
        },
        cgroups: Vec::new(),
        start: Start::AfterFiles,
        report_network: false,
        epoll_watches: None,
        links: Vec::new(),
    }
}

fn with_root(change: impl FnOnce(&mut RootPlan)) -> LaunchPlan {
    let mut plan = plan();
    if let Confinement::Namespaces(root) = &mut plan.confinement {
        change(root);
    }
    plan
}

/// Runs a launcher; returns its reports and the script's output.
fn launch(plan: &LaunchPlan, fault: Option<Fault>) -> (Vec<Report>, String) {
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let ((stdin, _), (stdout, script_stdout)) = (pipe(), pipe());
    let (files, init_files) = UnixStream::pair().unwrap();
    let (control, launcher_control) = UnixStream::pair().unwrap();
    let null: OwnedFd = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .unwrap()
        .into();
    let frame = channel::frame(plan).unwrap();
    let descriptors = ScriptDescriptors {
        script: [
            stdin.as_fd(),
            script_stdout.as_fd(),
            null.as_fd(),
            null.as_fd(),
            null.as_fd(),
            null.as_fd(),
        ],
        files: init_files.as_fd(),
    };
    channel::send_head(control.as_fd(), &frame[..4], &descriptors).unwrap();
    (&control).write_all(&frame[4..]).unwrap();
    (&files)
        .write_all(&channel::frame(&Delivery::default()).unwrap())
        .unwrap();

    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox-launcher"));
    command
        .env_clear()
        .stdin(OwnedFd::from(launcher_control))
        .stdout(Stdio::null());
    if let Some(fault) = fault {
        let mut program = fault.program();
        // SAFETY: between fork and exec only system calls are made, on memory allocated before.
        unsafe {
            command.pre_exec(move || {
                let program = libc::sock_fprog {
                    len: program.len() as u16,
                    filter: program.as_mut_ptr(),
                };
                let installed = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                    && libc::syscall(libc::SYS_seccomp, 1, 0, &raw const program) == 0;
                if installed {
                    Ok(())
                } else {
                    Err(std::io::Error::last_os_error())
                }
            });
        }
    }
    let mut child = command.spawn().unwrap();
    drop((command, script_stdout, init_files, files));
    let reports = BufReader::new(&control)
        .lines()
        .map_while(Result::ok)
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect();
    child.wait().unwrap();
    let mut said = String::new();
    File::from(stdout).read_to_string(&mut said).unwrap();
    (reports, said)
}

/// Checks that the launcher names the layer, and that the script neither starts nor writes
/// anything.
fn fails(plan: &LaunchPlan, fault: Option<Fault>, layer: Layer) {
    let (reports, said) = launch(plan, fault);
    let failed = reports.iter().find_map(|report| match report {
        Report::Failed(failure) => Some(failure.layer),
        _ => None,
    });
    assert_eq!(failed, Some(layer), "{reports:?}");
    assert!(
        !reports
            .iter()
            .any(|report| matches!(report, Report::Started { .. })),
        "{reports:?}"
    );
    assert_eq!(said, "");
}

#[test]
fn without_a_fault_the_script_runs() {
    let (reports, said) = launch(&plan(), None);
    let ended = reports.iter().any(|report| {
        matches!(
            report,
            Report::Ended {
                end: End::Exited(0)
            }
        )
    });
    assert!(ended, "{reports:?}");
    assert!(
        matches!(reports.last(), Some(Report::Gone { survivors: 0, .. })),
        "{reports:?}"
    );
    assert_eq!(said, "ran\n");
}

#[test]
fn e97_each_namespace_that_is_refused_is_named() {
    let table = [
        (libc::CLONE_NEWUSER, Layer::UserNamespace),
        (libc::CLONE_NEWNS, Layer::MountNamespace),
        (libc::CLONE_NEWPID, Layer::PidNamespace),
        (libc::CLONE_NEWNET, Layer::NetworkNamespace),
        (libc::CLONE_NEWIPC, Layer::IpcNamespace),
        (libc::CLONE_NEWUTS, Layer::UtsNamespace),
    ];
    for (bit, layer) in table {
        // The one call that requests all namespaces fails on this bit; the search for the culprit,
        // which requests them one by one through another call, must not find it allowed. As a
        // filter has one call here, the first layer is named unless the search fails in the same
        // way.
        let (reports, said) = launch(
            &plan(),
            Some(Fault::with_bits(libc::SYS_clone, 0, bit, libc::EPERM)),
        );
        assert!(
            matches!(&reports[..], [Report::Failed(failure)] if failure.errno == libc::EPERM),
            "{layer:?} {reports:?}"
        );
        assert_eq!(said, "");
    }
    let cgroup = Fault::with_bits(libc::SYS_unshare, 0, libc::CLONE_NEWCGROUP, libc::EPERM);
    fails(&plan(), Some(cgroup), Layer::CgroupNamespace);
}

#[test]
fn e97_each_layer_that_cannot_be_set_up_is_named() {
    let proc_flags = (libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC) as i32;
    let table = [
        (
            Fault::with_bits(libc::SYS_mount, 3, libc::MS_PRIVATE as i32, libc::EPERM),
            Layer::MountNamespace,
        ),
        (
            Fault::with_bits(libc::SYS_mount, 3, libc::MS_BIND as i32, libc::EPERM),
            Layer::Root,
        ),
        (
            Fault::with_bits(libc::SYS_mount, 3, proc_flags, libc::EPERM),
            Layer::Proc,
        ),
        (
            Fault::always(libc::SYS_pivot_root, libc::EPERM),
            Layer::Root,
        ),
        (
            Fault::always(libc::SYS_mount_setattr, libc::ENOSYS),
            Layer::Root,
        ),
        (
            Fault::always(libc::SYS_sethostname, libc::EPERM),
            Layer::UtsNamespace,
        ),
        (
            Fault::always(libc::SYS_socket, libc::EPERM),
            Layer::NetworkNamespace,
        ),
        (
            Fault::always(libc::SYS_capset, libc::EPERM),
            Layer::Privileges,
        ),
        (
            Fault::always(libc::SYS_setresuid, libc::EPERM),
            Layer::Privileges,
        ),
        (
            Fault::always(libc::SYS_setsid, libc::EPERM),
            Layer::Privileges,
        ),
        (
            Fault::always(libc::SYS_prlimit64, libc::EPERM),
            Layer::Rlimits,
        ),
        (
            Fault::always(libc::SYS_landlock_create_ruleset, libc::ENOSYS),
            Layer::Landlock,
        ),
        (
            Fault::always(libc::SYS_landlock_restrict_self, libc::EPERM),
            Layer::Landlock,
        ),
        (
            Fault::always(libc::SYS_seccomp, libc::EINVAL),
            Layer::Seccomp,
        ),
        (Fault::always(libc::SYS_dup2, libc::EMFILE), Layer::Exec),
    ];
    for (fault, layer) in table {
        fails(&plan(), Some(fault), layer);
    }
}

#[test]
fn a_keyring_that_cannot_be_made_is_reported_as_missing() {
    let missing = |fault: Option<Fault>| {
        let (reports, said) = launch(&plan(), fault);
        assert_eq!(said, "ran\n");
        let started = reports.into_iter().find_map(|report| match report {
            Report::Started { missing } => Some(missing),
            _ => None,
        });
        started.unwrap()
    };
    // Older kernels lack a layer even without the fault.
    let otherwise = missing(None);
    let mut found = missing(Some(Fault::always(libc::SYS_keyctl, libc::ENOSYS)));
    found.retain(|layer| !otherwise.contains(layer));
    assert_eq!(found, [Layer::Keyring]);
}

#[test]
fn plans_that_cannot_be_met_name_their_layer() {
    fails(
        &LaunchPlan {
            cgroups: vec!["/nowhere/cgroup.procs".into()],
            ..plan()
        },
        None,
        Layer::CgroupLimits,
    );
    fails(
        &LaunchPlan {
            command: vec!["/nowhere".to_owned()],
            ..plan()
        },
        None,
        Layer::Exec,
    );
    fails(
        &LaunchPlan {
            command: vec!["a\0b".to_owned()],
            ..plan()
        },
        None,
        Layer::Exec,
    );
    fails(
        &with_root(|root| root.scratch_files = 2),
        None,
        Layer::DiskQuota,
    );
    let missing = PathBuf::from("/nowhere");
    fails(
        &with_root(|root| root.binds.push(missing)),
        None,
        Layer::Root,
    );
}

#[test]
fn the_reduced_level_fails_closed_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let user = root().then(|| REDUCED_USER.0);
    for name in ["work", "input", "tmp"] {
        let path = directory.path().join(name);
        std::fs::create_dir(&path).unwrap();
        std::os::unix::fs::chown(&path, user, user).unwrap();
    }
    // The directory of the test is private; the script's user has to traverse it.
    std::fs::set_permissions(
        directory.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o711),
    )
    .unwrap();
    let plan = LaunchPlan {
        confinement: Confinement::Reduced(ReducedPlan {
            work: directory.path().join("work"),
            input: directory.path().join("input"),
            temporary: directory.path().join("tmp"),
            readable: ["/usr", "/lib", "/lib64"].map(PathBuf::from).to_vec(),
        }),
        outside_user: user,
        ..plan()
    };
    let (reports, said) = launch(&plan, None);
    assert_eq!(said, "ran\n", "{reports:?}");
    let table = [
        (
            Fault::always(libc::SYS_landlock_create_ruleset, libc::ENOSYS),
            Layer::Landlock,
        ),
        (
            Fault::always(libc::SYS_seccomp, libc::EINVAL),
            Layer::Seccomp,
        ),
        (
            Fault::always(libc::SYS_prlimit64, libc::EPERM),
            Layer::Rlimits,
        ),
        (
            Fault::always(libc::SYS_capset, libc::EPERM),
            Layer::Privileges,
        ),
    ];
    for (fault, layer) in table {
        fails(&plan, Some(fault), layer);
    }
}

#[test]
fn garbage_for_a_plan_starts_nothing() {
    for garbage in [
        &b""[..],
        b"\x02\0\0\0{}",
        b"\xff\xff\xff\xff",
        b"\x05\0\0\0{",
    ] {
        let (control, launcher_control) = UnixStream::pair().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_sandbox-launcher"))
            .env_clear()
            .stdin(OwnedFd::from(launcher_control))
            .spawn()
            .unwrap();
        // A launcher that rejects the data may have ended before it has read all.
        let _ = (&control).write_all(garbage);
        control.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = String::new();
        let _ = (&control).read_to_string(&mut said);
        assert!(!child.wait().unwrap().success());
        assert_eq!(said, "");
    }
}
