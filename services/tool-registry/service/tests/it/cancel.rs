//! Ending calls.

use std::{sync::atomic::Ordering, time::Duration};

use contracts::tavern::{
    common::v1::{CallStatus, ErrorCategory, ErrorReason, PendingWork, WorkKind},
    registry::v1::{CallToolRequest, CancelCallRequest, CancelCallResponse},
};
use doubles::Mode;
use serde_json::json;

use crate::fixture::{Fixture, code_of, finish, request, script_tool, until, with_effect};

async fn cancel(fixture: &Fixture, effect: &str) -> CancelCallResponse {
    let request = CancelCallRequest {
        effect_id: effect.into(),
        reason: "enough".into(),
    };
    fixture
        .calls
        .clone()
        .cancel_call(request)
        .await
        .unwrap()
        .into_inner()
}

fn code() -> serde_json::Value {
    json!({"language": "bash", "code": "true"})
}

#[tokio::test]
async fn cancelling_a_script_ends_it_and_is_recorded() {
    let fixture = Fixture::new().await;
    fixture.sandbox.set(Mode::Hold("never".into()));
    let asked = with_effect("e1", "CodeInterpreter:execute", code());
    let call = tokio::spawn(finish(fixture.calls.clone(), asked.clone()));
    until("the dispatch", || fixture.sandbox.started() == 1).await;
    let answer = cancel(&fixture, "e1").await;
    assert!(answer.still_running.is_empty());
    let (_, result) = call.await.unwrap().unwrap();
    assert_eq!(result.status(), CallStatus::Cancelled);
    let error = result.error.unwrap();
    assert_eq!(error.category(), ErrorCategory::Cancelled);
    assert!(
        error.message.contains("had been started") && error.message.contains("enough"),
        "{}",
        error.message
    );
    until("the script's end", || {
        fixture.sandbox.dropped.load(Ordering::SeqCst) == 1
    })
    .await;
    assert!(
        cancel(&fixture, "e1").await.still_running.is_empty(),
        "repeating it changes nothing"
    );
    assert!(fixture.finish(asked).await.1.replayed);
}

#[tokio::test]
async fn cancelling_a_workflow_cancels_its_run() {
    let fixture = Fixture::new().await;
    fixture.workflows.put("hold", json!({"name": "hold"}));
    let call = tokio::spawn(finish(
        fixture.calls.clone(),
        with_effect("e1", "workflow:hold", json!({})),
    ));
    until("the run", || fixture.workflows.run_count() == 1).await;
    assert!(cancel(&fixture, "e1").await.still_running.is_empty());
    let (_, result) = call.await.unwrap().unwrap();
    assert_eq!(result.status(), CallStatus::Cancelled);
    assert_eq!(result.child_run_id, format!("flow_{:032x}", 0));
}

#[tokio::test]
async fn a_run_that_does_not_end_is_named() {
    let fixture = Fixture::new().await;
    fixture.workflows.put("hold", json!({"name": "hold"}));
    *fixture.workflows.deaf.lock().unwrap() = true;
    let call = tokio::spawn(finish(
        fixture.calls.clone(),
        with_effect("e1", "workflow:hold", json!({})),
    ));
    until("the run", || fixture.workflows.run_count() == 1).await;
    let answer = cancel(&fixture, "e1").await;
    let run = PendingWork {
        kind: WorkKind::Run.into(),
        id: format!("flow_{:032x}", 0),
    };
    assert_eq!(answer.still_running, [run]);
    let (_, result) = call.await.unwrap().unwrap();
    assert_eq!(result.status(), CallStatus::Cancelled);
}

#[tokio::test]
async fn a_cancel_after_a_crash_ends_a_run_whose_owner_has_not_asked_for_it_since() {
    // Whether the run was started is not noted if no answer came before the crash.
    for silent in [true, false] {
        let mut fixture = Fixture::new().await;
        fixture.workflows.put("hold", json!({"name": "hold"}));
        *fixture.workflows.silent.lock().unwrap() = silent;
        let asked = with_effect("e1", "workflow:hold", json!({}));
        let call = tokio::spawn(finish(fixture.calls.clone(), asked.clone()));
        until("the run", || fixture.workflows.run_count() == 1).await;
        fixture.crash_and_restart().await;
        call.await.unwrap().unwrap_err();
        *fixture.workflows.silent.lock().unwrap() = false;
        assert!(cancel(&fixture, "e1").await.still_running.is_empty());
        assert_eq!(fixture.workflows.run_count(), 1);
        assert_eq!(fixture.workflows.open_count(), 0);
        let (_, result) = fixture.finish(asked).await;
        assert_eq!(result.status(), CallStatus::Cancelled);
        assert!(result.replayed, "the cancel has settled the call");
    }
}

#[tokio::test]
async fn a_call_that_is_not_known_is_not_found() {
    let fixture = Fixture::new().await;
    let request = CancelCallRequest {
        effect_id: "never seen".into(),
        reason: String::new(),
    };
    let refused = fixture.calls.clone().cancel_call(request).await;
    let reason = grpc_kit::reason(&refused.unwrap_err());
    assert_eq!(reason, Some(ErrorReason::CallNotFound));
}

#[tokio::test]
async fn a_call_with_an_effect_id_outlives_its_caller_and_one_without_does_not() {
    let fixture = Fixture::new().await;
    fixture.sandbox.set(Mode::Hold("done".into()));
    let kept = with_effect("e1", "CodeInterpreter:execute", code());
    let call = tokio::spawn(finish(fixture.calls.clone(), kept.clone()));
    until("the dispatch", || fixture.sandbox.started() == 1).await;
    call.abort();
    let lost = tokio::spawn(finish(
        fixture.calls.clone(),
        request("CodeInterpreter:execute", code()),
    ));
    until("the second dispatch", || fixture.sandbox.started() == 2).await;
    lost.abort();
    until("the end of the lost one", || {
        fixture.sandbox.dropped.load(Ordering::SeqCst) == 1
    })
    .await;
    fixture.sandbox.permits.add_permits(1);
    let (_, result) = fixture.finish(kept).await;
    assert_eq!(result.status(), CallStatus::Succeeded);
    assert_eq!(fixture.sandbox.started(), 2);
}

#[tokio::test]
async fn a_call_ends_at_its_timeout() {
    let fixture = Fixture::with_scripts(&[script_tool("effect")]).await;
    fixture.sandbox.set(Mode::Hold("never".into()));
    fixture.workflows.put("hold", json!({"name": "hold"}));
    for tool in ["effect", "workflow:hold"] {
        let request = CallToolRequest {
            timeout: prost_types::Duration::try_from(Duration::from_secs(1)).ok(),
            ..with_effect(tool, tool, json!({}))
        };
        let arguments = if tool == "effect" { code() } else { json!({}) };
        let request = CallToolRequest {
            arguments_json: arguments.to_string(),
            ..request
        };
        let (_, result) = fixture.finish(request).await;
        assert_eq!(
            (result.status(), code_of(&result)),
            (CallStatus::Failed, "deadline_exceeded"),
            "{tool}"
        );
        assert_eq!(result.error.unwrap().category(), ErrorCategory::Timeout);
    }
}
