//! Carries turns out: asks models, sends calls, records everything.
//!
//! The next step comes from the pure [`Turn`]; each event goes into the run's log and, through
//! [`TurnState::apply`], back into the turn. After a crash the log is replayed and the turn continues
//! from its last event: an answer in the log is never requested again, and a dispatched call is looked
//! up by its effect id.
//!
//! - [`turns`]: starting turns, for callers and for the agents of scenes.
//! - [`scenes`]: carrying scenes out.
//! - `answers`: from the answer of a question to the turn that it opens.

pub(crate) mod answers;
mod directives;
mod driver;
mod ending;
mod export;
pub(crate) mod hooked;
mod inventory;
mod prompting;
mod replay;
pub(crate) mod retention;
pub mod scenes;
pub mod turns;
mod untrusted;

use std::{sync::Arc, time::Duration};

use agent_domain::plan::{Plan, TurnInput};
use agent_store::{conversations::Conversations, questions::Questions};
use contracts::tavern::common::v1::{RunEvent, run_event::Kind};
use core_types::{Clock, Tenant, Timestamp};
use grpc_kit::{CallContext, Failure};
use model_client::Models;
use plugin_client::HookClient;
use run_client::CallClient;
use run_events::{OpenRun, Recorder, RunMeta, Runs, timestamp_to_proto};
use tenancy::{Ask, FairSlots, Slot};
use tokio::sync::mpsc;

use self::{
    directives::Switchboard,
    driver::{Driver, Left},
};
use crate::{peers::Peers, settings::AgentSettings, states::States};
use turn_log::{journal, replay::ReplayError, state::TurnState};

pub(crate) use directives::{Directive, Refusal};
pub(crate) use driver::{damaged, describe, describe_model};
pub use replay::{Divergence, Fixture, FixtureError, replay};

/// The kind of run that a turn is.
pub const TURN: &str = "turn";

/// The longest that a turn waits for room before it is rejected, and the delay that its caller is asked for then.
const PATIENCE: Duration = Duration::from_secs(1);

/// The runner of turns. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Runner {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    runs: Runs,
    conversations: Conversations,
    states: States,
    questions: Questions,
    models: Models,
    peers: Peers,
    clock: Arc<dyn Clock>,
    history_bytes: usize,
    room: FairSlots,
    switchboard: Switchboard,
}

