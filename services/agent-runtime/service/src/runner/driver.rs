//! One turn while it is carried out.

use std::sync::Arc;

use call_catalogue::Catalogue;
use contracts::tavern::common::v1::{self as common, StopReason, run_event::Kind};
use run_events::{CancelReason, End, Recorder, RunControl, RunMeta, outcome};
use run_log::AppendError;
use serde_json::Value;

use agent_domain::{
    observation,
    plan::Plan,
    turn::{Ask, Command, Finish, ReadCall, Turn},
};
use agent_store::store::StateOwner;

use super::{
    Inner, Resumed,
    asker::Asker,
    caller::Caller,
    directives::{Steering, TurnInbox},
    earlier_turns::EarlierTurns,
    ending, history,
    in_flight::CallsInFlight,
    inventory::Inventory,
    journal,
    observations::Observations,
    shown_states::{Owners, ShownStates},
    spending::Spending,
    stop::TurnStop,
    turn_recorder::TurnRecorder,
};
use turn_log::forked::Forked;

/// One turn while it is carried out.
pub(super) struct Driver {
    pub(super) shared: Arc<Inner>,
    pub(super) log: TurnRecorder,
    pub(super) control: RunControl,
    pub(super) meta: RunMeta,
    pub(super) plan: Plan,
    pub(super) turn: Turn,
    pub(super) inventory: Inventory,
    /// The messages before the turn.
    pub(super) earlier: EarlierTurns,
    /// Whether the model reported that the present request is too long.
    pub(super) is_too_long: bool,
    /// Whether the present answer is requested once more, as it was cut off.
    pub(super) was_cut: bool,
    pub(super) untrusted: Vec<String>,
    /// Whether a call of the conversation gave a handle.
    handle_given: bool,
    /// The calls in flight.
    pub(super) in_flight: CallsInFlight,
    /// What the turn has used of its models.
    pub(super) spending: Spending,
    /// What the calls of the newest answer came to.
    pub(super) observations: Observations,
    /// The event up to which what the present deliberation workflow wrote is void; zero for none.
    pub(super) void_until: u64,
    /// The states that the model is shown.
    pub(super) states: ShownStates,
    /// What it has taken over from the turn that it is a fork of.
    pub(super) forked: Forked,
    /// The events that opened the turn.
    pub(super) events: Vec<Value>,
    /// What people ask of the turn.
    pub(super) inbox: TurnInbox,
    /// Their messages for the model.
    pub(super) steering: Steering,
    /// The turn's span.
    pub(super) span: tracing::Span,
    replayed: bool,
    pub(super) cancelled_before: Option<String>,
    /// Whether turns before it may not have ended.
    is_behind: bool,
}

impl Driver {
    pub(super) fn new(
        shared: Arc<Inner>,
        recorder: Recorder,
        control: RunControl,
        meta: RunMeta,
        plan: Plan,
        resumed: Resumed,
    ) -> Self {
        let inbox = shared.switchboard.connect(recorder.run_id().to_string());
        Self {
            shared,
            log: TurnRecorder::new(recorder),
            in_flight: CallsInFlight::new(&control),
            control,
            meta,
            plan,
            turn: resumed.turn,
            inventory: Inventory::default(),
            earlier: EarlierTurns::new(resumed.given, resumed.compacted),
            is_too_long: false,
            was_cut: false,
            untrusted: resumed.untrusted,
            handle_given: resumed.handle_given,
            spending: resumed.spending,
            observations: resumed.observations,
            void_until: 0,
            states: ShownStates {
                asked: resumed.asked,
                ..ShownStates::default()
            },
            forked: resumed.forked,
            events: resumed.events,
            inbox,
            steering: resumed.steering,
            span: tracing::Span::none(),
            replayed: resumed.replayed,
            cancelled_before: resumed.cancel,
            is_behind: resumed.taken_over && !resumed.replayed,
        }
    }

