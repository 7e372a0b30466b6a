//! Programs that use up memory, processes, files and time.

use contracts::tavern::sandbox::v1::Limits;

use crate::{
    abuse::exhaustion::ends,
    rounds::everywhere,
    support::{
        expect_class, expect_output, limited, marker, memory_of, patient, processes_with, request,
        seconds, stdout,
    },
};

#[test]
fn e02_e67_detached_children_of_node_die_with_it() {
    let marker = marker();
    let source = "
const { spawn } = require('child_process');
for (const name of ['SIGTERM', 'SIGHUP', 'SIGINT', 'SIGXCPU']) process.on(name, () => {});
const daemon = ['-c', 'trap \"\" HUP TERM INT; setsid sleep MARKER & exec sleep MARKER'];
for (let n = 0; n < 3; n++) spawn('bash', daemon, { detached: true, stdio: 'inherit' }).unref();
console.log('started');
process.exit(0);
"
    .replace("MARKER", &marker);
    everywhere(async |host| {
        // Waiting for the daemons, which hold the output, would end at the wall time.
        expect_output(&host.run(request("node", &source)).await, "started\n");
        assert!(processes_with(&marker).is_empty());
    });
}

#[test]
fn e03_node_with_one_process_meets_its_limit() {
    everywhere(async |host| {
        let limits = Limits {
            processes: Some(1),
            ..memory_of(1024)
        };
        let source = "setTimeout(() => {}, 600000)";
        ends(&host, "node", source, limits, &["processes"]).await;
    });
}

#[test]
fn e03_threads_of_node_are_counted_as_processes() {
    let source = "
const { Worker } = require('worker_threads');
const sleep = 'Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)';
let started = 0;
const next = () => {
  if (started++ >= 2000) return;
  try {
    new Worker(sleep, { eval: true }).on('online', next).on('error', () => {});
  } catch (error) {
    require('fs').writeSync(1, error.message);
    // What Node does about its other workers now is up to Node.
    process.kill(process.pid, 'SIGKILL');
  }
};
next();
";
    everywhere(async |host| {
        let limits = Limits {
            processes: Some(48),
            ..memory_of(1024)
        };
        let response = host.run(limited(request("node", source), limits)).await;
        if host.shares_its_user() {
            expect_class(&response, &["processes"]);
        } else {
            expect_class(&response, &["signalled SIGKILL"]);
            assert_eq!(stdout(&response), "EAGAIN");
            assert!(response.usage.unwrap().max_processes <= 48);
        }
    });
}

#[test]
fn e05_e06_e24_memory_of_node_counts_wherever_it_is() {
    let children = "
const { spawn } = require('child_process');
const child = 'const held = Buffer.alloc(48 << 20, 1); setInterval(() => held, 1000)';
for (let n = 0; n < 8; n++) spawn(process.execPath, ['-e', child], { stdio: 'ignore' }).on('error', () => {});
setInterval(() => {}, 1000);
";
    let files = "
const fs = require('fs');
let place = '/dev/shm';
try { fs.writeFileSync(place + '/first', ''); } catch { place = process.env.TMPDIR; }
for (let n = 0; n < 100; n++) fs.writeFileSync(`${place}/${n}`, Buffer.alloc(7 << 20, 1));
";
    let off_heap = "
const held = [];
for (;;) { const memory = new SharedArrayBuffer(16 << 20); new Uint8Array(memory).fill(1); held.push(memory); }
";
    everywhere(async |host| {
        ends(&host, "node", children, memory_of(192), &["memory"]).await;
        ends(&host, "node", files, patient(), &["disk", "memory"]).await;
        ends(&host, "node", off_heap, memory_of(192), &["memory"]).await;
    });
}

#[test]
fn e09_e16_e26_time_of_node_is_bounded() {
    let wall = Limits {
        wall_time: seconds(1.0),
        ..patient()
    };
    let cpu = Limits {
        cpu_time: seconds(1.0),
        ..patient()
    };
    let table = [
        ("setTimeout(() => {}, 600000)", wall, "wall"),
        (
            "setInterval(() => process.stdout.write('.'), 50)",
            wall,
            "wall",
        ),
        ("let n = 3n; for (;;) n = n ** 9n", cpu, "cpu"),
        (
            "const spin = () => Promise.resolve().then(spin); spin()",
            cpu,
            "cpu",
        ),
    ];
    everywhere(async |host| {
        for (source, limits, class) in table {
            ends(&host, "node", source, limits, &[class]).await;
        }
    });
}

#[test]
fn e11_e13_e17_files_of_node_meet_their_limits() {
    let large = "
const fs = require('fs');
for (let n = 0; n < 700; n++) fs.writeFileSync(`f${n}`, Buffer.alloc(1 << 20, 1));
";
    let many = "
const fs = require('fs');
for (let n = 0; n < 1000000; n++) fs.closeSync(fs.openSync(`f${n}`, 'w'));
";
    let open = "
const fs = require('fs');
let n = 0;
try { for (; n < 20000; n++) fs.openSync('/dev/null'); } catch (error) { console.log(error.code, n < 1024); }
";
    everywhere(async |host| {
        let bytes = Limits {
            disk_bytes: Some(16 << 20),
            ..patient()
        };
        ends(&host, "node", large, bytes, &["disk"]).await;
        let files = Limits {
            disk_files: Some(2000),
            ..patient()
        };
        ends(&host, "node", many, files, &["disk"]).await;
        expect_output(&host.run(request("node", open)).await, "EMFILE true\n");
    });
}

#[test]
fn e65_e69_the_way_in_which_node_ends_is_distinguished() {
    let table = [
        ("process.abort()", "signalled SIGABRT"),
        ("process.kill(process.pid, 'SIGSEGV')", "signalled SIGSEGV"),
        ("process.kill(process.pid, 'SIGKILL')", "signalled SIGKILL"),
        ("process.exit(137)", "exited 137"),
        ("process.exitCode = 139", "exited 139"),
        ("throw new Error('no')", "exited 1"),
        ("Promise.reject(new Error('no'))", "exited 1"),
    ];
    everywhere(async |host| {
        for (source, class) in table {
            expect_class(&host.run(request("node", source)).await, &[class]);
        }
    });
}
