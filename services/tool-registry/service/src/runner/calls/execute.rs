//! The task of one call, from the ledger to the tool and back.

use call_outcome::{CallOutcome, Failure};
use call_wire::MAX_ATTEMPTS;
use std::{sync::Arc, time::Duration};

use contracts::tavern::common::v1::{CallApproval, CallDispatched, CallResult, CallStatus};
use core_types::{ConversationId, Durability, Tenant};
use futures::FutureExt;
use grpc_kit::CallContext;
use run_events::storage_unavailable;
use run_log::RunWriter;
use tonic::{Code, Status};

use super::{
    Call, Inner,
    conclude::{durability_number, timed},
    draining,
    ending::Ending,
    handles::HandleTool,
    prepare::Ready,
};
use crate::{
    arguments::Arguments,
    dispatch::{ResolvedCall, ScriptTerms},
    in_flight::InFlightCall,
    ledger::{self, Beginning, Effect, Entry, LedgerEntry, Record, Settled},
    runner::rights,
};
use tool_domain::tool::Tool;

/// The number of reads of the ledger for an end that another request records, and the wait after
/// each.
const TAKE_OVER_TRIES: u32 = 20;
const TAKE_OVER_WAIT: Duration = Duration::from_millis(50);

/// The tool, the terms of its plugin, and the arguments with which a call is dispatched again.
type Permitted = (Arc<Tool>, ScriptTerms, Arguments);

impl Inner {
    pub(super) async fn execute_call(
        &self,
        call: Call,
        in_flight: &Arc<InFlightCall>,
        context: CallContext,
    ) -> Result<CallResult, Status> {
        let result = match &call.effect(&context) {
            None => match self.permit(&call, in_flight, &context).await? {
                Ok(ready) => self.dispatch(&call, ready, None, in_flight, context).await,
                Err(failure) => return Ok(self.refused(&call, failure)),
            },
            Some(effect) => match self.past(&call, effect, in_flight).await? {
                // The next attempt is about to be dispatched, which a run waits for.
                LedgerEntry::Settled(settled)
                    if settled.is_to_be_repeated()
                        && call.attempt <= settled.entry.record.attempt =>
                {
                    Ok(CallResult {
                        index: call.index,
                        status: CallStatus::InDoubt.into(),
                        ..settled.result
                    })
                }
                LedgerEntry::Settled(settled) if !self.may_try_again(&call, &settled).await => {
                    // Its run may have ended while its caller was away, who has not seen all events.
                    in_flight.returned_before(&settled.result);
                    Ok(CallResult {
                        replayed: true,
                        index: call.index,
                        ..settled.result
                    })
                }
                LedgerEntry::InFlight(open) => self.resume(&call, open, in_flight, context).await,
                LedgerEntry::Absent | LedgerEntry::Settled(_) => {
                    match self.permit(&call, in_flight, &context).await? {
                        Ok(ready) => {
                            self.dispatch(&call, ready, Some(effect), in_flight, context)
                                .await
                        }
                        Err(failure) => return Ok(self.refused(&call, failure)),
                    }
                }
            },
        }?;
        if let Some(error) = &result.error {
            let category = call_wire::category_name(error.category());
            telemetry::spans::fail(&tracing::Span::current(), category, &error.code);
        }
        Ok(result)
    }

    /// Looks up the state of an effect in the ledger, unless this is its first call. For an attempt
    /// that was decided to be repeated, returns the state of the last attempt.
    async fn past(
        &self,
        call: &Call,
        effect: &Effect,
        in_flight: &InFlightCall,
    ) -> Result<LedgerEntry, Status> {
        match call.is_first {
            true => Ok(LedgerEntry::Absent),
            false => {
                let body = Some(in_flight.body());
                let found = self.ledger.look_up(effect, call.attempt, body).await?;
                match &found {
                    LedgerEntry::Settled(settled) if settled.is_to_be_repeated() => {
                        self.ledger.look_up(effect, MAX_ATTEMPTS, body).await
                    }
                    _ => Ok(found),
                }
            }
        }
    }

    /// Whether a call is a further attempt after one that failed, and may be dispatched (rule W21):
    /// the failure means that nothing took effect, or repeating the call has no further effect. As
    /// the tool may have been declared anew since, both declarations must say so.
    async fn may_try_again(&self, call: &Call, last: &Settled) -> bool {
        if call.attempt <= last.entry.record.attempt || last.result.status() != CallStatus::Failed {
            return false;
        }
        let error = last.result.error.as_ref();
        if error.is_some_and(|error| error.retryable) {
            return true;
        }
        let record = &last.entry.record;
        let found = match record.may_repeat {
            true => {
                self.find_again(&last.entry, record.principal.tenant())
                    .await
            }
            false => None,
        };
        found.is_some_and(|(tool, _)| tool.is_idempotent())
    }

