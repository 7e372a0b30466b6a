//! Interpreters that wait for a script, fully confined, each for one script only.
//!
//! There is an entry for each requested runtime, and for each script path that a tenant has chosen. [`Pool::take`] returns a waiting
//! interpreter if one fits the script. Otherwise the script gets an interpreter that is started for
//! it, at any time and with the same result. [`refill`] starts new ones in the background, as many
//! as [`crate::domain::pool_sizer::PoolSizer`] targets, within the operator's limits on number and
//! memory.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
    time::{Duration, Instant},
};

use core_types::Tenant;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};

use crate::{
    EngineSettings,
    domain::{
        limits::Limits,
        pool_sizer::{PoolSizer, fits},
        profile::Profile,
        script::{Network, Script},
    },
    packages::{Packages, threads},
    runtimes::{Interpreter, Runtime},
    slot::HostResources,
};

mod refill;
mod warm_interpreter;

pub(crate) use refill::most_waiting;
pub use warm_interpreter::Assignment;
pub use warm_interpreter::WarmInterpreter;
use warm_interpreter::{Kind, PoolKey};

/// The most kinds of waiting interpreters for paths that tenants have chosen; scripts with further paths are started
/// cold.
const MAX_ENTRIES: usize = 16;

/// The number of scripts of an unusual path before an interpreter waits for the next one.
const HESITATION: u32 = 2;

/// The state of the waiting interpreters of one runtime, as operators see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// The number that wait.
    pub ready: u32,
    /// The number that should wait.
    pub target: u32,
    /// The memory of those that wait or are started, in bytes.
    pub memory: u64,
    /// The reason why the last one could not be made to wait; empty if it could.
    pub problem: String,
}

/// Interpreters that wait.
#[derive(Debug)]
pub struct Pool {
    inner: Arc<SharedPool>,
    /// The task that refills the pool. Dropping the sender stops it, which then ends the waiting
    /// interpreters.
    refilling: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

#[derive(Debug)]
struct SharedPool {
    tools: HostResources,
    limits: Limits,
    /// The most interpreters of one kind that wait.
    most: u32,
    /// The most memory of all of them together, in bytes.
    memory: u64,
    /// Locked for a moment and never across an await.
    entries: Mutex<Vec<PoolEntry>>,
    /// Notified when a script is requested.
    asked: Notify,
    /// The memory of interpreters that are being ended, in bytes.
    retiring: AtomicU64,
}

/// Interpreters of one kind.
#[derive(Debug)]
struct PoolEntry {
    order: PoolKey,
    sizer: PoolSizer,
    ready: VecDeque<WarmInterpreter>,
    starting: u32,
    /// The memory of one, as far as it is known, in bytes.
    memory: u64,
    trouble: StartFailures,
}

/// The failures to start the most recent ones.
#[derive(Debug, Default)]
struct StartFailures {
    failures: u32,
    problem: String,
    pause_until: Option<Instant>,
}

impl Pool {
    /// Makes a pool without any waiting interpreter, which refills from the first request on.
    pub fn new(tools: HostResources, settings: &EngineSettings) -> Self {
        let inner = Arc::new(SharedPool {
            tools,
            limits: settings.default_limits,
            most: settings.warm_interpreters,
            memory: settings.warm_memory,
            entries: Mutex::default(),
            asked: Notify::new(),
            retiring: AtomicU64::new(0),
        });
        let (close, closed) = oneshot::channel();
        let refilling = tokio::spawn(refill::run(inner.clone(), closed));
        Self {
            inner,
            refilling: Mutex::new(Some((close, refilling))),
        }
    }

