//! Calls that wait for people (rules G801 to G807).

use contracts::tavern::{
    common::v1::{CallResult, CallStatus, ErrorReason, run_event::Kind},
    registry::v1::{
        Approval, ApprovalState, ApprovalVerdict, CallState, CancelCallRequest,
        DecideApprovalRequest, GetApprovalRequest, GetCallRequest, ListApprovalsRequest,
        StartCallRequest, WatchApprovalsRequest, watch_approvals_response::Record,
    },
};
use doubles::Mode;
use futures::StreamExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tonic::{Code, Request, Status};

use crate::fixture::{Fixture, code_of, put_scripts, request, with_effect};

fn key_of(name: &str) -> String {
    format!("key of {name}")
}

pub(crate) fn approver(name: &str, roles: &[&str]) -> Value {
    let digest = hex::encode(Sha256::digest(key_of(name)));
    json!({"name": name, "roles": roles, "key_sha256": digest})
}

/// Gifts above 50 are asked for, those above 90 are refused.
fn file() -> Value {
    json!({
        "rules": [
            {"id": "large_gifts", "tools": ["give"], "condition": "args.value > 50", "action": "ask",
             "approvers": {"role": "keeper"}},
            {"id": "never", "tools": ["give"], "condition": "args.value > 90", "action": "deny"}
        ],
        "approvers": [approver("mara", &["keeper"]), approver("tom", &[])]
    })
}

pub(crate) fn give() -> Value {
    json!({"parameters": {"type": "object", "required": ["value"],
                          "properties": {"value": {"type": "integer"}}},
           "id": "give", "description": "gives something",
           "implementation": {"type": "script", "command": "python run.py"}})
}

async fn fixture() -> Fixture {
    let destroy = json!({"destructive": true, "id": "destroy", "description": "destroys",
                         "parameters": {"type": "object"},
                         "implementation": {"type": "script", "command": "python run.py"}});
    Fixture::with_approvals(&[give(), destroy], &file()).await
}

/// Waits for the pending approval of an effect.
pub(crate) async fn pending(fixture: &Fixture, effect: &str) -> Approval {
    let request = WatchApprovalsRequest::default();
    let watch = fixture.approvals().watch_approvals(request).await.unwrap();
    let mut watch = watch.into_inner();
    while let Some(next) = watch.next().await {
        if let Some(Record::Approval(approval)) = next.unwrap().record
            && approval.effect_id == effect
            && approval.state() == ApprovalState::Pending
        {
            return approval;
        }
    }
    panic!("the watch ended");
}

pub(crate) async fn decide(
    fixture: &Fixture,
    by: &str,
    decision: DecideApprovalRequest,
) -> Result<Approval, Status> {
    let mut request = Request::new(decision);
    let bearer = format!("Bearer {}", key_of(by)).parse().unwrap();
    request.metadata_mut().insert("authorization", bearer);
    let decided = fixture.approvals().decide_approval(request).await?;
    Ok(decided.into_inner().approval.unwrap())
}

pub(crate) fn approve(approval: &Approval) -> DecideApprovalRequest {
    DecideApprovalRequest {
        approval_id: approval.approval_id.clone(),
        arguments_digest: approval.arguments_digest.clone(),
        verdict: ApprovalVerdict::Approve.into(),
        ..Default::default()
    }
}

pub(crate) fn reject(approval: &Approval, reason: &str) -> DecideApprovalRequest {
    DecideApprovalRequest {
        verdict: ApprovalVerdict::Reject.into(),
        reason: reason.into(),
        ..approve(approval)
    }
}

/// A call that is followed: its events and its result.
pub(crate) type Followed = tokio::task::JoinHandle<(Vec<Kind>, CallResult)>;

/// Begins a call that is followed to its result.
pub(crate) fn begin(fixture: &Fixture, effect: &str, tool: &str, arguments: Value) -> Followed {
    let request = with_effect(effect, tool, arguments);
    let calls = fixture.calls.clone();
    tokio::spawn(async move {
        let (events, result) = crate::fixture::finish(calls, request).await.unwrap();
        (
            events.into_iter().filter_map(|event| event.kind).collect(),
            result,
        )
    })
}

pub(crate) fn started(fixture: &Fixture) -> usize {
    fixture
        .sandbox
        .started
        .load(std::sync::atomic::Ordering::SeqCst)
}

