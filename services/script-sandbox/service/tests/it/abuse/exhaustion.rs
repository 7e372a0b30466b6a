//! Programs that use up processes, time, files and output.

use contracts::tavern::sandbox::v1::{Limits, verdict::Kind};

use crate::{
    rounds::{as_every_user, everywhere},
    support::{
        Host, expect_class, expect_output, limited, marker, patient, processes_named,
        processes_with, python, request, seconds, verdict,
    },
};

/// Limits with a short wall time only. It must end only programs that would never end by
/// themselves.
fn wall(limit: f64) -> Limits {
    Limits {
        wall_time: seconds(limit),
        ..patient()
    }
}

/// Runs a program and checks that its verdict is one of the allowed ones.
pub(super) async fn ends(
    host: &Host,
    runtime: &str,
    source: &str,
    limits: Limits,
    allowed: &[&str],
) {
    let response = host.run(limited(request(runtime, source), limits)).await;
    expect_class(&response, allowed);
}

/// Forks without end.
pub(super) const FORKS: &str = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass";

#[test]
fn e01_a_fork_bomb_is_held_and_ended() {
    everywhere(async |host| {
        let limits = Limits {
            processes: Some(32),
            ..wall(3.0)
        };
        for (runtime, source) in [
            ("python3", FORKS),
            ("bash", "bomb() { bomb | bomb & }; bomb; sleep 600"),
            (
                "node",
                "const { spawn } = require('child_process');
                 setInterval(() => spawn('sleep', ['600']).on('error', () => {}), 1);",
            ),
        ] {
            let allowed = ["processes", "wall", "cpu"];
            ends(&host, runtime, source, limits, &allowed).await;
        }
    });
}

/// Sleepers that have left their parent and its session.
pub(super) const DOUBLE_FORKS: &str = "
import os, signal
r, w = os.pipe()
for n in range(1, 32):
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp('sleep', ['sleep', 'MARKER'])
        os._exit(0)
os.close(w)
os.read(r, 1)
print('parent')
";

#[test]
fn e02_double_forks_in_new_sessions_die_with_the_rest() {
    let marker = marker();
    // The pipe ends once every process has become a sleeper.
    let source = DOUBLE_FORKS.replace("MARKER", &marker);
    everywhere(async |host| {
        expect_output(&host.python(&source).await, "parent\n");
        // The answer comes after the end of the last process, so no wait is needed.
        let left = processes_with(&marker);
        assert!(left.is_empty(), "{left:?}");
    });
}

/// The program runs as the child of a process that has ended, again and again and each time in a
/// session of its own, and is gone before a walk over all processes is over.
#[test]
fn e02_who_runs_from_process_to_process_is_caught() {
    let source = "
import ctypes, os
ctypes.CDLL(None).prctl(15, b'NAME')
r, w = os.pipe()
for leave in (os.getpid, os.setsid, os.setpgrp):
    if os.fork() == 0:
        os.close(r); os.close(w)
        while True:
            try:
                if os.fork(): os._exit(0)
                leave()
            except OSError: pass
os.close(w)
os.read(r, 1)
print('parent')
";
    everywhere(async |host| {
        let name = format!("runner-{}", std::process::id());
        let source = source.replace("NAME", &name);
        for _ in 0..3 {
            expect_output(&host.python(&source).await, "parent\n");
            assert_eq!(processes_named(&name), 0);
        }
    });
}

/// Starts threads until one is refused.
pub(super) const THREADS: &str = "
import threading
started = 0
stop = threading.Event()
try:
    for _ in range(2000):
        threading.Thread(target=stop.wait, daemon=True).start()
        started += 1
except RuntimeError:
    if started < 64: print('refused')
    else: stop.wait()
stop.set()
";

#[test]
fn e03_threads_are_counted_as_processes() {
    everywhere(async |host| {
        let limits = Limits {
            processes: Some(64),
            ..patient()
        };
        let response = host.run(limited(python(THREADS), limits)).await;
        if host.shares_its_user() {
            expect_class(&response, &["processes"]);
        } else {
            expect_output(&response, "refused\n");
        }
    });
}

