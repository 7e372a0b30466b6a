//! From the rules to a call that may leave: some wait for people first.

use std::time::Duration;

use approval_rules::Judgement;
use call_outcome::{Category, Failure};
use contracts::tavern::common::v1::{
    ApprovalEnded, ApprovalRequested, CallApproval, run_event::Kind,
};
use core_types::{CallPath, ConversationId, Durability, EffectId, Principal, Reach};
use grpc_kit::CallContext;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tonic::Status;

use super::{
    Call, Calls, Inner, draining,
    prepare::{Ready, check_confirmed},
};
use crate::{
    approvals::{Approvals, DecisionError, FoundApproval, Wanted, refused},
    arguments::Arguments,
    in_flight::InFlightCall,
    ledger,
    runner::agents::Unknown,
    store::StoreError,
};
use tool_domain::approval::{Approval, State};

/// The reason for which a call that waited is not dispatched.
enum NotPermitted {
    Refused(Failure),
    Status(Status),
}

impl From<StoreError> for NotPermitted {
    fn from(error: StoreError) -> Self {
        Self::Status(grpc_kit::internal(&error))
    }
}

impl From<DecisionError> for NotPermitted {
    fn from(error: DecisionError) -> Self {
        Self::Status(grpc_kit::internal(&error))
    }
}

impl From<Failure> for NotPermitted {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl Inner {
    /// Checks a call, holds it against the rules and waits for people if they are to be asked.
    /// Returns it ready to leave, or its refusal.
    ///
    /// # Errors
    /// A status when nothing is known: the store fails, or the service ends.
    pub(super) async fn permit(
        &self,
        call: &Call,
        in_flight: &InFlightCall,
        context: &CallContext,
    ) -> Result<Result<Ready, Failure>, Status> {
        match self.permitted(call, in_flight, context).await {
            Ok(ready) => Ok(Ok(ready)),
            Err(NotPermitted::Refused(failure)) => Ok(Err(failure)),
            Err(NotPermitted::Status(status)) => Err(status),
        }
    }

    async fn permitted(
        &self,
        call: &Call,
        in_flight: &InFlightCall,
        context: &CallContext,
    ) -> Result<Ready, NotPermitted> {
        let above = self.agents.above(context, &call.profile_id).await;
        let above = above.map_err(Unknown::into_failure)?;
        let (rules, conversation) = (above.rules(), text_of(call.conversation.as_ref()));
        let effect = call.effect_id.as_ref().map_or("", EffectId::as_str);
        let judge = |ready: &Ready| {
            let (tool, arguments) = (&ready.tool, &ready.arguments);
            match self.approvals.judge(&rules, tool, arguments, &conversation) {
                Judgement::Allow => Ok(None),
                Judgement::Ask(ask) => Ok(Some(ask)),
                Judgement::Deny(reason) => {
                    let (tool, rule) = (tool.id(), reason.rule_id);
                    let message =
                        format!("{tool} was not called: the rule '{rule}' forbids this call");
                    Err(refused("denied_by_rule", message))
                }
            }
        };
        let ready = self.prepare(call, &call.arguments, &above, context).await?;
        let mut hooked = self.before_call(call, &ready, in_flight, context).await?;
        if hooked.answer.is_some() {
            return Ok(ready.hooked(hooked));
        }
        let changed = hooked.arguments.take().map(Arguments::from);
        let arguments = changed.as_ref().unwrap_or(&call.arguments);
        // Arguments that no hook changed are as they were checked.
        let mut checked = Some(ready).filter(|_| changed.is_none());
        loop {
            let ready = match checked.take() {
                Some(ready) => ready,
                None => self.prepare(call, arguments, &above, context).await?,
            };
            check_confirmed(call, &ready.tool)?;
            let ready = ready.hooked(hooked.clone());
            let Some(ask) = judge(&ready)? else {
                return Ok(ready);
            };
            let wanted = Wanted {
                tool: &ready.tool,
                arguments: canonical_json::to_string(&ready.arguments),
                effect_id: effect,
                conversation_id: &conversation,
                run_id: in_flight.path().steps().last().map_or("", String::as_str),
                principal: context.principal(),
                body: in_flight.body().to_string(),
                call_json: WaitingCall::of(call, context),
            };
            let approval = match self.approvals.require(wanted, ask).await?? {
                FoundApproval::Approval(approval) => *approval,
                FoundApproval::OfAnother => {
                    return Err(NotPermitted::Status(ledger::reused(effect)));
                }
                FoundApproval::Remembered(approval_id) => {
                    let approval = CallApproval {
                        approval_id,
                        ..CallApproval::default()
                    };
                    return Ok(ready.approved(approval));
                }
            };
            let approval = match approval.state {
                State::Pending => self.decided(approval, in_flight, context).await?,
                _ => approval,
            };
            match approval.state {
                State::Approved => {}
                // The call was cancelled, which is seen before it leaves; or it is asked for again.
                State::Withdrawn if in_flight.cancel_token().is_cancelled() => return Ok(ready),
                State::Withdrawn | State::Pending => continue,
                State::Rejected | State::Expired => return Err(refusal(&approval).into()),
            }
            let arguments: Value = serde_json::from_str(&approval.arguments)
                .map_err(|error| NotPermitted::Status(grpc_kit::internal(&error)))?;
            let arguments = Arguments::with_text(arguments, &approval.arguments);
            let approved = self.prepare(call, &arguments, &above, context).await?;
            let approved = approved.hooked(hooked.clone());
            // Arguments that a person put in the place of the call's own may still be forbidden.
            judge(&approved)?;
            // The approval is for this definition; for another one people are asked again.
            if approved.tool.etag() == approval.tool_digest {
                return Ok(approved.approved(to_proto(approval)));
            }
        }
    }

