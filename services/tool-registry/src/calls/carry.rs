//! The task of one call, from the ledger to the tool and back.

use std::{sync::Arc, time::Duration};

use contracts::tavern::common::v1::{CallDispatched, CallResult, CallStatus};
use core_types::{ConversationId, Durability, EffectId, MAX_CALL_DEPTH, Timestamp};
use grpc_kit::CallContext;
use run_log::RunWriter;
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::{Call, Inner, draining};
use crate::{
    dispatch::Order,
    domain::{
        ending::{Category, Ending, Failure},
        tool::Tool,
    },
    flight::Flight,
    ledger::{Entry, LedgerEntry, Record, Settled},
    rpc::convert::{self, Circumstances},
};

/// The most of a result that fits into an event of the run log beside everything else, in bytes.
pub(crate) const MAX_OUTPUT_BYTES: usize = 960 << 10;
/// The same for arguments.
const MAX_ARGUMENT_BYTES: usize = 1_000 << 10;
/// How often, and after what time each, the ledger is asked for an end that somebody else records.
const TAKE_OVER_TRIES: u32 = 20;
const TAKE_OVER_WAIT: Duration = Duration::from_millis(50);

/// A call that passed every check.
struct Ready {
    tool: Arc<Tool>,
    arguments: Value,
    defaulted: Vec<String>,
}

impl Inner {
    pub(super) async fn carry(
        &self,
        call: Call,
        flight: &Arc<Flight>,
        context: CallContext,
    ) -> Result<CallResult, Status> {
        let result = match &call.effect_id {
            None => {
                let ready = match self.prepare(&call, &context).await {
                    Ok(ready) => ready,
                    Err(failure) => return Ok(self.refused(&call, failure)),
                };
                self.dispatch(&call, ready, None, flight, context).await
            }
            Some(effect) => match self.past(&call, effect, flight).await? {
                LedgerEntry::Settled(settled) if !self.may_try_again(&call, &settled).await => {
                    Ok(CallResult {
                        replayed: true,
                        index: call.index,
                        ..settled.result
                    })
                }
                LedgerEntry::InFlight(open) => self.resume(&call, open, flight, context).await,
                LedgerEntry::Absent | LedgerEntry::Settled(_) => {
                    match self.prepare(&call, &context).await {
                        Ok(ready) => {
                            self.dispatch(&call, ready, Some(effect), flight, context)
                                .await
                        }
                        Err(failure) => return Ok(self.refused(&call, failure)),
                    }
                }
            },
        }?;
        if let Some(error) = &result.error {
            telemetry::spans::fail(&tracing::Span::current(), &error.code, &error.code);
        }
        Ok(result)
    }

    /// Asks the ledger what is known of an effect, unless nothing can be.
    async fn past(
        &self,
        call: &Call,
        effect: &EffectId,
        flight: &Flight,
    ) -> Result<LedgerEntry, Status> {
        match call.is_first {
            true => Ok(LedgerEntry::Absent),
            false => {
                let body = Some(flight.body());
                self.ledger.look_up(effect, call.attempt, body).await
            }
        }
    }

    /// Whether a call is a further attempt after one that failed, and may be dispatched (rule W21):
    /// the failure says that nothing took effect, or repeating the call has no further effect. As
    /// the tool may have been declared anew since, both declarations must say so.
    async fn may_try_again(&self, call: &Call, last: &Settled) -> bool {
        if call.attempt <= last.entry.record.attempt || last.result.status() != CallStatus::Failed {
            return false;
        }
        let error = last.result.error.as_ref();
        if error.is_some_and(|error| error.retryable) {
            return true;
        }
        let found = match last.entry.record.may_repeat {
            true => self.tools.find(&last.entry.record.tool_id).await.ok(),
            false => None,
        };
        found.is_some_and(|tool| tool.is_idempotent())
    }

    /// Settles a call that a crash cut off and that must not be dispatched again. The start of the
    /// service and the owner that asks again may both do so at once; then the first one counts.
    pub(super) async fn settle_unknown(&self, open: &Entry) -> Result<CallResult, Status> {
        let mut ended = self.try_to_settle(open).await;
        for _ in 0..TAKE_OVER_TRIES {
            match &ended {
                Err(status) if status.code() == Code::Aborted => {}
                _ => break,
            }
            let effect =
                EffectId::new(open.effect_id()).map_err(|error| grpc_kit::internal(&error))?;
            let attempt = open.record.attempt;
            match self.ledger.look_up(&effect, attempt, None).await? {
                LedgerEntry::Settled(settled) => ended = Ok(settled.result),
                _ => tokio::time::sleep(TAKE_OVER_WAIT).await,
            }
        }
        ended
    }

