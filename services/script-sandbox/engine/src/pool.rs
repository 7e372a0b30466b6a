//! Interpreters that wait for a script, fully confined, each for one script only.
//!
//! There is an entry for each runtime and script path that was asked for. [`Pool::take`] gives a
//! waiting interpreter if one fits the script; if none does, the script gets one that is started for
//! it, at any time and with the same result. [`refill`] starts new ones in the background, as many
//! as [`crate::domain::pool_sizer::PoolSizer`] says, within the operator's limits on number and memory.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};

use crate::{
    EngineSettings,
    domain::{
        limits::Limits,
        pool_sizer::{PoolSizer, fits},
        script::{Network, Script},
    },
    runtimes::Runtime,
    slot::Tools,
};

mod refill;
mod warm_interpreter;

pub use warm_interpreter::Assignment;
use warm_interpreter::PoolKey;
pub use warm_interpreter::WarmInterpreter;

/// The most kinds of interpreters that wait; scripts of further paths are started cold.
const MAX_ENTRIES: usize = 16;

/// How many scripts of an unusual path come before an interpreter waits for the next one.
const HESITATION: u32 = 2;

/// What an operator wants to know about the interpreters of one runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// How many wait.
    pub ready: u32,
    /// How many should wait.
    pub target: u32,
    /// Why the last one could not be made to wait; empty if it could.
    pub problem: String,
}

/// Interpreters that wait.
#[derive(Debug)]
pub struct Pool {
    inner: Arc<SharedPool>,
    /// Refills. Dropping the sender ends that, which then ends those that wait.
    refilling: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

#[derive(Debug)]
struct SharedPool {
    tools: Tools,
    limits: Limits,
    /// How many of one kind wait at most.
    most: u32,
    /// What all of them together may keep in memory, in bytes.
    memory: u64,
    /// Held for a moment and never while waiting.
    entries: Mutex<Vec<PoolEntry>>,
    /// A script was asked for.
    asked: Notify,
}

/// Interpreters of one kind.
#[derive(Debug)]
struct PoolEntry {
    order: PoolKey,
    sizer: PoolSizer,
    ready: VecDeque<WarmInterpreter>,
    starting: u32,
    /// What one keeps in memory, as far as is known.
    memory: u64,
    trouble: StartFailures,
}

/// What is wrong with the last ones.
#[derive(Debug, Default)]
struct StartFailures {
    failures: u32,
    problem: String,
    pause_until: Option<Instant>,
}

impl Pool {
    /// Starts without any waiting interpreter, and refills from the first request on.
    pub fn new(tools: Tools, settings: &EngineSettings) -> Self {
        let inner = Arc::new(SharedPool {
            tools,
            limits: settings.default_limits,
            most: settings.warm_interpreters,
            memory: settings.warm_memory,
            entries: Mutex::default(),
            asked: Notify::new(),
        });
        let (close, closed) = oneshot::channel();
        let refilling = tokio::spawn(refill::run(inner.clone(), closed));
        Self {
            inner,
            refilling: Mutex::new(Some((close, refilling))),
        }
    }

    /// Takes a waiting interpreter that fits the script, if there is one.
    pub fn take(&self, runtime: &Runtime, script: &Script) -> Option<WarmInterpreter> {
        let profile = runtime.profile.warm.as_ref()?;
        let mut variables = script.environment.iter();
        if !self.inner.suits(script) || variables.any(|(name, _)| profile.looks_at(name)) {
            return None;
        }
        let path = script.path(&runtime.profile.file_suffix);
        let mut warm = self.inner.ask(runtime, path, script)?;
        match warm.apply_limits(&script.limits) {
            Ok(()) => Some(warm),
            Err(error) => {
                tracing::debug!(%error, "the limits of a script could not be applied to a waiting interpreter");
                tokio::spawn(warm.retire());
                None
            }
        }
    }

    /// How the interpreters of a runtime are.
    pub fn state(&self, runtime: &str) -> PoolState {
        let entries = self.inner.entries();
        let mut state = PoolState::default();
        for entry in entries.iter().filter(|it| it.order.profile.name == runtime) {
            state.ready += entry.waiting();
            state.target += entry.sizer.target();
            if state.problem.is_empty() {
                state.problem.clone_from(&entry.trouble.problem);
            }
        }
        state
    }

    /// Ends those that wait, and waits until nothing is left of them.
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

impl SharedPool {
    fn entries(&self) -> MutexGuard<'_, Vec<PoolEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether interpreters can wait for such a script at all.
    fn suits(&self, script: &Script) -> bool {
        let cgroup = self.tools.cgroups.is_some();
        fits(&self.limits, &script.limits, cgroup) && script.network == Network::Refuse
    }

    /// Counts the demand and takes one that is alive and in which no file of the script would be
    /// overlooked.
    fn ask(&self, runtime: &Runtime, path: String, script: &Script) -> Option<WarmInterpreter> {
        let mut entries = self.entries();
        let entry = self.entry(&mut entries, runtime, path)?;
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

    /// The entry of a runtime and path. A new one may take the place of an unused one.
    fn entry<'a>(
        &self,
        entries: &'a mut Vec<PoolEntry>,
        runtime: &Runtime,
        path: String,
    ) -> Option<&'a mut PoolEntry> {
        let name = &runtime.profile.name;
        if let Some(found) = entries.iter().position(|entry| entry.is(name, &path)) {
            return entries.get_mut(found);
        }
        if entries.len() >= MAX_ENTRIES {
            let unused = entries.iter().enumerate().filter(|(_, entry)| {
                entry.sizer.target() == 0 && entry.ready.is_empty() && entry.starting == 0
            });
            let oldest = unused.min_by_key(|(_, entry)| entry.sizer.last_asked());
            let (oldest, _) = oldest?;
            entries.swap_remove(oldest);
        }
        let usual = path == format!("main{}", runtime.profile.file_suffix);
        let hesitation = if usual { 1 } else { HESITATION };
        entries.push(PoolEntry {
            order: PoolKey {
                warm: runtime.profile.warm.clone()?,
                profile: runtime.profile.clone(),
                interpreter: runtime.interpreter.clone().ok()?,
                script_path: path,
                limits: self.limits,
            },
            sizer: PoolSizer::new(self.most, hesitation, Instant::now()),
            ready: VecDeque::new(),
            starting: 0,
            memory: refill::GUESSED_MEMORY,
            trouble: StartFailures::default(),
        });
        entries.last_mut()
    }
}

impl PoolEntry {
    fn is(&self, runtime: &str, script_path: &str) -> bool {
        self.order.profile.name == runtime && self.order.script_path == script_path
    }

    fn waiting(&self) -> u32 {
        u32::try_from(self.ready.len()).unwrap_or(u32::MAX)
    }
}

impl StartFailures {
    /// How long to pause after the first failure; doubled with each further one.
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
