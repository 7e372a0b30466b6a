//! Options of sockets and pipes that scripts set.

use super::kernel::{CALL, refused};
use crate::{
    control::unconfined_python,
    rounds::everywhere,
    support::{expect_output, request},
};

/// A pair of sockets, a filter of one step that lets everything pass, and a number.
const OBJECTS: &str = "
import socket
one, other = socket.socketpair()
step = ctypes.create_string_buffer(b'\\x06\\0\\0\\0\\xff\\xff\\xff\\xff', 8)
class Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('steps', ctypes.c_void_p)]
program = ctypes.byref(Program(1, ctypes.addressof(step)))
number = ctypes.byref(ctypes.c_int(1))
";

/// Each way to have the kernel compile a filter for a socket, or to keep one there.
const FILTERS: [(&str, &str); 5] = [
    ("SO_ATTACH_FILTER", "54, one.fileno(), 1, 26, program, 16"),
    ("SO_LOCK_FILTER", "54, one.fileno(), 1, 44, number, 4"),
    ("SO_ATTACH_BPF", "54, one.fileno(), 1, 50, number, 4"),
    (
        "SO_ATTACH_REUSEPORT_CBPF",
        "54, one.fileno(), 1, 51, program, 16",
    ),
    (
        "SO_ATTACH_REUSEPORT_EBPF",
        "54, one.fileno(), 1, 52, number, 4",
    ),
];

#[test]
fn e76_no_filter_is_compiled_for_a_socket() {
    // The control attaches one filter, which is freed with its socket. Never more: the total for
    // all sockets of the machine is bounded, and so are the filters that confine scripts.
    let (name, attach) = FILTERS[0];
    let control = unconfined_python(&format!("{CALL}{OBJECTS}print('{name}', call({attach}))"));
    assert_eq!(control, "SO_ATTACH_FILTER allowed\n");
    everywhere(async |host| {
        let objects = format!("{CALL}{OBJECTS}");
        refused(&host, &objects, &FILTERS, &["ENOPROTOOPT"]).await;
    });
}

#[test]
fn what_programs_set_on_sockets_can_be_set() {
    let python = "
import socket
one, other = socket.socketpair()
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
assert one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > 0
print(one.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE), one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
try: tcp = socket.create_server(('127.0.0.1', 0), reuse_port=True)
except PermissionError: tcp = None
if tcp:
    client = socket.create_connection(tcp.getsockname())
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    socket.create_server(('::1', 0), family=socket.AF_INET6)
";
    let node = "
const net = require('net');
const fail = error => { if (error.code !== 'EPERM') throw error; console.log('done'); };
const server = net.createServer(one => one.end('x')).on('error', fail).listen(0, '127.0.0.1', () => {
    const client = net.connect(server.address().port, '127.0.0.1');
    client.setNoDelay(true).setKeepAlive(true, 1000);
    client.on('data', () => {}).on('end', () => { server.close(); console.log('done'); });
});
";
    everywhere(async |host| {
        expect_output(&host.python(python).await, "1 0\n");
        expect_output(&host.run(request("node", node)).await, "done\n");
    });
}

#[test]
fn pipes_keep_their_size() {
    let source = "
import fcntl, os
read, write = os.pipe()
print(fcntl.fcntl(write, fcntl.F_GETPIPE_SZ))
try: fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 20); print('grown')
except PermissionError: pass
";
    assert!(unconfined_python(source).contains("grown"));
    everywhere(async |host| expect_output(&host.python(source).await, "65536\n"));
}
