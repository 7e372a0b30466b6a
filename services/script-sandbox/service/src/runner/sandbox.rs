//! The sandbox: admits requests and runs them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use blob_store::BlobStore;
use core_types::Tenant;
use sandbox_engine::{
    Engine, Report,
    domain::{
        isolation::IsolationLevel,
        limits::Limits,
        outcome::Outcome,
        script::{Content, InputFile, Network, Script},
    },
    input_files::HeldBlobs,
    packages::HeldPackages,
    pool::PoolState,
    run::{self, Job, Origin, io_handler::Collector},
    runtimes::{Interpreter, Runtime},
    slot::HostResources,
};
use tenancy::{Ask, FairSlots, QueueFull, Slot, Tenants};
use tokio::sync::{oneshot, watch};
use tracing::Instrument;

use crate::{
    audit::{Record, SCRIPT},
    error::Refusal,
    runner::{
        session::Sessions,
        shares::{Share, Shares},
    },
    settings::SandboxSettings,
};

mod ending;
mod gauges;
pub(crate) mod packages;
mod sessions;
mod streaming;

use ending::Ending;

/// Runs scripts; shared by everything that serves it.
#[derive(Debug)]
pub struct Sandbox {
    settings: SandboxSettings,
    blobs: BlobStore,
    engine: Engine,
    tenants: Tenants,
    /// Bounds scripts and sessions of tenants.
    shares: Shares,
    /// Admits scripts, of tenants in turn.
    slots: FairSlots,
    sessions: Sessions,
    ending: watch::Sender<Ending>,
}

/// The place of a script that is admitted.
#[derive(Debug)]
struct Permit {
    share: Share,
    _slot: Slot,
}

impl Sandbox {
    /// Makes a sandbox of an engine, and observes its levels from now on.
    pub(crate) fn new(
        settings: SandboxSettings,
        blobs: BlobStore,
        engine: Engine,
        tenants: Tenants,
    ) -> Arc<Self> {
        let room = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let (running, waiting) = (settings.concurrent_scripts, settings.waiting_scripts);
        let sandbox = Arc::new(Self {
            blobs,
            engine,
            shares: Shares::new(tenants.clone()),
            tenants,
            slots: FairSlots::new(room(running), room(waiting)),
            sessions: Sessions::new(settings.sessions),
            settings,
            ending: watch::Sender::default(),
        });
        gauges::observe(&sandbox);
        sandbox
    }

    /// The findings of the self-test.
    pub fn report(&self) -> &Report {
        &self.engine.report
    }

    /// The settings.
    pub fn settings(&self) -> &SandboxSettings {
        &self.settings
    }

    /// Every runtime, including unusable ones.
    pub fn runtimes(&self) -> &[Runtime] {
        &self.engine.runtimes
    }

    /// The store of the files for scripts and from scripts.
    pub fn blobs(&self) -> &BlobStore {
        &self.blobs
    }

    /// The state of the waiting interpreters of a runtime as a tenant sees it; of all tenants if none is named. With a
    /// digest those with that package set, with `Some(None)` those without any, with `None` all of them.
    pub fn pool_state(
        &self,
        runtime: &Runtime,
        digest: Option<Option<&str>>,
        tenant: Option<Tenant>,
    ) -> PoolState {
        let pool = self.engine.pool.as_ref();
        pool.map(|pool| pool.state(&runtime.profile.name, digest, tenant))
            .unwrap_or_default()
    }

    /// The tenants.
    pub(crate) fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// The number of running scripts, and of requests that wait for a place.
    pub fn load(&self) -> (usize, usize) {
        (self.slots.running(), self.slots.waiting())
    }

    /// Ends every session and every waiting interpreter. Running scripts are ended by
    /// [`Self::end_scripts`], or by losing their callers.
    pub async fn shutdown(&self) {
        self.sessions.shutdown().await;
        self.engine.shutdown().await;
    }

