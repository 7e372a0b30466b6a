//! The engine: the runtimes and the isolation of this host, and the tools that run scripts.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use blob_store::BlobStore;
use sandbox_launcher::processes::end_leftovers as end_leftovers_of_launchers;
use sandbox_protocol::report::Failure;

use crate::{
    backend::{Backend, HostSystem},
    cgroup::Cgroups,
    domain::{
        hardware::Hardware,
        isolation::{IsolationLevel, MemoryEnforcement, MissingLayer},
    },
    engine_settings::EngineSettings,
    error::BuildError,
    hardware,
    launcher::Launcher,
    launcher_pool::LauncherPool,
    packages::PackageStore,
    pool::{Pool, most_waiting},
    runtimes::{self, Runtime},
    scratch, self_test,
    slot::HostResources,
    users::Users,
};

/// The runtimes and the isolation of this host, and the tools that run scripts.
#[derive(Debug)]
pub struct Engine {
    /// The findings of the self-test.
    pub report: Report,
    /// Every runtime, including unusable ones.
    pub runtimes: Vec<Runtime>,
    /// The tools that run scripts; `None` where no isolation level works.
    pub tools: Option<HostResources>,
    /// Waiting interpreters; `None` if none are to wait.
    pub pool: Option<Pool>,
    /// The package sets of this host.
    pub packages: PackageStore,
}

/// The findings of the self-test.
#[derive(Clone, Debug)]
pub struct Report {
    /// The strongest level that works; `None` if none does.
    pub level: Option<IsolationLevel>,
    /// The mechanism that enforces the limits on memory and processes.
    pub enforcement: MemoryEnforcement,
    /// Layers that every script is without.
    pub missing: Vec<MissingLayer>,
    /// The failures of stronger levels.
    pub failures: Vec<(IsolationLevel, Failure)>,
    /// The kernel's report of the processor that scripts share.
    pub hardware: Hardware,
}

impl Engine {
    /// Examines the host, removes the leftovers of an earlier process, and tests levels and
    /// runtimes. On a host that reaches no level the engine has no [`Engine::tools`] and reports
    /// the reasons.
    ///
    /// # Errors
    /// Fails when the launcher program or a runtime profile is missing or wrong.
    pub async fn build(settings: EngineSettings, blobs: &BlobStore) -> Result<Self, BuildError> {
        let launcher = Launcher::new(&settings.launcher_path)?;
        let mut runtimes = runtimes::find(&settings.profiles_directory).await?;
        let cgroups = settings.use_cgroups.then(Cgroups::find).flatten();
        end_leftovers(&settings.scratch_directory, cgroups.clone()).await;
        let users = Users::new(settings.first_user);
        let host = Arc::new(HostSystem::look());
        let enforcement = cgroups.as_ref().map(Cgroups::enforcement);
        let mut report = Report {
            level: None,
            enforcement: enforcement.unwrap_or(MemoryEnforcement::Sampled),
            missing: Vec::new(),
            failures: Vec::new(),
            hardware: hardware::look(Path::new(hardware::DIRECTORY)),
        };
        let mut reached = None;
        let levels = IsolationLevel::STRONGEST_FIRST.into_iter();
        for level in levels.filter(|level| *level <= settings.highest_isolation) {
            let join = level != IsolationLevel::Reduced;
            let tools = HostResources {
                launchers: LauncherPool::new(launcher.clone(), cgroups.clone(), join),
                backend: Backend {
                    level,
                    host: host.clone(),
                    scratch: settings.scratch_directory.clone(),
                },
                cgroups: cgroups.clone(),
                blobs: blobs.clone(),
                users: users.clone(),
                // Waiting interpreters, of which each runtime has some, and sessions count as well.
                concurrent_scripts: settings
                    .concurrent_scripts
                    .saturating_add(most_waiting(settings.warm_interpreters))
                    .saturating_add(settings.sessions),
            };
            match self_test::prove(&tools, settings.concurrent_scripts, &mut runtimes).await {
                Ok(missing) => {
                    (report.level, report.missing) = (Some(level), missing);
                    reached = Some(tools);
                    break;
                }
                Err(failure) => report.failures.push((level, failure)),
            }
        }
        let pool = reached.as_ref().and_then(|tools| {
            tools.launchers.keep();
            let most = settings.warm_interpreters;
            (most > 0).then(|| Pool::new(tools.clone(), &settings))
        });
        Ok(Self {
            report,
            runtimes,
            tools: reached,
            pool,
            packages: PackageStore::new(&settings.packages_directory),
        })
    }

    /// Ends every waiting launcher and interpreter. Scripts end with their runs.
    pub async fn shutdown(&self) {
        if let Some(pool) = &self.pool {
            pool.close().await;
        }
        if let Some(tools) = &self.tools {
            tools.launchers.close().await;
        }
    }
}

impl Report {
    /// Returns whether scripts can run at the isolation level `lowest` or a stronger one.
    pub fn is_ready(&self, lowest: IsolationLevel) -> bool {
        self.level >= Some(lowest)
    }
}

/// Ends and removes the leftovers of processes that were killed. Processes come first: their users
/// may be given to other scripts after that. Files and cgroups may be many, and wait for the
/// processes to end.
async fn end_leftovers(scratch: &Path, cgroups: Option<Cgroups>) {
    const TIME: Duration = Duration::from_secs(30);
    const PAUSE: Duration = Duration::from_secs(1);
    let ended = tokio::task::spawn_blocking(end_leftovers_of_launchers);
    match ended.await {
        Ok(0) => {}
        Ok(left) => tracing::error!(left, "processes of scripts of an earlier service still run"),
        Err(error) => tracing::error!(%error, "ending leftovers panicked"),
    }
    let scratch = scratch.to_owned();
    std::thread::spawn(move || {
        let until = Instant::now() + TIME;
        while Instant::now() < until {
            let clean = cgroups.as_ref().is_none_or(Cgroups::sweep);
            if scratch::sweep(&scratch) && clean {
                return;
            }
            std::thread::sleep(PAUSE);
        }
        tracing::error!("what an earlier service has left could not be removed");
    });
}
