//! Calls: each effect once, joined by every caller that asks for it, over crashes.
//!
//! A call is a task of its own. With an effect id there is at most one task per effect; it decides
//! by the ledger whether the call is new, settled, or was cut off. A caller that asks for the same effect
//! meanwhile joins. Without an effect id there is no ledger, and the task ends with its caller.

mod conclude;
mod detached;
mod ending;
mod execute;
mod follow;
pub mod handles;
mod hooked;
mod permit;
mod prepare;
mod recover;
mod resolve;
mod undecided;
mod watch;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use contracts::tavern::common::v1::{CallGrant, ErrorReason, PendingWork};
use core_types::{CallPath, Clock, ConversationId, Durability, EffectId, Principal, Tenant};
use futures::FutureExt;
use grpc_kit::{CallContext, Failure};
use run_client::{pending_run, policy::RUN_GRACE};
use run_events::Runs;
use run_log::Hash;
use tokio::time::Instant;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tonic::{Code, Status};
use tracing::Instrument;

use crate::{
    approvals::Approvals,
    arguments::Arguments,
    audit::Audit,
    dispatch::Dispatcher,
    hooks::Hooks,
    identities::Identities,
    in_flight::InFlightCall,
    ledger::{self, Effect, Entry, Ledger, LedgerEntry},
    plugins::PluginCatalogue,
    runner::agents::Agents,
    tools::Tools,
};

use recover::{call_of, caller_of};

pub use detached::StartedCall;
pub use resolve::{DecidedCall, Decision, refusal_of_missing};
pub use watch::{Position, Watched};

/// The longest wait of `CancelCall` for the end of a call.
const CANCEL_WAIT: Duration = Duration::from_secs(2);

/// The longest time that a run may take at all.
const MAX_RUN_TIME: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The limits on the time and the number of calls.
#[derive(Clone, Copy, Debug)]
pub struct CallLimits {
    /// The timeout of a call whose tool has none of its own.
    pub tool_timeout: Duration,
    /// Calls in flight at once; more are refused.
    pub in_flight: usize,
    /// The longest time for which calls may continue when the service ends.
    pub drain: Duration,
}

/// The request of a call.
#[derive(Clone, Debug)]
pub struct Call {
    /// The tool's id or alias.
    pub tool: String,
    /// The arguments: an object.
    pub arguments: Arguments,
    /// The id of the effect; none for a call that is never repeated.
    pub effect_id: Option<EffectId>,
    /// The conversation whose workspace file tools use.
    pub conversation: Option<ConversationId>,
    /// The durability of the call's entry.
    pub durability: Durability,
    /// The timeout; `None` for the tool's own limit.
    pub timeout: Option<Duration>,
    /// Its place among the calls of its text.
    pub index: u32,
    /// It was repaired or has two readings, so it does not run.
    pub needs_confirmation: bool,
    /// The grant for the run below.
    pub grant: Option<CallGrant>,
    /// The profile of the agent for which it is made outside of a turn; empty if there is none.
    pub profile_id: String,
    /// Which attempt at the effect it is, from 1 to [`call_wire::MAX_ATTEMPTS`].
    pub attempt: u32,
    /// The package whose version of the tool is called; empty for the version in force.
    pub package_digest: String,
    /// Whether its arguments passed through hooks.
    pub is_hooked: bool,
    /// Whether no owner requests it again after a restart.
    pub detached: bool,
    /// The digest of the first request for the effect; `None` takes it from tool, arguments and principal.
    pub body: Option<Hash>,
    /// Whether its owner is in this process, made the effect id itself and asks for the first time, so the
    /// ledger need not be searched for it.
    pub is_first: bool,
}

impl Call {
    /// Returns the name of its effect when it is made for the caller of a context.
    fn effect(&self, context: &CallContext) -> Option<Effect> {
        let id = self.effect_id.clone();
        id.map(|id| Effect::of(context.principal(), id))
    }

    /// Returns the digest by which a repeat with another body, or by another principal, is known.
    fn body(&self, principal: &Principal) -> Hash {
        self.body.unwrap_or_else(|| {
            let text = format!("{}\0{}", self.tool, self.arguments.text());
            Hash::of(text.as_bytes()).by(principal)
        })
    }
}

