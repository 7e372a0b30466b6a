//! Clients that make calls at a steady rate, and retry while a service is missing.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use contracts::tavern::common::v1::{CallStatus, RunState, run_event::Kind};
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use contracts::tavern::gateway::v1::{AgentTarget, InvokeTextRequest, agent_target::Input};
use grpc_kit::{Backoff, Outbound};
use testkit::{Followed, eventually, invoke};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::faults::{comes_back, interpreter};
use crate::ledger::append;
use crate::text::{model_text, turn};

/// The longest time for which a client repeats the request of a run.
const PATIENCE: Duration = Duration::from_secs(90);

/// The milliseconds that a note takes.
const DELAY_MS: u32 = 20;

/// The number of requests after which their kinds begin again.
const KINDS: u32 = 32;

/// Returns the note of a request, which its run appends to the ledger.
pub(super) fn note(number: u32) -> String {
    format!("note-{number}")
}

/// Whether the calls of a request may be repeated. Code of the interpreter is not: it may have changed files.
pub(super) fn may_repeat(number: u32) -> bool {
    number.is_multiple_of(2) && !number.is_multiple_of(KINDS)
}

/// The run of one request.
#[derive(Debug)]
pub(super) struct Ended {
    /// Whether the run appends a note to the ledger.
    pub(super) is_noted: bool,
    /// The times at which calls of tools that may not be repeated left, by their effects.
    pub(super) dispatched: HashMap<String, SystemTime>,
}

/// Requests at a steady rate, until it is stopped.
pub(super) struct Load {
    shared: Arc<Shared>,
    task: JoinHandle<JoinSet<(u32, Option<Ended>)>>,
}

#[derive(Default)]
struct Shared {
    /// The number of requests so far.
    made: AtomicU32,
    /// The requests whose runs have not ended.
    open: Mutex<BTreeSet<u32>>,
    /// The reasons of failures.
    failures: Mutex<Vec<String>>,
    /// The number of interrupted requests.
    interruptions: AtomicU32,
    stopped: Notify,
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failures(&self) -> MutexGuard<'_, Vec<String>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    /// Begins to make requests, one after each pace.
    pub(super) fn start(gateway: GatewayServiceClient<Outbound>, pace: Duration) -> Self {
        let shared = Arc::<Shared>::default();
        let task = tokio::spawn(make(gateway, pace, Arc::clone(&shared)));
        Self { shared, task }
    }

    /// Waits until every request that was made so far has its answer.
    ///
    /// # Errors
    /// One has not, or a request has failed.
    pub(super) async fn until_answered(&self) -> anyhow::Result<()> {
        let made = self.shared.made.load(Ordering::Acquire);
        eventually("the clients to have their answers", || async {
            let has_failed = !self.shared.failures().is_empty();
            let first = self.shared.open().first().copied();
            (has_failed || first.is_none_or(|first| first >= made)).then_some(())
        })
        .await
        .with_context(|| format!("{} requests are open", self.shared.open().len()))?;
        self.ensure_well()
    }

    fn ensure_well(&self) -> anyhow::Result<()> {
        let failures = self.shared.failures();
        ensure!(failures.is_empty(), "requests failed: {failures:#?}");
        Ok(())
    }

    /// Returns the number of interrupted requests so far.
    pub(super) fn interruptions(&self) -> u32 {
        self.shared.interruptions.load(Ordering::Relaxed)
    }

    /// Stops making requests, and returns the ends of all.
    ///
    /// # Errors
    /// A request has failed.
    pub(super) async fn stop(mut self) -> anyhow::Result<HashMap<u32, Ended>> {
        self.shared.stopped.notify_one();
        let ends = (&mut self.task).await?.join_all().await;
        self.ensure_well()?;
        let well = ends.into_iter();
        Ok(well
            .filter_map(|(number, end)| Some((number, end?)))
            .collect())
    }
}

async fn make(
    gateway: GatewayServiceClient<Outbound>,
    pace: Duration,
    shared: Arc<Shared>,
) -> JoinSet<(u32, Option<Ended>)> {
    let mut ticks = tokio::time::interval(pace);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            () = shared.stopped.notified() => return clients,
            _ = ticks.tick() => {}
        }
        let number = shared.made.load(Ordering::Relaxed);
        shared.open().insert(number);
        shared.made.store(number + 1, Ordering::Release);
        let (gateway, shared) = (gateway.clone(), Arc::clone(&shared));
        clients.spawn(async move {
            let asked = ask(&gateway, number, &shared.interruptions);
            let ended = match tokio::time::timeout(PATIENCE, asked).await {
                Ok(ended) => ended,
                Err(elapsed) => Err(elapsed.into()),
            };
            let noted = ended.map_err(|error| {
                let failure = format!("{number}: {error:#}");
                shared.failures().push(failure);
            });
            shared.open().remove(&number);
            (number, noted.ok())
        });
    }
}

/// Makes a request until its run has ended, as a client does whose server ends.
async fn ask(
    gateway: &GatewayServiceClient<Outbound>,
    number: u32,
    interruptions: &AtomicU32,
) -> anyhow::Result<Ended> {
    let (mut request, is_noted) = request(number);
    request.request_id = note(number);
    let mut backoff = Backoff::default();
    let run = loop {
        match invoke(gateway, request.clone()).await {
            Err(error) if comes_back(&error) => {
                interruptions.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(backoff.next_wait()).await;
            }
            run => break run?,
        }
    };
    ensure!(run.run.state() == RunState::Succeeded, "{:?}", run.run);
    let dispatched = dispatched(&run, may_repeat(number))?;
    Ok(Ended {
        is_noted,
        dispatched,
    })
}

/// Returns a request, and whether its run appends a note.
fn request(number: u32) -> (InvokeTextRequest, bool) {
    let tool = match may_repeat(number) {
        true => "ledger.append_idempotent",
        false => "ledger.append",
    };
    let note = note(number);
    let request = match number % KINDS {
        0 => return (model_text(&interpreter("sleep 0.1; echo done")), false),
        1 => {
            return (
                model_text("<ACTION><Nap><seconds>0.1</seconds></Nap></ACTION>"),
                false,
            );
        }
        2..10 => turn(AgentTarget {
            profile_id: "clerk".to_owned(),
            input: Some(Input::ModelText(append(tool, &note, DELAY_MS))),
            continue_with_model: true,
            ..AgentTarget::default()
        }),
        10..20 => model_text(&format!(
            "<ACTION><workflow:note><tool>{tool}</tool><note>{note}</note></workflow:note></ACTION>"
        )),
        _ => model_text(&append(tool, &note, DELAY_MS)),
    };
    (request, true)
}

/// Checks that every call of a run succeeded. Returns the dispatch times of calls that may not be
/// repeated.
fn dispatched(run: &Followed, may_repeat: bool) -> anyhow::Result<HashMap<String, SystemTime>> {
    let mut dispatched = HashMap::new();
    let mut settled = 0;
    for event in &run.events {
        match &event.kind {
            Some(Kind::CallDispatched(call)) if !may_repeat => {
                let time = event.time.context("an event has a time")?;
                dispatched.insert(call.effect_id.clone(), SystemTime::try_from(time)?);
            }
            Some(Kind::CallSettled(call)) => {
                let result = call.result.clone().unwrap_or_default();
                ensure!(result.status() == CallStatus::Succeeded, "{result:?}");
                settled += 1;
            }
            _ => {}
        }
    }
    ensure!(settled > 0, "no call has settled: {:?}", run.events);
    Ok(dispatched)
}
