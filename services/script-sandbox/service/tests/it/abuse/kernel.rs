//! Programs that attack the kernel and other processes.

use crate::{
    control::unconfined_python,
    rounds::{as_every_user, everywhere, is_root},
    support::{
        Host, expect_class, expect_output, limited, marker, patient, processes_with, request,
        seconds, stdout,
    },
};
use contracts::tavern::sandbox::v1::Limits;

/// Functions for programs that make system calls by number.
pub(super) const CALL: &str = "
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    return 'allowed' if result >= 0 else errno.errorcode[ctypes.get_errno()]
";

/// Makes each call, after a preamble that defines `call`, and expects one of the errors.
pub(super) async fn refused(host: &Host, preamble: &str, calls: &[(&str, &str)], errors: &[&str]) {
    let lines: String = calls
        .iter()
        .map(|(name, call)| format!("print('{name}', call({call}))\n"))
        .collect();
    let response = host.python(&format!("{preamble}{lines}")).await;
    expect_class(&response, &["exited 0"]);
    let output = stdout(&response);
    assert_eq!(output.lines().count(), calls.len());
    for line in output.lines() {
        let (_, error) = line.rsplit_once(' ').unwrap();
        assert!(errors.contains(&error), "{line}");
    }
}

/// The control: outside of the sandbox the same probes succeed, so that a refusal inside is
/// meaningful.
#[test]
fn the_probes_succeed_without_a_sandbox() {
    let probes = [
        "425, 8, ctypes.create_string_buffer(256)",
        "323, 1",
        "250, 0, -3, 1",
        "41, 16, 3, 0",
        "253",
        "101, 0, 0, 0, 0",
        "135, 0xffffffff",
        "272, 0x10000000",
    ];
    let lines: String = probes
        .iter()
        .map(|probe| format!("print(call({probe}))\n"))
        .collect();
    let expected = "allowed\n".repeat(probes.len());
    assert_eq!(unconfined_python(&format!("{CALL}{lines}")), expected);
}

#[test]
fn e41_e43_e51_e52_e74_calls_beyond_a_script_are_refused() {
    everywhere(async |host| {
        refused(&host, CALL,
        &[
            ("name_to_handle_at", "303, -100, b'/', ctypes.create_string_buffer(128), ctypes.create_string_buffer(8), 0"),
            ("open_by_handle_at", "304, -100, ctypes.create_string_buffer(128), 0"),
            ("mount", "165, b'none', b'/tmp', b'tmpfs', 0, None"),
            ("umount2", "166, b'/tmp', 2"),
            ("pivot_root", "155, b'/tmp', b'/tmp'"),
            ("chroot", "161, b'/tmp'"),
            ("open_tree", "428, -100, b'/', 1"),
            ("move_mount", "429, -100, b'/', -100, b'/tmp', 0"),
            ("fsopen", "430, b'tmpfs', 0"),
            ("mount_setattr", "442, -100, b'/', 0, None, 0"),
            ("io_uring_setup", "425, 8, ctypes.create_string_buffer(256)"),
            ("io_uring_enter", "426, 0, 0, 0, 0"),
            ("io_uring_register", "427, 0, 0, None, 0"),
            ("bpf", "321, 0, ctypes.create_string_buffer(128), 128"),
            ("perf_event_open", "298, ctypes.create_string_buffer(128), 0, -1, -1, 0"),
            ("userfaultfd", "323, 0"),
            ("kexec_load", "246, 0, 0, None, 0"),
            ("init_module", "175, None, 0, b''"),
            ("add_key", "248, b'user', b'x', b'y', 1, -3"),
            ("request_key", "249, b'user', b'x', None, -3"),
            ("keyctl", "250, 0, -3, 1"),
            ("memfd_secret", "447, 0"),
            ("setns", "308, 0, 0"),
            ("seccomp", "317, 1, 0, None"),
            ("landlock_create_ruleset", "444, None, 0, 1"),
            ("clock_settime", "227, 0, ctypes.create_string_buffer(16)"),
            ("adjtimex", "159, ctypes.create_string_buffer(256)"),
            ("sethostname", "170, b'x', 1"),
            ("reboot", "169, 0, 0, 0, None"),
            ("swapon", "167, b'/tmp', 0"),
            ("quotactl", "179, 0, None, 0, None"),
            ("acct", "163, None"),
            ("syslog", "103, 3, ctypes.create_string_buffer(64), 64"),
            ("iopl", "172, 3"),
            ("modify_ldt", "154, 1, ctypes.create_string_buffer(16), 16"),
            ("personality", "135, 0x0040000"),
            ("fanotify_init", "300, 0, 0"),
            ("vmsplice", "278, 0, None, 0, 0"),
            ("sync", "162"),
        ],
        &["EPERM", "ENOSYS"],
    )
    .await;
    });
}