/// A call that was begun or joined.
#[derive(Debug)]
pub struct CallHandle {
    in_flight: Arc<InFlightCall>,
    index: u32,
    /// Whether it was in flight before.
    was_in_flight: bool,
    /// Ends the call with its caller, if it has no effect id.
    ends_with_caller: Option<DropGuard>,
    /// The effect, if a run made the call, which waits for the decision where the call is in doubt.
    awaits_decision: Option<Effect>,
    /// The context of its caller, for the events of runs below it.
    context: CallContext,
}

/// Starts, follows and cancels calls. Clone, cheap.
#[derive(Clone, Debug)]
pub struct Calls {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    tools: Tools,
    plugins: PluginCatalogue,
    dispatcher: Dispatcher,
    hooks: Hooks,
    ledger: Ledger,
    approvals: Approvals,
    identities: Identities,
    audit: Audit,
    agents: Agents,
    /// The runs of this service, which make calls too.
    runs: Runs,
    clock: Arc<dyn Clock>,
    limits: CallLimits,
    /// Effects in flight in this process. Locked to look one up or to add one, never across an
    /// await.
    in_flight_calls: Mutex<HashMap<Effect, Arc<InFlightCall>>>,
    /// The effects in doubt for whose decision followers wait, each with the sender that wakes them
    /// and the runs above the call. Locked for a look-up or a change, never across an await.
    undecided: Mutex<HashMap<Effect, (tokio::sync::watch::Sender<bool>, CallPath)>>,
    tasks: TaskTracker,
    /// The number of tasks that have ended their calls and wait for the ledger.
    recording: AtomicUsize,
    /// Fires when no new call is taken.
    draining: CancellationToken,
    /// Fires when calls in flight are given up without being settled.
    abandon: CancellationToken,
}

impl Calls {
    /// Takes everything that calls need.
    pub(crate) fn new(
        (tools, plugins): (Tools, PluginCatalogue),
        (dispatcher, hooks): (Dispatcher, Hooks),
        ledger: Ledger,
        (approvals, identities, audit): (Approvals, Identities, Audit),
        agents: Agents,
        runs: Runs,
        limits: CallLimits,
    ) -> Self {
        let clock = ledger.clock();
        Self {
            inner: Arc::new(Inner {
                tools,
                plugins,
                dispatcher,
                hooks,
                ledger,
                approvals,
                identities,
                audit,
                agents,
                runs,
                clock,
                limits,
                in_flight_calls: Mutex::default(),
                undecided: Mutex::default(),
                tasks: TaskTracker::new(),
                recording: AtomicUsize::new(0),
                draining: CancellationToken::new(),
                abandon: CancellationToken::new(),
            }),
        }
    }

    /// Begins a call below the runs of `context`, or joins the one that is in flight with the same effect id.
    ///
    /// # Errors
    /// A status when the effect id is in flight with another body, or no more calls are taken.
    pub fn join(&self, call: Call, context: CallContext) -> Result<CallHandle, Status> {
        let body = call.body(context.principal());
        let index = call.index;
        let effect = call.effect(&context);
        let is_of_run = !call.detached && !context.path().steps().is_empty();
        let awaits_decision = effect.clone().filter(|_| is_of_run);
        let in_flight = {
            let mut in_flight_calls = self.inner.in_flight_calls();
            if let Some(effect) = &effect
                && let Some(in_flight) = in_flight_calls.get(effect)
            {
                if in_flight.body() != body {
                    return Err(ledger::reused(effect.as_str()));
                }
                let in_flight = Arc::clone(in_flight);
                return Ok(CallHandle {
                    in_flight,
                    index,
                    was_in_flight: true,
                    ends_with_caller: None,
                    awaits_decision,
                    context,
                });
            }
            self.inner.check_room()?;
            let named = effect
                .as_ref()
                .map_or_else(String::new, ToString::to_string);
            let clock = Arc::clone(&self.inner.clock);
            let in_flight = Arc::new(InFlightCall::new(
                call.tool.clone(),
                named,
                body,
                &context,
                clock,
            ));
            if let Some(effect) = &effect {
                in_flight_calls.insert(effect.clone(), Arc::clone(&in_flight));
            }
            in_flight
        };
        self.spawn(call, &in_flight, context.clone());
        let ends_with_caller = effect
            .is_none()
            .then(|| in_flight.cancel_token().clone().drop_guard());
        Ok(CallHandle {
            in_flight,
            index,
            was_in_flight: false,
            ends_with_caller,
            awaits_decision,
            context,
        })
    }

