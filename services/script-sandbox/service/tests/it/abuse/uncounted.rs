//! Programs that use resources which a sum of a script's usage easily omits.

use contracts::tavern::sandbox::v1::Limits;
use sandbox_engine::domain::isolation::MemoryEnforcement;

use super::exhaustion::ends;
use crate::{
    control::unconfined_python,
    rounds::{as_every_user, everywhere, is_root},
    support::{
        Host, eventually, expect_class, expect_output, limited, marker, memory_of, patient,
        processes_with, python, seconds, stdout,
    },
};

/// The beginning of a program that continues when its first thread has ended.
const HEADLESS: &str = "
import ctypes, threading, time
def headless(body):
    threading.Thread(target=body).start()
    ctypes.CDLL(None).syscall(60, 0)
";

#[test]
fn e04_memory_counts_when_the_first_thread_has_ended() {
    let source = format!(
        "{HEADLESS}
def fill():
    x = bytearray(1 << 30)
    for i in range(0, len(x), 4096): x[i] = 1
    time.sleep(600)
headless(fill)
"
    );
    everywhere(async |host| ends(&host, "python3", &source, memory_of(128), &["memory"]).await);
}

#[test]
fn e03_threads_count_when_the_first_one_has_ended() {
    let source = format!(
        "{HEADLESS}
import os
def crowd():
    stop = threading.Event()
    started = 0
    try:
        for _ in range(2000):
            threading.Thread(target=stop.wait, daemon=True).start()
            started += 1
    except RuntimeError:
        if started < 64: print('refused', flush=True); os._exit(0)
    stop.wait()
headless(crowd)
"
    );
    everywhere(async |host| {
        let limits = Limits {
            processes: Some(64),
            ..patient()
        };
        let response = host.run(limited(python(&source), limits)).await;
        if host.shares_its_user() {
            expect_class(&response, &["processes"]);
        } else {
            expect_output(&response, "refused\n");
        }
    });
}

/// Files that fill the scratch space, so many of 8 MiB each.
fn files(number: u32) -> String {
    format!(
        "
import mmap, time
for n in range({number}):
    with open(f'f{{n}}', 'wb') as f: f.write(bytes([1]) * (8 << 20))
"
    )
}

fn room_for_files(memory: u64) -> Limits {
    Limits {
        disk_bytes: Some(300 << 20),
        ..memory_of(memory)
    }
}

#[test]
fn e06_scratch_files_in_memory_count_as_memory() {
    everywhere(async |host| {
        // On the host's disk they do not count as memory.
        let (after, expected) = match host.kind {
            "reduced" => ("", "exited 0"),
            _ => ("time.sleep(600)", "memory"),
        };
        let source = files(20) + after;
        let limits = room_for_files(96);
        ends(&host, "python3", &source, limits, &[expected]).await;
    });
}

#[test]
fn e06_scratch_files_that_are_mapped_count_once() {
    let source = files(12)
        + "
opened = [open(f'f{n}', 'r+b') for n in range(12)]
maps = [mmap.mmap(f.fileno(), 0) for f in opened]
print(sum(m[i] for m in maps for i in range(0, len(m), 4096)), flush=True)
time.sleep(0.5)
";
    everywhere(async |host| {
        let limited = limited(python(&source), room_for_files(160));
        expect_output(&host.run(limited).await, "24576\n");
    });
}

/// Whether a cgroup counts the usage of a host's scripts.
fn has_cgroup(host: &Host) -> bool {
    is_root() && host.kind != "sampled"
}

/// Children that spin for 100 ms each, one for each member of a Python sequence.
fn unwaited(children: &str) -> String {
    format!(
        "
import itertools, os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in {children}:
    if os.fork() == 0:
        while time.process_time() < 0.1: pass
        os._exit(0)
    try: os.waitpid(-1, 0)
    except ChildProcessError: pass
"
    )
}

#[test]
fn e08_a_script_whose_children_no_parent_waits_for_ends() {
    let source = unwaited("itertools.count()");
    everywhere(async |host| {
        let (limits, expected) = if has_cgroup(&host) {
            (patient(), "cpu")
        } else {
            // Only a cgroup counts them; without one the wall time ends the script.
            let limits = Limits {
                wall_time: seconds(4.0),
                ..patient()
            };
            (limits, "wall")
        };
        let limits = Limits {
            cpu_time: seconds(1.0),
            ..limits
        };
        ends(&host, "python3", &source, limits, &[expected]).await;
    });
}