    async fn try_to_settle(&self, open: &Entry) -> Result<CallResult, Status> {
        let result = convert::result_to_proto(
            &Ending::unsettled(&open.record.tool_id),
            Circumstances {
                effect_id: open.effect_id().to_owned(),
                tool_id: open.record.tool_id.clone(),
                dispatched: Some(open.dispatched),
                ended: self.clock.now(),
                durability: durability_number(open.durability()),
                attempt: open.record.attempt,
                ..Circumstances::default()
            },
        );
        let writer = self.ledger.reopen(open).await?;
        self.ledger.settle(&writer, &result).await?;
        Ok(result)
    }

    /// Checks everything that can be checked before a call leaves.
    async fn prepare(&self, call: &Call, context: &CallContext) -> Result<Ready, Failure> {
        let tool = self
            .tools
            .find(&call.tool)
            .await
            .map_err(|missing| missing.into_failure(&call.tool))?;
        if tool.implementation().is_run() && context.path().depth() >= MAX_CALL_DEPTH {
            let message = format!(
                "{} was not started: calls are nested {MAX_CALL_DEPTH} deep ({}); a tool or workflow seems \
                 to call itself",
                tool.id(),
                context.path().steps().join(" > ")
            );
            return Err(Failure::new(Category::Limit, "depth_exceeded", message));
        }
        let checked = tool
            .check(&call.arguments)
            .map_err(|violations| Failure::invalid_arguments(tool.id(), violations))?;
        let bytes = checked.arguments.to_string().len();
        if bytes > MAX_ARGUMENT_BYTES {
            let message = format!(
                "the arguments have {bytes} bytes; at most {MAX_ARGUMENT_BYTES} are accepted"
            );
            return Err(Failure::new(Category::Limit, "limit_exceeded", message));
        }
        if call.needs_confirmation && !tool.flags().read_only {
            let message = format!(
                "{} has effects, and its call was repaired or can be read in two ways, so it was not \
                 carried out; write the call again exactly as it is meant",
                tool.id()
            );
            return Err(Failure::new(
                Category::Policy,
                "needs_confirmation",
                message,
            ));
        }
        Ok(Ready {
            tool,
            arguments: checked.arguments,
            defaulted: checked.defaulted,
        })
    }

    fn refused(&self, call: &Call, failure: Failure) -> CallResult {
        telemetry::spans::fail(
            &tracing::Span::current(),
            failure.category.as_str(),
            &failure.code,
        );
        let circumstances = Circumstances {
            index: call.index,
            effect_id: call
                .effect_id
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            tool_id: call.tool.clone(),
            ..Circumstances::default()
        };
        convert::result_to_proto(&Ending::Rejected(failure), circumstances)
    }

    /// Carries a new call out, journalled if it has an effect id.
    async fn dispatch(
        &self,
        call: &Call,
        ready: Ready,
        effect: Option<&EffectId>,
        flight: &Arc<Flight>,
        context: CallContext,
    ) -> Result<CallResult, Status> {
        let is_run = ready.tool.implementation().is_run();
        let own = call.timeout.or(ready.tool.timeout());
        let (deadline, timeout) = self.time_limit(own, is_run, &context);
        let order = Order {
            tool: ready.tool,
            arguments: ready.arguments,
            effect_id: effect.cloned(),
            conversation: call.conversation.clone(),
            deadline,
            timeout,
            durability: call.durability,
            attempt: call.attempt,
            flight: Arc::clone(flight),
        };
        if flight.cancel_token().is_cancelled() {
            let ending = Ending::cancelled_before_start(order.tool.id());
            return Ok(self.result(call.index, &order, &ending, None, ready.defaulted));
        }
        let writer = match effect {
            Some(effect) => Some(self.journal(call, effect, &order, flight).await?),
            None => None,
        };
        let dispatched = self.clock.now();
        let ending = self.carry_out(&order, context).await?;
        let result = self.result(
            call.index,
            &order,
            &ending,
            Some(dispatched),
            ready.defaulted,
        );
        if let Some(writer) = writer {
            self.ledger.settle(&writer, &result).await?;
        }
        Ok(result)
    }