/// Queries everything about a process of the host that the kernel reports of any process.
const QUESTIONS: &str = "
import ctypes, os, struct, time
PID = SERVICE
libc = ctypes.CDLL(None)
header = ctypes.create_string_buffer(struct.pack('Ii', 0x20080522, PID))
CLOCK = (~PID << 3) | 2
for name, ask in [('group', lambda: os.getpgid(PID)), ('session', lambda: os.getsid(PID)),
                  ('clock', lambda: time.clock_gettime(CLOCK)), ('resolution', lambda: time.clock_getres(CLOCK)),
                  ('affinity', lambda: os.sched_getaffinity(PID)), ('policy', lambda: os.sched_getscheduler(PID)),
                  ('priority', lambda: os.getpriority(os.PRIO_PROCESS, PID))]:
    try: ask(); print(name)
    except OSError: pass
if libc.capget(header, ctypes.create_string_buffer(24)) == 0: print('rights')
print(os.getpgid(0) >= 0, time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) > 0, time.monotonic() > 0)
";

#[test]
fn e50_a_process_of_the_host_is_not_to_be_asked() {
    let asking = |service: u32| QUESTIONS.replace("SERVICE", &service.to_string());
    let outside = unconfined_python(&asking(std::process::id()));
    for name in ["group", "session", "clock", "resolution", "rights"] {
        assert!(outside.contains(name), "without a sandbox: {outside}");
    }
    everywhere(async |host| {
        let source = asking(std::process::id());
        expect_output(&host.python(&source).await, "True True True\n");
    });
}

#[test]
fn e49_e50_other_processes_cannot_be_touched() {
    everywhere(async |host| {
        refused(
            &host,
            CALL,
            &[
                ("ptrace attach", "101, 16, os.getppid(), 0, 0"),
                ("ptrace traceme", "101, 0, 0, 0, 0"),
                ("process_vm_readv", "310, os.getppid(), None, 0, None, 0, 0"),
                (
                    "process_vm_writev",
                    "311, os.getppid(), None, 0, None, 0, 0",
                ),
                ("pidfd_getfd", "438, 0, 0, 0"),
                ("pidfd_send_signal", "424, 0, 0, None, 0"),
                (
                    "rt_sigqueueinfo",
                    "129, os.getppid(), 9, ctypes.create_string_buffer(128)",
                ),
                (
                    "prlimit of another",
                    "302, os.getppid(), 7, None, ctypes.create_string_buffer(16)",
                ),
                ("kcmp", "312, os.getpid(), os.getppid(), 0, 0, 0"),
            ],
            &["EPERM", "ENOSYS", "ESRCH"],
        )
        .await;
    });
}

/// Signals to a neighbour, the service, the parent and the first process.
pub(super) const SIGNALS: &str = "
import os, signal
for pid in (NEIGHBOUR, SERVICE, os.getppid(), 1):
    for n in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
        try: os.kill(pid, n)
        except OSError: pass