    /// The limits of a request that names none, and the greatest that it can choose.
    pub fn limits(&self) -> (Limits, Limits) {
        (self.settings.default_limits, self.settings.maximum_limits)
    }

    /// Runs a script to its end. Dropping the future ends every process of the script.
    ///
    /// # Errors
    /// Fails when the request is refused; nothing was run then. [`Refusal::ShutDown`] and [`Refusal::Lost`]
    /// when it was run and has no answer.
    pub async fn execute(&self, script: Script) -> Result<Outcome, Refusal> {
        let record = Record::of_script(SCRIPT, &script);
        let tenant = script.owner.principal().tenant();
        let (tools, job, slot, record) = self.admit(script, record).await?;
        let (cancel, cancelled) = oneshot::channel();
        let span = tracing::info_span!("sandbox.script.run", runtime = job.profile.name);
        let running = async move {
            let outcome = run::run(&tools, job, Box::new(Collector), cancelled).await;
            slot.share.spend(outcome.usage.wall_time);
            drop(slot);
            record.ended(&outcome);
            outcome
        };
        let mut running = tokio::spawn(running.instrument(span));
        let outcome = tokio::select! {
            outcome = &mut running => outcome,
            () = self.asked_to_end(tenant) => {
                drop(cancel);
                running.await
            }
        };
        self.unless_shut_down(tenant, outcome.map_err(|_| Refusal::Lost)?)
    }

    /// Admits a script, and records whether it was admitted.
    async fn admit(
        &self,
        script: Script,
        mut record: Record,
    ) -> Result<(HostResources, Job, Permit, Record), Refusal> {
        match self.prepare(script).await {
            Ok((tools, job, slot)) => {
                record.admitted(&job.profile.name);
                Ok((tools, job, slot, record))
            }
            Err(refusal) => Err(record.refused(refusal)),
        }
    }

    async fn prepare(&self, script: Script) -> Result<(HostResources, Job, Permit), Refusal> {
        let accepted = Instant::now();
        let (tools, runtime, interpreter) = self.means_for(&script)?;
        let tenant = script.owner.principal().tenant();
        self.shares.check_seconds(tenant)?;
        let permit = Permit {
            share: self.shares.take(tenant)?,
            _slot: self.turn(&self.slots, tenant).await?,
        };
        self.still_serves(tenant)?;
        let script = Arc::new(script);
        let blobs = self.hold_blobs(&script).await?;
        let held = self
            .hold_packages(&script, runtime, interpreter, None)
            .await?;
        let (packages, interpreter) = held;
        let set = packages.as_ref().map(HeldPackages::packages);
        let pool = self.engine.pool.as_ref();
        let origin = match pool.and_then(|pool| pool.take((runtime, interpreter), &script, set)) {
            Some(warm) => Origin::Warm(Box::new(warm)),
            None => Origin::Cold(tools.users.take().map_err(|_| self.busy())?),
        };
        let job = Job {
            script,
            profile: runtime.profile.clone(),
            interpreter: interpreter.clone(),
            packages,
            origin,
            blobs,
            accepted,
        };
        Ok((tools.clone(), job, permit))
    }

    /// Takes a place for a tenant, for which it waits where the queue has room.
    ///
    /// # Errors
    /// Fails when no place is free and the queue is full.
    pub(crate) async fn turn(&self, slots: &FairSlots, tenant: Tenant) -> Result<Slot, Refusal> {
        let ask = Ask {
            tenant,
            weight: self.tenants.weight(tenant),
        };
        let slot = slots.acquire(ask).await;
        slot.map_err(|QueueFull { waiting }| Refusal::Busy { waiting })
    }

    /// The refusal of a request when the queue is full.
    fn busy(&self) -> Refusal {
        Refusal::Busy {
            waiting: self.slots.waiting(),
        }
    }