    /// Carries the turn out to its end.
    pub(super) async fn run(mut self) -> End {
        self.span = tracing::Span::current();
        let mut stop = match self.go().await {
            Ok(outcome) => return End::Finished(self.with_totals(outcome)),
            Err(stop) => stop,
        };
        if !matches!(stop, TurnStop::Storage(_))
            && let Err(worse) = self.end_calls_in_flight().await
        {
            stop = worse;
        }
        let outcome = match stop {
            TurnStop::Cancelled(reason) => outcome::stopped(&reason, self.turn.unsettled()),
            TurnStop::Failed(error) => {
                let reason = ending::stop_reason(&error);
                ending::failed(&self.turn, *error, reason)
            }
            TurnStop::Storage(error) => return self.leave_open(&error),
        };
        match self.commit().await {
            Err(TurnStop::Storage(error)) => self.leave_open(&error),
            _ => End::Finished(self.with_totals(outcome)),
        }
    }

    fn with_totals(&self, mut outcome: common::RunOutcome) -> common::RunOutcome {
        outcome.model_totals = self.spending.totals();
        outcome.calls = self.turn.dispatched();
        outcome
    }

    async fn go(&mut self) -> Result<common::RunOutcome, TurnStop> {
        if self.is_behind || self.log.recorder().is_queued() {
            self.await_turns_before().await?;
        }
        self.spending.resume_at(self.shared.clock.now());
        if let Some(reason) = self.cancelled_before.take() {
            self.cancel_calls().await;
            return Err(TurnStop::Cancelled(CancelReason::Requested(reason)));
        }
        self.prepare().await?;
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
            match self.turn.next() {
                // What people say is read before the model is asked, and keeps a turn from stopping.
                Command::Ask(_) | Command::Finish(Finish::Stop)
                    if self.steering.is_waiting() && self.turn.asks_model() =>
                {
                    self.steer().await?;
                }
                Command::ReadOpening(text) => self.read_opening(&text)?,
                Command::Ask(ask) => {
                    self.until_resumed().await?;
                    match ask {
                        Ask::Round(_) if self.note_spent_before_round()? => {}
                        Ask::Last(budget) if self.reserved(true).is_err() => {
                            self.commit().await?;
                            return Ok(ending::outcome(&self.turn, &Finish::Budget(budget)));
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
                    self.commit().await?;
                    return Ok(ending::outcome(&self.turn, &finish));
                }
            }
        }
    }

    /// Reads the states that the model is shown: as it was asked before, if it has not answered.
    pub(super) async fn read_state(&mut self) -> Result<(), TurnStop> {
        let (conversation, profile) = (&self.meta.conversation_id, &self.meta.subject);
        let own = StateOwner::agent(conversation, profile);
        let goals = StateOwner::goals(conversation, profile);
        let scene = self.plan.scene.as_ref();
        let world = scene.map(|scene| StateOwner::world(&scene.run_id));
        let owners = Owners {
            private: Some(own),
            world,
            goals: Some(goals),
        };
        let changed = self.states.read(&self.shared.states, owners).await?;
        self.untrusted.extend(changed);
        Ok(())
    }

    /// Returns the tools that the model may call now.
    pub(super) fn catalogue(&self) -> &Catalogue {
        match self.handle_given {
            true => &self.inventory.with_handles,
            false => &self.inventory.catalogue,
        }
    }

    /// Waits until the turn is not paused.
    pub(super) async fn until_resumed(&mut self) -> Result<(), TurnStop> {
        if self.control.is_paused() {
            // What has ended is shown while the turn waits.
            self.commit().await?;
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

    /// Returns what asks the registry for the calls of this turn.
    pub(super) fn caller(&self) -> Caller {
        Caller {
            calls: self.shared.peers.calls.clone(),
            recorder: self.log.recorder().clone(),
            control: self.in_flight.part.clone(),
            conversation_id: self.meta.conversation_id.clone(),
            asker: Asker {
                questions: self.shared.questions.clone(),
                conversation_id: self.meta.conversation_id.clone(),
                profile_id: self.meta.subject.clone(),
                interaction: self.plan.interaction,
                is_ephemeral: self.plan.ephemeral,
            },
        }
    }

    /// Reads the agent's tools and the conversation so far.
    async fn prepare(&mut self) -> Result<(), TurnStop> {
        self.inventory = self.fetch_inventory().await?;
        if !self.replayed {
            let remarks: Vec<Kind> = self.inventory.remarks().collect();
            for id in &self.inventory.missing {
                tracing::warn!(
                    agent = self.meta.subject,
                    tool = id,
                    "an agent's tool is not registered"
                );
            }
            self.log.note(remarks);
        }
        let earlier = self.shared.conversations.context(
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
        let mut untrusted = Vec::new();
        for turn in &earlier {
            untrusted.extend_from_slice(&turn.untrusted);
            self.handle_given |= turn.handle_given;
        }
        self.earlier.prepend(earlier, &self.plan);
        // The newest come last, as they count first when there are too many.
        untrusted.append(&mut self.untrusted);
        self.untrusted = untrusted;
        Ok(())
    }

    /// Lets something happen: now in the turn, and in the log with the next commit.
    pub(super) fn note(&mut self, kind: Kind) -> Result<(), TurnStop> {
        self.take(&kind)?;
        self.log.note([kind]);
        Ok(())
    }

    /// Lets something happen that need not be durable before the turn continues.
    pub(super) async fn submit(&mut self, kind: Kind) -> Result<(), TurnStop> {
        self.take(&kind)?;
        self.log.submit(kind).await
    }

    fn take(&mut self, kind: &Kind) -> Result<(), TurnStop> {
        self.untrusted.extend(history::untrusted_of(kind));
        self.handle_given |= history::gives_handle(kind);
        self.observations.take(kind);
        let now = self.shared.clock.now();
        self.spending.take(kind, now);
        match journal::read(kind) {
            Some(event) => Ok(self.turn.apply(event, now)?),
            None => Ok(()),
        }
    }

    /// Notes something and makes it durable with everything noted before. Returns its sequence.
    pub(super) async fn note_now(&mut self, kind: Kind) -> Result<u64, TurnStop> {
        self.take(&kind)?;
        self.log.commit_with(kind).await
    }

    /// Makes everything noted durable, in one commit.
    pub(super) async fn commit(&mut self) -> Result<(), TurnStop> {
        self.log.commit().await
    }

    /// Submits everything noted before the model is asked: the commit runs while it answers, and its
    /// answer comes after it in the log. A deliberation workflow is a run with a request id, which has to
    /// find the same states after a crash.
    pub(super) async fn submit_noted(&mut self) -> Result<(), TurnStop> {
        if self.plan.deliberation.is_some() {
            return self.commit().await;
        }
        self.log.submit_noted().await
    }

    fn skip(&mut self, call: &ReadCall, failed_tool: &str) -> Result<(), TurnStop> {
        let text = observation::skipped(&call.tool_id, failed_tool);
        self.note(skipped(call, failed_tool))?;
        self.note(journal::observation(Some(call.index), text))
    }

    fn leave_open(&self, error: &AppendError) -> End {
        match error {
            AppendError::Invalid(_) => {
                tracing::error!(error = %error, "an event cannot be stored");
                End::Finished(outcome::internal(&telemetry::context::current_trace_id()))
            }
            _ => {
                tracing::error!(error = %error, "a turn waits for the storage and continues at the next start");
                End::LeaveOpen
            }
        }
    }
}

/// Writes that a call is not started, as one before it failed.
pub(super) fn skipped(call: &ReadCall, failed_tool: &str) -> Kind {
    let message = format!("not executed, as {failed_tool} failed before it");
    let error = outcome::error(common::ErrorCategory::Domain, "skipped", message);
    settled(call, common::CallStatus::Skipped, error)
}

/// Writes that a call ended without having left.
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
