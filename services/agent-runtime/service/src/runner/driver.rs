//! One turn in progress.
//!
//! [`Driver`] carries out the commands of the pure [`Turn`]. All changes of the turn go through its [`LiveLog`].
//!
//! - `live_log`: the log and the state that it gives.
//! - `deliberate`: asking for an answer and reading it; `deliberation`: workflows that are asked.
//! - `call`: the calls of an answer.
//! - `budgets`, `compact`, `queue`, `steer`: the work in between.
//! - `earlier_turns`, `shown_states`: the texts that the model reads beside the turn.

mod budgets;
mod call;
mod compact;
mod deliberate;
mod deliberation;
mod earlier_turns;
mod hooked;
mod live_log;
mod queue;
mod shown_states;
mod steer;
mod stop;

use std::sync::Arc;

use call_catalogue::Catalogue;
use contracts::tavern::common::v1::{self as common, StopReason, run_event::Kind};
use run_events::{CancelReason, End, Recorder, RunControl, RunMeta, outcome};
use run_log::AppendError;
use turn_log::{journal, state::TurnState};

use agent_domain::{
    observation,
    plan::Plan,
    turn::{Ask, Command, Finish, ReadCall, Turn},
};
use agent_store::store::StateOwner;

use self::{
    call::{Asker, CallsInFlight, TurnCaller},
    deliberate::Retries,
    earlier_turns::EarlierTurns,
    live_log::LiveLog,
    shown_states::{Owners, ShownStates},
    stop::TurnStop,
};
use super::{Inner, directives::TurnInbox, ending, inventory::Inventory, untrusted::Untrusted};

pub(super) use budgets::withheld;
pub(super) use call::{effect_of, words};
pub(super) use deliberate::{
    ReadingContext, STOPPED_AT_UNKNOWN_TOOL, StreamingAnswer, refused, selected, understood,
};

pub(crate) use deliberate::{describe, describe_model};

/// One turn in progress.
pub(super) struct Driver {
    shared: Arc<Inner>,
    control: RunControl,
    meta: RunMeta,
    plan: Plan,
    /// The turn's log and state.
    log: LiveLog,
    inventory: Inventory,
    /// The messages before the turn.
    earlier: EarlierTurns,
    /// The states that the model is shown.
    states: ShownStates,
    untrusted: Untrusted,
    /// The requests of people to the turn.
    inbox: TurnInbox,
    /// The reasons for which the present answer is requested once more.
    retries: Retries,
    /// The calls in flight.
    in_flight: CallsInFlight,
    /// The turn's span.
    span: tracing::Span,
}

/// The facts about a turn that another process left.
#[derive(Debug)]
pub(super) struct Left {
    /// The reason of a requested cancel, if there is one.
    pub(super) cancelled: Option<String>,
}

impl Driver {
    pub(super) fn new(
        shared: Arc<Inner>,
        recorder: Recorder,
        control: RunControl,
        meta: RunMeta,
        plan: Plan,
        state: TurnState,
    ) -> Self {
        let inbox = shared.switchboard.connect(recorder.run_id().to_string());
        Self {
            shared,
            in_flight: CallsInFlight::new(&control),
            control,
            meta,
            plan,
            earlier: EarlierTurns::new(state.given()),
            log: LiveLog::new(recorder, state),
            inventory: Inventory::default(),
            states: ShownStates::default(),
            untrusted: Untrusted::default(),
            inbox,
            retries: Retries::default(),
            span: tracing::Span::none(),
        }
    }

    /// Carries the turn out to its end; `left` is there for one that another process accepted.
    pub(super) async fn run(mut self, left: Option<Left>) -> End {
        self.span = tracing::Span::current();
        let mut stop = match self.go(left).await {
            Ok(outcome) => return End::Finished(self.with_totals(outcome)),
            Err(stop) => stop,
        };
        if !matches!(stop, TurnStop::Storage(_))
            && let Err(worse) = self.end_calls_in_flight().await
        {
            stop = worse;
        }
        let outcome = match stop {
            TurnStop::Cancelled(reason) => outcome::stopped(&reason, self.turn().unsettled()),
            TurnStop::Failed(error) => {
                let reason = ending::stop_reason(&error);
                ending::failed(self.turn(), *error, reason)
            }
            TurnStop::Storage(error) => return self.leave_open(&error),
        };
        match self.log.commit().await {
            Err(TurnStop::Storage(error)) => self.leave_open(&error),
            _ => End::Finished(self.with_totals(outcome)),
        }
    }

