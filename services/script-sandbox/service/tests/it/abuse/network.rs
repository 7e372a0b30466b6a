//! Programs that try to reach a network.

use std::net::TcpListener;

use crate::{
    rounds::everywhere,
    support::{eventually, expect_output, marker, processes_with, python},
};

#[test]
fn e78_e79_e80_no_peer_can_be_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // The control: from outside, the same address answers.
    std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let source = format!(
        "
import socket
targets = [('127.0.0.1', {port}), ('::1', {port}), ('8.8.8.8', 53), ('169.254.169.254', 80), ('2001:4860:4860::8888', 53), ('fd00:ec2::254', 80)]
for host, port in targets:
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        if kind == socket.SOCK_DGRAM and host in ('127.0.0.1', '::1'): continue
        try:
            s = socket.socket(family, kind); s.settimeout(2); s.connect((host, port)); print('reached', host, kind)
        except OSError: pass
try: print(socket.getaddrinfo('example.com', 80))
except OSError: pass
"
    );
    everywhere(async |host| {
        expect_output(&host.python(&source).await, "");
    });
}

/// A socket of every family, kind and protocol.
pub(super) const SOCKETS: &str = "
import socket
made = []
for family in range(0, 46):
    for kind in (1, 2, 3, 5):
        for protocol in (0, 1, 6, 17, 132, 255, 262):
            try: socket.socket(family, kind, protocol).close(); made.append(family)
            except OSError: pass
print(sorted(set(made)))
";

#[test]
fn e73_only_plain_sockets_exist() {
    everywhere(async |host| {
        let expected = if host.kind == "reduced" {
            "[]\n"
        } else {
            "[2, 10]\n"
        };
        expect_output(&host.python(SOCKETS).await, expected);
    });
}

#[test]
fn e81_sockets_of_the_host_cannot_be_reached() {
    use std::os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    };
    let name = format!("tavern-canary-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&address).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let _named = UnixListener::bind(&path).unwrap();
    UnixStream::connect_addr(&address).unwrap();
    UnixStream::connect(&path).unwrap();
    let source = format!(
        "
import socket
for address in ['\\0{name}', '{}', '/run/docker.sock', '/var/run/dbus/system_bus_socket']:
    try: s = socket.socket(socket.AF_UNIX); s.connect(address); print('reached', address)
    except OSError: pass
",
        path.display()
    );
    everywhere(async |host| {
        expect_output(&host.python(&source).await, "");
    });
}

/// Listens, on a host with sockets, and stays.
const LISTENS: &str = "
import os, socket
try:
    s = socket.socket(); s.bind(('0.0.0.0', PORT)); s.listen(); s.set_inheritable(True)
    u = socket.socket(socket.AF_UNIX); u.bind('\\0meet-MARKER'); u.listen(); u.set_inheritable(True)
except OSError: pass
os.execvp('sleep', ['sleep', 'MARKER'])
";

/// Looks for listeners.
const CONNECTS: &str = "
import socket
for make, address in ((lambda: socket.socket(), ('127.0.0.1', PORT)), (lambda: socket.socket(socket.AF_UNIX), '\\0meet-MARKER')):
    try: make().connect(address); print('met')
    except OSError: pass
";

/// The two programs, with a port and a name that no other program on this machine has.
fn two_programs(marker: &str) -> [String; 2] {
    let free = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    [LISTENS, CONNECTS].map(|it| it.replace("PORT", &port).replace("MARKER", marker))
}

/// Two programs that want to meet, of which the first runs until they have.
pub(super) fn two_who_meet(marker: &str) -> String {
    let [listens, connects] = two_programs(marker);
    format!(
        "(python3 -c \"{listens}\" > /dev/null 2>&1 &)
until python3 -c \"{connects}\" | grep met; do sleep 0.05; done
pkill -xf 'sleep {marker}'"
    )
}

#[test]
fn e85_two_scripts_cannot_meet() {
    everywhere(async |host| {
        let marker = marker();
        let [listen, connect] = two_programs(&marker);
        let listening = tokio::spawn({
            let host = host.clone();
            async move { host.run(python(&listen)).await }
        });
        eventually("the first one listens", || {
            !processes_with(&marker).is_empty()
        })
        .await;
        expect_output(&host.python(&connect).await, "");
        listening.abort();
    });
}
