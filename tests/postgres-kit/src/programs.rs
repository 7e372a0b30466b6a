//! The programs of PostgreSQL on this machine.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};

/// The directory in which Debian keeps the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Returns the directory with the programs of the newest version, or `None`. In CI a missing server is a failure.
///
/// # Panics
/// In CI, if there is none.
#[expect(
    clippy::print_stderr,
    reason = "a person reads which tests did not run"
)]
pub fn find() -> Option<PathBuf> {
    let versions = std::fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|version| {
            let number: u32 = version.file_name().to_str()?.parse().ok()?;
            let programs = version.path().join("bin");
            programs
                .join("initdb")
                .exists()
                .then_some((number, programs))
        })
        .max();
    let newest = newest.map(|(_, programs)| programs);
    if newest.is_none() {
        let remedy =
            "PostgreSQL is missing, so this test does not run; install the package postgresql";
        assert!(std::env::var_os("CI").is_none(), "{remedy}");
        eprintln!("{remedy}");
    }
    newest
}

/// Returns a command for a program, as a user that is not root: the server refuses root.
pub(crate) fn command(programs: &Path, name: &str) -> Command {
    let program = programs.join(name);
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir("/").stdin(Stdio::null());
    command
}

/// Runs a command to its successful end. Returns its output.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Gives a directory to the user of the server.
pub(crate) fn give(directory: &Path) -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() {
        run(Command::new("chown")
            .arg("postgres:postgres")
            .arg(directory))?;
    }
    Ok(())
}