    /// Waits for the end of a pending approval.
    async fn decided(
        &self,
        approval: Approval,
        in_flight: &InFlightCall,
        context: &CallContext,
    ) -> Result<Approval, NotPermitted> {
        in_flight.waits_for_approval(requested(&approval));
        self.show_approval(&approval, context);
        let deadline = async {
            match context.deadline() {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let tenant = approval.principal.tenant();
        let ended = tokio::select! {
            ended = self.approvals.ended(tenant, &approval.id) => ended?,
            () = in_flight.cancel_token().cancelled() => {
                self.approvals.withdraw(tenant, &approval.id).await?;
                self.approvals.get(tenant, &approval.id).await?
            }
            () = self.draining.cancelled() => return Err(NotPermitted::Status(draining())),
            () = deadline => {
                let message = format!(
                    "{} waits for the approval {}, and the caller's deadline passed; the same effect id \
                     waits on",
                    approval.tool_id, approval.id
                );
                let failure = Failure::new(Category::Timeout, "approval_pending", message);
                return Err(failure.retryable().into());
            }
        };
        in_flight.approval_ended(ApprovalEnded {
            approval_id: ended.id.clone(),
            effect_id: ended.effect_id.clone(),
            approved: ended.state == State::Approved,
            approvers: ended.approvers(),
            reason: ended.reason().to_owned(),
        });
        Ok(ended)
    }
}

fn requested(approval: &Approval) -> Kind {
    let expires = core_types::Timestamp::from_unix_nanos(approval.expires);
    let rules = approval.reasons.iter().map(|reason| reason.rule_id.clone());
    Kind::ApprovalRequested(ApprovalRequested {
        approval_id: approval.id.clone(),
        effect_id: approval.effect_id.clone(),
        tool_id: approval.tool_id.clone(),
        rule_ids: rules.collect(),
        expire_time: Some(run_events::timestamp_to_proto(expires)),
    })
}

fn to_proto(approval: Approval) -> CallApproval {
    CallApproval {
        approvers: approval.approvers(),
        reason: approval.reason().to_owned(),
        edited_arguments_json: match approval.edited {
            true => approval.arguments,
            false => String::new(),
        },
        approval_id: approval.id,
    }
}

/// Words the refusal of a call by people.
fn refusal(approval: &Approval) -> Failure {
    let tool = &approval.tool_id;
    if approval.state == State::Expired {
        let message = format!("{tool} was not called: its approval expired before anyone decided");
        return refused("approval_expired", message);
    }
    let by = approval.approvers().pop().unwrap_or_default();
    let because = match approval.reason() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    let message = format!("{tool} was not called: {by} rejected it{because}");
    refused("approval_rejected", message)
}

fn text_of(conversation: Option<&ConversationId>) -> String {
    conversation.map_or_else(String::new, ToString::to_string)
}

/// A call without an owner that waits for people, as it is kept over a restart.
#[derive(Serialize, Deserialize)]
struct WaitingCall {
    tool: String,
    arguments: Value,
    effect_id: String,
    conversation_id: String,
    in_memory: bool,
    timeout_ms: Option<u64>,
    needs_confirmation: bool,
    attempt: u32,
    /// A message in hexadecimal digits.
    #[serde(default)]
    granted: Option<String>,
    /// The runs above it, whose agents' rules it is held against.
    #[serde(default)]
    path: Vec<String>,
    /// The principal that it acts for.
    #[serde(default, skip_serializing_if = "Principal::is_local")]
    principal: Principal,
    /// The objects that it can see.
    #[serde(default, skip_serializing_if = "Reach::is_tenant")]
    reach: Reach,
}

impl WaitingCall {
    /// Returns the call as JSON; nothing if an owner asks for it again.
    fn of(call: &Call, context: &CallContext) -> String {
        let Some(effect) = call.effect_id.as_ref().filter(|_| call.detached) else {
            return String::new();
        };
        let timeout = call.timeout.map(|timeout| timeout.as_millis());
        let waiting = Self {
            tool: call.tool.clone(),
            arguments: Value::clone(&call.arguments),
            effect_id: effect.to_string(),
            conversation_id: text_of(call.conversation.as_ref()),
            in_memory: call.durability == Durability::Memory,
            timeout_ms: timeout.and_then(|millis| u64::try_from(millis).ok()),
            needs_confirmation: call.needs_confirmation,
            attempt: call.attempt,
            granted: call.grant.as_ref().map(ledger::grant_to_text),
            path: context.path().steps().to_vec(),
            principal: context.principal().clone(),
            reach: context.stored_reach(),
        };
        serde_json::to_string(&waiting).expect("it has text keys only")
    }

    fn into_call(self) -> Option<(Call, CallContext)> {
        let path = CallPath::from_steps(self.path).ok()?;
        let context = CallContext::new(self.principal, path).reaching(self.reach);
        // Without its grant the call would have more rights than it was given.
        let grant = self.granted.map(|text| ledger::grant_from_text(&text));
        let grant = match grant {
            Some(read) => Some(read?),
            None => None,
        };
        let call = Call {
            tool: self.tool,
            arguments: self.arguments.into(),
            effect_id: Some(EffectId::new(self.effect_id).ok()?),
            conversation: ConversationId::new(self.conversation_id).ok(),
            durability: match self.in_memory {
                true => Durability::Memory,
                false => Durability::Sync,
            },
            timeout: self.timeout_ms.map(Duration::from_millis),
            index: 0,
            needs_confirmation: self.needs_confirmation,
            attempt: self.attempt,
            grant,
            profile_id: String::new(),
            package_digest: String::new(),
            is_hooked: false,
            detached: true,
            body: None,
            is_first: false,
        };
        Some((call, context))
    }
}

impl Calls {
    /// Returns the approvals of calls.
    pub fn approvals(&self) -> &Approvals {
        &self.inner.approvals
    }

    /// Lets the calls wait again that no owner asks for. Returns how many there are.
    pub(super) async fn wait_again(&self) -> Result<usize, Status> {
        let waiting = self.inner.approvals.recover().await;
        let waiting = waiting.map_err(|error| grpc_kit::internal(&error))?;
        let mut count = 0;
        for stored in waiting {
            let read = serde_json::from_str::<WaitingCall>(&stored.call_json);
            let Some((call, context)) = read.ok().and_then(WaitingCall::into_call) else {
                let (approval, effect) = (&stored.approval.id, &stored.approval.effect_id);
                tracing::error!(
                    approval,
                    effect,
                    "a waiting call cannot be read, and is left out"
                );
                continue;
            };
            drop(self.join(call, context)?);
            count += 1;
        }
        Ok(count)
    }

    /// Checks arguments as a call with them would be, for the one who edits them.
    ///
    /// # Errors
    /// The refusal of such a call.
    pub async fn check_edited(
        &self,
        approval: &Approval,
        arguments: &Value,
    ) -> Result<String, Failure> {
        let found = self
            .inner
            .tools
            .find(approval.principal.tenant(), &approval.tool_id);
        let found = found.await;
        let tool = found.map_err(|missing| missing.into_failure(&approval.tool_id))?;
        let checked = tool
            .check(arguments)
            .map_err(|violations| Failure::invalid_arguments(tool.id(), violations))?;
        let conversation = &approval.conversation_id;
        // Of the runs above the call, the approval names the last; the call is held against all of them
        // before it leaves.
        let made_by = CallContext::new(approval.principal.clone(), CallPath::default());
        let above = made_by.enter(&approval.run_id).unwrap_or(made_by);
        let above = self.inner.agents.above(&above, "").await;
        let above = above.map_err(Unknown::into_failure)?;
        let judgement =
            self.inner
                .approvals
                .judge(&above.rules(), &tool, &checked.arguments, conversation);
        if let Judgement::Deny(reason) = judgement {
            let message = format!(
                "the rule '{}' forbids a call with these arguments",
                reason.rule_id
            );
            return Err(refused("denied_by_rule", message));
        }
        Ok(canonical_json::to_string(&checked.arguments))
    }
}