    fn turn(&self) -> &Turn {
        self.log.turn()
    }

    fn with_totals(&self, mut outcome: common::RunOutcome) -> common::RunOutcome {
        outcome.model_totals = self.log.state().model_totals();
        outcome.calls = self.turn().dispatched();
        outcome
    }

    async fn go(&mut self, left: Option<Left>) -> Result<common::RunOutcome, TurnStop> {
        let is_fresh = !self.log.state().has_begun();
        let is_behind = left.is_some() && is_fresh;
        let cancelled = left.and_then(|left| left.cancelled);
        if cancelled.is_none() && (is_behind || self.log.recorder().is_queued()) {
            self.await_turns_before().await?;
        }
        self.dequeue().await?;
        self.log.resume();
        if let Some(reason) = cancelled {
            self.cancel_calls().await;
            return Err(TurnStop::Cancelled(CancelReason::Requested(reason)));
        }
        self.prepare(is_fresh).await?;
        if self.plan.compact {
            self.compact_now().await?;
        }
        loop {
            if let Some(reason) = self.control.why() {
                return Err(TurnStop::Cancelled(reason));
            }
            while let Some(directive) = self.inbox.waiting() {
                self.obey(directive).await?;
            }
            match self.turn().next() {
                // Messages of people are read before a request to the model, and keep a turn from
                // stopping.
                Command::Ask(_) | Command::Finish(Finish::Stop)
                    if self.log.state().steering().next().is_some() && self.turn().asks_model() =>
                {
                    self.steer().await?;
                }
                Command::ReadOpening(text) => self.read_opening(&text)?,
                Command::Ask(ask) => {
                    self.until_resumed().await?;
                    match ask {
                        Ask::Round(_) if self.note_spent_before_round()? => {}
                        Ask::Last(budget) if self.reserved(true).is_err() => {
                            self.log.commit().await?;
                            return Ok(ending::outcome(self.turn(), &Finish::Budget(budget)));
                        }
                        ask => self.ask(ask).await?,
                    }
                }
                Command::Dispatch(_) if self.control.is_paused() => self.until_resumed().await?,
                Command::Dispatch(_) if self.note_spent()? => {}
                Command::Dispatch(call) => drop(self.dispatch(call).await?),
                Command::Withhold { call, budget } => self.withhold(&call, budget)?,
                Command::Await(left) => self.await_one(&left).await?,
                Command::GiveUp(left) => self.give_up(&left).await?,
                Command::Skip { call, failed_tool } => self.skip(&call, &failed_tool)?,
                Command::Finish(finish) => {
                    self.log.commit().await?;
                    return Ok(ending::outcome(self.turn(), &finish));
                }
            }
        }
    }

    /// Reads the states that the model is shown: as in its last request, if it has not answered.
    async fn read_state(&mut self) -> Result<(), TurnStop> {
        let (conversation, profile) = (&self.meta.conversation_id, &self.meta.subject);
        let tenant = self.meta.principal.tenant();
        let own = StateOwner::agent(tenant, conversation, profile);
        let goals = StateOwner::goals(tenant, conversation, profile);
        let scene = self.plan.scene.as_ref();
        let world = scene.map(|scene| StateOwner::world(tenant, &scene.run_id));
        let owners = Owners {
            private: Some(own),
            world,
            goals: Some(goals),
        };
        let state = self.log.state();
        let states = &self.shared.states;
        let changed = self.states.read(states, owners, state.asked()).await?;
        self.untrusted.add_states(state.untrusted(), changed);
        Ok(())
    }

    /// Returns the tools that the model may call now.
    fn catalogue(&self) -> &Catalogue {
        let handle_given = self.earlier.handle_given() || self.log.state().handle_given();
        self.inventory.catalogue(handle_given)
    }

    /// Waits until the turn is not paused.
    async fn until_resumed(&mut self) -> Result<(), TurnStop> {
        if self.control.is_paused() {
            // Results are shown while the turn waits.
            self.log.commit().await?;
        }
        let control = self.control.clone();
        loop {
            let directive = tokio::select! {
                () = control.until_resumed() => break,
                () = control.cancelled() => break,
                directive = self.inbox.next() => directive,
            };
            self.obey(directive).await?;
        }
        match self.control.why() {
            Some(reason) => Err(TurnStop::Cancelled(reason)),
            None => Ok(()),
        }
    }

