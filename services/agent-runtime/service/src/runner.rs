//! Carries turns out: asks models, sends calls, records everything.
//!
//! What is to be done comes from the pure [`Turn`]; what happened goes into the run's log and,
//! through [`turn_log::journal::read`], back into the turn. After a crash the log is
//! replayed and the turn continues where it stopped: an answer that is in the log is never asked
//! for again, and a call that had left is asked about with the same effect id.
//!
//! - [`turns`]: starting turns, for callers and for the agents of scenes.
//! - [`scenes`]: carrying scenes out.
//! - `answers`: from the answer of a question to the turn that it opens.

mod answer_source;
pub(crate) mod answers;
mod asker;
mod budgets;
mod call;
mod caller;
mod compact;
mod deliberate;
mod deliberation;
mod directives;
mod driver;
mod earlier_turns;
mod ending;
mod export;
mod in_flight;
mod inventory;
mod observations;
mod prompting;
mod queue;
mod reading_context;
mod reduce;
mod replay;
pub(crate) mod retention;
pub mod scenes;
mod shown_states;
mod spending;
mod steer;
mod stop;
mod streaming_answer;
mod text_coalescer;
mod turn_recorder;
pub mod turns;

use std::{sync::Arc, time::Duration};

use agent_domain::{
    compaction::Compaction,
    message::TurnMessage,
    plan::{Opening, Plan, TurnInput},
    turn::Turn,
};
use agent_store::{conversations::Conversations, questions::Questions};
use contracts::tavern::common::v1::run_event::Kind;
use core_types::Clock;
use grpc_kit::Failure;
use model_client::Models;
use run_client::CallClient;
use run_events::{OpenRun, Recorder, RunMeta, Runs};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use self::{
    directives::{Steering, Switchboard},
    driver::Driver,
    observations::Observations,
    spending::Spending,
};
use crate::{peers::Peers, settings::AgentSettings, states::States};
use turn_log::{
    forked::Forked,
    history, journal,
    replay::{Folded, ReplayError, fold, time_of},
};

pub(crate) use deliberate::{describe, describe_model};
pub(crate) use directives::Directive;
pub(crate) use driver::damaged;
pub use replay::{Divergence, Fixture, FixtureError, replay};

/// The kind of run that a turn is.
pub const TURN: &str = "turn";

/// When a caller shall try again that found no room for its turn.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Room for one turn; given back when dropped.
#[derive(Debug)]
pub struct TurnPermit {
    _permit: OwnedSemaphorePermit,
}

