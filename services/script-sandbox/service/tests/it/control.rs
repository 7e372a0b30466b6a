//! The control of hostile programs: their abilities without a sandbox.

use std::{
    os::unix::{fs::chown, process::CommandExt},
    process::Command,
};

use crate::rounds::is_root;

/// A user id that owns no file and belongs to no other user.
const THROW_AWAY: u32 = 60_999;

/// Runs a program as an ordinary user, without a sandbox and in a directory of that user's own;
/// returns its output.
pub(crate) fn unconfined(program: &str, arguments: &[&str]) -> String {
    let own = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", "/")
        .env("TMPDIR", "/tmp")
        .current_dir(own.path());
    if is_root() {
        chown(own.path(), Some(THROW_AWAY), Some(THROW_AWAY)).unwrap();
        command.uid(THROW_AWAY).gid(THROW_AWAY);
    }
    String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
}

/// Runs a source with the Python of the system.
pub(crate) fn unconfined_python(source: &str) -> String {
    unconfined("python3", &["-c", source])
}