    /// Returns whether calls of a tool may be in flight together with others, as it declares.
    pub async fn may_run_beside_others(&self, tenant: Tenant, tool: &str) -> bool {
        let found = self.inner.tools.find(tenant, tool).await;
        found.is_ok_and(|tool| tool.flags().parallel_safe)
    }

    /// Cancels a call and waits until it has ended. Returns the work that continues; none if the
    /// call does not exist.
    ///
    /// # Errors
    /// A status when the ledger cannot be read.
    pub async fn cancel(
        &self,
        context: &CallContext,
        effect: &EffectId,
        reason: &str,
    ) -> Result<Option<Vec<PendingWork>>, Status> {
        let effect = &Effect::of(context.principal(), effect.clone());
        if self.inner.seen_in_flight(effect, context).is_none() {
            match self.inner.ledger.find(context, effect).await? {
                // The call may have come meanwhile.
                LedgerEntry::Absent if self.inner.seen_in_flight(effect, context).is_none() => {
                    return Ok(None);
                }
                LedgerEntry::InFlight(open) => self.take_up_run(&open).await?,
                LedgerEntry::Settled(_) => self.inner.give_up(effect),
                LedgerEntry::Absent => {}
            }
        }
        self.inner.cancel(effect, reason).await.map(Some)
    }

    /// Cancels every call of a tenant that is in flight and has an effect id; others end with their callers.
    pub(crate) fn cancel_of(&self, tenant: Tenant, reason: &str) {
        let in_flight_calls = self.inner.in_flight_calls();
        let own = in_flight_calls.iter();
        let own = own.filter(|(effect, _)| effect.tenant() == tenant);
        own.for_each(|(_, in_flight)| in_flight.cancel(reason));
    }

    /// Returns the number of calls of a tenant in flight that have an effect id.
    pub(crate) fn count_of(&self, tenant: Tenant) -> u64 {
        let in_flight_calls = self.inner.in_flight_calls();
        let own = in_flight_calls
            .keys()
            .filter(|effect| effect.tenant() == tenant);
        own.count() as u64
    }

    /// Dispatches a call of a run again that a crash cut off and whose owner has not asked for it since. This
    /// finds its run, which may not have been noted yet, so that the cancel reaches it and the call settles.
    async fn take_up_run(&self, open: &Entry) -> Result<(), Status> {
        let tenant = open.record.principal.tenant();
        let tool = self.inner.tools.find(tenant, &open.record.tool_id).await;
        if open.record.is_run && tool.is_ok_and(|tool| tool.may_repeat()) {
            let call = call_of(open, open.record.attempt)?;
            drop(self.join(call, caller_of(open))?);
        }
        Ok(())
    }

    /// Takes no more calls, gives calls in flight some time, and gives up the rest without settling
    /// them: the ledger decides about them when they are asked for again.
    pub async fn shutdown(&self) {
        self.inner.draining.cancel();
        self.inner.tasks.close();
        if tokio::time::timeout(self.inner.limits.drain, self.inner.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                calls = self.inner.tasks.len(),
                "calls are given up, the service ends"
            );
            self.inner.abandon.cancel();
            self.inner.tasks.wait().await;
        }
    }

    fn spawn(&self, call: Call, in_flight: &Arc<InFlightCall>, context: CallContext) {
        let span = telemetry::spans::execute_tool(&call.tool);
        if let Some(effect) = &call.effect_id {
            let id = telemetry::attributes::TOOL_CALL_ID;
            telemetry::spans::set(&span, id, effect.to_string());
        }
        let (inner, in_flight) = (Arc::clone(&self.inner), Arc::clone(in_flight));
        let tracker = self.inner.tasks.clone();
        let task = async move {
            let effect = call.effect(&context);
            // The guard ends the call even if the task panics, so that no caller waits forever.
            let guard = InFlightGuard {
                inner: Arc::clone(&inner),
                in_flight: Arc::clone(&in_flight),
                effect,
            };
            let result = match call.detached {
                true => inner.see_through(call, &in_flight, context).await,
                false => inner.execute_call(call, &in_flight, context).await,
            };
            guard.in_flight.end(result);
        };
        // Boxed, because the task is moved several times until it runs, and is large.
        tracker.spawn(task.boxed().instrument(span));
    }
}