#[test]
fn a_script_with_as_many_processes_as_it_may_have_is_left_alone() {
    let source = "
import threading, time
threads = [threading.Thread(target=time.sleep, args=(2,)) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print('done')
";
    everywhere(async |host| {
        let limits = Limits {
            processes: Some(4),
            ..patient()
        };
        let response = host.run(limited(python(source), limits)).await;
        expect_output(&response, "done\n");
    });
}

/// Spins, ignoring every signal.
pub(super) const SPINNING: &str = "
import signal
for n in (signal.SIGTERM, signal.SIGXCPU, signal.SIGALRM): signal.signal(n, signal.SIG_IGN)
while True: pass
";

#[test]
fn e08_a_spinning_program_ends_at_its_processor_time() {
    everywhere(async |host| {
        ends(
            &host,
            "python3",
            SPINNING,
            Limits {
                cpu_time: seconds(1.0),
                ..patient()
            },
            &["cpu"],
        )
        .await;
        ends(
            &host,
            "node",
            "for (;;) {}",
            Limits {
                cpu_time: seconds(1.0),
                ..patient()
            },
            &["cpu"],
        )
        .await;
        ends(
            &host,
            "bash",
            "while :; do :; done",
            Limits {
                cpu_time: seconds(1.0),
                ..patient()
            },
            &["cpu"],
        )
        .await;
    });
}

#[test]
fn processor_time_of_children_counts() {
    everywhere(async |host| {
        let source = "
import os
while True:
    pid = os.fork()
    if pid == 0:
        for i in range(2_000_000): pass
        os._exit(0)
    os.waitpid(pid, 0)
";
        ends(
            &host,
            "python3",
            source,
            Limits {
                cpu_time: seconds(1.0),
                ..patient()
            },
            &["cpu"],
        )
        .await;
    });
}

/// Uses only time.
pub(super) const SLEEPING: &str = "import time; time.sleep(600)";

#[test]
fn e09_a_sleeping_program_ends_at_its_wall_time() {
    everywhere(async |host| {
        let response = host.run(limited(python(SLEEPING), wall(1.0))).await;
        expect_class(&response, &["wall"]);
        let Kind::Wall(wall) = verdict(&response) else {
            unreachable!()
        };
        assert_eq!(wall.limit.unwrap().seconds, 1);
        assert!(wall.observed.unwrap().seconds >= 1);
    });
}

/// 700 MiB in files.
pub(super) const LARGE_FILES: &str = "
import time
for n in range(700):
    with open(f'f{n}', 'wb') as f: f.write(bytes([1]) * (1 << 20))
time.sleep(600)
";

#[test]
fn e11_a_full_work_directory_is_named() {
    everywhere(async |host| {
        let limits = Limits {
            disk_bytes: Some(16 << 20),
            ..patient()
        };
        ends(&host, "python3", LARGE_FILES, limits, &["disk"]).await;
    });
}

/// A file with a length and no content.
pub(super) const SPARSE_GIANT: &str = "
try:
    with open('big', 'wb') as f: f.truncate(1 << 40)
    print('made')
except OSError as error: print('refused')
";

#[test]
fn e12_a_sparse_giant_is_refused() {
    everywhere(async |host| {
        expect_output(&host.python(SPARSE_GIANT).await, "refused\n");
    });
}

/// A million empty files.
pub(super) const MANY_FILES: &str = "
import time
for n in range(1_000_000):
    open(f'f{n}', 'w').close()
time.sleep(600)
";

#[test]
fn e13_a_million_empty_files_meet_a_quota() {
    everywhere(async |host| {
        let limits = Limits {
            disk_files: Some(2000),
            ..patient()
        };
        ends(&host, "python3", MANY_FILES, limits, &["disk"]).await;
    });
}

/// Output without end.
pub(super) const FLOOD: &str = "import sys\nwhile True: sys.stdout.buffer.write(b'x' * 65536)";

#[test]
fn e15_a_flood_of_output_ends_the_script() {
    everywhere(async |host| {
        for (runtime, source) in [
            ("python3", FLOOD),
            (
                "python3",
                "import sys\nwhile True: sys.stderr.buffer.write(b'x' * 65536)",
            ),
            ("bash", "yes"),
            (
                "node",
                "for (;;) require('fs').writeSync(1, 'x'.repeat(65536));",
            ),
        ] {
            {
                let limits = Limits {
                    output_bytes: Some(64 << 10),
                    ..patient()
                };
                let response = host.run(limited(request(runtime, source), limits)).await;
                expect_class(&response, &["output"]);
                let (kept, cut) = (
                    response.stdout.len().max(response.stderr.len()),
                    response.stdout_truncated_bytes + response.stderr_truncated_bytes,
                );
                assert!(kept == 64 << 10 && cut > 0, "{kept} {cut}");
            }
        }
    });
}

#[test]
fn a_flood_in_one_last_breath_is_still_too_much() {
    everywhere(async |host| {
        let limits = Limits {
            output_bytes: Some(1000),
            ..patient()
        };
        for _ in 0..10 {
            let response = host
                .run(limited(python("print('x' * 65000, end='')"), limits))
                .await;
            expect_class(&response, &["output"]);
            assert_eq!(response.stdout_truncated_bytes, 64_000);
        }
    });
}

#[test]
fn output_above_its_limit_is_cut_but_for_its_end_and_the_script_continues() {
    everywhere(async |host| {
        for (runtime, source) in [
            (
                "python3",
                "print('x' * 1500000)\nprint('1 failed, 2 passed')\nimport sys\nsys.exit(1)",
            ),
            (
                "node",
                "console.log('x'.repeat(1500000));\nconsole.log('1 failed, 2 passed');\nprocess.exitCode = 1;",
            ),
        ] {
            let response = host.run(limited(request(runtime, source), patient())).await;
            expect_class(&response, &["exited 1"]);
            assert_eq!(response.stdout.len(), 1 << 20);
            assert_eq!(response.stdout_truncated_bytes, 1_500_001 + 19 - (1 << 20));
            assert_eq!(response.stdout_end.len(), 16 << 10);
            assert!(response.stdout_end.ends_with(b"x\n1 failed, 2 passed\n"));
            assert_eq!(response.stderr_end, b"");
        }
    });
}

/// Writes a byte now and then.
pub(super) const TRICKLE: &str =
    "import sys, time\nwhile True: sys.stdout.write('.'); sys.stdout.flush(); time.sleep(0.05)";

#[test]
fn e16_a_trickle_does_not_hold_the_stream_open() {
    everywhere(async |host| {
        ends(&host, "python3", TRICKLE, wall(1.0), &["wall"]).await;
    });
}

/// Files that stay open.
pub(super) const OPEN_FILES: &str = "
import os
n = 0
try:
    while n < 20000: os.open('/dev/null', os.O_RDONLY); n += 1
except OSError as error: print(error.errno, n < 1024)
";

#[test]
fn e17_open_files_meet_a_limit() {
    everywhere(async |host| {
        expect_output(&host.python(OPEN_FILES).await, "24 True\n");
    });
}

/// Dead children that no parent waits for.
pub(super) const ZOMBIES: &str = "
import os, time
dead = 0
try:
    while dead < 10_000:
        if os.fork() == 0: os._exit(0)
        dead += 1
except OSError: pass
if dead >= 64: time.sleep(600)
print('refused')
";

#[test]
fn e18_the_dead_are_reaped_and_count_until_then() {
    let orphans = "
import os
for n in range(600):
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.waitpid(pid, 0)
";
    everywhere(async |host| {
        let limits = Limits {
            processes: Some(64),
            ..patient()
        };
        // A burst may reach the limit for a moment; it must neither hang nor bypass it.
        let allowed = ["exited 0", "exited 1"];
        ends(&host, "python3", orphans, limits, &allowed).await;
        let response = host.run(limited(python(ZOMBIES), limits)).await;
        if host.shares_its_user() {
            expect_class(&response, &["processes"]);
        } else {
            expect_output(&response, "refused\n");
        }
    });
}

#[test]
fn e19_kernel_objects_are_limited_and_gone() {
    let source = "
import ctypes, os, errno
libc = ctypes.CDLL(None, use_errno=True)
def count(make, most):
    n = 0
    while n < most and make() >= 0: n += 1
    return n
print('timers', count(lambda: libc.timer_create(1, None, ctypes.byref(ctypes.c_void_p())), 100_000) < 100_000)
print('shm', libc.shmget(0, 4096, 0o1600) >= 0)
print('msg', libc.msgget(0, 0o1600) >= 0)
print('mq', libc.syscall(240, b'q', 0o102, 0o600, None) >= 0)
print('inotify', libc.inotify_init() >= 0)
";
    everywhere(async |host| {
        let response = host.python(source).await;
        expect_output(
            &response,
            "timers True\nshm False\nmsg False\nmq False\ninotify False\n",
        );
    });
}

/// System calls for a larger share of the processor.
pub(super) const LARGER_SHARE: &str = "
import os
def refused(what):
    try: what(); return False
    except OSError: return True
print(refused(lambda: os.sched_setaffinity(0, {0})), refused(lambda: os.nice(-5)),
      refused(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))))