    /// Settles a call that a crash cut off and that must not be dispatched again.
    pub(super) async fn settle_unknown(&self, open: &Entry) -> Result<CallResult, Status> {
        let outcome = CallOutcome::unsettled(&open.record.tool_id);
        self.settle_open(open, &outcome).await
    }

    /// Settles a call that a crash cut off. The start of the service and the owner that asks again may both do
    /// so at once; then the first one counts.
    async fn settle_open(&self, open: &Entry, outcome: &CallOutcome) -> Result<CallResult, Status> {
        let mut ended = self.try_to_settle(open, outcome).await;
        for _ in 0..TAKE_OVER_TRIES {
            match &ended {
                Err(status) if status.code() == Code::Aborted => {}
                _ => break,
            }
            let effect = open.effect()?;
            let attempt = open.record.attempt;
            match self.ledger.look_up(&effect, attempt, None).await? {
                LedgerEntry::Settled(settled) => ended = Ok(settled.result),
                _ => tokio::time::sleep(TAKE_OVER_WAIT).await,
            }
        }
        ended
    }

    async fn try_to_settle(
        &self,
        open: &Entry,
        outcome: &CallOutcome,
    ) -> Result<CallResult, Status> {
        let result = CallResult {
            effect_id: open.effect_id().to_owned(),
            tool_id: open.record.tool_id.clone(),
            durability: durability_number(open.durability()),
            attempt: open.record.attempt,
            ..timed(outcome, Some(open.dispatched), self.clock.now())
        };
        let writer = self.ledger.reopen(open).await?;
        self.ledger.settle(&writer, &result).await?;
        Ok(result)
    }

    fn refused(&self, call: &Call, failure: Failure) -> CallResult {
        telemetry::spans::fail(
            &tracing::Span::current(),
            failure.category.as_str(),
            &failure.code,
        );
        CallResult {
            index: call.index,
            effect_id: call
                .effect_id
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            tool_id: call.tool.clone(),
            ..timed(&CallOutcome::Rejected(failure), None, self.clock.now())
        }
    }

    /// Dispatches a new call, journalled if it has an effect id.
    async fn dispatch(
        &self,
        call: &Call,
        ready: Ready,
        effect: Option<&Effect>,
        in_flight: &Arc<InFlightCall>,
        context: CallContext,
    ) -> Result<CallResult, Status> {
        let is_run = ready.tool.implementation().is_run();
        let in_batch = is_in_batch(call, &ready.tool);
        let own = call.timeout.or(ready.tool.timeout());
        let (deadline, timeout) = self.time_limit(own, is_run, &context);
        let resolved = ResolvedCall {
            tool: ready.tool,
            terms: ready.terms,
            arguments: ready.arguments,
            effect_id: effect.map(|effect| effect.id().clone()),
            conversation: call.conversation.clone(),
            deadline,
            timeout,
            durability: match in_batch {
                true => Durability::Batched,
                false => call.durability,
            },
            attempt: call.attempt,
            // Only a run uses it.
            grant: call.grant.clone().filter(|_| is_run),
            in_flight: Arc::clone(in_flight),
            context: context.with_deadline(deadline),
        };
        let after = self.hold_back(&resolved).await?;
        if let Some((hook, output)) = ready.answer {
            let ending = Ending {
                index: call.index,
                defaulted: ready.defaulted,
                answered_by: hook,
                after,
                ..Ending::default()
            };
            let outcome = CallOutcome::Succeeded(output);
            return self.conclude(&resolved, outcome, None, ending).await;
        }
        // No change of rights is answered between this look-up and the dispatch.
        let leaving = self.identities.dispatching().await;
        let principal = resolved.context.principal();
        if let Err(failure) = rights::check(&self.identities, principal, &resolved.tool) {
            drop(leaving);
            self.audit.deny_tool(principal, resolved.tool.id()).await;
            return Ok(self.refused(call, failure));
        }
        if in_flight.cancel_token().is_cancelled() {
            let outcome = CallOutcome::cancelled_before_start(resolved.tool.id());
            let ending = Ending {
                index: call.index,
                defaulted: ready.defaulted,
                ..Ending::default()
            };
            return Ok(self.result(&resolved, &outcome, &ending));
        }
        self.check_lease()?;
        let writer = match effect {
            Some(effect) => {
                let writer = self.journal(call, effect, &resolved, in_flight, in_batch);
                let writer = writer.await?;
                self.ledger.hooks_applied(&writer, &ready.applied).await;
                let (tenant, approval) = (resolved.context.tenant(), ready.approval.as_ref());
                self.forget_waiting(call, tenant, approval).await?;
                Some(writer)
            }
            None => None,
        };
        if resolved.attempt > 1 && !is_run {
            in_flight.begin_again();
        }
        let dispatched = self.clock.now();
        drop(leaving);
        let outcome = self.execute(&resolved).await?;
        let ending = Ending {
            index: call.index,
            dispatched: Some(dispatched),
            defaulted: ready.defaulted,
            approval: ready.approval,
            after,
            in_batch,
            ..Ending::default()
        };
        self.conclude(&resolved, outcome, writer.as_ref(), ending)
            .await
    }

