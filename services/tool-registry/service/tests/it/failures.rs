//! The ends of calls that have left when the registry itself fails.

use contracts::tavern::{
    common::v1::{CallStatus, RunState},
    registry::v1::{
        StartCallRequest, WatchCallRequest, watch_call_response::Record as WatchRecord,
    },
};
use doubles::Mode;
use futures::StreamExt;
use serde_json::json;
use sqlx::{Connection, SqliteConnection};

use crate::{
    fixture::{Fixture, script_tool, until},
    invocation::{call, cancel, doubts, invoke, start, statuses, watch, write},
};

/// A registry with the tool `effect`, which waits to be let go.
async fn fixture() -> Fixture {
    let fixture = Fixture::with_scripts(&[script_tool("effect")]).await;
    fixture.sandbox.set(Mode::Hold("done".into()));
    fixture
}

/// Waits for the tool, and lets it end into a registry that fails.
async fn fail_behind_the_effect(fixture: &Fixture) {
    until("the dispatch", || fixture.sandbox.started() == 1).await;
    fixture.clock.break_once();
    fixture.sandbox.permits.add_permits(1);
}

/// Damages every entry of the ledger.
async fn damage_the_ledger(fixture: &Fixture) {
    let file = fixture.directory.path().join("tool-registry.effects.db");
    let mut ledger = SqliteConnection::connect(&format!("sqlite://{}", file.display()))
        .await
        .unwrap();
    let damage = "UPDATE events SET payload = x'ff'";
    sqlx::query(damage).execute(&mut ledger).await.unwrap();
}

#[tokio::test]
async fn a_call_of_a_text_is_in_doubt_whether_or_not_the_ledger_can_be_read_again() {
    for (damaged, code) in [(false, "unsettled_after_crash"), (true, "internal")] {
        let fixture = fixture().await;
        let calls = vec![call(0, "effect", json!({})), write(1, "never")];
        let started = start(&fixture, invoke(calls)).await;
        until("the dispatch", || fixture.sandbox.started() == 1).await;
        if damaged {
            damage_the_ledger(&fixture).await;
        }
        fail_behind_the_effect(&fixture).await;
        // A ledger that cannot be read keeps no decision, so that run ends by itself.
        if !damaged {
            doubts(&fixture, &started.run_id, 1).await;
            cancel(&fixture, &started).await;
        }
        let (events, run) = watch(fixture.runs.clone(), started.run_id.clone()).await;
        assert_eq!(statuses(&events), [CallStatus::InDoubt], "{code}");
        let outcome = run.outcome.unwrap();
        assert_eq!(outcome.state(), RunState::InDoubt);
        assert_eq!(outcome.error.unwrap().code, code);
        let effect = format!("{}/invocation/0", started.run_id);
        assert_eq!(outcome.unsettled_effect_ids, [effect]);
        assert_eq!(fixture.sandbox.started(), 1, "the effect was not repeated");
    }
}

#[tokio::test]
async fn a_started_call_is_settled_as_in_doubt_without_a_restart() {
    let fixture = fixture().await;
    let request = StartCallRequest {
        tool_id: "effect".into(),
        arguments_json: "{}".into(),
        effect_id: "e1".into(),
        ..StartCallRequest::default()
    };
    fixture.calls.clone().start_call(request).await.unwrap();
    fail_behind_the_effect(&fixture).await;
    let request = WatchCallRequest {
        effect_id: "e1".into(),
        ..WatchCallRequest::default()
    };
    let watched = fixture.calls.clone().watch_call(request).await.unwrap();
    let records: Vec<_> = watched.into_inner().collect().await;
    let last = records.into_iter().last().unwrap().unwrap();
    let Some(WatchRecord::Terminal(settled)) = last.record else {
        panic!("{last:?}");
    };
    let result = settled.result.unwrap();
    assert_eq!(result.status(), CallStatus::InDoubt, "{result:?}");
    assert_eq!(fixture.sandbox.started(), 1, "the effect was not repeated");
}
