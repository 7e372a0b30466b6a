//! Launchers that are started ahead and wait for a plan, each in a fresh cgroup.
//!
//! A process that joins a cgroup waits until every processor has passed a quiet point, which can
//! take longer than all the rest of a start. A waiting launcher has that behind it, and what it starts
//! is in its cgroup from the first moment.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    cgroup::{Cgroup, Cgroups},
    domain::limits::Limits,
    launcher::{Launcher, Spawned},
};

/// How many wait.
const KEPT: usize = 2;

/// Keeps launchers waiting.
#[derive(Clone, Debug)]
pub struct LauncherPool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    launcher: Launcher,
    cgroups: Option<Cgroups>,
    /// Whether launchers join their cgroups themselves. Else the plan has to name them.
    join: bool,
    /// How many are to wait: none before the first script and after the last.
    wanted: AtomicUsize,
    making: AtomicUsize,
    /// Held for a push or a pop only.
    ready: Mutex<Vec<ReadyLauncher>>,
}

/// A launcher that waits for its plan. Dropping it ends it.
#[derive(Debug)]
pub struct ReadyLauncher {
    /// The launcher.
    pub spawned: Spawned,
    /// Its cgroup, or why it has none; nothing where none are used.
    pub cgroup: Option<io::Result<Arc<Cgroup>>>,
    limits: Limits,
}

impl LauncherPool {
    /// No launcher waits yet. `join`: whether launchers are to be in the cgroups of their scripts.
    pub fn new(launcher: Launcher, cgroups: Option<Cgroups>, join: bool) -> Self {
        Self(Arc::new(Shared {
            launcher,
            cgroups,
            join,
            wanted: AtomicUsize::new(0),
            making: AtomicUsize::new(0),
            ready: Mutex::default(),
        }))
    }

    /// Keeps some waiting from the next start on.
    pub fn keep(&self) {
        self.0.wanted.store(KEPT, Ordering::Relaxed);
    }

    /// Ends those that wait, keeps none any more, and waits until nothing is left of them.
    pub async fn close(&self) {
        self.0.wanted.store(0, Ordering::Relaxed);
        self.0.ready().clear();
        self.0.launcher.collected().await;
    }

    /// Takes a launcher whose cgroup has these limits: one that waits, or else a new one.
    ///
    /// # Errors
    /// When no process can be started.
    pub async fn take(&self, limits: &Limits) -> io::Result<ReadyLauncher> {
        let waiting = std::iter::from_fn(|| self.0.ready().pop()).find(ReadyLauncher::is_alive);
        let mut spare = match waiting {
            Some(spare) => spare,
            None => self.0.make(limits).await?,
        };
        self.refill();
        spare.apply_limits(limits);
        Ok(spare)
    }

    fn refill(&self) {
        let shared = &self.0;
        let wanted = shared.wanted.load(Ordering::Relaxed);
        let making = shared.making.fetch_add(1, Ordering::Relaxed);
        if shared.ready().len() + making >= wanted {
            shared.making.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let shared = shared.clone();
        tokio::spawn(async move {
            let made = shared.make(&Limits::DEFAULT).await;
            shared.making.fetch_sub(1, Ordering::Relaxed);
            match made {
                Ok(spare) if shared.ready().len() < shared.wanted.load(Ordering::Relaxed) => {
                    shared.ready().push(spare);
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "no launcher could be started ahead"),
            }
        });
    }
}

impl Shared {
    fn ready(&self) -> MutexGuard<'_, Vec<ReadyLauncher>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn make(&self, limits: &Limits) -> io::Result<ReadyLauncher> {
        let mut spawned = self.launcher.spawn().await?;
        let Some(cgroups) = self.cgroups.clone() else {
            return Ok(ReadyLauncher {
                spawned,
                cgroup: None,
                limits: *limits,
            });
        };
        let (limits, joining) = (*limits, self.join.then(|| spawned.supervisor.id()));
        let making = move || -> io::Result<Arc<Cgroup>> {
            let cgroup = cgroups.make(&limits, joining.is_some())?;
            if let Some(launcher) = joining {
                cgroup.join(launcher)?;
            }
            Ok(Arc::new(cgroup))
        };
        let cgroup = tokio::task::spawn_blocking(making).await?;
        if let Ok(cgroup) = &cgroup {
            spawned.supervisor.hold(cgroup.clone());
        }
        Ok(ReadyLauncher {
            spawned,
            cgroup: Some(cgroup),
            limits,
        })
    }
}

impl ReadyLauncher {
    /// A launcher says nothing before it has its plan; one that has died has closed its end.
    fn is_alive(&self) -> bool {
        let read = self.spawned.control.try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    fn apply_limits(&mut self, limits: &Limits) {
        if let Some(Ok(cgroup)) = &self.cgroup
            && (self.limits.memory, self.limits.processes) != (limits.memory, limits.processes)
            && let Err(error) = cgroup.limit(limits)
        {
            self.cgroup = Some(Err(error));
        }
        self.limits = *limits;
    }
}
