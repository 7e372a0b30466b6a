//! One program as a process that does not outlive its test.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// A program as a process; it is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

/// Returns the root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the path of a binary of this workspace.
///
/// # Errors
/// A missing binary; the message names the command that builds it.
pub fn binary(name: &str) -> anyhow::Result<PathBuf> {
    let path = binary_directory()?.join(name);
    ensure!(
        path.exists(),
        "{} is missing; run `cargo build --workspace --bins`",
        path.display()
    );
    Ok(path)
}

/// Returns the directory of the binaries of the profile that this program was built with.
pub(crate) fn binary_directory() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("a program knows its own path")?;
    let directory = own.parent().context("a program stands in a directory")?;
    // A test is in `deps`, next to the binaries; the benchmarks are such a binary.
    let directory = match directory.ends_with("deps") {
        true => directory.parent().context("`deps` stands in a directory")?,
        false => directory,
    };
    Ok(directory.to_owned())
}

impl Process {
    /// Starts `program`; its output goes to `<name>.log` in `directory`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start<V: AsRef<OsStr>>(
        name: &str,
        program: &Path,
        arguments: &[&str],
        environment: &[(String, V)],
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let out = File::options().create(true).append(true).open(&log)?;
        let err = out.try_clone()?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err);
        for (key, value) in environment {
            command.env(key, value.as_ref());
        }
        let child = command
            .spawn()
            .with_context(|| format!("{} does not start", program.display()))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Returns the output of the process so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the name that the process was started under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process at once, as a power cut or an operator would.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.child
            .wait()
            .map(drop)
            .with_context(|| format!("{} cannot be awaited", self.name))
    }

    /// Waits until the process has ended by itself.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        self.child
            .wait()
            .with_context(|| format!("{} cannot be awaited", self.name))
    }

    /// Requests the process to end.
    ///
    /// # Errors
    /// The process cannot be signalled.
    pub fn signal(&mut self) -> anyhow::Result<()> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(id.context("a process id is positive")?, Signal::TERM)?;
        Ok(())
    }

    /// Requests the process to end and waits until it has.
    ///
    /// # Errors
    /// The process cannot be signalled or waited for.
    pub fn terminate(&mut self) -> anyhow::Result<ExitStatus> {
        self.signal()?;
        self.wait()
    }

    /// Fails with the output of the process if it has ended.
    ///
    /// # Errors
    /// The process has ended.
    pub fn ensure_alive(&mut self) -> anyhow::Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(
            ended.is_none(),
            "{} ended: {ended:?}\n{}",
            self.name,
            self.output()
        );
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that cannot be killed is left alone.
        let _ = self.kill();
    }
}
