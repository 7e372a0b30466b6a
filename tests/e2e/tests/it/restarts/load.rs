//! Clients that make calls at a steady rate, and retry while a service is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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

/// The tool whose calls may be repeated.
pub(super) const IDEMPOTENT: &str = "ledger.append_idempotent";

/// The most requests that are open at once. A machine that cannot keep up is sent fewer, as a backlog that grows
/// is never answered.
const MAX_OPEN: usize = 128;

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

/// Requests at a steady rate, until it is stopped.
pub(super) struct Load {
    shared: Arc<Shared>,
    task: JoinHandle<JoinSet<(u32, Option<bool>)>>,
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

    /// Stops making requests. Returns, for each, whether its run appends a note to the ledger.
    ///
    /// # Errors
    /// A request has failed.
    pub(super) async fn stop(mut self) -> anyhow::Result<BTreeMap<u32, bool>> {
        self.shared.stopped.notify_one();
        let ends = (&mut self.task).await?.join_all().await;
        self.ensure_well()?;
        let well = ends.into_iter();
        Ok(well
            .filter_map(|(number, is_noted)| Some((number, is_noted?)))
            .collect())
    }
}

async fn make(
    gateway: GatewayServiceClient<Outbound>,
    pace: Duration,
    shared: Arc<Shared>,
) -> JoinSet<(u32, Option<bool>)> {
    let mut ticks = tokio::time::interval(pace);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            () = shared.stopped.notified() => return clients,
            _ = ticks.tick() => {}
        }
        if shared.open().len() >= MAX_OPEN {
            continue;
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

/// Makes a request until its run has ended, as a client does whose server ends. Returns whether the run appends a
/// note.
async fn ask(
    gateway: &GatewayServiceClient<Outbound>,
    number: u32,
    interruptions: &AtomicU32,
) -> anyhow::Result<bool> {
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
    check_calls(&run)?;
    Ok(is_noted)
}

/// Returns a request, and whether its run appends a note.
fn request(number: u32) -> (InvokeTextRequest, bool) {
    let tool = match may_repeat(number) {
        true => IDEMPOTENT,
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

/// Checks that every call of a run succeeded.
fn check_calls(run: &Followed) -> anyhow::Result<()> {
    let mut settled = 0;
    for event in &run.events {
        if let Some(Kind::CallSettled(call)) = &event.kind {
            let result = call.result.clone().unwrap_or_default();
            ensure!(result.status() == CallStatus::Succeeded, "{result:?}");
            settled += 1;
        }
    }
    ensure!(settled > 0, "no call has settled: {:?}", run.events);
    Ok(())
}
