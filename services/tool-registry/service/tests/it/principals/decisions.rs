//! The decisions of principals about calls (rule S612).

use contracts::tavern::{
    common::v1::{CallStatus, ErrorReason},
    registry::v1::{
        Approval, DecideApprovalRequest, GetApprovalRequest, ListApprovalsRequest,
        WatchApprovalsRequest, approval_service_client::ApprovalServiceClient,
        watch_approvals_response::Record,
    },
};
use core_types::{CallPath, Reach};
use futures::StreamExt;
use grpc_kit::CallContext;
use serde_json::json;
use tonic::{Code, Status};
use tool_domain::identity::Account;

use super::{account, calls_of, finish_as, make_key, make_keys, named, put, texts};
use crate::{
    approvals::{approve, approver, decide as decide_by_key, give, pending, reject},
    fixture::{Fixture, code_of, finish, with_effect},
};

/// A registry where people decide about large gifts, with keys: `mara` approves for the keepers, `tom` for no
/// group. The file has approvers, too.
pub(super) async fn ask_before_giving() -> Fixture {
    let file = json!({
        "rules": [{"id": "large", "tools": ["give"], "condition": "args.value > 50", "action": "ask",
                   "approvers": {"role": "keeper"}}],
        "approvers": [approver("mara", &["keeper"])]
    });
    let fixture = Fixture::with_approvals(&[give()], &file).await;
    make_keys(&fixture).await;
    for name in ["mara", "tom"] {
        make_key(&fixture, name, "approver").await;
    }
    put(&fixture, keeper("mara", &["approver"])).await;
    fixture
}

fn keeper(name: &str, roles: &[&str]) -> Account {
    Account {
        groups: texts(&["keeper"]),
        ..account(name, roles)
    }
}

/// Decides as a principal.
pub(super) async fn decide(
    fixture: &Fixture,
    name: &str,
    decision: DecideApprovalRequest,
) -> Result<Approval, Status> {
    let mut approvals = ApprovalServiceClient::new(fixture.acting_for(name, &[]));
    let decided = approvals.decide_approval(decision).await?;
    Ok(decided.into_inner().approval.unwrap())
}

fn refusal(decided: Result<Approval, Status>) -> (Code, ErrorReason, String) {
    let refused = decided.unwrap_err();
    let reason = grpc_kit::reason(&refused).unwrap();
    (refused.code(), reason, refused.message().to_owned())
}

#[tokio::test]
async fn s612_a_principal_decides_by_its_permission_and_its_group() {
    let fixture = ask_before_giving().await;
    let call = with_effect("e1", "give", json!({"value": 80}));
    let waiting = tokio::spawn(finish(calls_of(&fixture, "ada"), call));
    let approval = pending(&fixture, "e1").await;
    for (name, code, reason, words) in [
        (
            "vic",
            Code::PermissionDenied,
            ErrorReason::PermissionDenied,
            "permission approve",
        ),
        (
            "ada",
            Code::PermissionDenied,
            ErrorReason::PermissionDenied,
            "permission approve",
        ),
        (
            "eve",
            Code::PermissionDenied,
            ErrorReason::PermissionDenied,
            "permission approve",
        ),
        (
            "tom",
            Code::PermissionDenied,
            ErrorReason::ApproverNotAllowed,
            "another role",
        ),
        (
            "local",
            Code::Unauthenticated,
            ErrorReason::ApproverUnknown,
            "import-approvers",
        ),
    ] {
        let (found, because, message) = refusal(decide(&fixture, name, approve(&approval)).await);
        assert_eq!((found, because), (code, reason), "{name}");
        assert!(message.contains(words), "{name}: {message}");
    }
    let decided = decide(&fixture, "mara", approve(&approval)).await.unwrap();
    assert_eq!(decided.consents[0].approver, "mara");
    let (_, result) = waiting.await.unwrap().unwrap();
    assert_eq!(result.approval.unwrap().approvers, ["mara"]);
}

