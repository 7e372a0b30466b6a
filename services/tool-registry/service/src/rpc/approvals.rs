//! Listing, following and deciding approvals.

use std::{sync::Arc, time::Duration};

use contracts::tavern::{
    access::v1::Permission,
    common::v1::{ErrorReason, WatchDrain, WatchHeartbeat},
    registry::v1::{
        Approval, ApprovalConsent, ApprovalReason, ApprovalState, ApprovalVerdict,
        DecideApprovalRequest, DecideApprovalResponse, EffectClass, GetApprovalRequest,
        GetApprovalResponse, ListApprovalsRequest, ListApprovalsResponse, WatchApprovalsGap,
        WatchApprovalsReady, WatchApprovalsRequest, WatchApprovalsResponse,
        approval_service_server::ApprovalService, watch_approvals_response::Record,
    },
};
use core_types::{PageToken, Principal, Tenant, Timestamp, page::page_size};
use grpc_kit::{CallContext, Drain, Failure};
use run_events::{timestamp_to_proto, to_its_end};
use tonic::{Code, Request, Response, Status};

use super::{Answer, StreamOf, refusal};
use crate::{
    approvals::{ApprovalFilter, Approvals, Changes, Decider, DecisionError, NotDecider},
    runner::calls::Calls,
    store::StoreError,
};
use tool_domain::approval::{self as domain, DecideError, Decision, State, shown};

/// The longest silence of a watch before it sends a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The wait of a follower before it retries after a drain, in seconds.
const RETRY_AFTER_SECONDS: i64 = 1;
/// The most pending approvals, which a watch returns first.
const MAX_PENDING: usize = 1_000;

/// Approvals as a gRPC service.
#[derive(Clone, Debug)]
pub struct ApprovalRpc {
    calls: Calls,
}

impl ApprovalRpc {
    /// Takes the calls, which own the approvals.
    pub fn new(calls: Calls) -> Self {
        Self { calls }
    }

    fn approvals(&self) -> &Approvals {
        self.calls.approvals()
    }
}

#[tonic::async_trait]
impl ApprovalService for ApprovalRpc {
    type WatchApprovalsStream = StreamOf<WatchApprovalsResponse>;

