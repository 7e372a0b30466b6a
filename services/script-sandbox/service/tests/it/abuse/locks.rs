//! Locks on files that scripts share.

use std::{fs, path::Path};

use rustix::fs::FlockOperation;

use super::trees::{hosts_that_show, planted};
use crate::{
    control::unconfined,
    rounds::{as_every_user, everywhere},
    support::{eventually, expect_output, marker, processes_with, python},
};

/// Opens files of the host, and devices, which all scripts and the host share.
const SHARED: &str = "
import fcntl, os, struct
opened = [(os.path.join('DIRECTORY', name), os.O_RDONLY) for name in os.listdir('DIRECTORY')]
for device in DEVICES:
    opened += [('/dev/' + device, flags) for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR)]
descriptors = []
for path, flags in opened:
    try: descriptors.append((path, os.open(path, flags)))
    except OSError: pass
SETTING, ASKING, READ, WRITE, NONE = (6, 7, 37, 38), (5, 36), 0, 1, 2
def flock(kind): return struct.pack('hhqqixxxx', kind, 0, 0, 0, 0)
";

/// The program that opens the files of a directory, and devices.
fn shared(directory: &Path, devices: &[&str]) -> String {
    SHARED
        .replace("DIRECTORY", directory.to_str().unwrap())
        .replace("DEVICES", &format!("{devices:?}").replace('"', "'"))
}

/// A directory with a file that any user may read and its owner may write.
fn with_a_file() -> tempfile::TempDir {
    let tree = planted();
    fs::write(tree.path().join("file"), "content").unwrap();
    tree
}

/// Tries every lock on them, and stays.
const LOCKS: &str = "
held = 0
for path, descriptor in descriptors:
    os.set_inheritable(descriptor, True)
    for command in SETTING:
        for kind in (READ, WRITE):
            try: fcntl.fcntl(descriptor, command, flock(kind)); held += 1
            except OSError: pass
    for operation in (fcntl.LOCK_SH, fcntl.LOCK_EX):
        try: fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        except OSError: pass
    try: fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError: pass
os.execvp('sleep', ['sleep', 'MARKER'])
";

/// Looks for a lock of another process, by every way to see one.
const LOOKS_FOR_LOCKS: &str = "
seen = set()
for path, descriptor in descriptors:
    for command in ASKING:
        try: answer = fcntl.fcntl(descriptor, command, flock(WRITE))
        except OSError: continue
        if struct.unpack('hhqqixxxx', answer)[0] != NONE: seen.add(path)
    for kind in (READ, WRITE):
        try: fcntl.fcntl(descriptor, 6, flock(kind))
        except BlockingIOError: seen.add(path)
        except OSError: pass
    try: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.flock(descriptor, fcntl.LOCK_UN)
    except BlockingIOError: seen.add(path)
    except OSError: pass
print(*sorted(seen), sep='\\n', end='')
";

#[test]
fn e70_no_lock_of_a_script_is_seen_by_another_or_by_the_host() {
    as_every_user(async || {
        let tree = with_a_file();
        let shared = shared(tree.path(), &["null", "zero", "full", "random", "urandom"]);
        for host in hosts_that_show(tree.path()).await {
            let marker = marker();
            let source = format!("{shared}{}", LOCKS.replace("MARKER", &marker));
            let locking = tokio::spawn({
                let host = host.clone();
                async move { host.run(python(&source)).await }
            });
            eventually("the first one has tried all locks", || {
                !processes_with(&marker).is_empty()
            })
            .await;
            let looking = format!("{shared}{LOOKS_FOR_LOCKS}");
            expect_output(&host.python(&looking).await, "");
            let own = fs::File::options()
                .write(true)
                .open(tree.path().join("file"));
            let own = own.unwrap();
            rustix::fs::fcntl_lock(&own, FlockOperation::NonBlockingLockExclusive).unwrap();
            rustix::fs::flock(&own, FlockOperation::NonBlockingLockExclusive).unwrap();
            locking.abort();
        }
    });
}

#[test]
fn e70_a_lock_on_a_shared_file_is_seen_without_a_sandbox() {
    let tree = with_a_file();
    let shared = shared(tree.path(), &[]);
    let locks = LOCKS.replace("MARKER", "20.70");
    let both = format!(
        "(python3 -c \"{shared}{locks}\" > /dev/null 2>&1 &)
for _ in $(seq 200); do pgrep -xf 'sleep 20[.]70' > /dev/null && break; sleep 0.05; done
python3 -c \"{shared}{LOOKS_FOR_LOCKS}\"
pkill -xf 'sleep 20[.]70'"
    );
    let seen = unconfined("bash", &["-c", &both]);
    assert!(seen.contains("/file"), "E70: {seen}");
}

#[test]
fn a_database_works_although_no_lock_is_taken() {
    let source = "
import sqlite3, subprocess, sys
for mode in ('delete', 'wal'):
    for _ in range(3):
        with sqlite3.connect('test.db') as db:
            db.execute(f'pragma journal_mode={mode}')
            db.execute('create table if not exists t (x)')
            db.executemany('insert into t values (?)', [(n,) for n in range(1000)])
        db.close()
child = 'import sqlite3; print(sqlite3.connect(\"test.db\").execute(\"select count(*) from t\").fetchone())'
print(subprocess.check_output([sys.executable, '-c', child]).decode(), end='')
";
    everywhere(async |host| expect_output(&host.python(source).await, "(6000,)\n"));
}

#[test]
fn a_lock_that_would_keep_processes_apart_is_refused_and_not_feigned() {
    let source = "
import fcntl
file = open('own', 'w')
try: fcntl.lockf(file, fcntl.LOCK_EX)
except OSError as error: print(error.strerror)
";
    everywhere(async |host| {
        expect_output(&host.python(source).await, "No locks available\n");
    });
}