    /// Refuses a call while another process may take over the work of this one.
    fn check_lease(&self) -> Result<(), Status> {
        match self.dispatcher.home.may_start_effects() {
            true => Ok(()),
            false => Err(storage_unavailable().into()),
        }
    }

    /// Deletes the stored call of an approval, which the ledger has from now on.
    async fn forget_waiting(
        &self,
        call: &Call,
        tenant: Tenant,
        approval: Option<&CallApproval>,
    ) -> Result<(), Status> {
        let Some(approval) = approval.filter(|_| call.detached) else {
            return Ok(());
        };
        let forgotten = self.approvals.dispatched(tenant, &approval.approval_id);
        forgotten.await.map_err(|error| grpc_kit::internal(&error))
    }

    async fn journal(
        &self,
        call: &Call,
        effect: &Effect,
        resolved: &ResolvedCall,
        in_flight: &InFlightCall,
        in_batch: bool,
    ) -> Result<RunWriter, Status> {
        let record = Record {
            tool_id: resolved.tool.id().to_owned(),
            tool_etag: resolved.tool.etag().to_owned(),
            package_digest: resolved.terms.package_digest.clone(),
            may_repeat: resolved.tool.may_repeat(),
            is_run: resolved.tool.implementation().is_run(),
            attempt: resolved.attempt,
            conversation_id: resolved
                .conversation
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            timeout_ms: resolved
                .timeout
                .map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
            principal: resolved.context.principal().clone(),
            reach: resolved.context.stored_reach(),
            run_id: in_flight.path().steps().last().cloned().unwrap_or_default(),
            detached: call.detached,
            granted: resolved.grant.as_ref().map(ledger::grant_to_text),
        };
        let dispatched = CallDispatched {
            effect_id: effect.to_string(),
            tool_id: resolved.tool.id().to_owned(),
            arguments_json: resolved.arguments.text().to_owned(),
            index: call.index,
            node_id: String::new(),
        };
        let beginning = match (in_batch, call.is_first) {
            (true, _) => Beginning::InBatch,
            (false, true) => Beginning::First,
            (false, false) => Beginning::Durable,
        };
        let writer = self
            .ledger
            .begin(
                effect,
                in_flight.body(),
                &record,
                (resolved.durability, beginning),
                dispatched,
            )
            .await?;
        in_flight.has_entry(writer.clone());
        Ok(writer)
    }

    /// Decides about a call that was dispatched before this process began.
    async fn resume(
        &self,
        call: &Call,
        open: Box<Entry>,
        in_flight: &Arc<InFlightCall>,
        context: CallContext,
    ) -> Result<CallResult, Status> {
        if let Some(returned) = &open.returned {
            return self
                .conclude_returned(call, (&open, returned), in_flight, context)
                .await;
        }
        let permitted = self.permit_again(call, &open, in_flight, &context).await?;
        // No change of rights is answered between this look-up and the dispatch.
        let leaving = self.identities.dispatching().await;
        let permitted = permitted.and_then(|permitted| {
            let withheld = self.withheld(&open, &permitted.0, &context);
            withheld.map_or(Ok(permitted), Err)
        });
        let (tool, terms, arguments) = match permitted {
            Ok(permitted) => permitted,
            Err(outcome) => {
                drop(leaving);
                let result = self.settle_open(&open, &outcome).await?;
                return Ok(CallResult {
                    index: call.index,
                    ..result
                });
            }
        };
        tracing::info!(
            tool = tool.id(),
            effect = open.effect_id(),
            "a call is dispatched again after a restart"
        );
        let writer = self.ledger.reopen(&open).await?;
        in_flight.has_entry(writer.clone());
        if !open.record.is_run {
            in_flight.begin_again();
        }
        let resolved =
            self.resolved_again(call, &open, (tool, terms, arguments), (in_flight, context));
        drop(leaving);
        let after = self.hold_back(&resolved).await?;
        let outcome = self.execute(&resolved).await?;
        let ending = Ending {
            index: call.index,
            dispatched: Some(open.dispatched),
            after,
            ..Ending::default()
        };
        self.conclude(&resolved, outcome, Some(&writer), ending)
            .await
    }