#[tokio::test]
async fn s612_an_approver_of_the_file_is_refused_by_name_once_keys_exist() {
    let fixture = ask_before_giving().await;
    let call = with_effect("e1", "give", json!({"value": 80}));
    let waiting = tokio::spawn(finish(calls_of(&fixture, "ada"), call));
    let approval = pending(&fixture, "e1").await;
    for (key_of, words) in [
        (
            "mara",
            "the approver `mara` of the approvals file is no longer accepted",
        ),
        (
            "someone else",
            "only a principal with the permission approve decides",
        ),
    ] {
        let refused = decide_by_key(&fixture, key_of, approve(&approval)).await;
        let (code, reason, message) = refusal(refused);
        assert_eq!(
            (code, reason),
            (Code::Unauthenticated, ErrorReason::ApproverUnknown)
        );
        assert!(message.contains(words), "{message}");
        assert!(
            message.contains("tavern keys import-approvers"),
            "{message}"
        );
    }
    let rejected = reject(&approval, "no");
    decide(&fixture, "mara", rejected).await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn s612_a_principal_does_not_decide_about_a_call_that_acts_for_it() {
    let fixture = ask_before_giving().await;
    put(&fixture, keeper("mara", &["approver", "invoker"])).await;
    let call = |effect| with_effect(effect, "give", json!({"value": 80}));
    let alone = finish_as(&fixture, "mara", call("e1")).await.unwrap();
    assert_eq!(code_of(&alone), "approval_unavailable");
    let message = alone.error.unwrap().message;
    assert!(
        message.contains("besides 'mara'") && message.contains("'keeper'"),
        "{message}"
    );
    put(&fixture, keeper("tom", &["approver"])).await;
    put(&fixture, keeper("root", &["admin"])).await;
    // A call of `local` is one of the first administrator.
    for (caller, effect, own) in [
        ("mara", "e2", "mara"),
        ("root", "e3", "root"),
        ("local", "e4", "root"),
    ] {
        let waiting = tokio::spawn(finish(calls_of(&fixture, caller), call(effect)));
        let approval = pending(&fixture, effect).await;
        assert_eq!(approval.principal, caller);
        for decision in [approve(&approval), reject(&approval, "no")] {
            let (code, reason, message) = refusal(decide(&fixture, own, decision).await);
            let expected = (Code::PermissionDenied, ErrorReason::ApproverNotAllowed);
            assert_eq!((code, reason), expected, "{caller}");
            assert!(
                message.contains("acts for the approver itself"),
                "{message}"
            );
        }
        decide(&fixture, "tom", approve(&approval)).await.unwrap();
        let (_, result) = waiting.await.unwrap().unwrap();
        assert_eq!(result.status(), CallStatus::Succeeded, "{result:?}");
    }
}

#[tokio::test]
async fn s612_an_approval_is_remembered_for_the_principal_of_its_call() {
    let fixture = ask_before_giving().await;
    let call = |effect| with_effect(effect, "give", json!({"value": 80}));
    let waiting = tokio::spawn(finish(calls_of(&fixture, "ada"), call("e1")));
    let approval = pending(&fixture, "e1").await;
    let remember = DecideApprovalRequest {
        remember: true,
        ..approve(&approval)
    };
    decide(&fixture, "mara", remember).await.unwrap();
    waiting.await.unwrap().unwrap();
    let again = finish_as(&fixture, "ada", call("e2")).await.unwrap();
    assert_eq!(again.approval.unwrap().approval_id, approval.approval_id);
    let other = tokio::spawn(finish(calls_of(&fixture, "bob"), call("e3")));
    let of_other = pending(&fixture, "e3").await;
    decide(&fixture, "mara", reject(&of_other, "no"))
        .await
        .unwrap();
    let (_, other) = other.await.unwrap().unwrap();
    assert_eq!(code_of(&other), "approval_rejected");
}

#[tokio::test]
async fn a_caller_with_its_own_reach_sees_the_approvals_of_its_own_calls_unless_it_may_approve() {
    let fixture = ask_before_giving().await;
    for (name, effect) in [("ada", "e1"), ("bob", "e2")] {
        super::start_as(&fixture, name, effect, "give").await;
    }
    let of_ada = pending(&fixture, "e1").await;
    pending(&fixture, "e2").await;
    for (name, seen) in [
        ("ada", &["e1"][..]),
        ("bob", &["e2"]),
        ("vic", &[]),
        ("mara", &["e2", "e1"]),
        ("root", &["e2", "e1"]),
    ] {
        let context = CallContext::new(named(name), CallPath::default()).reaching(Reach::Own);
        let mut approvals = ApprovalServiceClient::new(fixture.acting_in(&context));
        let listed = approvals.list_approvals(ListApprovalsRequest::default());
        let listed = listed.await.unwrap().into_inner().approvals;
        let effects = |approvals: &[Approval]| -> Vec<String> {
            let effects = approvals.iter().map(|approval| approval.effect_id.clone());
            effects.collect()
        };
        assert_eq!(effects(&listed), seen, "{name}");
        let id = |approval_id: &str| GetApprovalRequest {
            approval_id: approval_id.to_owned(),
        };
        let found = approvals.get_approval(id(&of_ada.approval_id)).await;
        let missing = approvals.get_approval(id("apr_0")).await.unwrap_err();
        match found {
            Ok(_) => assert!(seen.contains(&"e1"), "{name}"),
            Err(refused) => {
                assert!(!seen.contains(&"e1"), "{name}");
                let words = refused.message().replace(&of_ada.approval_id, "apr_0");
                assert_eq!(
                    (refused.code(), &*words),
                    (missing.code(), missing.message())
                );
            }
        }
        let watched = approvals.watch_approvals(WatchApprovalsRequest::default());
        let mut watched = watched.await.unwrap().into_inner();
        let mut followed = Vec::new();
        while let Some(Record::Approval(approval)) = watched.next().await.unwrap().unwrap().record {
            followed.push(approval);
        }
        assert_eq!(effects(&followed), seen, "{name}");
    }
}

#[tokio::test]
async fn a_watch_with_its_own_reach_has_the_changes_of_its_own_calls() {
    let fixture = ask_before_giving().await;
    let context = CallContext::new(named("ada"), CallPath::default()).reaching(Reach::Own);
    let mut approvals = ApprovalServiceClient::new(fixture.acting_in(&context));
    let watched = approvals.watch_approvals(WatchApprovalsRequest::default());
    let mut watched = watched.await.unwrap().into_inner();
    let ready = watched.next().await.unwrap().unwrap().record;
    assert!(matches!(ready, Some(Record::Ready(_))), "{ready:?}");
    for (name, effect) in [("bob", "e1"), ("ada", "e2")] {
        super::start_as(&fixture, name, effect, "give").await;
        pending(&fixture, effect).await;
    }
    let next = watched.next().await.unwrap().unwrap().record;
    let Some(Record::Approval(approval)) = next else {
        panic!("{next:?}");
    };
    assert_eq!((&*approval.principal, &*approval.effect_id), ("ada", "e2"));
}