print('tried')
";

#[test]
fn e49_signals_do_not_leave_the_script() {
    // The script's neighbour and its service must survive; the end of this test shows that they do.
    let mut neighbour = std::process::Command::new("sleep")
        .arg("600")
        .spawn()
        .unwrap();
    let source = SIGNALS
        .replace("NEIGHBOUR", &neighbour.id().to_string())
        .replace("SERVICE", &std::process::id().to_string());
    everywhere(async |host| {
        expect_output(&host.python(&source).await, "tried\n");
    });
    assert!(neighbour.try_wait().unwrap().is_none());
    neighbour.kill().unwrap();
    neighbour.wait().unwrap();
}

#[test]
fn e54_no_namespace_can_be_made() {
    everywhere(async |host| {
        let mut calls: Vec<(String, String)> = Vec::new();
        for bit in [
            0x80_u64,
            0x20000,
            0x0200_0000,
            0x0400_0000,
            0x0800_0000,
            0x1000_0000,
            0x2000_0000,
            0x4000_0000,
        ] {
            calls.push((format!("unshare-{bit:x}"), format!("272, {bit}")));
            if bit != 0x80 {
                calls.push((
                    format!("clone-{bit:x}"),
                    format!("56, {}, 0, 0, 0, 0", bit | 17),
                ));
            }
        }
        calls.push((
            "clone3".to_owned(),
            "435, ctypes.create_string_buffer(88), 88".to_owned(),
        ));
        let calls: Vec<(&str, &str)> = calls
            .iter()
            .map(|(name, call)| (name.as_str(), call.as_str()))
            .collect();
        refused(&host, CALL, &calls, &["EPERM", "ENOSYS"]).await;
    });
}

/// Namespaces of the first process and of the parent.
pub(super) const NAMESPACES_OF_OTHERS: &str = "
import os
for pid in (1, os.getppid()):
    for name in ('user', 'mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup'):
        try: os.open(f'/proc/{pid}/ns/{name}', os.O_RDONLY); print('opened', pid, name)
        except OSError: pass
";

#[test]
fn e55_no_namespace_of_another_can_be_opened() {
    everywhere(async |host| {
        expect_output(&host.python(NAMESPACES_OF_OTHERS).await, "");
    });
}

#[test]
fn e58_there_is_no_terminal_to_type_into() {
    everywhere(async |host| {
        refused(
            &host,
            CALL,
            &[
                ("TIOCSTI", "16, 0, 0x5412, b'x'"),
                ("TIOCLINUX", "16, 0, 0x541c, b'x'"),
                ("TIOCSCTTY", "16, 0, 0x540e, 0"),
                ("TIOCSTI high", "16, 0, 0x100005412, b'x'"),
            ],
            &["ENOTTY", "EPERM"],
        )
        .await;
    });
}