#[test]
fn e103_time_of_children_that_no_parent_waits_for_is_counted_by_a_cgroup_and_never_twice() {
    let source = unwaited("range(15)");
    everywhere(async |host| {
        let response = host.python(&source).await;
        expect_output(&response, "");
        let time = response.usage.unwrap().cpu_time.unwrap();
        let millis = time.seconds * 1000 + i64::from(time.nanos / 1_000_000);
        let least = if has_cgroup(&host) { 1500 } else { 0 };
        assert!((least..2500).contains(&millis), "{millis} on {}", host.kind);
    });
}

/// Files of 1 MiB each that are made in the given way and stay open.
fn hidden(make: &str) -> String {
    format!(
        "
import os, time
opened = []
os.mkdir('closed', 0o300)
try:
    for n in range(60):
        {make}
        file.write(bytes([1]) * (1 << 20))
        file.flush()
        opened.append(file)
    time.sleep(600)
except OSError:
    time.sleep(0.5)
    raise
"
    )
}

#[test]
fn e11_files_that_are_hidden_take_their_room() {
    let programs = [
        "file = open(f'f{n}', 'wb'); os.unlink(f'f{n}')",
        "file = os.fdopen(os.open('.', os.O_TMPFILE | os.O_RDWR), 'wb')",
        "file = open(f'closed/f{n}', 'wb')",
        "file = open(os.open(f'closed/f{n}', os.O_CREAT | os.O_WRONLY, 0), 'wb')",
    ]
    .map(hidden);
    everywhere(async |host| {
        for source in &programs {
            let limits = Limits {
                disk_bytes: Some(16 << 20),
                ..patient()
            };
            ends(&host, "python3", source, limits, &["disk"]).await;
        }
    });
}

#[test]
fn e11_a_script_that_is_done_before_it_is_measured_has_filled_the_disk() {
    everywhere(async |host| {
        let limits = Limits {
            disk_bytes: Some(4 << 20),
            ..patient()
        };
        ends(
            &host,
            "bash",
            "head -c 9000000 /dev/zero > out",
            limits,
            &["disk"],
        )
        .await;
    });
}

#[test]
fn e12_only_a_file_that_is_too_long_for_the_sandbox_fills_the_disk() {
    let table = [
        (
            "ulimit -f 8; exec head -c 1000000 /dev/zero > out",
            "signalled SIGXFSZ",
        ),
        ("exec head -c 9000000 /dev/zero > out", "disk"),
        (
            "exec dd if=/dev/zero of=out bs=1000 seek=1000 count=100",
            "disk",
        ),
    ];
    everywhere(async |host| {
        for (source, expected) in table {
            let limits = Limits {
                file_bytes: Some(1 << 20),
                ..patient()
            };
            ends(&host, "bash", source, limits, &[expected]).await;
        }
    });
}

#[test]
fn files_that_a_script_maps_are_no_memory_of_its_own() {
    let source = "
import mmap, os, sys
maps, mapped = [], 0
for entry in sorted(os.scandir('/usr/bin'), key=lambda e: -e.stat().st_size if e.is_file() else 0):
    if mapped > 160 << 20: break
    try: file = open(entry.path, 'rb')
    except OSError: continue
    maps.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    mapped += len(maps[-1])
print(mapped > 160 << 20, sum(m[i] for m in maps for i in range(0, len(m), 4096)) > 0)
sys.exit(1)
";
    everywhere(async |host| {
        let limits = limited(python(source), memory_of(128));
        let response = host.run(limits).await;
        expect_class(&response, &["exited 1"]);
        assert_eq!(stdout(&response), "True True\n");
    });
}

/// Fills the buffers of unnamed pairs of sockets in several processes, and reads nothing.
const UNREAD_PAIRS: &str = "
import os, socket, time
def fill(pairs):
    held, kept = 0, []
    for _ in range(pairs):
        kept.extend(socket.socketpair())
        for one in kept[-2:]:
            one.setblocking(False)
            try:
                while True: held += one.send(bytes(65536))
            except BlockingIOError: pass
    return held, kept
";

#[test]
fn e19_buffers_of_sockets_count_as_memory() {
    let control = unconfined_python(&format!("{UNREAD_PAIRS}print(fill(40)[0] >> 20)"));
    let mebibytes: u64 = control.trim().parse().unwrap();
    assert!(mebibytes >= 8, "{control}");
    let source = format!(
        "{UNREAD_PAIRS}
for _ in range(8):
    if os.fork() == 0:
        kept = fill(100)
        time.sleep(600)
time.sleep(600)
"
    );
    everywhere(async |host| ends(&host, "python3", &source, memory_of(128), &["memory"]).await);
}

