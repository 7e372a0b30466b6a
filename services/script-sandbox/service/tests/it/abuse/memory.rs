//! Programs that use up memory.

use super::exhaustion::ends;
use crate::{
    control::unconfined_python,
    rounds::everywhere,
    support::{expect_class, expect_output, limited, memory_of, patient, python, request, stdout},
};

#[test]
fn e04_too_much_memory_is_named() {
    everywhere(async |host| {
        let source = "x = bytearray(1 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1\nimport time; time.sleep(600)";
        ends(&host, "python3", source, memory_of(128), &["memory"]).await;
        let source = "let all = []; for (;;) all.push(Buffer.alloc(16 << 20, 1));";
        ends(&host, "node", source, memory_of(256), &["memory"]).await;
    });
}

#[test]
fn e04_a_limit_above_or_below_the_default_holds() {
    let taking = |mebibytes: u64| {
        format!(
            "x = bytearray({mebibytes} << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nprint('held')"
        )
    };
    everywhere(async |host| {
        let isolation = host.isolation().await;
        // Each start leaves a waiting launcher in a cgroup with the default limits, which the next
        // script raises or lowers.
        for (limit, fits, does_not) in [(768, 600, 1200), (96, 32, 300), (640, 560, 900)] {
            for (mebibytes, expected) in [(fits, "exited 0"), (does_not, "memory")] {
                let asked = limited(python(&taking(mebibytes)), memory_of(limit));
                let response = host.run(asked).await;
                expect_class(&response, &[expected]);
                let enforced = response.memory_enforcement();
                assert_eq!(enforced, isolation.memory_enforcement());
            }
        }
    });
}

/// Fills the buffers of connections to itself, which it does not read; prints the MiB that they
/// hold.
const UNREAD_CONNECTIONS: &str = "
import socket
held, kept = 0, []
try: listener = socket.create_server(('127.0.0.1', 0))
except PermissionError: listener = None
for _ in range(40 if listener else 0):
    kept.append(socket.create_connection(listener.getsockname()))
    kept.append(listener.accept()[0])
    kept[-2].setblocking(False)
for one in kept[::2]:
    try:
        while True: held += one.send(bytes(65536))
    except BlockingIOError: pass
print(held >> 20)
";

#[test]
fn e04_buffers_of_connections_are_bounded() {
    let mebibytes = |text: &str| text.trim().parse::<u64>().unwrap();
    let control = mebibytes(&unconfined_python(UNREAD_CONNECTIONS));
    assert!(control > 64, "{control}");
    everywhere(async |host| {
        let response = host.python(UNREAD_CONNECTIONS).await;
        expect_class(&response, &["exited 0"]);
        let held = mebibytes(&stdout(&response));
        assert_eq!(held > 0, host.kind != "reduced");
        // A connection always gets a little, so that it makes progress.
        assert!(held <= 32, "{held}");
    });
}

/// Memory in eight processes.
pub(super) const SUM_OF_CHILDREN: &str = "
import os, time
for _ in range(8):
    if os.fork() == 0:
        x = bytearray(48 << 20)
        for i in range(0, len(x), 4096): x[i] = 1
        print('held', flush=True)
        time.sleep(600)
time.sleep(600)
";

#[test]
fn e05_the_sum_of_many_processes_counts() {
    everywhere(async |host| {
        ends(
            &host,
            "python3",
            SUM_OF_CHILDREN,
            memory_of(128),
            &["memory"],
        )
        .await;
    });
}

#[test]
fn memory_that_is_only_shared_is_counted_once() {
    everywhere(async |host| {
        let source = "
import os, time
x = bytearray(64 << 20)
for i in range(0, len(x), 4096): x[i] = 1
pids = []
r, w = os.pipe()
for _ in range(6):
    pid = os.fork()
    if pid == 0: os.read(r, 1); os._exit(0)
    pids.append(pid)
time.sleep(0.5)
os.write(w, b'......')
for pid in pids: os.waitpid(pid, 0)
";
        ends(&host, "python3", source, memory_of(160), &["exited 0"]).await;
    });
}

/// Files in memory.
pub(super) const FILLS_MEMORY_FILES: &str = "
import os, time
place = 'PLACE'
try: open(place + '/first', 'w').close()
except OSError: place = os.environ['TMPDIR']
for n in range(100):
    with open(place + f'/{n}', 'wb') as f: f.write(bytes([1]) * (7 << 20))
time.sleep(600)
";

#[test]
fn e06_shared_memory_and_tmp_are_charged() {
    everywhere(async |host| {
        for place in ["/dev/shm", "/tmp"] {
            let source = FILLS_MEMORY_FILES.replace("PLACE", place);
            ends(&host, "python3", &source, patient(), &["disk", "memory"]).await;
        }
    });
}

/// Memory that stays, limits that rise, and pages that no limit counts.
pub(super) const LOCKED_MEMORY: &str = "
import ctypes, mmap, resource
libc = ctypes.CDLL(None, use_errno=True)
for size in (0, 21 << 26, 30 << 26):
    try: mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000 | size); print('huge')
    except OSError as error: assert error.errno == 12, error
MERGEABLE = 12
try: mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).madvise(MERGEABLE); print('merged')
except OSError: pass
print(libc.mlockall(3), libc.mlock(ctypes.create_string_buffer(4096), 4096))
for name in ('RLIMIT_NOFILE', 'RLIMIT_NPROC', 'RLIMIT_CPU', 'RLIMIT_FSIZE'):
    try: resource.setrlimit(getattr(resource, name), (10**9, 10**9)); print(name, 'raised')
    except (OSError, ValueError): pass
";

#[test]
fn e22_memory_cannot_be_locked_or_taken_from_the_host_and_limits_not_raised() {
    everywhere(async |host| {
        expect_output(&host.python(LOCKED_MEMORY).await, "-1 -1\n");
    });
}

/// Memory of Node.js outside of its heap.
pub(super) const OFF_HEAP: &str = "let all = []; for (;;) all.push(Buffer.alloc(16 << 20, 1));";

#[test]
fn e24_node_options_do_not_lift_the_limit() {
    everywhere(async |host| {
        let mut asked = request("node", OFF_HEAP);
        asked.environment.insert(
            "NODE_OPTIONS".to_owned(),
            "--max-old-space-size=8192".to_owned(),
        );
        let limits = memory_of(256);
        expect_class(&host.run(limited(asked, limits)).await, &["memory"]);
    });
}