#[tokio::test]
async fn g801_a_call_leaves_when_a_person_has_approved_it() {
    let fixture = fixture().await;
    fixture.sandbox.set(Mode::Run);
    let small = fixture
        .finish(with_effect("small", "give", json!({"value": 50})))
        .await
        .1;
    assert_eq!(small.status(), CallStatus::Succeeded, "{small:?}");
    assert!(small.approval.is_none());
    let waiting = begin(&fixture, "e1", "give", json!({"value": 80}));
    let approval = pending(&fixture, "e1").await;
    assert_eq!(approval.arguments_json, "{\"value\":80}");
    assert_eq!(approval.reasons[0].rule_id, "large_gifts");
    assert_eq!(started(&fixture), 1, "nothing of the second call has left");
    let request = GetCallRequest {
        effect_id: "e1".into(),
    };
    let call = fixture
        .calls
        .clone()
        .get_call(request)
        .await
        .unwrap()
        .into_inner()
        .call;
    assert_eq!(call.unwrap().state(), CallState::Waiting);
    let decided = decide(&fixture, "mara", approve(&approval)).await.unwrap();
    assert_eq!(decided.state(), ApprovalState::Approved);
    let (events, result) = waiting.await.unwrap();
    assert_eq!(result.status(), CallStatus::Succeeded, "{result:?}");
    assert_eq!(result.approval.unwrap().approvers, ["mara"]);
    let names: Vec<_> = events
        .iter()
        .filter_map(|kind| match kind {
            Kind::ApprovalRequested(_) => Some("requested"),
            Kind::ApprovalEnded(ended) if ended.approved => Some("approved"),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["requested", "approved"]);
    // The same decision again changes nothing.
    let again = decide(&fixture, "mara", approve(&approval)).await.unwrap();
    assert_eq!(again, decided);
}

#[tokio::test]
async fn g807_a_rejected_call_is_refused_and_the_model_reads_why() {
    let fixture = fixture().await;
    let waiting = begin(&fixture, "e1", "give", json!({"value": 80}));
    let approval = pending(&fixture, "e1").await;
    decide(&fixture, "mara", reject(&approval, "too much"))
        .await
        .unwrap();
    let result = waiting.await.unwrap().1;
    assert_eq!(code_of(&result), "approval_rejected");
    assert!(call_wire::observation(&result).contains("mara rejected it: too much"));
    // Asking again for the same effect is answered as before, without asking people again.
    let again = fixture
        .finish(with_effect("e1", "give", json!({"value": 80})))
        .await
        .1;
    assert_eq!(code_of(&again), "approval_rejected");
    assert_eq!(started(&fixture), 0);
}

#[tokio::test]
async fn g801_a_rule_forbids_a_call_and_destructive_tools_ask_without_a_rule() {
    let fixture = fixture().await;
    let denied = fixture.call("give", json!({"value": 91})).await;
    assert_eq!(code_of(&denied), "denied_by_rule");
    let waiting = begin(&fixture, "e1", "destroy", json!({}));
    let approval = pending(&fixture, "e1").await;
    assert_eq!(approval.reasons[0].rule_id, "destructive");
    // Any approver may decide.
    decide(&fixture, "tom", reject(&approval, ""))
        .await
        .unwrap();
    waiting.await.unwrap();
}

#[tokio::test]
async fn without_approvers_to_ask_means_to_refuse() {
    let fixture = Fixture::with_approvals(&[give()], &json!({"rules": file()["rules"]})).await;
    let refused = fixture.call("give", json!({"value": 80})).await;
    assert_eq!(code_of(&refused), "approval_unavailable");
    let allowed = fixture.call("give", json!({"value": 8})).await;
    assert_eq!(allowed.status(), CallStatus::Succeeded, "{allowed:?}");
}

#[tokio::test]
async fn g803_g804_only_an_approver_with_the_role_decides_about_what_is_there() {
    let fixture = fixture().await;
    let waiting = begin(&fixture, "e1", "give", json!({"value": 80}));
    let approval = pending(&fixture, "e1").await;
    let stale = DecideApprovalRequest {
        arguments_digest: "0".repeat(64),
        ..approve(&approval)
    };
    let missing = DecideApprovalRequest {
        approval_id: "apr_none".into(),
        ..approve(&approval)
    };
    for (by, decision, code, reason) in [
        (
            "someone else",
            approve(&approval),
            Code::Unauthenticated,
            ErrorReason::ApproverUnknown,
        ),
        (
            "tom",
            approve(&approval),
            Code::PermissionDenied,
            ErrorReason::ApproverNotAllowed,
        ),
        ("mara", stale, Code::Aborted, ErrorReason::ApprovalChanged),
        (
            "mara",
            missing,
            Code::NotFound,
            ErrorReason::ApprovalNotFound,
        ),
    ] {
        let refused = decide(&fixture, by, decision).await.unwrap_err();
        assert_eq!(
            (refused.code(), grpc_kit::reason(&refused)),
            (code, Some(reason))
        );
        let names_it = refused.message() == "no approval has the id `apr_none`";
        assert_eq!(
            names_it,
            reason == ErrorReason::ApprovalNotFound,
            "{refused}"
        );
    }
    decide(&fixture, "mara", approve(&approval)).await.unwrap();
    waiting.await.unwrap();
    let late = decide(&fixture, "mara", reject(&approval, ""))
        .await
        .unwrap_err();
    assert_eq!(
        grpc_kit::reason(&late),
        Some(ErrorReason::ApprovalNotPending)
    );
}

#[tokio::test]
async fn g805_edited_arguments_are_checked_and_the_tool_gets_them() {
    let fixture = fixture().await;
    let waiting = begin(&fixture, "e1", "give", json!({"value": 80}));
    let approval = pending(&fixture, "e1").await;
    for (edited, words) in [
        ("{\"value\": \"x\"}", "value"),
        ("{\"value\": 95}", "never"),
        ("[", "edited_arguments_json"),
    ] {
        let decision = DecideApprovalRequest {
            edited_arguments_json: edited.into(),
            ..approve(&approval)
        };
        let refused = decide(&fixture, "mara", decision).await.unwrap_err();
        let (field, problem) = grpc_kit::violations(&refused).remove(0);
        assert_eq!(field, "edited_arguments_json");
        assert!(format!("{field} {problem}").contains(words), "{problem}");
    }
    let decision = DecideApprovalRequest {
        edited_arguments_json: "{\"value\": 40}".into(),
        reason: "half is enough".into(),
        ..approve(&approval)
    };
    decide(&fixture, "mara", decision).await.unwrap();
    let result = waiting.await.unwrap().1;
    assert_eq!(result.status(), CallStatus::Succeeded, "{result:?}");
    let words = call_wire::observation(&result);
    assert!(
        words.contains("changed to {\"value\":40}. Reason: half is enough"),
        "{words}"
    );
    let request = GetCallRequest {
        effect_id: "e1".into(),
    };
    let call = fixture
        .calls
        .clone()
        .get_call(request)
        .await
        .unwrap()
        .into_inner()
        .call;
    assert_eq!(call.unwrap().arguments_json, "{\"value\":40}");
}

#[tokio::test]
async fn g806_what_is_remembered_leaves_at_once_in_the_same_conversation() {
    let fixture = fixture().await;
    let waiting = begin(&fixture, "e1", "give", json!({"value": 80}));
    let approval = pending(&fixture, "e1").await;
    let remember = DecideApprovalRequest {
        remember: true,
        ..approve(&approval)
    };
    decide(&fixture, "mara", remember).await.unwrap();
    waiting.await.unwrap();
    let again = fixture
        .finish(with_effect("e2", "give", json!({"value": 80})))
        .await
        .1;
    assert_eq!(again.approval.unwrap().approval_id, approval.approval_id);
    let other = begin(&fixture, "e3", "give", json!({"value": 81}));
    let other_approval = pending(&fixture, "e3").await;
    decide(&fixture, "mara", reject(&other_approval, ""))
        .await
        .unwrap();
    other.await.unwrap();
}

#[tokio::test]
async fn a_restart_loses_no_approval_and_its_owner_finds_what_was_decided() {
    let mut fixture = fixture().await;
    let waiting = begin(&fixture, "e1", "give", json!({"value": 80}));
    let approval = pending(&fixture, "e1").await;
    fixture.crash_and_restart().await;
    assert!(waiting.await.is_err(), "the first caller lost its service");
    fixture.recover().await;
    decide(&fixture, "mara", approve(&approval)).await.unwrap();
    let result = fixture
        .finish(with_effect("e1", "give", json!({"value": 80})))
        .await
        .1;
    assert_eq!(result.status(), CallStatus::Succeeded, "{result:?}");
    assert_eq!(started(&fixture), 1);
}

#[tokio::test]
async fn a_call_without_an_owner_waits_on_after_a_restart_by_itself() {
    let mut fixture = fixture().await;
    let request = StartCallRequest {
        tool_id: "give".into(),
        arguments_json: "{\"value\": 80}".into(),
        effect_id: "e1".into(),
        ..Default::default()
    };
    let call = fixture.calls.clone().start_call(request).await.unwrap();
    assert_eq!(call.into_inner().call.unwrap().state(), CallState::Waiting);
    let approval = pending(&fixture, "e1").await;
    fixture.crash_and_restart().await;
    fixture.recover().await;
    decide(&fixture, "mara", approve(&approval)).await.unwrap();
    let result = fixture.finish(with_effect("e1", "give", json!({"value": 80})));
    let result = tokio::time::timeout(std::time::Duration::from_secs(60), result).await;
    // Whether it is joined or replayed, the effect is the same.
    assert_eq!(result.unwrap().1.status(), CallStatus::Succeeded);
    assert_eq!(started(&fixture), 1);
}

#[tokio::test]
async fn a_cancelled_call_withdraws_its_approval() {
    let fixture = fixture().await;
    let waiting = begin(&fixture, "e1", "give", json!({"value": 80}));
    let approval = pending(&fixture, "e1").await;
    let request = CancelCallRequest {
        effect_id: "e1".into(),
        ..Default::default()
    };
    fixture.calls.clone().cancel_call(request).await.unwrap();
    assert_eq!(waiting.await.unwrap().1.status(), CallStatus::Cancelled);
    let request = GetApprovalRequest {
        approval_id: approval.approval_id,
    };
    let withdrawn = fixture.approvals().get_approval(request).await.unwrap();
    let withdrawn = withdrawn.into_inner().approval.unwrap();
    assert_eq!(withdrawn.state(), ApprovalState::Withdrawn);
}

#[tokio::test]
async fn g807_an_approval_expires_and_the_call_is_refused() {
    let mut file = file();
    file["rules"][0]["expires_seconds"] = json!(1);
    let fixture = Fixture::with_approvals(&[give()], &file).await;
    let result = fixture
        .finish(with_effect("e1", "give", json!({"value": 80})))
        .await
        .1;
    assert_eq!(code_of(&result), "approval_expired");
}

#[tokio::test]
async fn g807_a_tool_that_was_declared_anew_is_asked_for_again() {
    let mut fixture = fixture().await;
    let waiting = begin(&fixture, "e1", "give", json!({"value": 80}));
    let first = pending(&fixture, "e1").await;
    fixture.crash_and_restart().await;
    assert!(waiting.await.is_err());
    let mut changed = give();
    changed["description"] = json!("gives something else");
    put_scripts(&fixture.plugins, &[changed]);
    fixture.crash_and_restart().await;
    decide(&fixture, "mara", approve(&first)).await.unwrap();
    let waiting = begin(&fixture, "e1", "give", json!({"value": 80}));
    let second = pending(&fixture, "e1").await;
    assert_ne!(second.approval_id, first.approval_id);
    assert_ne!(second.tool_digest, first.tool_digest);
    decide(&fixture, "mara", approve(&second)).await.unwrap();
    assert_eq!(waiting.await.unwrap().1.status(), CallStatus::Succeeded);
}

#[tokio::test]
async fn a_list_of_approvals_goes_page_by_page() {
    let fixture = fixture().await;
    let mut waiting = Vec::new();
    for effect in ["e1", "e2", "e3"] {
        waiting.push(begin(&fixture, effect, "give", json!({"value": 80})));
        pending(&fixture, effect).await;
    }
    let mut request = ListApprovalsRequest {
        state: ApprovalState::Pending.into(),
        page_size: 2,
        ..Default::default()
    };
    let mut effects = Vec::new();
    loop {
        let page = fixture
            .approvals()
            .list_approvals(request.clone())
            .await
            .unwrap();
        let page = page.into_inner();
        effects.extend(
            page.approvals
                .into_iter()
                .map(|approval| approval.effect_id),
        );
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(effects, ["e3", "e2", "e1"]);
}

#[tokio::test]
async fn a_call_that_ends_with_its_caller_takes_its_approval_along() {
    let fixture = fixture().await;
    let request = request("give", json!({"value": 80}));
    let calls = fixture.calls.clone();
    let waiting = tokio::spawn(crate::fixture::finish(calls, request));
    let approval = pending(&fixture, "").await;
    waiting.abort();
    for _ in 0..6_000 {
        let request = GetApprovalRequest {
            approval_id: approval.approval_id.clone(),
        };
        let now = fixture.approvals().get_approval(request).await.unwrap();
        if now.into_inner().approval.unwrap().state() == ApprovalState::Withdrawn {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("it was not withdrawn");
}