    async fn journal(
        &self,
        call: &Call,
        effect: &EffectId,
        order: &Order,
        flight: &Flight,
    ) -> Result<RunWriter, Status> {
        let record = Record {
            tool_id: order.tool.id().to_owned(),
            may_repeat: order.tool.may_repeat(),
            is_run: order.tool.implementation().is_run(),
            attempt: order.attempt,
            conversation_id: order
                .conversation
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            timeout_ms: u64::try_from(order.timeout.as_millis()).unwrap_or(u64::MAX),
            run_id: flight.path().steps().last().cloned().unwrap_or_default(),
            detached: call.detached,
        };
        let dispatched = CallDispatched {
            effect_id: effect.to_string(),
            tool_id: order.tool.id().to_owned(),
            arguments_json: order.arguments.to_string(),
            index: call.index,
            node_id: String::new(),
        };
        let writer = self
            .ledger
            .begin(
                effect,
                flight.body(),
                &record,
                (order.durability, call.is_first),
                dispatched,
            )
            .await?;
        flight.has_entry(writer.clone());
        Ok(writer)
    }

    /// Decides about a call that was dispatched before this process began.
    async fn resume(
        &self,
        call: &Call,
        open: Box<Entry>,
        flight: &Arc<Flight>,
        context: CallContext,
    ) -> Result<CallResult, Status> {
        let found = match open.record.may_repeat {
            true => self.tools.find(&open.record.tool_id).await.ok(),
            false => None,
        };
        let arguments = json_schema::parse_json_strict(&open.arguments_json).ok();
        // The tool may have been declared anew since, so both declarations must allow it.
        let repeatable = found.filter(|tool| tool.may_repeat()).zip(arguments);
        let Some((tool, arguments)) = repeatable else {
            let result = self.settle_unknown(&open).await?;
            return Ok(CallResult {
                index: call.index,
                ..result
            });
        };
        tracing::info!(
            tool = tool.id(),
            effect = open.effect_id(),
            "a call is dispatched again after a restart"
        );
        let writer = self.ledger.reopen(&open).await?;
        flight.has_entry(writer.clone());
        let own = Some(Duration::from_millis(open.record.timeout_ms));
        let (deadline, timeout) = self.time_limit(own, open.record.is_run, &context);
        let order = Order {
            tool,
            arguments,
            effect_id: call.effect_id.clone(),
            conversation: ConversationId::new(open.record.conversation_id.clone()).ok(),
            deadline,
            timeout,
            durability: open.durability(),
            attempt: open.record.attempt,
            flight: Arc::clone(flight),
        };
        let ending = self.carry_out(&order, context).await?;
        let result = self.result(
            call.index,
            &order,
            &ending,
            Some(open.dispatched),
            Vec::new(),
        );
        self.ledger.settle(&writer, &result).await?;
        Ok(result)
    }

    /// Carries an order out within the call's context. Fails if the service ends meanwhile; the
    /// ledger's entry then stays open.
    async fn carry_out(&self, order: &Order, context: CallContext) -> Result<Ending, Status> {
        let context = context.with_deadline(order.deadline);
        let work = context.scope(
            self.dispatcher
                .carry_out(order, order.flight.cancel_token()),
        );
        // A run continues in its own service, so there is nothing to wait for when this one ends.
        let give_up = match order.tool.implementation().is_run() && order.effect_id.is_some() {
            true => &self.draining,
            false => &self.abandon,
        };
        tokio::select! {
            ending = work => Ok(bounded(order.tool.id(), ending)),
            () = give_up.cancelled() => Err(draining()),
        }
    }

    fn result(
        &self,
        index: u32,
        order: &Order,
        ending: &Ending,
        dispatched: Option<Timestamp>,
        defaulted: Vec<String>,
    ) -> CallResult {
        let journalled = order.effect_id.is_some();
        let child_run_id = order.flight.subscribe().borrow().child_run_id.clone();
        convert::result_to_proto(
            ending,
            Circumstances {
                index,
                effect_id: order
                    .effect_id
                    .as_ref()
                    .map_or_else(String::new, ToString::to_string),
                tool_id: order.tool.id().to_owned(),
                dispatched,
                ended: self.clock.now(),
                defaulted,
                durability: if journalled {
                    durability_number(order.durability)
                } else {
                    0
                },
                child_run_id: child_run_id.unwrap_or_default(),
                attempt: if journalled { order.attempt } else { 0 },
            },
        )
    }
}

/// Turns a result that no event could hold into a failure.
fn bounded(tool: &str, ending: Ending) -> Ending {
    let Ending::Succeeded(output) = &ending else {
        return ending;
    };
    let bytes = output.to_string().len();
    if bytes <= MAX_OUTPUT_BYTES {
        return ending;
    }
    let message = format!(
        "{tool} did what it was asked, but its result of {bytes} bytes is larger than {MAX_OUTPUT_BYTES}; ask \
         for less at once"
    );
    let failure = Failure::new(Category::Limit, "output_too_large", message);
    Ending::Failed(failure.details(json!({"bytes": bytes})))
}

fn durability_number(durability: Durability) -> i32 {
    run_events::durability_to_proto(durability).into()
}