/// What turns are carried out with. Clone, cheap.
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
    room: Arc<Semaphore>,
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
    /// Puts a runner together.
    pub(crate) fn new(parts: RunnerParts, settings: &AgentSettings) -> Self {
        let room = Arc::new(Semaphore::new(settings.max_turns));
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

    /// Returns the calls of the registry.
    pub(crate) fn calls(&self) -> &CallClient {
        &self.inner.peers.calls
    }

    /// Returns where the directives for a turn go; none if it does not run here.
    pub(crate) fn directives_to(&self, run_id: &str) -> Option<mpsc::Sender<Directive>> {
        self.inner.switchboard.to(run_id)
    }

    /// Makes room for one more turn.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when as many turns continue as the settings allow.
    pub fn admit(&self) -> Result<TurnPermit, Failure> {
        let permit = Arc::clone(&self.inner.room).try_acquire_owned();
        permit
            .map(|permit| TurnPermit { _permit: permit })
            .map_err(|_| Failure::overloaded(RETRY_AFTER))
    }

    /// Carries a new turn out, as a task that outlives the caller.
    pub fn start(
        &self,
        recorder: Recorder,
        meta: RunMeta,
        plan: Plan,
        input: &TurnInput,
        room: TurnPermit,
    ) {
        let now = self.inner.clock.now();
        let turn =
            Turn::new(plan.budgets, &input.opening, now).with_native_calls(plan.tools.is_native());
        let given = input
            .history
            .iter()
            .map(|message| message.clone().at(now))
            .collect();
        let span = telemetry::spans::invoke_agent(&meta.subject);
        self.execute(
            recorder,
            meta,
            plan,
            Resumed::fresh(turn, given, &input.opening),
            Some(room),
            &span,
        );
    }

    /// Continues with a turn that the process before this one left.
    pub fn resume(&self, open: OpenRun) {
        // What had been admitted before continues in any case.
        self.resume_in(None, open);
    }

    /// Carries a fork out: what was taken over is its log so far.
    ///
    /// # Errors
    /// A storage that does not work; the turn continues at the next start.
    pub async fn start_fork(
        &self,
        recorder: Recorder,
        meta: RunMeta,
        room: TurnPermit,
    ) -> Result<(), Failure> {
        let events = self.inner.runs.events(recorder.run_id()).await?;
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

    fn resume_in(&self, room: Option<TurnPermit>, open: OpenRun) {
        let span = telemetry::spans::invoke_agent(&open.meta.subject);
        if let Some(parent) = telemetry::context::parse_traceparent(&open.meta.traceparent) {
            telemetry::context::set_parent(&span, &parent);
        }
        let run = open.recorder.run_id();
        match Resumed::replay(&open) {
            Ok((plan, resumed)) => {
                tracing::info!(%run, events = open.events.len(), "resuming a turn");
                self.execute(open.recorder, open.meta, plan, resumed, room, &span);
            }
            Err(error) => {
                tracing::error!(%run, error = grpc_kit::failure::chain(&error), "a turn cannot continue");
                let outcome = driver::damaged();
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
        resumed: Resumed,
        room: Option<TurnPermit>,
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
        let work = move |control| {
            let driver = Driver::new(inner, writer, control, meta, plan, resumed);
            async move {
                let end = driver.run().await;
                drop(room);
                end
            }
        };
        span.in_scope(|| self.inner.runs.execute(recorder, work));
    }
}

/// A turn and what else its log said.
#[derive(Debug)]
struct Resumed {
    turn: Turn,
    /// Messages from before the turn, as its caller gave them.
    given: Vec<TurnMessage>,
    /// Texts that the model was shown and that are not trusted.
    untrusted: Vec<String>,
    /// Whether a call gave a handle.
    handle_given: bool,
    /// Whether the log has more than the run's beginning.
    replayed: bool,
    /// Whether the process before this one accepted the turn.
    taken_over: bool,
    /// The reason, if the run was asked to be cancelled.
    cancel: Option<String>,
    /// What the turn has used of its models.
    spending: Spending,
    /// What the calls of the newest answer came to.
    observations: Observations,
    /// What the turn replaced turns before it by.
    compacted: Option<Compaction>,
    /// The events that opened the turn.
    events: Vec<Value>,
    /// What people asked of it.
    steering: Steering,
    /// The versions of the states that a model was asked with that has not answered.
    asked: AskedStates,
    /// What it has taken over from the turn that it is a fork of.
    forked: Forked,
}

/// The versions of the states that a model was asked with.
#[derive(Clone, Copy, Debug, Default)]
struct AskedStates {
    /// Of the private state.
    private: Option<u64>,
    /// Of the world state.
    world: Option<u64>,
    /// Of the goals.
    goals: Option<u64>,
}

impl Resumed {
    fn fresh(turn: Turn, given: Vec<TurnMessage>, opening: &Opening) -> Self {
        let mut untrusted = history::untrusted_given(&given);
        untrusted.extend(history::untrusted_opening(opening));
        Self {
            turn,
            given,
            untrusted,
            handle_given: false,
            replayed: false,
            taken_over: false,
            cancel: None,
            spending: Spending::default(),
            observations: Observations::default(),
            compacted: None,
            events: match opening {
                Opening::Events(events) => events.clone(),
                Opening::UserMessage(_) | Opening::ModelText { .. } => Vec::new(),
            },
            steering: Steering::default(),
            asked: AskedStates::default(),
            forked: Forked::default(),
        }
    }

    fn replay(open: &OpenRun) -> Result<(Plan, Self), ReplayError> {
        let plan: Plan =
            serde_json::from_value(open.meta.data.clone()).map_err(ReplayError::Plan)?;
        let run = open.recorder.run_id().to_string();
        let own = open.events.iter().filter(|event| event.run_id == run);
        let Folded {
            turn,
            given,
            opening,
        } = fold(&plan, plan.tools.is_native(), own.clone())?;
        let mut resumed = Self::fresh(turn, given, &opening);
        resumed.taken_over = true;
        for event in own {
            resumed.forked.take(event);
            match &event.kind {
                Some(Kind::CancelRequested(asked)) => resumed.cancel = Some(asked.reason.clone()),
                Some(
                    Kind::RunStarted(_)
                    | Kind::MessageGiven(_)
                    | Kind::TurnForked(_)
                    | Kind::ResultTaken(_)
                    | Kind::RunQueued(_)
                    | Kind::RunDequeued(_),
                )
                | None => {}
                Some(kind) => {
                    resumed.replayed = true;
                    resumed.untrusted.extend(history::untrusted_of(kind));
                    resumed.observations.take(kind);
                    resumed.handle_given |= history::gives_handle(kind);
                    resumed.spending.take(kind, time_of(event));
                    resumed.steering.replay(event);
                    resumed.compacted = history::compaction_of(kind).or(resumed.compacted);
                    match kind {
                        Kind::ModelRequested(asked) => {
                            let version = |version: u64| (version > 0).then_some(version);
                            resumed.asked = AskedStates {
                                private: version(asked.state_version),
                                world: version(asked.world_version),
                                goals: version(asked.goals_version),
                            };
                        }
                        Kind::ModelAnswered(_) => resumed.asked = AskedStates::default(),
                        _ => {}
                    }
                }
            }
        }
        Ok((plan, resumed))
    }
}