    /// Takes a waiting interpreter that fits the script, if there is one.
    pub fn take(
        &self,
        (runtime, interpreter): (&Runtime, &Interpreter),
        script: &Script,
        packages: Option<&Arc<Packages>>,
    ) -> Option<WarmInterpreter> {
        let profile = runtime.profile.warm.as_ref()?;
        let mut variables = script.environment.iter();
        // A library may read any variable when it is imported.
        let looks_at = |name: &str| packages.is_some() || profile.looks_at(name);
        if !self.inner.suits(script, packages.is_some())
            || variables.any(|(name, _)| looks_at(name))
        {
            return None;
        }
        let path = script.path(&runtime.profile.file_suffix);
        let mut warm = self
            .inner
            .ask((runtime, interpreter), path, script, packages)?;
        match warm.apply_limits(&script.limits) {
            Ok(()) => Some(warm),
            Err(error) => {
                tracing::debug!(%error, "the limits of a script could not be applied to a waiting interpreter");
                tokio::spawn(warm.retire());
                None
            }
        }
    }

    /// The state of the waiting interpreters of a runtime, among them those for the paths that a tenant has chosen; of
    /// all tenants if none is named.
    ///
    /// With a digest those with that package set, with `Some(None)` those without any, with `None` all of them.
    pub fn state(
        &self,
        runtime: &str,
        digest: Option<Option<&str>>,
        tenant: Option<Tenant>,
    ) -> PoolState {
        let entries = self.inner.entries();
        let mut state = PoolState::default();
        let counts = |it: &&PoolEntry| {
            let is_seen =
                tenant.is_none() || it.order.tenant.is_none() || it.order.tenant == tenant;
            let kind = it.order.kind();
            let same =
                digest.is_none_or(|digest| kind.packages.map(|(digest, _)| digest) == digest);
            is_seen && kind.runtime == runtime && same
        };
        for entry in entries.iter().filter(counts) {
            state.ready += entry.waiting();
            state.target += entry.sizer.target();
            state.memory += entry.memory_in_use();
            if state.problem.is_empty() {
                state.problem = self.inner.problem_of(entry);
            }
        }
        state
    }

    /// Ends the interpreters that wait for paths which a tenant has chosen, and forgets the paths.
    pub fn forget(&self, tenant: Tenant) {
        let mut entries = self.inner.entries();
        for entry in entries
            .iter_mut()
            .filter(|entry| entry.order.tenant == Some(tenant))
        {
            for warm in entry.ready.drain(..) {
                tokio::spawn(warm.retire());
            }
        }
        // An entry for which an interpreter is being started is needed until it is there.
        entries.retain(|entry| entry.order.tenant != Some(tenant) || entry.starting > 0);
    }

    /// Ends all waiting interpreters, and waits until all have ended.
    pub async fn close(&self) {
        let refilling = self.refilling.lock();
        let refilling = refilling.unwrap_or_else(PoisonError::into_inner).take();
        if let Some((close, refilling)) = refilling {
            drop(close);
            if let Err(error) = refilling.await {
                tracing::error!(%error, "refilling the pool panicked");
            }
        }
    }
}

/// Returns the memory, in bytes, of an interpreter that waits with the modules of a package set.
///
/// # Errors
/// The reason why it does not wait, such as a module that prints when it is imported.
pub async fn weigh(
    tools: &HostResources,
    (profile, interpreter): (Profile, Interpreter),
    packages: Packages,
    limits: Limits,
) -> Result<u64, String> {
    let Some(warm) = profile.warm.clone() else {
        return Ok(0);
    };
    let order = PoolKey {
        tenant: None,
        script_path: format!("main{}", profile.file_suffix),
        warm,
        profile,
        interpreter,
        packages: Some(Arc::new(packages)),
        limits,
    };
    let waiting = WarmInterpreter::up(tools, &order).await?;
    let memory = waiting.memory();
    waiting.retire().await;
    Ok(memory)
}

impl SharedPool {
    fn entries(&self) -> MutexGuard<'_, Vec<PoolEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether interpreters can wait for such a script at all. Libraries have chosen their number of threads when
    /// they were imported.
    fn suits(&self, script: &Script, libraries: bool) -> bool {
        let cgroup = self.tools.cgroups.is_some();
        let same_threads = || threads(&self.limits) == threads(&script.limits);
        fits(&self.limits, &script.limits, cgroup)
            && script.network == Network::Refuse
            && (!libraries || same_threads())
    }