#[test]
fn e60_a_script_knows_nothing_and_may_nothing() {
    as_every_user(async || {
        let source = "
import os, socket
status = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)
print([status[name].strip() for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')])
print(status['NoNewPrivs'], status['Seccomp'], os.getuid(), socket.gethostname(), os.getpid() < 10)
print(open('/proc/self/cgroup').read().count('tavern'), sorted(name for name in os.listdir('/proc') if name.isdigit()) == [str(os.getpid())])
print([line for line in open('/proc/self/mountinfo') if 'tavern' in line or '/work/' in line])
";
        for host in [Host::full().await, Host::sampled().await] {
            let response = host.python(source).await;
            let zero = "'0000000000000000'";
            let expected = format!(
                "[{zero}, {zero}, {zero}, {zero}, {zero}]\n1 2 1000 sandbox True\n0 True\n[]\n"
            );
            expect_output(&response, &expected);
        }
    });
}

#[test]
fn a_script_has_no_rights_outside() {
    as_every_user(async || {
        let host = Host::full().await;
        let running = host.sleeper("").await;
        let status = format!("/proc/{}/status", running.process());
        let status = std::fs::read_to_string(status).unwrap();
        let users = status
            .lines()
            .find(|line| line.starts_with("Uid:"))
            .unwrap();
        let root = is_root();
        assert!(
            !root || users.split_whitespace().skip(1).all(|user| user != "0"),
            "{users}"
        );
        running.end().await;
    });
}

#[test]
fn e61_a_native_program_is_as_confined() {
    as_every_user(async || {
        let source = "
import os, shutil, subprocess
shutil.copy('/usr/bin/env', 'mine'); os.chmod('mine', 0o755)
print(subprocess.run(['./mine', '/bin/sh', '-c', 'grep -E \"^(Seccomp|NoNewPrivs):\" /proc/self/status || true'], capture_output=True).stdout.decode().split())
";
        let response = Host::full().await.python(source).await;
        expect_output(&response, "['NoNewPrivs:', '1', 'Seccomp:', '2']\n");
    });
}

#[test]
fn e63_e64_nothing_of_the_machine_is_in_proc() {
    as_every_user(async || {
        let source = "
import os
print(sorted(name for name in os.listdir('/proc') if not name.isdigit()))
for path in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/sys/kernel/uevent_helper', '/proc/self/oom_score_adj'):
    try: open(path, 'w').write('1'); print('wrote', path)
    except OSError: pass
print(os.path.exists('/sys'))
";
        let response = Host::full().await.python(source).await;
        expect_output(&response, "['self', 'thread-self']\nFalse\n");
    });
}

/// Programs that grant more rights.
pub(super) const MORE_RIGHTS: &str = "
mount -t tmpfs none /tmp && echo mounted
su -c 'echo root' < /dev/null && echo su
newgrp root < /dev/null -c 'echo group' && echo newgrp
ping -c 1 -W 1 127.0.0.1 && echo pinged
passwd -d root && echo changed
chroot / true && echo chrooted
unshare -r true && echo unshared
nsenter -t 1 -m true && echo entered
id -u | grep -x 0
echo done
";

#[test]
fn e62_programs_for_more_rights_are_inert() {
    everywhere(async |host| {
        expect_output(&host.run(request("bash", MORE_RIGHTS)).await, "done\n");
    });
}

#[test]
fn e63_nothing_of_the_machine_is_reported() {
    let source = "
import os
for path in ['kallsyms', 'keys', 'key-users', 'sched_debug', 'interrupts', 'vmstat', 'meminfo', 'cpuinfo',
             'version', 'cmdline', 'modules', 'kcore', 'kmsg', 'iomem', 'net/tcp', 'net/unix', 'net/route',
             'sys/kernel/random/boot_id', 'sysvipc/shm', '1/environ', '1/cmdline', '1/maps', '1/status', '1/cgroup']:
    try: print('/proc/' + path, open('/proc/' + path, 'rb').read(8))
    except OSError: pass
for path in ['/sys', '/sys/class', '/sys/kernel', '/dev/disk', '/dev/pts', '/dev/mqueue', '/var', '/boot', '/lost+found']:
    try: print(path, os.listdir(path))
    except OSError: pass
";
    assert!(unconfined_python(source).contains("/proc/meminfo"));
    everywhere(async |host| {
        expect_output(&host.python(source).await, "");
    });
}

/// A large process that wants an image of itself.
pub(super) const CRASH: &str = "
import os, resource, signal
print(resource.getrlimit(resource.RLIMIT_CORE), flush=True)
for limits in [(0, 0), (0, 1), (1, 1), (-1, -1)]:
    try: resource.setrlimit(resource.RLIMIT_CORE, limits); print('set', limits, flush=True)
    except (OSError, ValueError): pass
memory = bytearray(300 << 20)
for at in range(0, len(memory), 4096): memory[at] = 1
os.kill(os.getpid(), signal.SIGSEGV)
";

#[test]
fn e65_a_crash_leaves_no_image_and_starts_no_handler() {
    everywhere(async |host| {
        let response = host.python(CRASH).await;
        expect_class(&response, &["signalled SIGSEGV"]);
        // One byte: too little for a file, and the kernel then calls no handler either.
        assert_eq!(stdout(&response), "(1, 1)\n");
    });
}

#[test]
fn e65_e69_the_way_of_ending_is_distinguished() {
    let table = [
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "signalled SIGSEGV",
        ),
        ("import os; os.abort()", "signalled SIGABRT"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            "signalled SIGKILL",
        ),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
            "signalled SIGTERM",
        ),
        ("import os; os._exit(137)", "exited 137"),
        ("import os; os._exit(139)", "exited 139"),
        ("import os; os._exit(255)", "exited 255"),
    ];
    everywhere(async |host| {
        for (source, expected) in table {
            expect_class(&host.python(source).await, &[expected]);
        }
        let response = host
            .run(request("bash", "kill -SEGV $$; ls core* 2>/dev/null"))
            .await;
        expect_class(&response, &["signalled SIGSEGV"]);
    });
}

