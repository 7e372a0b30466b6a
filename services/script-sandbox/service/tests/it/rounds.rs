//! Each test in processes of its own: once as the present user and, in the whole matrix and where
//! that user is root, once more as an ordinary user.
//!
//! `make test` runs every test once, on the strongest host. `make test-hosts` sets [`MATRIX`] and runs
//! it on every kind of host as every user.
//!
//! A test that looks for leftovers of its sandbox must be alone in its process, and where the
//! service is not root the user namespace maps its own user and no other can be assigned. So a test
//! starts its own program again for each user, and only there its body runs.

use std::{
    io::Write,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::chown,
            net::{SocketAddr, UnixListener},
            process::CommandExt,
        },
    },
    path::PathBuf,
    process::{Command, Output},
};

use crate::{
    oracle::{Before, SECRET, neighbour},
    support::Host,
};

/// The variable that marks a process as a round of a test.
const ROUND: &str = "TAVERN_TEST_ROUND";

/// The variable that enables the whole matrix of hosts and users, by the value [`WHOLE`].
const MATRIX: &str = "TAVERN_TEST_HOSTS";

/// The value of [`MATRIX`].
const WHOLE: &str = "all";

/// The directories in which the sandbox of a round finds interpreters. A host whose `PATH` has more
/// of them tries and measures each one when its sandbox starts, which here happens in every test.
const PROGRAMS: &str = "/usr/local/bin:/usr/bin:/bin";

/// Ordinary user ids that own no file; below the ids of scripts.
const ORDINARY_USERS: std::ops::Range<u32> = 63_000..64_000;

/// Runs a test's body as the present user and, in the whole matrix, as every user.
pub(crate) fn as_every_user<B: AsyncFn()>(body: B) {
    if is_round() {
        runtime().block_on(body());
    } else {
        rounds(name_of::<B>());
    }
}

/// Runs a test's body on the strongest host as the present user and, in the whole matrix, on every
/// kind of host as every user. Checks its leftovers by every oracle.
pub(crate) fn everywhere<B: AsyncFn(Host)>(body: B) {
    if is_round() {
        runtime().block_on(async {
            // The test that starts the round shows this if it fails.
            let mut shown = std::io::stderr();
            for host in hosts().await {
                writeln!(shown, "on the host `{}`", host.kind).unwrap();
                let before = Before::look(&host).await;
                let host = Host {
                    canaries: before.canaries().to_owned(),
                    ..host
                };
                // O5 holds while the program runs, not only when it has ended.
                tokio::join!(body(host.clone()), neighbour(&host));
                before.compare(&host).await;
            }
        });
    } else {
        rounds(name_of::<B>());
    }
}

/// The hosts of a round: every kind in the whole matrix, otherwise the strongest.
pub(crate) async fn hosts() -> Vec<Host> {
    if is_whole_matrix() {
        Host::all().await
    } else {
        vec![Host::strongest().await]
    }
}

fn is_whole_matrix() -> bool {
    std::env::var_os(MATRIX).is_some_and(|value| value == WHOLE)
}

fn is_round() -> bool {
    std::env::var_os(ROUND).is_some()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().unwrap()
}

/// The name of a test: the name of its closure, without the crate's.
fn name_of<B>() -> &'static str {
    let name = std::any::type_name::<B>();
    let name = name.split("::{{").next().unwrap();
    name.split_once("::").unwrap().1
}

/// Runs the rounds of a test side by side.
fn rounds(test: &str) {
    let outputs: Vec<(&str, Output)> = std::thread::scope(|scope| {
        let own = scope.spawn(|| own_round(test));
        let ordinary =
            (is_root() && is_whole_matrix()).then(|| scope.spawn(|| ordinary_round(test)));
        let own = ("as the present user", own.join().unwrap());
        let ordinary = ordinary.map(|round| ("as an ordinary user", round.join().unwrap()));
        std::iter::once(own).chain(ordinary).collect()
    });
    let failed: Vec<String> = outputs
        .into_iter()
        .filter_map(|(who, output)| {
            let [said, more] = [output.stdout, output.stderr]
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            // A round that finds no test of its name would pass as well.
            let passed = output.status.success() && said.contains("1 passed");
            (!passed).then(|| format!("{who}:\n{said}\n{more}"))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Makes a command run a round.
fn round(mut command: Command, test: &str) -> Command {
    let secret = format!("canary-secret-{}-{test}", std::process::id());
    // The name of a test to skip is a way to have the secret among the arguments.
    command
        .args([test, "--exact", "--test-threads", "1", "--skip", &secret])
        .env(ROUND, "1")
        .env(SECRET, secret);
    command
}

fn own_round(test: &str) -> Output {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new(own);
    command.env("PATH", PROGRAMS);
    round(command, test).output().unwrap()
}

/// The path of a program that was built with this one.
pub(crate) fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let mut places = own.ancestors().skip(1).take(2).map(|path| path.join(name));
    places.find(|path| path.is_file()).unwrap()
}

fn ordinary_round(test: &str) -> Output {
    let (user, _lease) = ordinary_user();
    let directory = tempfile::tempdir().unwrap();
    let temporary = directory.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    for path in [directory.path(), &temporary] {
        chown(path, Some(user), Some(user)).unwrap();
    }
    // The programs may be stored where only root can reach them.
    let own = std::env::current_exe().unwrap();
    let [launcher, service] = ["sandbox-launcher", "script-sandbox"].map(program);
    let [own, ..] = [own, launcher, service].map(|path| {
        let here = directory.path().join(path.file_name().unwrap());
        std::fs::hard_link(&path, &here)
            .or_else(|_| std::fs::copy(&path, &here).map(|_| ()))
            .unwrap();
        here
    });
    let mut command = Command::new(own);
    command
        .env_clear()
        .env("PATH", PROGRAMS)
        .env("TMPDIR", &temporary)
        .current_dir(directory.path())
        .uid(user)
        .gid(user);
    // The environment was cleared, and only the whole matrix has this round.
    round(command, test).env(MATRIX, WHOLE).output().unwrap()
}

/// A user that no other test of this host has at the moment: without a namespace the kernel counts
/// the processes of all of them together.
fn ordinary_user() -> (u32, UnixListener) {
    ORDINARY_USERS
        .into_iter()
        .find_map(|user| {
            let name = format!("tavern-test-user-{user}");
            let address = SocketAddr::from_abstract_name(name).unwrap();
            Some((user, UnixListener::bind_addr(&address).ok()?))
        })
        .expect("fewer than a thousand tests run at once")
}