    /// Returns the caller of this turn's calls.
    fn caller(&self) -> TurnCaller {
        TurnCaller {
            calls: self.shared.peers.calls.clone(),
            recorder: self.log.recorder().clone(),
            control: self.in_flight.part.clone(),
            conversation_id: self.meta.conversation_id.clone(),
            asker: Asker {
                questions: self.shared.questions.clone(),
                principal: self.meta.principal.clone(),
                reach: self.meta.reach,
                conversation_id: self.meta.conversation_id.clone(),
                profile_id: self.meta.subject.clone(),
                interaction: self.plan.interaction,
                is_ephemeral: self.plan.ephemeral,
            },
        }
    }

    /// Reads the agent's tools and the conversation so far.
    async fn prepare(&mut self, is_fresh: bool) -> Result<(), TurnStop> {
        self.inventory = self.fetch_inventory().await?;
        if is_fresh {
            for id in &self.inventory.missing {
                tracing::warn!(
                    agent = self.meta.subject,
                    tool = id,
                    "an agent's tool is not registered"
                );
            }
            for remark in self.inventory.remarks() {
                self.log.note(remark)?;
            }
        }
        let earlier = self.shared.conversations.context(
            self.meta.principal.tenant(),
            &self.meta.conversation_id,
            self.log.recorder().run_id(),
            self.shared.history_bytes,
            self.plan.language,
        );
        let earlier = earlier.await.map_err(|failure| {
            let status = failure.into_status();
            TurnStop::Failed(Box::new(outcome::error(
                common::ErrorCategory::Internal,
                "history_unreadable",
                status.message(),
            )))
        })?;
        for turn in &earlier {
            self.untrusted.add_before(turn.untrusted.iter().cloned());
        }
        let compaction = self.log.state().compaction();
        self.earlier.prepend(earlier, compaction, &self.plan);
        Ok(())
    }

    /// Submits all noted events before the request to the model: the commit runs while it answers,
    /// and its answer comes after it in the log. A deliberation workflow is a run with a request
    /// id, which has to find the same states after a crash.
    async fn submit_noted(&mut self) -> Result<(), TurnStop> {
        if self.plan.deliberation.is_some() {
            return self.log.commit().await;
        }
        self.log.submit_noted().await
    }

    fn skip(&mut self, call: &ReadCall, failed_tool: &str) -> Result<(), TurnStop> {
        let text = observation::skipped(&call.tool_id, failed_tool);
        self.log.note(skipped(call, failed_tool))?;
        self.log.note(journal::observation(Some(call.index), text))
    }

    fn leave_open(&self, error: &AppendError) -> End {
        match error {
            AppendError::Invalid(_) => {
                tracing::error!(error = %error, "an event cannot be stored");
                End::Finished(outcome::internal(&telemetry::context::current_trace_id()))
            }
            _ => {
                tracing::error!(error = %error, "a turn waits for the storage and continues later");
                End::LeaveOpen
            }
        }
    }
}

/// Writes that a call is not started because an earlier one failed.
pub(super) fn skipped(call: &ReadCall, failed_tool: &str) -> Kind {
    let message = format!("not executed, as {failed_tool} failed before it");
    let error = outcome::error(common::ErrorCategory::Domain, "skipped", message);
    settled(call, common::CallStatus::Skipped, error)
}

/// Writes that a call ended without being dispatched.
pub(super) fn settled(
    call: &ReadCall,
    status: common::CallStatus,
    error: common::CallError,
) -> Kind {
    Kind::CallSettled(common::CallSettled {
        result: Some(common::CallResult {
            index: call.index,
            tool_id: call.tool_id.clone(),
            status: status.into(),
            error: Some(error),
            ..common::CallResult::default()
        }),
    })
}

/// The end of a turn whose log cannot be replayed.
pub(crate) fn damaged() -> common::RunOutcome {
    let message =
        "the turn's log cannot be replayed; the server's log names the event. Start a new turn";
    let error = outcome::error(common::ErrorCategory::Internal, "log_diverged", message);
    outcome::with_stop(outcome::failed(error), StopReason::Error)
}

#[cfg(test)]
mod tests;
