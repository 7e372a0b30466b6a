//! Attempts to use a network, where the request lets them end the script.

use contracts::tavern::sandbox::v1::{ExecuteRequest, NetworkPolicy, verdict::Kind};

use crate::rounds::everywhere;
use crate::support::{expect_class, expect_output, python, request, stdout, verdict};

fn ending(request: ExecuteRequest) -> ExecuteRequest {
    ExecuteRequest {
        network: NetworkPolicy::End.into(),
        ..request
    }
}

#[test]
fn e78_the_first_attempt_ends_the_script_where_that_is_the_policy() {
    let after = "print('still here', flush=True)";
    let table = [
        ("python3", "import socket; socket.socket(socket.AF_INET)"),
        (
            "python3",
            "import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
        ),
        (
            "python3",
            "import socket\ntry: socket.create_connection(('127.0.0.1', 80))\nexcept OSError: pass",
        ),
        (
            "python3",
            "import urllib.request\ntry: urllib.request.urlopen('http://example.com/')\nexcept OSError: pass",
        ),
        (
            "python3",
            "import socket\ntry: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)\nexcept OSError: pass",
        ),
        (
            "python3",
            "import socket\ntry: socket.socket(40, socket.SOCK_STREAM)\nexcept OSError: pass",
        ),
        (
            "node",
            "require('net').connect(80, '127.0.0.1').on('error', () => {}); setTimeout(() => console.log('still here'), 20000)",
        ),
        (
            "node",
            "require('http').get('http://example.com/').on('error', () => {}); setTimeout(() => console.log('still here'), 20000)",
        ),
        (
            "bash",
            "exec 3<>/dev/tcp/127.0.0.1/80; sleep 20; echo still here",
        ),
        (
            "bash",
            "(setsid bash -c 'echo > /dev/udp/8.8.8.8/53' &) ; sleep 20; echo still here",
        ),
    ];
    everywhere(async |host| {
        let name = host.kind;
        for (runtime, source) in table {
            let source = match runtime {
                "python3" => format!("{source}\n{after}"),
                _ => source.to_owned(),
            };
            let response = host.run(ending(request(runtime, &source))).await;
            expect_class(&response, &["network_denied"]);
            let Kind::NetworkDenied(denied) = verdict(&response) else {
                panic!()
            };
            assert!(denied.attempts >= 1, "{name} {source}");
            assert_eq!(stdout(&response), "", "{name} {source}");
        }
    });
}

#[test]
fn what_is_no_attempt_goes_on_under_that_policy() {
    let source = "
import asyncio, multiprocessing, socket, subprocess, threading
one, other = socket.socketpair(); one.send(b'x'); other.recv(1)
for family in (socket.AF_NETLINK, 38):
    try: socket.socket(family, socket.SOCK_RAW)
    except OSError: pass
async def wait(): await asyncio.sleep(0)
asyncio.run(wait())
threading.Thread(target=print, args=('thread',)).start()
print(subprocess.check_output(['echo', 'child']).decode(), end='')
";
    everywhere(async |host| {
        let response = host.run(ending(python(source))).await;
        expect_class(&response, &["exited 0"]);
        assert!(stdout(&response).contains("child\n"));
        let response = host.run(ending(request(
            "node",
            "require('net'); require('dns'); console.log(1)",
        )));
        expect_output(&response.await, "1\n");
    });
}

#[test]
fn many_attempts_at_once_are_one_end_with_a_count() {
    let source = "
import socket, threading
for _ in range(16): threading.Thread(target=socket.socket).start()
";
    everywhere(async |host| {
        let name = host.kind;
        let response = host.run(ending(python(source))).await;
        let Kind::NetworkDenied(denied) = verdict(&response) else {
            panic!("{name} {:?}", response.verdict)
        };
        assert!((1..=16).contains(&denied.attempts), "{name} {denied:?}");
    });
}

#[test]
fn attempts_are_refused_quietly_unless_the_policy_says_otherwise() {
    let source = "
import socket
try: socket.create_connection(('8.8.8.8', 53), timeout=5)
except OSError: print('refused')
try: socket.getaddrinfo('example.com', 80)
except OSError: print('unknown')
";
    everywhere(async |host| {
        for policy in [NetworkPolicy::Unspecified, NetworkPolicy::Refuse] {
            let mut asked = python(source);
            asked.network = policy.into();
            expect_output(&host.run(asked).await, "refused\nunknown\n");
        }
        assert!(host.isolation().await.reports_network_attempts);
    });
}

/// Searches for a listener, and makes one.
pub(super) const OWN_LISTENER: &str = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
found = []
try: processes = [name for name in os.listdir('/proc') if name.isdigit()]
except OSError: processes = [str(pid) for pid in range(1, 300)] + ['self']
for pid in processes:
    for fd in range(64):
        try: target = os.readlink(f'/proc/{pid}/fd/{fd}')
        except OSError: continue
        if 'seccomp' in target: found.append((pid, fd))
own = []
for fd in range(5, 1024):
    try: os.fstat(fd); own.append(fd)
    except OSError: pass
class Program(ctypes.Structure):
    _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
allow = (ctypes.c_ulonglong * 1)(0x7fff000000000006)
program = Program(1, ctypes.cast(allow, ctypes.c_void_p))
new_listener = libc.syscall(317, 1, 8, ctypes.byref(program))
stolen = [libc.syscall(438, libc.syscall(434, pid, 0), fd, 0) for pid in (1, os.getppid()) for fd in range(3, 20)]
traced = libc.syscall(101, 16, os.getppid(), 0, 0)
print(found, own, new_listener, max(stolen), traced)
";

#[test]
fn e76_the_listener_cannot_be_reached_or_replaced() {
    // The script searches for a listener in itself and in every process it can see, tries to take
    // one over, and to install a filter with a listener of its own.
    everywhere(async |host| {
        let name = host.kind;
        let response = host.run(ending(python(OWN_LISTENER))).await;
        expect_class(&response, &["exited 0"]);
        assert_eq!(stdout(&response), "[] [] -1 -1 -1\n", "{name}");
    });
}