    /// The reason why no interpreter of a kind can wait; empty if one can.
    fn problem_of(&self, entry: &PoolEntry) -> String {
        match entry.memory > self.memory {
            true => format!(
                "one needs {} MiB of memory, more than `warm_memory`, {} MiB",
                entry.memory >> 20,
                self.memory >> 20
            ),
            false => entry.trouble.problem.clone(),
        }
    }

    /// Counts the demand and takes an interpreter that is alive and would overlook no file of the
    /// script.
    fn ask(
        &self,
        (runtime, interpreter): (&Runtime, &Interpreter),
        path: String,
        script: &Script,
        packages: Option<&Arc<Packages>>,
    ) -> Option<WarmInterpreter> {
        let mut entries = self.entries();
        let usual = path == format!("main{}", runtime.profile.file_suffix);
        let tenant = (!usual).then(|| script.owner.principal().tenant());
        let kind = Kind {
            runtime: &runtime.profile.name,
            packages: packages.map(|packages| packages.identity()),
            script_path: &path,
            tenant,
        };
        let entry = self.entry(&mut entries, (runtime, interpreter), kind, packages)?;
        entry.sizer.asked(entry.waiting(), Instant::now());
        self.asked.notify_one();
        while let Some(mut warm) = entry.ready.pop_front() {
            if !warm.is_alive() {
                tokio::spawn(warm.retire());
            } else if script.files.iter().any(|file| warm.shadows(&file.path)) {
                entry.ready.push_front(warm);
                return None;
            } else {
                return Some(warm);
            }
        }
        None
    }

    /// The entry of a runtime and path. A new entry may replace an unused one.
    fn entry<'a>(
        &self,
        entries: &'a mut Vec<PoolEntry>,
        (runtime, interpreter): (&Runtime, &Interpreter),
        kind: Kind<'_>,
        packages: Option<&Arc<Packages>>,
    ) -> Option<&'a mut PoolEntry> {
        if let Some(found) = entries.iter().position(|entry| entry.order.kind() == kind) {
            return entries.get_mut(found);
        }
        let tenant = kind.tenant;
        let chosen = |entry: &PoolEntry| entry.order.tenant.is_some();
        let count = entries.iter().filter(|entry| chosen(entry)).count();
        if tenant.is_some() && count >= MAX_ENTRIES {
            let unused = entries.iter().enumerate().filter(|(_, entry)| {
                chosen(entry)
                    && entry.sizer.target() == 0
                    && entry.ready.is_empty()
                    && entry.starting == 0
            });
            let oldest = unused.min_by_key(|(_, entry)| entry.sizer.last_asked());
            let (oldest, _) = oldest?;
            entries.swap_remove(oldest);
        }
        let hesitation = match tenant {
            None => 1,
            Some(_) => HESITATION,
        };
        entries.push(PoolEntry {
            order: PoolKey {
                tenant,
                warm: runtime.profile.warm.clone()?,
                profile: runtime.profile.clone(),
                interpreter: interpreter.clone(),
                packages: packages.cloned(),
                script_path: kind.script_path.to_owned(),
                limits: self.limits,
            },
            sizer: PoolSizer::new(self.most, hesitation, Instant::now()),
            ready: VecDeque::new(),
            starting: 0,
            memory: packages.map_or(refill::GUESSED_MEMORY, |packages| packages.set.warm_memory),
            trouble: StartFailures::default(),
        });
        entries.last_mut()
    }
}

impl PoolEntry {
    fn waiting(&self) -> u32 {
        u32::try_from(self.ready.len()).unwrap_or(u32::MAX)
    }
}

impl StartFailures {
    /// The pause after the first failure; doubled with each further one.
    const FIRST_PAUSE: Duration = Duration::from_secs(1);
    /// The longest pause.
    const LONGEST_PAUSE: Duration = Duration::from_secs(300);

    fn note(&mut self, problem: String, now: Instant) -> Duration {
        let pause = Self::FIRST_PAUSE
            .saturating_mul(1 << self.failures.min(16))
            .min(Self::LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.problem = problem;
        self.pause_until = Some(now + pause);
        pause
    }

    fn pauses(&self, now: Instant) -> bool {
        self.pause_until.is_some_and(|until| now < until)
    }
}
