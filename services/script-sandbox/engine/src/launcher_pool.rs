//! Launchers that are started ahead and wait for a plan, each in a fresh cgroup.
//!
//! A process that joins a cgroup waits until every processor has passed a quiescent state, which
//! can take longer than the rest of a start. A waiting launcher has done that already, and its
//! script is in the cgroup from the first moment.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sandbox_protocol::report::{At, Layer, Step};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    cgroup::{Cgroup, Cgroups},
    domain::limits::Limits,
    launcher::{Launcher, Spawned},
};

/// The number of launchers that wait.
const KEPT: usize = 2;

/// Keeps launchers waiting.
#[derive(Clone, Debug)]
pub struct LauncherPool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    launcher: Launcher,
    cgroups: Option<Cgroups>,
    /// Whether launchers join their cgroups themselves. Otherwise the plan has to name the cgroups.
    join: bool,
    /// Permits for waiting launchers: none before the first script, closed after the last.
    places: Arc<Semaphore>,
    /// Held for a push or a pop only.
    ready: Mutex<Vec<(ReadyLauncher, OwnedSemaphorePermit)>>,
}

/// A launcher that waits for its plan. Dropping it ends it.
#[derive(Debug)]
pub struct ReadyLauncher {
    /// The launcher.
    pub spawned: Spawned,
    /// Its cgroup, where cgroups are used.
    pub cgroup: Option<Arc<Cgroup>>,
    limits: Limits,
}

impl LauncherPool {
    /// Makes a pool without a waiting launcher. `join`: whether launchers join the cgroups of their
    /// scripts.
    pub fn new(launcher: Launcher, cgroups: Option<Cgroups>, join: bool) -> Self {
        Self(Arc::new(Shared {
            launcher,
            cgroups,
            join,
            places: Arc::new(Semaphore::new(0)),
            ready: Mutex::default(),
        }))
    }

    /// Keeps launchers waiting from the next start on.
    pub fn keep(&self) {
        self.0.places.add_permits(KEPT);
    }

    /// Ends all waiting launchers, starts no further ones, and waits until all have ended.
    pub async fn close(&self) {
        self.0.places.close();
        self.0.ready().clear();
        self.0.launcher.collected().await;
    }

    /// Takes a launcher whose cgroup has these limits: a waiting one, or else a new one.
    ///
    /// # Errors
    /// Fails when no process can be started, or no cgroup be made or limited.
    pub async fn take(&self, limits: &Limits) -> Step<ReadyLauncher> {
        let mut waiting = std::iter::from_fn(|| self.0.ready().pop());
        let alive = waiting.find(|(launcher, _)| launcher.is_alive());
        let launcher = match alive {
            Some((launcher, _place)) => launcher.with_limits(limits)?,
            None => self.0.make(limits).await?,
        };
        self.refill();
        Ok(launcher)
    }

    /// Starts a launcher in the background, if fewer wait than should.
    fn refill(&self) {
        let Ok(place) = self.0.places.clone().try_acquire_owned() else {
            return;
        };
        let shared = self.0.clone();
        tokio::spawn(async move {
            match shared.make(&Limits::DEFAULT).await {
                Ok(launcher) => {
                    let mut ready = shared.ready();
                    if !shared.places.is_closed() {
                        ready.push((launcher, place));
                    }
                }
                Err(error) => tracing::warn!(%error, "no launcher could be started ahead"),
            }
        });
    }
}

impl Shared {
    fn ready(&self) -> MutexGuard<'_, Vec<(ReadyLauncher, OwnedSemaphorePermit)>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn make(&self, limits: &Limits) -> Step<ReadyLauncher> {
        let spawned = self.launcher.spawn().await;
        let mut spawned = spawned.at(Layer::Launch, "starting the launcher")?;
        let mut made = None;
        if let Some(cgroups) = self.cgroups.clone() {
            let (limits, joining) = (*limits, self.join.then(|| spawned.supervisor.id()));
            let making = move || -> io::Result<Arc<Cgroup>> {
                let cgroup = cgroups.make(&limits, joining.is_some())?;
                if let Some(launcher) = joining {
                    cgroup.join(launcher)?;
                }
                Ok(Arc::new(cgroup))
            };
            let making = tokio::task::spawn_blocking(making).await;
            let making = making.map_err(io::Error::from).flatten();
            let cgroup = making.at(Layer::CgroupLimits, "making a cgroup")?;
            spawned.supervisor.hold(cgroup.clone());
            made = Some(cgroup);
        }
        Ok(ReadyLauncher {
            spawned,
            cgroup: made,
            limits: *limits,
        })
    }
}

impl ReadyLauncher {
    /// Returns whether the launcher lives: it sends nothing before it has its plan, and a dead one
    /// has closed its end.
    fn is_alive(&self) -> bool {
        let read = self.spawned.control.try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    fn with_limits(self, limits: &Limits) -> Step<Self> {
        if let Some(cgroup) = &self.cgroup
            && (self.limits.memory, self.limits.processes) != (limits.memory, limits.processes)
        {
            let limited = cgroup.limit(limits);
            limited.at(Layer::CgroupLimits, "limiting a cgroup")?;
        }
        Ok(self)
    }
}