#[test]
fn a_foreign_call_interface_is_deadly() {
    everywhere(async |host| {
        // mov eax, 20 (getpid of i386); int 0x80; ret -- and the x32 form of getpid.
        let i386 = "b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3'";
        let x32 = "b'\\xb8\\x27\\x00\\x00\\x40\\x0f\\x05\\xc3'";
        for code in [i386, x32] {
            let source = format!(
                "
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write({code})
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
"
            );
            {
                expect_class(&host.python(&source).await, &["forbidden_syscall"]);
            }
        }
        {
            let response = host.python(&format!("{CALL}call(173, 0, 0, 0)")).await;
            expect_class(&response, &["forbidden_syscall"]);
        }
    });
}

#[test]
fn a_script_that_sends_itself_the_signal_of_a_forbidden_call_is_not_reported_as_having_made_one() {
    everywhere(async |host| {
        let source = "
import os, signal, threading
for send in [lambda: os.kill(os.getpid(), signal.SIGSYS), lambda: os.kill(0, signal.SIGSYS),
             lambda: signal.raise_signal(signal.SIGSYS),
             lambda: signal.pthread_kill(threading.get_ident(), signal.SIGSYS)]:
    try: send(); print('sent')
    except OSError: pass
os.kill(os.getpid(), signal.SIGUSR1)
";
        let response = host.python(source).await;
        expect_class(&response, &["signalled SIGUSR1", "exited 1"]);
        assert_eq!(stdout(&response), "");
        let child = format!(
            "{CALL}
pid = libc.syscall(56, 31, 0, 0, 0, 0)
if pid == 0: os._exit(0)
print(pid)
"
        );
        expect_output(&host.python(&child).await, "-1\n");
    });
}

/// Daemons that hold the output.
pub(super) const DAEMONS: &str = "sleep MARKER & disown; setsid sleep MARKER & echo started";

#[test]
fn e67_a_daemon_that_holds_the_output_does_not_hold_the_answer() {
    let marker = marker();
    let source = DAEMONS.replace("MARKER", &marker);
    everywhere(async |host| {
        let response = host.run(request("bash", &source)).await;
        // Waiting for the daemons would end at the wall time.
        expect_output(&response, "started\n");
        assert!(processes_with(&marker).is_empty());
    });
}

#[test]
fn e68_a_stopped_group_ends_at_its_wall_time() {
    let source = "kill -STOP -1 2>/dev/null; kill -KILL 1 2>/dev/null; kill -STOP 0; kill -STOP $$; sleep 600";
    everywhere(async |host| {
        let limits = Limits {
            wall_time: seconds(1.5),
            ..patient()
        };
        let response = host.run(limited(request("bash", source), limits)).await;
        expect_class(&response, &["wall"]);
    });
}