    /// Returns an open call as it was resolved when it was dispatched.
    pub(super) fn resolved_again(
        &self,
        call: &Call,
        open: &Entry,
        (tool, terms, arguments): Permitted,
        (in_flight, context): (&Arc<InFlightCall>, CallContext),
    ) -> ResolvedCall {
        let own = open.record.timeout_ms.map(Duration::from_millis);
        let (deadline, timeout) = self.time_limit(own, open.record.is_run, &context);
        ResolvedCall {
            tool,
            terms,
            arguments,
            effect_id: call.effect_id.clone(),
            conversation: ConversationId::new(open.record.conversation_id.clone()).ok(),
            deadline,
            timeout,
            durability: open.durability(),
            attempt: open.record.attempt,
            grant: open.record.grant(),
            in_flight: Arc::clone(in_flight),
            context: context.with_deadline(deadline),
        }
    }

    /// Returns the tool, its terms and the arguments with which an open call is dispatched again, or the outcome with
    /// which it ends.
    async fn permit_again(
        &self,
        call: &Call,
        open: &Entry,
        in_flight: &InFlightCall,
        context: &CallContext,
    ) -> Result<Result<Permitted, CallOutcome>, Status> {
        let found = match open.record.may_repeat {
            true => self.find_again(open, context.tenant()).await,
            false => None,
        };
        let arguments = json_schema::parse_json_strict(&open.arguments_json).ok();
        let arguments = arguments.map(|value| Arguments::with_text(value, &open.arguments_json));
        // The tool may have been declared anew since, so both declarations must allow it.
        let repeatable = found.filter(|(tool, _)| tool.may_repeat()).zip(arguments);
        let permitted = match repeatable {
            Some(((tool, terms), arguments)) if open.runs_again(&tool) => {
                Some((tool, terms, arguments))
            }
            // The approval of the call was for another tool, so people are asked again.
            Some(_) => {
                let ready = self.permit(call, in_flight, context).await?.ok();
                match ready {
                    // A hook answers now, so nothing is dispatched.
                    Some(Ready {
                        answer: Some((_, output)),
                        ..
                    }) => return Ok(Err(CallOutcome::Succeeded(output))),
                    ready => ready.map(|ready| (ready.tool, ready.terms, ready.arguments)),
                }
            }
            None => None,
        };
        Ok(permitted.ok_or_else(|| CallOutcome::unsettled(&open.record.tool_id)))
    }

    /// Returns the tool of an open call with its terms: as its package brings it, else as it is now (rule R107).
    pub(super) async fn find_again(
        &self,
        open: &Entry,
        tenant: Tenant,
    ) -> Option<(Arc<Tool>, ScriptTerms)> {
        let Record {
            tool_id,
            package_digest,
            ..
        } = &open.record;
        let found = self.tools.find_with_terms(tenant, tool_id).await.ok();
        let runs_again = |(tool, _): &(Arc<Tool>, _)| open.runs_again(tool);
        if package_digest.is_empty() || found.as_ref().is_some_and(runs_again) {
            return found;
        }
        let kept = self
            .plugins
            .kept_tool(tenant, package_digest, tool_id)
            .await;
        kept.or(found)
    }

    /// Returns the outcome of an open call whose principal may not call the tool any more; `None` if it may. A
    /// run that was started is not stopped, as nothing more is dispatched to follow it.
    fn withheld(&self, open: &Entry, tool: &Tool, context: &CallContext) -> Option<CallOutcome> {
        if open.child_run_id.is_some() {
            return None;
        }
        let failure = rights::check(&self.identities, context.principal(), tool).err()?;
        Some(match tool.flags().read_only {
            true => CallOutcome::Failed(failure),
            false => CallOutcome::unsettled(tool.id()),
        })
    }

    /// Executes a call. Fails if the service ends meanwhile; the ledger's entry then stays open.
    async fn execute(&self, resolved: &ResolvedCall) -> Result<CallOutcome, Status> {
        // The last look before a call leaves: the process may have been paused since it was recorded.
        self.check_lease()?;
        let work = async {
            match HandleTool::of(resolved.tool.implementation()) {
                Some(tool) => self.use_handle(tool, resolved).boxed().await,
                None => {
                    let cancel = resolved.in_flight.cancel_token();
                    self.dispatcher.execute(resolved, cancel).await
                }
            }
        };
        // A run continues in its own service, so there is nothing to wait for when this one ends.
        let give_up = match resolved.tool.implementation().is_run() && resolved.effect_id.is_some()
        {
            true => &self.draining,
            false => &self.abandon,
        };
        tokio::select! {
            outcome = work => Ok(outcome),
            () = give_up.cancelled() => Err(draining()),
        }
    }
}

/// Whether the entry of a call need not be on disk before it leaves: repeating it after a crash has no effect,
/// and its owner asks again.
fn is_in_batch(call: &Call, tool: &Tool) -> bool {
    tool.flags().read_only
        && !tool.implementation().is_run()
        && !call.detached
        && call.durability != Durability::Memory
}