    async fn list_approvals(
        &self,
        request: Request<ListApprovalsRequest>,
    ) -> Answer<ListApprovalsResponse> {
        let context = CallContext::of(&request);
        let request = request.into_inner();
        let list = list_name(&request);
        let list = grpc_kit::list_of(&context, &list);
        let after = place_of(&list, &request.page_token)?;
        let filter = ApprovalFilter {
            state: state_from_proto(request.state()),
            conversation: request.conversation_id.clone(),
            run: request.run_id.clone(),
            principal: self.approvals().only_of(&context),
        };
        let size = page_size(request.page_size);
        let after = after.as_ref().map(|(created, id)| (*created, id.as_str()));
        let mut found = self
            .approvals()
            .list(context.tenant(), &filter, after, size + 1)
            .await
            .map_err(|error| failed(&error))?;
        let more = found.len() > size;
        found.truncate(size);
        let next = found
            .last()
            .filter(|_| more)
            .map(|last| PageToken::after(format!("{}/{}", last.created, last.id)).encode(&list));
        Ok(Response::new(ListApprovalsResponse {
            approvals: found.iter().map(to_proto).collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn get_approval(
        &self,
        request: Request<GetApprovalRequest>,
    ) -> Answer<GetApprovalResponse> {
        let context = CallContext::of(&request);
        let id = request.into_inner().approval_id;
        let approval = self.approvals().get(context.tenant(), &id).await;
        let only_of = self.approvals().only_of(&context);
        let approval = approval.and_then(|approval| match is_of(&approval, only_of.as_ref()) {
            true => Ok(approval),
            false => Err(DecisionError::NotFound(id.clone())),
        });
        let approval = approval.map_err(|error| not_decided(&error, &id))?;
        Ok(Response::new(GetApprovalResponse {
            approval: Some(to_proto(&approval)),
        }))
    }

    async fn watch_approvals(
        &self,
        request: Request<WatchApprovalsRequest>,
    ) -> Answer<Self::WatchApprovalsStream> {
        let (drain, context) = (Drain::of(&request), CallContext::of(&request));
        let conversation = request.into_inner().conversation_id;
        let stream = watch(self.approvals().clone(), context, conversation, drain);
        Ok(Response::new(Box::pin(stream)))
    }

    async fn decide_approval(
        &self,
        request: Request<DecideApprovalRequest>,
    ) -> Answer<DecideApprovalResponse> {
        let approver = decider(self.approvals(), &request)?;
        let tenant = CallContext::of(&request).tenant();
        let (service, request) = (self.clone(), request.into_inner());
        let decided = to_its_end(async move { service.decide(tenant, &approver, &request).await });
        let approval = decided.await?;
        Ok(Response::new(DecideApprovalResponse {
            approval: Some(to_proto(&approval)),
        }))
    }
}

impl ApprovalRpc {
    async fn decide(
        &self,
        tenant: Tenant,
        approver: &Decider,
        request: &DecideApprovalRequest,
    ) -> Result<domain::Approval, Status> {
        let approved = request.verdict() == ApprovalVerdict::Approve;
        let mut failure = Failure::invalid_fields();
        if !approved && request.remember {
            failure.add_violation("remember", "is given only with APPROVE");
        }
        if !approved && !request.edited_arguments_json.is_empty() {
            failure.add_violation("edited_arguments_json", "is given only with APPROVE");
        }
        failure.refuse_if_any()?;
        let id = &request.approval_id;
        let edited = self
            .edited(tenant, id, &request.edited_arguments_json)
            .await?;
        let decision = Decision {
            approver: &approver.name,
            roles: &approver.roles,
            // The approval knows for whom its call acts.
            own: false,
            digest: &request.arguments_digest,
            approved,
            reason: &request.reason,
            edited,
        };
        let decided = self
            .approvals()
            .decide(tenant, id, decision, request.remember);
        let approval = decided.await.map_err(|error| not_decided(&error, id))?;
        tracing::info!(
            approval = id,
            approver = approver.name,
            approved,
            tool = approval.tool_id,
            "a person decided about a call"
        );
        Ok(approval)
    }

    /// Reads edited arguments and checks them as those of a call.
    async fn edited(&self, tenant: Tenant, id: &str, json: &str) -> Result<Option<String>, Status> {
        if json.is_empty() {
            return Ok(None);
        }
        let wrong = |problem: String| {
            Failure::invalid_fields()
                .violation("edited_arguments_json", problem)
                .into_status()
        };
        let arguments = json_schema::parse_json_strict(json);
        let arguments = arguments.map_err(|error| wrong(error.to_string()))?;
        let approval = self.approvals().get(tenant, id).await;
        let approval = approval.map_err(|error| not_decided(&error, id))?;
        let checked = self.calls.check_edited(&approval, &arguments).await;
        checked
            .map(Some)
            .map_err(|failure| wrong(failure.message.clone()))
    }
}

/// Returns the person who decides by a request.
fn decider(
    approvals: &Approvals,
    request: &Request<DecideApprovalRequest>,
) -> Result<Decider, Status> {
    let header = request.metadata().get("authorization");
    let header = header.and_then(|value| value.to_str().ok()).unwrap_or("");
    let key = header.strip_prefix("Bearer ").unwrap_or("");
    let context = CallContext::of(request);
    let decider = approvals.decider(context.principal(), key);
    decider.map_err(|error| match &error {
        NotDecider::NotPermitted(principal) => {
            refusal::not_permitted(principal, Permission::Approve, error.to_string()).into_status()
        }
        NotDecider::NoKey | NotDecider::OfFile(_) | NotDecider::NoPrincipal => {
            let (code, reason) = (Code::Unauthenticated, ErrorReason::ApproverUnknown);
            Failure::new(code, reason, error.to_string()).into_status()
        }
    })
}

fn watch(
    approvals: Approvals,
    context: CallContext,
    conversation: String,
    drain: Drain,
) -> impl futures::Stream<Item = Result<WatchApprovalsResponse, Status>> + Send {
    let record = |record| WatchApprovalsResponse {
        record: Some(record),
    };
    async_stream::try_stream! {
        loop {
            let mut changes = approvals.changes(context.tenant());
            let pending = ApprovalFilter {
                state: Some(State::Pending),
                conversation: conversation.clone(),
                principal: approvals.only_of(&context),
                ..ApprovalFilter::default()
            };
            let pending = approvals.list(context.tenant(), &pending, None, MAX_PENDING).await;
            for approval in pending.map_err(|error| failed(&error))? {
                yield record(Record::Approval(to_proto(&approval)));
            }
            yield record(Record::Ready(WatchApprovalsReady {}));
            loop {
                match next(&mut changes, &drain).await {
                    Next::Change(changed)
                        if (conversation.is_empty() || changed.conversation_id == conversation)
                            && is_of(&changed, approvals.only_of(&context).as_ref()) =>
                    {
                        yield record(Record::Approval(to_proto(&changed)));
                    }
                    Next::Change(_) => {}
                    Next::Silence => yield record(Record::Heartbeat(WatchHeartbeat {
                        high_water_sequence: 0,
                        time: Some(timestamp_to_proto(approvals.now())),
                    })),
                    Next::Missed => break,
                    Next::Drain => {
                        let retry_after = prost_types::Duration {
                            seconds: RETRY_AFTER_SECONDS,
                            nanos: 0,
                        };
                        yield record(Record::Drain(WatchDrain {
                            retry_after: Some(retry_after),
                            last_sequence: 0,
                        }));
                        return;
                    }
                }
            }
            yield record(Record::Gap(WatchApprovalsGap {}));
        }
    }
}

/// Whether an approval is of a call that acts for a principal, or of any without one.
fn is_of(approval: &domain::Approval, principal: Option<&Principal>) -> bool {
    principal.is_none_or(|principal| approval.principal == *principal)
}

/// The next event of a watch.
enum Next {
    Change(Arc<domain::Approval>),
    Missed,
    Silence,
    Drain,
}

async fn next(changes: &mut Changes, drain: &Drain) -> Next {
    tokio::select! {
        changed = changes.next() => changed.map_or(Next::Missed, Next::Change),
        () = drain.started() => Next::Drain,
        () = tokio::time::sleep(HEARTBEAT) => Next::Silence,
    }
}

fn to_proto(approval: &domain::Approval) -> Approval {
    let time = |nanos| timestamp_to_proto(Timestamp::from_unix_nanos(nanos));
    Approval {
        approval_id: approval.id.clone(),
        state: approval.state as i32,
        run_id: approval.run_id.clone(),
        effect_id: approval.effect_id.clone(),
        tool_id: approval.tool_id.clone(),
        tool_digest: approval.tool_digest.clone(),
        arguments_json: shown(&approval.arguments),
        arguments_digest: approval.digest(),
        reasons: approval
            .reasons
            .iter()
            .map(|reason| ApprovalReason {
                rule_id: reason.rule_id.clone(),
                text: reason.text.clone(),
            })
            .collect(),
        effect_class: effect_to_proto(approval.effect).into(),
        conversation_id: approval.conversation_id.clone(),
        role: approval.role.clone(),
        needed: approval.needed,
        reason_required: approval.reason_required,
        consents: approval
            .consents
            .iter()
            .map(|consent| ApprovalConsent {
                approver: consent.approver.clone(),
                verdict: match consent.approved {
                    true => ApprovalVerdict::Approve.into(),
                    false => ApprovalVerdict::Reject.into(),
                },
                reason: consent.reason.clone(),
                time: Some(time(consent.time)),
            })
            .collect(),
        edited: approval.edited,
        create_time: Some(time(approval.created)),
        expire_time: Some(time(approval.expires)),
        end_time: approval.ended.map(time),
        principal: approval.principal.to_string(),
    }
}

fn effect_to_proto(effect: approval_rules::EffectClass) -> EffectClass {
    match effect {
        approval_rules::EffectClass::ReadOnly => EffectClass::ReadOnly,
        approval_rules::EffectClass::Idempotent => EffectClass::Idempotent,
        approval_rules::EffectClass::SideEffecting => EffectClass::SideEffecting,
        approval_rules::EffectClass::Destructive => EffectClass::Destructive,
    }
}

fn state_from_proto(state: ApprovalState) -> Option<State> {
    match state {
        ApprovalState::Unspecified => None,
        ApprovalState::Pending => Some(State::Pending),
        ApprovalState::Approved => Some(State::Approved),
        ApprovalState::Rejected => Some(State::Rejected),
        ApprovalState::Expired => Some(State::Expired),
        ApprovalState::Withdrawn => Some(State::Withdrawn),
    }
}

/// Returns the name of the list: its conditions, without what changes from page to page.
fn list_name(request: &ListApprovalsRequest) -> String {
    let conditions = ListApprovalsRequest {
        page_size: 0,
        page_token: String::new(),
        ..request.clone()
    };
    format!("approvals {conditions:?}")
}

fn place_of(list: &str, token: &str) -> Result<Option<(i64, String)>, Status> {
    let wrong = |problem: String| {
        Failure::invalid_fields()
            .violation("page_token", problem)
            .into_status()
    };
    let token = PageToken::decode(list, token).map_err(|error| wrong(error.to_string()))?;
    let Some(token) = token else {
        return Ok(None);
    };
    let place = token.last_key().split_once('/');
    let place = place.and_then(|(created, id)| Some((created.parse().ok()?, id.to_owned())));
    place
        .map(Some)
        .ok_or_else(|| wrong("does not belong to this list".to_owned()))
}

fn failed(error: &StoreError) -> Status {
    grpc_kit::internal(error)
}

fn not_decided(error: &DecisionError, id: &str) -> Status {
    let (code, reason) = match error {
        DecisionError::Store(error) => return failed(error),
        DecisionError::NotFound(_) => (Code::NotFound, ErrorReason::ApprovalNotFound),
        DecisionError::Refused { error, .. } => match error {
            DecideError::NoReason => {
                return Failure::invalid_fields()
                    .violation("reason", "is empty, and the rule wants one")
                    .into_status();
            }
            DecideError::NotPending => (Code::FailedPrecondition, ErrorReason::ApprovalNotPending),
            DecideError::Changed => (Code::Aborted, ErrorReason::ApprovalChanged),
            DecideError::NotAllowed | DecideError::OwnCall => {
                (Code::PermissionDenied, ErrorReason::ApproverNotAllowed)
            }
        },
    };
    let failure = Failure::new(code, reason, error.to_string()).metadata("approval_id", id);
    let failure = match error {
        DecisionError::Refused { approval, .. } => failure
            .metadata("state", format!("{:?}", approval.state).to_uppercase())
            .metadata("arguments_digest", approval.digest())
            .metadata("role", approval.role.clone()),
        _ => failure,
    };
    failure.into_status()
}
