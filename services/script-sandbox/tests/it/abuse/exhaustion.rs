//! Programs that use up what there is.

use std::time::Instant;

use contracts::tavern::sandbox::v1::{Limits, verdict::Kind};

use crate::support::{
    Host, class, expect_class, expect_output, limited, processes_with, python, request, seconds,
    stderr, stdout, verdict,
};

fn wall(limit: f64) -> Limits {
    Limits {
        wall_time: seconds(limit),
        ..Limits::default()
    }
}

/// Runs a program on every host and holds it against the verdicts that are allowed.
async fn check(runtime: &str, source: &str, limits: Limits, allowed: &[&str]) {
    let runs = Host::all().await.into_iter().map(|(name, host)| {
        let asked = limited(request(runtime, source), limits);
        tokio::spawn(async move {
            let before = Instant::now();
            (name, host.run(asked).await, before.elapsed())
        })
    });
    for run in runs.collect::<Vec<_>>() {
        let (name, response, elapsed) = run.await.unwrap();
        let class = class(&response);
        assert!(
            allowed.contains(&class.as_str()),
            "{name}: {class}, not one of {allowed:?}\n{}\n{}",
            stdout(&response),
            stderr(&response)
        );
        let most = limits.wall_time.map_or(30, |wall| wall.seconds) + 3;
        assert!(elapsed.as_secs() <= most as u64, "{name}: {elapsed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e01_a_fork_bomb_is_held_and_ended() {
    let limits = Limits {
        processes: Some(32),
        ..wall(3.0)
    };
    check(
        "python3",
        "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
        limits,
        &["processes", "wall", "cpu"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e02_double_forks_in_new_sessions_die_with_the_rest() {
    let source = "
import os, signal, sys, time
for n in range(1, 32): 
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp('sleep', ['sleep', '7654.321'])
        os._exit(0)
time.sleep(0.3)
print('parent')
";
    for (name, host) in Host::all().await {
        let response = host.python(source).await;
        expect_output(&response, "parent\n");
        // The answer comes after the last process has gone, so nothing has to be waited for.
        let left = processes_with("7654.321");
        assert!(left.is_empty(), "{name}: {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e03_threads_are_counted_as_processes() {
    let source = "
import threading
started = 0
stop = threading.Event()
try:
    for _ in range(2000):
        threading.Thread(target=stop.wait, daemon=True).start()
        started += 1
except RuntimeError as error:
    print('refused', started < 200)
stop.set()
";
    for (_, host) in Host::all().await {
        let response = host
            .run(limited(
                python(source),
                Limits {
                    processes: Some(64),
                    ..wall(10.0)
                },
            ))
            .await;
        expect_output(&response, "refused True\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e04_too_much_memory_is_named() {
    let source =
        "x = bytearray(1 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('touched')";
    check(
        "python3",
        source,
        Limits {
            memory_bytes: Some(128 << 20),
            ..wall(10.0)
        },
        &["memory"],
    )
    .await;
    let source = "let all = []; for (;;) all.push(Buffer.alloc(16 << 20, 1));";
    check(
        "node",
        source,
        Limits {
            memory_bytes: Some(256 << 20),
            ..wall(10.0)
        },
        &["memory"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e05_the_sum_of_many_processes_counts() {
    let source = "
import os, time
for _ in range(8):
    if os.fork() == 0:
        x = bytearray(48 << 20)
        for i in range(0, len(x), 4096): x[i] = 1
        time.sleep(20)
        os._exit(0)
time.sleep(20)
";
    check(
        "python3",
        source,
        Limits {
            memory_bytes: Some(128 << 20),
            ..wall(10.0)
        },
        &["memory"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_is_only_shared_is_counted_once() {
    let source = "
import os, time
x = bytearray(64 << 20)
for i in range(0, len(x), 4096): x[i] = 1
pids = []
for _ in range(6):
    pid = os.fork()
    if pid == 0: time.sleep(0.5); os._exit(0)
    pids.append(pid)
for pid in pids: os.waitpid(pid, 0)
";
    check(
        "python3",
        source,
        Limits {
            memory_bytes: Some(160 << 20),
            ..wall(10.0)
        },
        &["exited 0"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e06_shared_memory_and_tmp_are_charged() {
    for place in ["/dev/shm", "/tmp"] {
        let source = format!(
            "
import os
place = '{place}'
try: open(place + '/first', 'w').close()
except OSError: place = os.environ['TMPDIR']
for n in range(100):
    with open(place + f'/{{n}}', 'wb') as f: f.write(bytes([1]) * (7 << 20))
"
        );
        check("python3", &source, wall(20.0), &["disk", "memory"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e08_a_spinning_program_ends_at_its_processor_time() {
    let source = "
import signal
for n in (signal.SIGTERM, signal.SIGXCPU, signal.SIGALRM): signal.signal(n, signal.SIG_IGN)
while True: pass
";
    check(
        "python3",
        source,
        Limits {
            cpu_time: seconds(1.0),
            ..wall(6.0)
        },
        &["cpu"],
    )
    .await;
    check(
        "node",
        "for (;;) {}",
        Limits {
            cpu_time: seconds(1.0),
            ..wall(6.0)
        },
        &["cpu"],
    )
    .await;
    check(
        "bash",
        "while :; do :; done",
        Limits {
            cpu_time: seconds(1.0),
            ..wall(6.0)
        },
        &["cpu"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processor_time_of_children_counts() {
    let source = "
import os
while True:
    pid = os.fork()
    if pid == 0:
        for i in range(2_000_000): pass
        os._exit(0)
    os.waitpid(pid, 0)
";
    check(
        "python3",
        source,
        Limits {
            cpu_time: seconds(1.0),
            ..wall(8.0)
        },
        &["cpu"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e09_a_sleeping_program_ends_at_its_wall_time() {
    for (_, host) in Host::all().await {
        let before = Instant::now();
        let response = host
            .run(limited(python("import time; time.sleep(60)"), wall(1.0)))
            .await;
        expect_class(&response, &["wall"]);
        let Kind::Wall(wall) = verdict(&response) else {
            unreachable!()
        };
        assert_eq!(wall.limit.unwrap().seconds, 1);
        assert!(wall.observed.unwrap().seconds >= 1);
        assert!(
            before.elapsed().as_secs_f64() < 3.0,
            "{:?}",
            before.elapsed()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e11_a_full_work_directory_is_named() {
    let source = "
for n in range(700):
    with open(f'f{n}', 'wb') as f: f.write(bytes([1]) * (1 << 20))
print('all')
";
    let limits = Limits {
        disk_bytes: Some(16 << 20),
        ..wall(20.0)
    };
    check("python3", source, limits, &["disk"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e12_a_sparse_giant_is_refused() {
    let source = "
try:
    with open('big', 'wb') as f: f.truncate(1 << 40)
    print('made')
except OSError as error: print('refused')
";
    for (_, host) in Host::all().await {
        expect_output(&host.python(source).await, "refused\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e13_a_million_empty_files_meet_a_quota() {
    let source = "
for n in range(1_000_000):
    open(f'f{n}', 'w').close()
";
    let limits = Limits {
        disk_files: Some(2000),
        ..wall(20.0)
    };
    check("python3", source, limits, &["disk"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e15_a_flood_of_output_ends_at_its_limit() {
    for (runtime, source) in [
        (
            "python3",
            "import sys\nwhile True: sys.stdout.buffer.write(b'x' * 65536)",
        ),
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
        for (_, host) in Host::all().await {
            let limits = Limits {
                output_bytes: Some(64 << 10),
                ..wall(10.0)
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
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_in_one_last_breath_is_still_too_much() {
    let host = Host::full().await;
    let limits = Limits {
        output_bytes: Some(1000),
        ..wall(10.0)
    };
    for _ in 0..10 {
        let response = host.run(limited(python("print('x' * 5000)"), limits)).await;
        expect_class(&response, &["output"]);
        assert_eq!(response.stdout_truncated_bytes, 4001);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e16_a_trickle_does_not_hold_the_stream_open() {
    let source =
        "import sys, time\nwhile True: sys.stdout.write('.'); sys.stdout.flush(); time.sleep(0.05)";
    check("python3", source, wall(1.0), &["wall"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e17_open_files_meet_a_limit() {
    let source = "
import os
n = 0
try:
    while n < 20000: os.open('/dev/null', os.O_RDONLY); n += 1
except OSError as error: print(error.errno, n < 256)
";
    for (_, host) in Host::all().await {
        expect_output(&host.python(source).await, "24 True\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e18_orphans_are_reaped() {
    let source = "
import os
for n in range(600):
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.waitpid(pid, 0)
print('done')
";
    for (_, host) in Host::all().await {
        let limits = Limits {
            processes: Some(64),
            ..wall(25.0)
        };
        let response = host.run(limited(python(source), limits)).await;
        // A burst may run into the limit for a moment; it must neither hang nor get round it.
        expect_class(&response, &["exited 0", "exited 1"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e19_kernel_objects_are_limited_and_gone() {
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
    for (_, host) in Host::all().await {
        let response = host.python(source).await;
        expect_output(
            &response,
            "timers True\nshm False\nmsg False\nmq False\ninotify False\n",
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e20_a_program_cannot_take_a_larger_share() {
    let source = "
import os
def refused(what):
    try: what(); return False
    except OSError: return True
print(refused(lambda: os.sched_setaffinity(0, {0})), refused(lambda: os.nice(-5)),
      refused(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))))
";
    for (_, host) in Host::all().await {
        expect_output(&host.python(source).await, "True True True\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e22_memory_cannot_be_locked_and_limits_not_raised() {
    let source = "
import ctypes, resource
libc = ctypes.CDLL(None)
print(libc.mlockall(3), libc.mlock(ctypes.create_string_buffer(4096), 4096))
for name in ('RLIMIT_NOFILE', 'RLIMIT_NPROC', 'RLIMIT_CPU', 'RLIMIT_FSIZE'):
    try: resource.setrlimit(getattr(resource, name), (10**9, 10**9)); print(name, 'raised')
    except (OSError, ValueError): pass
";
    for (_, host) in Host::all().await {
        expect_output(&host.python(source).await, "-1 -1\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e24_node_options_do_not_lift_the_limit() {
    for (_, host) in Host::all().await {
        let mut asked = request(
            "node",
            "let all = []; for (;;) all.push(Buffer.alloc(16 << 20, 1));",
        );
        asked.environment.insert(
            "NODE_OPTIONS".to_owned(),
            "--max-old-space-size=8192".to_owned(),
        );
        let limits = Limits {
            memory_bytes: Some(256 << 20),
            ..wall(10.0)
        };
        expect_class(&host.run(limited(asked, limits)).await, &["memory"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e26_one_long_instruction_is_ended_as_well() {
    let limits = Limits {
        cpu_time: seconds(1.0),
        ..wall(6.0)
    };
    check("python3", "x = 10**10**8", limits, &["cpu"]).await;
    check(
        "node",
        "/(a+)+$/.test('a'.repeat(40) + 'b')",
        limits,
        &["cpu"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e25_senseless_limits_are_refused() {
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
}
