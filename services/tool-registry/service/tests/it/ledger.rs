//! Each effect at most once.

use std::collections::BTreeSet;

use contracts::tavern::{
    common::v1::{CallStatus, Durability},
    registry::v1::CallToolRequest,
};
use doubles::Mode;
use grpc_kit::reason;
use serde_json::json;
use sqlx::{ConnectOptions, sqlite::SqliteConnectOptions};
use tonic::Code;

use crate::fixture::{
    Fixture, code_of, finish, idempotent_script_tool, put_scripts, script_tool, until, with_effect,
};

fn code() -> serde_json::Value {
    json!({"language": "bash", "code": "true"})
}

#[tokio::test]
async fn p4_a_hundred_calls_of_one_effect_dispatch_once_and_all_get_its_result() {
    let fixture = Fixture::with_scripts(&[script_tool("effect")]).await;
    fixture.sandbox.set(Mode::Hold("1".into()));
    let calls: Vec<_> = (0..100)
        .map(|index| {
            let request = CallToolRequest {
                index,
                ..with_effect("e1", "effect", code())
            };
            tokio::spawn(finish(fixture.calls.clone(), request))
        })
        .collect();
    until("the dispatch", || fixture.sandbox.started() == 1).await;
    fixture.sandbox.permits.add_permits(1);
    let mut outputs = BTreeSet::new();
    for (index, call) in calls.into_iter().enumerate() {
        let (_, result) = call.await.unwrap().unwrap();
        assert_eq!(result.index as usize, index);
        outputs.insert((result.status, result.output_json));
    }
    assert_eq!(outputs.len(), 1, "{outputs:?}");
    assert_eq!(fixture.sandbox.started(), 1);
}

#[tokio::test]
async fn a_settled_call_is_replayed_even_after_a_restart() {
    let mut fixture = Fixture::with_scripts(&[script_tool("effect")]).await;
    let request = with_effect(
        "e1",
        "effect",
        json!({"language": "python", "code": "print(1)"}),
    );
    let (_, first) = fixture.finish(request.clone()).await;
    assert!(!first.replayed);
    assert_eq!(first.durability(), Durability::Sync);
    let (_, second) = fixture.finish(request.clone()).await;
    assert!(second.replayed);
    fixture.crash_and_restart().await;
    let (_, third) = fixture.finish(request).await;
    assert!(third.replayed);
    assert_eq!(
        (third.output_json, third.start_time),
        (first.output_json, first.start_time)
    );
    assert_eq!(fixture.sandbox.started(), 1);
}

#[tokio::test]
async fn another_body_is_refused_under_way_and_settled() {
    let fixture = Fixture::new().await;
    fixture.sandbox.set(Mode::Hold("x".into()));
    let call = tokio::spawn(finish(
        fixture.calls.clone(),
        with_effect("e1", "CodeInterpreter:execute", code()),
    ));
    until("the dispatch", || fixture.sandbox.started() == 1).await;
    let other = with_effect(
        "e1",
        "CodeInterpreter:execute",
        json!({"language": "bash", "code": "false"}),
    );
    for round in ["under way", "settled"] {
        let status = finish(fixture.calls.clone(), other.clone())
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::AlreadyExists, "{round}");
        assert_eq!(
            reason(&status).unwrap().as_str_name(),
            "ERROR_REASON_REQUEST_ID_REUSED"
        );
        if round == "under way" {
            fixture.sandbox.permits.add_permits(1);
        }
    }
    call.await.unwrap().unwrap();
}

#[tokio::test]
async fn p4_after_a_crash_only_a_repeatable_call_is_dispatched_again() {
    let tools = [idempotent_script_tool("repeatable"), script_tool("effect")];
    let mut fixture = Fixture::with_scripts(&tools).await;
    fixture.sandbox.set(Mode::Hold("{}".into()));
    let repeatable = with_effect("idempotent", "repeatable", code());
    let effect = with_effect("effect", "effect", code());
    for request in [&repeatable, &effect] {
        tokio::spawn(finish(fixture.calls.clone(), request.clone()));
    }
    until("both dispatches", || fixture.sandbox.started() == 2).await;
    fixture.crash_and_restart().await;
    fixture.sandbox.permits.add_permits(5);
    let (_, again) = fixture.finish(repeatable).await;
    assert_eq!(again.status(), CallStatus::Succeeded);
    assert_eq!(fixture.sandbox.started(), 3);
    let (_, unknown) = fixture.finish(effect.clone()).await;
    assert_eq!(
        (unknown.status(), code_of(&unknown)),
        (CallStatus::InDoubt, "unsettled_after_crash")
    );
    assert!(unknown.start_time.is_some());
    let (_, still) = fixture.finish(effect).await;
    assert!(still.status() == CallStatus::InDoubt && still.replayed);
    assert_eq!(fixture.sandbox.started(), 3, "the effect was not repeated");
}