";

#[test]
fn e20_a_program_cannot_take_a_larger_share() {
    everywhere(async |host| {
        expect_output(&host.python(LARGER_SHARE).await, "True True True\n");
    });
}

#[test]
fn e26_one_long_instruction_is_ended_as_well() {
    everywhere(async |host| {
        let limits = Limits {
            cpu_time: seconds(1.0),
            ..patient()
        };
        ends(&host, "python3", "x = 10**10**8", limits, &["cpu"]).await;
        ends(
            &host,
            "node",
            "/(a+)+$/.test('a'.repeat(40) + 'b')",
            limits,
            &["cpu"],
        )
        .await;
    });
}

#[test]
fn e25_senseless_limits_are_refused() {
    as_every_user(async || {
        let host = Host::full().await;
        let wrong = [
            Limits {
                wall_time: seconds(0.0),
                ..Limits::default()
            },
            Limits {
                wall_time: Some(prost_types::Duration {
                    seconds: -1,
                    nanos: 0,
                }),
                ..Limits::default()
            },
            Limits {
                cpu_time: Some(prost_types::Duration {
                    seconds: i64::MAX,
                    nanos: 0,
                }),
                ..Limits::default()
            },
            Limits {
                memory_bytes: Some(0),
                ..Limits::default()
            },
            Limits {
                memory_bytes: Some(1 << 63),
                ..Limits::default()
            },
            Limits {
                processes: Some(0),
                ..Limits::default()
            },
            Limits {
                output_bytes: Some(u64::MAX),
                ..Limits::default()
            },
        ];
        for limits in wrong {
            let status = host
                .client
                .clone()
                .execute(limited(python("print(1)"), limits))
                .await
                .unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{limits:?}");
        }
    });
}
