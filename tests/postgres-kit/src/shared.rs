//! One server for all test processes of a run: the first starts it, and a guard stops it some time after the last.

use std::{
    fs::File,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    sync::OnceLock,
};

use crate::{
    programs::{find, give},
    server::Server,
};

/// The server of this process, and the lock by which the guard sees that the process lives.
static SHARED: OnceLock<Option<(Server, File)>> = OnceLock::new();

/// Returns the server that all tests share, or `None` where PostgreSQL is missing. It does not sync its files.
///
/// # Panics
/// A server that does not start.
pub fn shared() -> Option<&'static Server> {
    let shared = SHARED.get_or_init(|| {
        let programs = find()?;
        let user = rustix::process::geteuid().as_raw();
        let directory = std::env::temp_dir().join(format!("tavern-test-postgres-{user}"));
        let server = Server::in_directory(programs, directory);
        let held = hold(&server);
        Some((server, held.expect("the server of the tests starts")))
    });
    shared.as_ref().map(|(server, _)| server)
}

/// Starts the server if it does not run. Returns the lock that keeps it.
fn hold(server: &Server) -> anyhow::Result<File> {
    let beside = |end: &str| server.directory().with_extension(end);
    let starting = File::create(beside("start"))?;
    starting.lock()?;
    // While the guard stops the server, it holds this lock alone.
    let users = File::create(beside("users"))?;
    users.lock_shared()?;
    if !server.is_up() {
        if server.directory().exists() {
            std::fs::remove_dir_all(server.directory())?;
        }
        std::fs::create_dir_all(server.directory())?;
        give(server.directory())?;
        server.initialise(&["fsync = off", "full_page_writes = off"])?;
        server.run_up()?;
        server.add_roles()?;
        guard(server, &beside("users"))?;
    }
    Ok(users)
}

/// Starts the process that stops the server once no test process has held it for a look, one each 15 s.
fn guard(server: &Server, users: &Path) -> anyhow::Result<()> {
    let script = "while sleep 15; do flock --nonblock --exclusive \"$0\" sh -c \
        'pid=$(head -n 1 \"$0/data/postmaster.pid\"); kill -QUIT \"$pid\"; while kill -0 \"$pid\"; \
        do sleep 0.1; done; rm -rf \"$0\"' \"$1\" && exit; done";
    let mut guard = Command::new("setsid");
    guard
        .args(["sh", "-c", script])
        .arg(users)
        .arg(server.directory())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    Ok(())
}