/// Lets four processes count one after the other; each prints its number.
fn in_four_processes(count: &str) -> String {
    format!(
        "import os
{count}
for _ in range(4):
    pid = os.fork()
    if pid == 0: print(count(), flush=True); os._exit(0)
    os.waitpid(pid, 0)
"
    )
}

/// Opens as many objects as it may that the kernel keeps in memory of no process.
const OPEN_OBJECTS: &str = "
def count():
    kept = []
    try:
        while True: kept.append(MAKE)
    except OSError: return len(kept)
";

#[test]
fn e19_files_that_no_cgroup_counts_are_bounded_by_the_memory_of_the_script() {
    // 256 MiB, 512 processes and 5 KiB for each file.
    const MOST: u64 = (256 << 20) / 512 / (5 << 10);
    everywhere(async |host| {
        let counted = host.sandbox.report().enforcement != MemoryEnforcement::Sampled;
        for make in ["os.pipe()", "os.eventfd(0)", "os.open('/dev/null', 0)"] {
            let limits = Limits {
                processes: Some(512),
                open_files: Some(1000),
                ..memory_of(256)
            };
            let source = in_four_processes(&OPEN_OBJECTS.replace("MAKE", make));
            let response = host.run(limited(python(&source), limits)).await;
            expect_class(&response, &["exited 0"]);
            let text = stdout(&response);
            let opened = text.lines().map(|line| line.parse::<u64>().unwrap());
            let opened: Vec<u64> = opened.collect();
            assert_eq!(opened.len(), 4);
            let is_bounded = opened.iter().all(|count| (10..=MOST).contains(count));
            assert_eq!(is_bounded, !counted, "{make} {opened:?}");
        }
    });
}

/// Adds many watches to epoll.
const WATCHES: &str = "
import select
def count():
    watches, epolls, pipes = 0, [], [os.pipe() for _ in range(60)]
    try:
        for _ in range(100):
            epolls.append(select.epoll())
            for end in sum(pipes, ()): epolls[-1].register(end); watches += 1
    except OSError: pass
    return watches
";

#[test]
fn e19_watches_that_are_counted_with_those_of_the_service_are_bounded() {
    /// The most watches that a script may add where it has the service's user.
    const MOST: u64 = 16_384;
    let sum = |text: &str| -> u64 { text.lines().map(|line| line.parse::<u64>().unwrap()).sum() };
    let all = sum(&unconfined_python(&in_four_processes(WATCHES)));
    assert_eq!(all, 48_000);
    everywhere(async |host| {
        let response = host.python(&in_four_processes(WATCHES)).await;
        expect_class(&response, &["exited 0"]);
        let watches = sum(&stdout(&response));
        if is_root() {
            assert_eq!(watches, all);
        } else {
            assert!((1..=MOST).contains(&watches), "{watches}");
        }
    });
}

/// Sends as many descriptors as possible that no process receives, and stays.
const DESCRIPTORS_ON_THEIR_WAY: &str = "
import array, os, socket
kept = []
for _ in range(64):
    pair = socket.socketpair(); kept.extend(pair)
    for one in pair:
        one.setblocking(False); one.set_inheritable(True)
    try:
        for _ in range(64):
            pair[0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0] * 250))])
    except OSError: pass
os.execvp('sleep', ['sleep', 'MARKER'])
";

#[test]
fn e19_descriptors_on_their_way_do_not_keep_the_service_from_starting_scripts() {
    as_every_user(async || {
        let usual = rustix::process::Rlimit {
            current: Some(1024),
            ..rustix::process::getrlimit(rustix::process::Resource::Nofile)
        };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, usual).unwrap();
        for host in Host::all().await {
            let marker = marker();
            let limits = Limits {
                open_files: Some(4096),
                ..patient()
            };
            let source = DESCRIPTORS_ON_THEIR_WAY.replace("MARKER", &marker);
            let sending = tokio::spawn({
                let host = host.clone();
                async move { host.run(limited(python(&source), limits)).await }
            });
            eventually("the first one has sent all", || {
                !processes_with(&marker).is_empty()
            })
            .await;
            expect_output(&host.python("print('ran')").await, "ran\n");
            sending.abort();
        }
    });
}