/// Removes a call from those in flight when its task is over, however it ended.
struct InFlightGuard {
    inner: Arc<Inner>,
    in_flight: Arc<InFlightCall>,
    effect: Option<Effect>,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if let Some(effect) = &self.effect {
            self.inner.in_flight_calls().remove(effect);
        }
        if !self.in_flight.has_ended() {
            self.in_flight.end(Err(failed_inside()));
        }
    }
}

impl Inner {
    /// Returns a call in flight that a caller can see.
    fn seen_in_flight(&self, effect: &Effect, context: &CallContext) -> Option<Arc<InFlightCall>> {
        let found = self.in_flight_calls().get(effect).cloned();
        found.filter(|in_flight| context.sees(in_flight.owner()))
    }

    fn in_flight_calls(&self) -> std::sync::MutexGuard<'_, HashMap<Effect, Arc<InFlightCall>>> {
        self.in_flight_calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn undecided(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<Effect, (tokio::sync::watch::Sender<bool>, CallPath)>>
    {
        self.undecided
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn check_room(&self) -> Result<(), Status> {
        if self.draining.is_cancelled() {
            return Err(draining());
        }
        let recording = self.recording.load(Ordering::Relaxed);
        if self.tasks.len().saturating_sub(recording) >= self.limits.in_flight {
            return Err(Failure::overloaded(Duration::from_millis(500)).into_status());
        }
        Ok(())
    }

    /// Cancels an effect and waits until it has ended. Returns the work that continues.
    async fn cancel(&self, effect: &Effect, reason: &str) -> Result<Vec<PendingWork>, Status> {
        let in_flight = self.in_flight_calls().get(effect).cloned();
        let Some(in_flight) = in_flight else {
            return self.cancel_unattended(effect, reason).await;
        };
        in_flight.cancel(reason);
        let mut stage = in_flight.subscribe();
        let ended = stage.wait_for(|stage| stage.ended.is_some());
        // A call that did not end in time is among the work still running.
        let _ = tokio::time::timeout(CANCEL_WAIT, ended).await;
        Ok(in_flight.still_running())
    }

    /// Cancels an effect that no task of this process executes: the tool of its run is gone.
    async fn cancel_unattended(
        &self,
        effect: &Effect,
        reason: &str,
    ) -> Result<Vec<PendingWork>, Status> {
        let past = self
            .ledger
            .look_up(effect, call_wire::MAX_ATTEMPTS, None)
            .await?;
        let LedgerEntry::InFlight(open) = past else {
            return Ok(Vec::new());
        };
        let Some(child) = open.child_run_id.as_ref().filter(|_| open.record.is_run) else {
            return Ok(Vec::new());
        };
        let run = self.dispatcher.runs.run(child, &caller_of(&open));
        Ok(match run.cancel(reason, RUN_GRACE).await {
            Ok(cancelled) => cancelled.still_running,
            Err(status) if status.code() == Code::NotFound => Vec::new(),
            Err(_) => vec![pending_run(child)],
        })
    }

    /// Returns the deadline of a call, and its time limit. A run has the time that its own service
    /// gives it, which depends on whether it can wait.
    fn time_limit(
        &self,
        own: Option<Duration>,
        is_run: bool,
        context: &CallContext,
    ) -> (Instant, Option<Duration>) {
        let timeout = own.or((!is_run).then_some(self.limits.tool_timeout));
        let deadline = Instant::now() + timeout.unwrap_or(MAX_RUN_TIME);
        let deadline = context
            .deadline()
            .map_or(deadline, |outer| deadline.min(outer));
        (deadline, timeout)
    }
}

fn failed_inside() -> Status {
    let message = "the call failed inside the server";
    Failure::new(Code::Internal, ErrorReason::Internal, message).into_status()
}

fn draining() -> Status {
    Failure::new(
        Code::Unavailable,
        ErrorReason::Draining,
        "the server is about to end; try again",
    )
    .retry_after(Duration::from_secs(1))
    .into_status()
}
