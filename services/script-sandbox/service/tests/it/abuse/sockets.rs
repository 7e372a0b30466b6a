//! Sockets of the host that have a name beneath a tree that scripts see.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixDatagram, UnixListener},
    },
};

use super::trees::{hosts_that_show, planted};
use crate::{
    control::unconfined_python,
    rounds::{as_every_user, everywhere},
    support::expect_output,
};

/// Tries to reach each socket of a directory in every way.
const REACHES: &str = "
import os, socket
kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)
def make(kind): return [socket.socket(socket.AF_UNIX, kind)]
def pair(kind): return list(socket.socketpair(socket.AF_UNIX, kind))
ways = {
    'connect': lambda s, path: s.connect(path),
    'sendto': lambda s, path: s.sendto(b'x', path),
    'sendmsg': lambda s, path: s.sendmsg([b'x'], [], 0, path),
}
assert sorted(os.listdir('DIRECTORY')) == ['datagrams', 'stream']
for name in ('datagrams', 'stream'):
    for making in (make, pair):
        for kind in kinds:
            for way, reach in ways.items():
                try: sockets = making(kind)
                except OSError: continue
                # What goes to the other one of a pair has not been sent by name.
                try: reach(sockets[0], os.path.join('DIRECTORY', name))
                except OSError: continue
                if len(sockets) == 2:
                    sockets[1].setblocking(False)
                    try: sockets[1].recv(1); continue
                    except OSError: pass
                print('reached', name, making.__name__, way)
";

#[test]
fn e81_a_socket_beneath_a_mounted_tree_cannot_be_reached() {
    as_every_user(async || {
        let tree = planted();
        let directory = tree.path().join("sockets");
        fs::create_dir(&directory).unwrap();
        let _stream = UnixListener::bind(directory.join("stream")).unwrap();
        let _datagrams = UnixDatagram::bind(directory.join("datagrams")).unwrap();
        for name in ["stream", "datagrams"] {
            fs::set_permissions(directory.join(name), Permissions::from_mode(0o777)).unwrap();
        }
        let source = REACHES.replace("DIRECTORY", directory.to_str().unwrap());
        let reached = unconfined_python(&source);
        for way in ["stream make connect", "datagrams pair sendto"] {
            assert!(reached.contains(way), "E81: {way} is not in {reached}");
        }
        for host in hosts_that_show(tree.path()).await {
            expect_output(&host.python(&source).await, "");
        }
    });
}

#[test]
fn processes_of_a_script_have_pipes_pairs_and_their_own_loopback() {
    let source = "
import asyncio, multiprocessing, multiprocessing.managers
def double(n): return 2 * n
if __name__ == '__main__':
    # Its locks are in /dev/shm, where there is one.
    try:
        with multiprocessing.Pool(2) as pool: print(pool.map(double, [1, 2]))
    except OSError: print('no pool')
    one, other = multiprocessing.Pipe(); one.send('pipe'); print(other.recv())
    async def run():
        child = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)
        return (await child.communicate(b'child'))[0].decode()
    print(asyncio.run(run()))
    try: manager = multiprocessing.managers.SyncManager(address=('127.0.0.1', 0)); manager.start()
    except (EOFError, OSError): print('no manager')
    else: print(manager.list([1]))
";
    everywhere(async |host| {
        let (pool, manager) = if host.kind == "reduced" {
            ("no pool", "no manager")
        } else {
            ("[2, 4]", "[1]")
        };
        let expected = format!("{pool}\npipe\nchild\n{manager}\n");
        expect_output(&host.python(source).await, &expected);
    });
}
