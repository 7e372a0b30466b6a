//! The program `tavern` as a process.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use grpc_kit::ClientSettings;
use tempfile::TempDir;
use testkit::Process;

use crate::harness::Effort;

/// The longest time of a start before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `tavern serve`; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Served {
    /// The seconds from its start until it answered.
    pub(crate) seconds_to_ready: f64,
    address: String,
    process: Process,
    _directory: Option<TempDir>,
}

impl Served {
    /// Starts the program on `host`, a loopback address of its own, with fresh data, and waits until it answers.
    ///
    /// # Errors
    /// The program is missing or does not come up; the error has its output.
    pub(crate) async fn start(
        effort: &Effort,
        host: &str,
        environment: &[(String, String)],
    ) -> anyhow::Result<Self> {
        let directory = effort.fresh_directory()?;
        let deploy = testkit::repository().join("deploy");
        let mut served = Self::start_in(directory.path(), &deploy, host, environment).await?;
        served._directory = Some(directory);
        Ok(served)
    }

    /// Starts the program on `host` with the data and the output in `directory`, which may have data of an earlier
    /// start, and with the files in `deploy`.
    ///
    /// # Errors
    /// The program is missing or does not come up; the error has its output.
    pub(crate) async fn start_in(
        directory: &Path,
        deploy: &Path,
        host: &str,
        environment: &[(String, String)],
    ) -> anyhow::Result<Self> {
        let program = program("tavern")?;
        let listen = format!("{host}:7401");
        let data = directory.join("data").display().to_string();
        let deploy = deploy.display().to_string();
        let arguments = [
            "serve",
            "--listen",
            &listen,
            "--data-dir",
            &data,
            "--deploy-dir",
            &deploy,
        ];
        let begin = Instant::now();
        let mut process = Process::start("tavern", &program, &arguments, environment, directory)?;
        let address = format!("http://{listen}");
        await_health(&mut process, &address, begin).await?;
        let seconds_to_ready = begin.elapsed().as_secs_f64();
        Ok(Self {
            seconds_to_ready,
            address,
            process,
            _directory: None,
        })
    }

    /// Returns where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns its process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }
}

async fn await_health(process: &mut Process, address: &str, begin: Instant) -> anyhow::Result<()> {
    let settings = ClientSettings::to(address.to_owned());
    while grpc_kit::check_health(&settings).await.is_err() {
        process.ensure_alive()?;
        ensure!(
            begin.elapsed() < PATIENCE,
            "it did not answer in a minute\n{}",
            process.output()
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Returns a program of this workspace, built in the same profile as this one.
///
/// # Errors
/// A missing program; the message names the command that builds it.
pub(crate) fn program(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("a program knows its own path")?;
    let path = own.parent().unwrap_or(Path::new(".")).join(name);
    ensure!(
        path.exists(),
        "{} is missing; run `cargo build --profile dist --workspace --exclude bench --bins` first",
        path.display()
    );
    Ok(path)
}