/// The parts of the service that turns use.
#[derive(Debug)]
pub(crate) struct RunnerParts {
    pub(crate) runs: Runs,
    pub(crate) conversations: Conversations,
    pub(crate) states: States,
    pub(crate) questions: Questions,
    pub(crate) models: Models,
    pub(crate) peers: Peers,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Runner {
    /// Builds a runner from its parts.
    pub(crate) fn new(parts: RunnerParts, settings: &AgentSettings) -> Self {
        let room = FairSlots::new(settings.max_turns, settings.max_turns);
        let history_bytes = settings.history_bytes;
        Self {
            inner: Arc::new(Inner {
                runs: parts.runs,
                conversations: parts.conversations,
                states: parts.states,
                questions: parts.questions,
                models: parts.models,
                peers: parts.peers,
                clock: parts.clock,
                history_bytes,
                room,
                switchboard: Switchboard::default(),
            }),
        }
    }

    /// Returns the private states of agents.
    pub fn states(&self) -> &States {
        &self.inner.states
    }

    /// Returns the hooks of plugins.
    pub(crate) fn hooks(&self) -> &HookClient {
        &self.inner.peers.hooks
    }

    /// Returns the calls of the registry.
    pub(crate) fn calls(&self) -> &CallClient {
        &self.inner.peers.calls
    }

    /// Returns the sender of directives to a turn; none if it does not run here.
    pub(crate) fn directives_to(&self, run_id: &str) -> Option<mpsc::Sender<Directive>> {
        self.inner.switchboard.to(run_id)
    }

    /// Makes room for one more turn, for which the tenants wait in fair turns.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when as many turns continue as the settings allow, and none ends soon.
    pub async fn admit(&self, tenant: Tenant) -> Result<Slot, Failure> {
        let weight = self.inner.runs.tenants().weight(tenant);
        let slot = self.inner.room.acquire(Ask { tenant, weight });
        let slot = tokio::time::timeout(PATIENCE, slot).await;
        let slot = slot.ok().and_then(Result::ok);
        slot.ok_or_else(|| Failure::overloaded(PATIENCE))
    }

    /// Carries out a new turn, in a task that outlives the caller.
    pub fn start(
        &self,
        recorder: Recorder,
        meta: RunMeta,
        plan: Plan,
        input: &TurnInput,
        room: Slot,
    ) {
        let state = fresh(&plan, input, self.inner.clock.now());
        let span = telemetry::spans::invoke_agent(&meta.subject);
        self.execute(recorder, meta, plan, (state, None), Some(room), &span);
    }

    /// Continues a turn of the process before this one.
    pub fn resume(&self, open: OpenRun) {
        // Turns that were admitted before continue in any case.
        self.resume_in(None, open);
    }

    /// Carries out a fork: the events that it takes over are its log so far.
    ///
    /// # Errors
    /// A storage that does not work; the turn continues at the next start.
    pub async fn start_fork(
        &self,
        recorder: Recorder,
        meta: RunMeta,
        room: Slot,
    ) -> Result<(), Failure> {
        let own = CallContext::outermost();
        let run_id = recorder.run_id().to_string();
        let events = self.inner.runs.events(&own, &run_id).await?;
        let started = run_events::beginning(recorder.run_id(), &events)?.clone();
        let open = OpenRun {
            recorder,
            meta,
            kind: TURN.to_owned(),
            created: self.inner.clock.now(),
            started,
            events,
        };
        self.resume_in(Some(room), open);
        Ok(())
    }

    fn resume_in(&self, room: Option<Slot>, open: OpenRun) {
        let span = telemetry::spans::invoke_agent(&open.meta.subject);
        if let Some(parent) = telemetry::context::parse_traceparent(&open.meta.traceparent) {
            telemetry::context::set_parent(&span, &parent);
        }
        let run = open.recorder.run_id();
        match left(&open) {
            Ok((plan, state, left)) => {
                tracing::info!(%run, events = open.events.len(), "resuming a turn");
                let state = (state, Some(left));
                self.execute(open.recorder, open.meta, plan, state, room, &span);
            }
            Err(error) => {
                tracing::error!(%run, error = grpc_kit::failure::chain(&error), "a turn cannot continue");
                let outcome = damaged();
                let work = |_| async { run_events::End::Finished(outcome) };
                span.in_scope(|| self.inner.runs.execute(open.recorder, work));
            }
        }
    }

    fn execute(
        &self,
        recorder: Recorder,
        meta: RunMeta,
        plan: Plan,
        (state, left): (TurnState, Option<Left>),
        room: Option<Slot>,
        span: &tracing::Span,
    ) {
        telemetry::spans::set(
            span,
            telemetry::attributes::RUN_ID,
            recorder.run_id().to_string(),
        );
        telemetry::spans::set(
            span,
            telemetry::attributes::CONVERSATION_ID,
            meta.conversation_id.clone(),
        );
        let inner = Arc::clone(&self.inner);
        let writer = recorder.clone();
        let hooks = inner.peers.hooks.clone();
        let (profile, conversation) = (meta.subject.clone(), meta.conversation_id.clone());
        recorder.when_finished(move |context, outcome| {
            hooked::after_turn(&hooks, &context, (&profile, &conversation), outcome);
        });
        let work = move |control| {
            let driver = Driver::new(inner, writer, control, meta, plan, state);
            async move {
                let end = driver.run(left).await;
                drop(room);
                end
            }
        };
        span.in_scope(|| self.inner.runs.execute(recorder, work));
    }
}

/// Returns the state of a turn of which only the beginning is recorded.
fn fresh(plan: &Plan, input: &TurnInput, now: Timestamp) -> TurnState {
    let native = plan.tools.is_native();
    let mut state = TurnState::begin(plan, native, input.opening.clone(), now);
    for message in &input.history {
        let given = RunEvent {
            time: Some(timestamp_to_proto(now)),
            kind: Some(journal::message_given(message)),
            ..RunEvent::default()
        };
        let applied = state.apply(&given);
        applied.expect("a turn takes messages before it begins");
    }
    state
}

/// Reads a turn as the process before this one left it.
fn left(open: &OpenRun) -> Result<(Plan, TurnState, Left), ReplayError> {
    let plan: Plan = serde_json::from_value(open.meta.data.clone()).map_err(ReplayError::Plan)?;
    let run = open.recorder.run_id().to_string();
    let own = open.events.iter().filter(|event| event.run_id == run);
    let state = TurnState::replay(&plan, plan.tools.is_native(), own.clone())?;
    let mut cancels = own.filter_map(|event| match &event.kind {
        Some(Kind::CancelRequested(asked)) => Some(asked.reason.clone()),
        _ => None,
    });
    let cancelled = cancels.next_back();
    Ok((plan, state, Left { cancelled }))
}