#[tokio::test]
async fn an_entry_that_cannot_be_read_keeps_no_other_from_being_settled() {
    for change in [
        "UPDATE events SET payload = x'' WHERE sequence = 1 AND run = ?",
        "UPDATE runs SET meta = x'7b7d' WHERE key = ?",
        "UPDATE runs SET meta = json_set(CAST(meta AS TEXT), '$.granted', 'no grant') WHERE key = ?",
    ] {
        let mut fixture = Fixture::with_scripts(&[script_tool("effect")]).await;
        fixture.sandbox.set(Mode::Hold("done".into()));
        for effect in ["damaged", "intact"] {
            let request = with_effect(effect, "effect", code());
            tokio::spawn(finish(fixture.calls.clone(), request));
        }
        until("both dispatches", || fixture.sandbox.started() == 2).await;
        fixture.crash_and_restart().await;
        let path = fixture.directory.path().join("tool-registry.effects.db");
        let mut door = SqliteConnectOptions::new()
            .filename(path)
            .connect()
            .await
            .unwrap();
        let key: i64 = sqlx::query_scalar("SELECT key FROM runs WHERE request_id = 'damaged'")
            .fetch_one(&mut door)
            .await
            .unwrap();
        sqlx::query(change)
            .bind(key)
            .execute(&mut door)
            .await
            .unwrap();
        fixture.recover().await;
        let asked = |effect| finish(fixture.calls.clone(), with_effect(effect, "effect", code()));
        let (_, settled) = asked("intact").await.unwrap();
        assert_eq!(settled.status(), CallStatus::InDoubt, "{change}");
        let refused = asked("damaged").await.unwrap_err();
        assert_eq!(refused.code(), Code::Internal, "{change}");
        assert_eq!(fixture.sandbox.started(), 2, "{change}");
    }
}

#[tokio::test]
async fn recovery_settles_what_may_not_be_repeated() {
    let mut fixture = Fixture::with_scripts(&[script_tool("effect")]).await;
    fixture.sandbox.set(Mode::Hold("done".into()));
    let effect = with_effect("effect", "effect", code());
    tokio::spawn(finish(fixture.calls.clone(), effect.clone()));
    until("the dispatch", || fixture.sandbox.started() == 1).await;
    fixture.crash_and_restart().await;
    fixture.recover().await;
    let (_, unknown) = fixture.finish(effect).await;
    assert!(unknown.status() == CallStatus::InDoubt && unknown.replayed);
}

#[tokio::test]
async fn a_tool_declared_idempotent_only_after_the_crash_is_not_repeated() {
    let mut fixture = Fixture::with_scripts(&[script_tool("effect")]).await;
    fixture.sandbox.set(Mode::Hold("done".into()));
    let effect = with_effect("effect", "effect", code());
    tokio::spawn(finish(fixture.calls.clone(), effect.clone()));
    until("the dispatch", || fixture.sandbox.started() == 1).await;
    put_scripts(&fixture.plugins, &[idempotent_script_tool("effect")]);
    fixture.crash_and_restart().await;
    let (_, unknown) = fixture.finish(effect).await;
    assert_eq!(unknown.status(), CallStatus::InDoubt);
    assert_eq!(fixture.sandbox.started(), 1);
}

#[tokio::test]
async fn a_rejected_call_is_not_journalled_so_that_the_effect_id_stays_free() {
    let fixture = Fixture::new().await;
    let (_, rejected) = fixture
        .finish(with_effect("e1", "no_such_tool", json!({})))
        .await;
    assert_eq!(
        (rejected.status(), code_of(&rejected)),
        (CallStatus::Rejected, "unknown_tool")
    );
    let (_, rejected) = fixture
        .finish(with_effect("e1", "FileOperator.WriteFile", json!({})))
        .await;
    assert_eq!(rejected.status(), CallStatus::Rejected);
    assert_eq!(rejected.error.unwrap().violations.len(), 2);
    let write = json!({"filePath": "a", "content": "b"});
    let (_, result) = fixture
        .finish(with_effect("e1", "FileOperator.WriteFile", write))
        .await;
    assert_eq!(result.status(), CallStatus::Succeeded);
}

#[tokio::test]
async fn a_call_in_memory_is_replayed_until_the_process_ends() {
    let mut fixture = Fixture::new().await;
    let request = CallToolRequest {
        durability: Durability::Memory.into(),
        ..with_effect("e1", "system:get_current_time", json!({}))
    };
    let (_, first) = fixture.finish(request.clone()).await;
    assert_eq!(first.durability(), Durability::Memory);
    assert!(fixture.finish(request.clone()).await.1.replayed);
    fixture.crash_and_restart().await;
    assert!(!fixture.finish(request).await.1.replayed);
}

#[tokio::test]
async fn j27_a_call_that_needs_confirmation_does_not_run_whatever_its_tool() {
    let fixture = Fixture::new().await;
    let unsure = |tool: &str, arguments| CallToolRequest {
        needs_confirmation: true,
        ..with_effect("", tool, arguments)
    };
    let write = json!({"filePath": "a", "content": "b"});
    for (tool, arguments) in [
        ("FileOperator.WriteFile", write),
        ("FileOperator.ListFiles", json!({})),
    ] {
        let (_, refused) = fixture.finish(unsure(tool, arguments)).await;
        assert_eq!(
            (refused.status(), code_of(&refused)),
            (CallStatus::Rejected, "needs_confirmation"),
            "{tool}"
        );
    }
}

#[tokio::test]
async fn every_wrong_field_of_a_request_is_named_at_once() {
    let fixture = Fixture::new().await;
    let timeout = prost_types::Duration {
        seconds: -1,
        nanos: 0,
    };
    let beyond_limits = CallToolRequest {
        timeout: Some(timeout),
        attempt: 33,
        ..CallToolRequest::default()
    };
    let malformed = CallToolRequest {
        tool_id: "system:get_current_time".into(),
        arguments_json: "[1".into(),
        effect_id: "a\nb".into(),
        conversation_id: "../x".into(),
        ..CallToolRequest::default()
    };
    for (request, wrong) in [
        (beyond_limits, &["timeout", "attempt", "tool_id"][..]),
        (
            malformed,
            &["arguments_json", "effect_id", "conversation_id"],
        ),
    ] {
        let status = finish(fixture.calls.clone(), request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let fields: Vec<String> = grpc_kit::violations(&status)
            .into_iter()
            .map(|(field, _)| field)
            .collect();
        assert_eq!(fields, wrong);
    }
}