    /// Pins the blobs that a script reads, and checks that they leave room.
    async fn hold_blobs(&self, script: &Arc<Script>) -> Result<HeldBlobs, Refusal> {
        let given = |file: &InputFile| matches!(file.content, Content::Blob(_));
        if !script.files.iter().any(given) {
            return Ok(HeldBlobs::default());
        }
        let (blobs, holding) = (self.blobs.clone(), script.clone());
        let held = tokio::task::spawn_blocking(move || HeldBlobs::of(&holding, &blobs));
        let held = held.await.map_err(|_| Refusal::Lost)?;
        let held = held.map_err(|absent| {
            let named = absent.into_iter();
            Refusal::Blobs(
                named
                    .map(|(index, error)| (script.field_of_blob(index), error))
                    .collect(),
            )
        })?;
        match script.problems_with_blobs(|digest| held.size(digest)) {
            problems if problems.is_empty() => Ok(held),
            problems => Err(Refusal::Invalid(problems)),
        }
    }

    /// The tools, the runtime and the interpreter for a script.
    fn means_for(
        &self,
        script: &Script,
    ) -> Result<(&HostResources, &Runtime, &Interpreter), Refusal> {
        self.still_serves(script.owner.principal().tenant())?;
        let tools = self.tools_for(script)?;
        let runtime = self.runtime(&script.runtime)?;
        let interpreter = runtime.interpreter.as_ref();
        let interpreter = interpreter.map_err(|problem| Refusal::Runtime {
            runtime: script.runtime.clone(),
            problem: problem.clone(),
        })?;
        Ok((tools, runtime, interpreter))
    }

    /// The tools, if their level is enough for operator and request.
    fn tools_for(&self, script: &Script) -> Result<&HostResources, Refusal> {
        let (settings, report) = (&self.settings, &self.engine.report);
        let refuse = |what, wanted, available, missing| Refusal::Isolation {
            what,
            wanted,
            available,
            missing,
        };
        let level = settings.lowest_isolation;
        let level = level.max(script.minimum_isolation.unwrap_or(level));
        let tools = self.engine.tools.as_ref();
        let tools = tools.filter(|_| report.level >= Some(level));
        let tools = tools.ok_or_else(|| {
            let failures = report.failures.iter();
            let missing = failures.map(|(_, failure)| failure.to_string());
            let available = report.level.map_or("none", IsolationLevel::name);
            refuse("isolation", level.name(), available, missing.collect())
        })?;
        if script.network == Network::End && !sandbox_launcher::confine::reports_network() {
            let missing = vec!["seccomp user notification".to_owned()];
            let (wanted, available) = ("that reports network attempts", "one that does not");
            return Err(refuse("a kernel", wanted, available, missing));
        }
        let enforcement = settings.lowest_memory_enforcement;
        let enforcement = enforcement.max(script.minimum_enforcement.unwrap_or(enforcement));
        if report.enforcement < enforcement {
            let missing = vec!["no writable cgroup".to_owned()];
            let (wanted, available) = (enforcement.name(), report.enforcement.name());
            return Err(refuse("memory enforcement", wanted, available, missing));
        }
        Ok(tools)
    }

    fn runtime(&self, name: &str) -> Result<&Runtime, Refusal> {
        let mut runtimes = self.engine.runtimes.iter();
        let found = runtimes.find(|runtime| runtime.profile.answers_to(name));
        found.ok_or_else(|| {
            let known = self.engine.runtimes.iter();
            let known: Vec<&str> = known.map(|runtime| &*runtime.profile.name).collect();
            Refusal::Runtime {
                runtime: name.to_owned(),
                problem: format!("there are {}", known.join(", ")),
            }
        })
    }

    /// The longest time of a request, with waiting and set-up.
    pub fn longest_request(&self) -> Duration {
        const SET_UP_AND_WAITING: Duration = Duration::from_secs(120);
        self.settings.maximum_limits.wall_time + SET_UP_AND_WAITING
    }
}
