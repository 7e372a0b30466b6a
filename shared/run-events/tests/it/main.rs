//! Runs start once, are followed, end, and come back after a restart.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helper functions of tests fail by panicking, as tests do"
)]

mod lists;
mod tenants;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use contracts::tavern::common::v1 as common;
use contracts::tavern::common::v1::{RunState, WorkKind, run_event::Kind, watch_record::Record};
use contracts::tavern::run::v1::{
    DeleteRunRequest, ListRunsRequest, run_service_client::RunServiceClient,
};
use core_types::{RunOwner, SystemClock, SystemIds};
use futures::StreamExt;
use grpc_kit::CallContext;
use prost::Message;
use run_events::{CancelReason, End, Recorder, Runs, StartRun, Started, outcome};
use run_log::{Hash, RunLogs};
use sqlx::ConnectOptions;
use tonic::Code;

async fn runs(directory: &Path) -> Runs {
    let options = sql_store::SqliteOptions::new(directory.join("test.runs.db"));
    let logs = RunLogs::open(options).await.unwrap();
    Runs::new(
        logs,
        RunOwner::Agent,
        Arc::new(SystemClock),
        Arc::new(SystemIds),
    )
}

fn outermost() -> CallContext {
    CallContext::outermost()
}

fn a_run(request_id: &str, body: &str) -> StartRun {
    StartRun {
        kind: "turn",
        owner: None,
        subject: "ada".into(),
        conversation_id: "conversation-1".into(),
        request_id: request_id.into(),
        scope: "test",
        body_hash: Hash::of(body.as_bytes()),
        input_json: "\"hello\"".into(),
        input_is_model_text: false,
        options: None,
        can_wait: false,
        concurrency_key: String::new(),
        priority: 0,
        deadline_cap: None,
        grant: None,
        owner_data: serde_json::json!({ "step": 1 }),
        first_events: Vec::new(),
        forks: None,
    }
}

async fn new_run(runs: &Runs, start: StartRun) -> Recorder {
    match runs.start(&outermost(), start).await.unwrap() {
        Started::New(recorder, _) => recorder,
        Started::Replayed(run) => panic!("the run is not new: {run:?}"),
    }
}

fn text(text: &str) -> Kind {
    Kind::Text(common::TextDelta { text: text.into() })
}

/// Follows a run to its end and returns the kinds of its events and the terminal record.
async fn follow(runs: &Runs, run_id: &str, after: u64) -> (Vec<Kind>, common::Run) {
    let mut records = runs
        .watch(outermost(), run_id, after, grpc_kit::Drain::never())
        .await
        .unwrap();
    let mut kinds = Vec::new();
    while let Some(record) = records.next().await {
        match contracts::watch::decode(record.unwrap()).unwrap().unwrap() {
            Record::Event(event) => {
                assert_eq!(event.sequence, after + kinds.len() as u64 + 1);
                kinds.push(event.kind.unwrap());
            }
            Record::Terminal(terminal) => return (kinds, terminal.run.unwrap()),
            _ => {}
        }
    }
    panic!("the watch ended without a terminal record");
}

#[tokio::test]
async fn a_run_is_recorded_followed_and_finished() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(directory.path()).await;
    let recorder = new_run(&runs, a_run("", "")).await;
    let run_id = recorder.run_id().to_string();
    runs.execute(recorder.clone(), move |_| async move {
        recorder.submit(text("one")).await.unwrap();
        recorder
            .record(vec![text("two"), text("three")])
            .await
            .unwrap();
        End::Finished(outcome::succeeded("42".into()))
    });
    let (kinds, run) = follow(&runs, &run_id, 0).await;
    assert_eq!(kinds.len(), 5);
    assert_eq!(kinds[1..4], [text("one"), text("two"), text("three")]);
    assert_eq!(run.state(), RunState::Succeeded);
    assert_eq!(run.outcome.as_ref().unwrap().result_json, "42");
    assert_eq!(
        run.outcome.as_ref().unwrap().durability(),
        common::Durability::Sync
    );
    for after in 0..=5 {
        let (rest, again) = follow(&runs, &run_id, after).await;
        assert_eq!(rest, kinds[usize::try_from(after).unwrap()..]);
        assert_eq!(again, run, "the terminal record repeats");
    }
}

#[tokio::test]
async fn the_same_request_starts_one_run_and_another_body_none() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(directory.path()).await;
    let recorder = new_run(&runs, a_run("r1", "body")).await;
    match runs.start(&outermost(), a_run("r1", "body")).await.unwrap() {
        Started::Replayed(run) => assert_eq!(run.run_id, recorder.run_id().to_string()),
        Started::New(..) => panic!("a second run was started"),
    }
    let failure = runs
        .start(&outermost(), a_run("r1", "other"))
        .await
        .unwrap_err()
        .into_status();
    assert_eq!(failure.code(), Code::AlreadyExists);
    assert_eq!(
        grpc_kit::reason(&failure),
        Some(common::ErrorReason::RequestIdReused)
    );
}

#[tokio::test]
async fn a_cancel_reaches_the_work_and_is_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(directory.path()).await;
    let recorder = new_run(&runs, a_run("", "")).await;
    let run_id = recorder.run_id().to_string();
    runs.execute(recorder, |control| async move {
        control.cancelled().await;
        End::Finished(outcome::stopped(&control.why().unwrap(), Vec::new()))
    });
    let cancelled = runs.cancel(&outermost(), &run_id, "enough").await.unwrap();
    assert_eq!(cancelled.run.state(), RunState::Cancelled);
    assert!(cancelled.still_running.is_empty());
    let (kinds, _) = follow(&runs, &run_id, 1).await;
    assert!(matches!(&kinds[0], Kind::CancelRequested(cancel) if cancel.reason == "enough"));
    let again = runs.cancel(&outermost(), &run_id, "again").await.unwrap();
    assert_eq!(again.run, cancelled.run, "a second cancel changes nothing");
}

#[tokio::test]
async fn work_that_ignores_its_cancel_is_dropped_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(directory.path()).await;
    let recorder = new_run(&runs, a_run("", "")).await;
    let run_id = recorder.run_id().to_string();
    runs.execute(recorder, |control| async move {
        let _tracked = control.track(WorkKind::Call, "stubborn");
        std::future::pending::<End>().await
    });
    let cancelled = runs.cancel(&outermost(), &run_id, "").await.unwrap();
    assert_eq!(cancelled.run.state(), RunState::Cancelled);
    assert_eq!(
        cancelled.run.outcome.unwrap().unsettled_effect_ids,
        ["stubborn"]
    );
}

#[tokio::test]
async fn a_deadline_ends_the_run_as_failed() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(directory.path()).await;
    let timeout = prost_types::Duration::try_from(Duration::from_millis(50)).unwrap();
    let options = common::RunOptions {
        timeout: Some(timeout),
        ..Default::default()
    };
    let recorder = new_run(
        &runs,
        StartRun {
            options: Some(options),
            ..a_run("", "")
        },
    )
    .await;
    let run_id = recorder.run_id().to_string();
    runs.execute(recorder, |control| async move {
        control.cancelled().await;
        assert_eq!(control.why(), Some(CancelReason::Deadline));
        End::Finished(outcome::stopped(&CancelReason::Deadline, Vec::new()))
    });
    let (_, run) = follow(&runs, &run_id, 0).await;
    assert_eq!(run.state(), RunState::Failed);
    assert_eq!(
        run.outcome.unwrap().error.unwrap().code,
        "deadline_exceeded"
    );
}

#[tokio::test]
async fn a_panic_ends_the_run_as_an_internal_failure() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(directory.path()).await;
    let recorder = new_run(&runs, a_run("", "")).await;
    let run_id = recorder.run_id().to_string();
    runs.execute(recorder, |_| async move { panic!("on purpose") });
    let (_, run) = follow(&runs, &run_id, 0).await;
    assert_eq!(run.state(), RunState::Failed);
    assert_eq!(
        run.outcome.unwrap().error.unwrap().category(),
        common::ErrorCategory::Internal
    );
}

#[tokio::test]
async fn a_run_that_was_going_on_comes_back_with_everything_that_happened() {
    let directory = tempfile::tempdir().unwrap();
    let before = runs(directory.path()).await;
    let recorder = new_run(&before, a_run("", "")).await;
    let run_id = recorder.run_id();
    before.execute(recorder.clone(), move |_| async move {
        recorder.record(vec![text("one")]).await.unwrap();
        std::future::pending().await
    });
    while before
        .events(&outermost(), &run_id.to_string())
        .await
        .unwrap()
        .len()
        < 2
    {
        tokio::task::yield_now().await;
    }
    before.shutdown().await;
    drop(before);

    let after = runs(directory.path()).await;
    let mut open = after.open_runs().await.unwrap();
    assert_eq!(open.len(), 1);
    let open = open.remove(0);
    assert_eq!(open.recorder.run_id(), run_id);
    assert_eq!(open.meta.data, serde_json::json!({ "step": 1 }));
    assert_eq!(open.events[1].kind, Some(text("one")));
    after.execute(open.recorder, |_| async {
        End::Finished(outcome::succeeded("1".into()))
    });
    let (kinds, run) = follow(&after, &run_id.to_string(), 0).await;
    assert_eq!(kinds.len(), 3);
    assert_eq!(run.state(), RunState::Succeeded);
}

#[tokio::test]
async fn a_run_comes_back_whole_however_little_one_look_at_its_log_returns() {
    let directory = tempfile::tempdir().unwrap();
    let before = runs(directory.path()).await;
    let recorder = new_run(&before, a_run("", "")).await;
    let large = "x".repeat(900 << 10);
    for (count, said) in [(600, "small"), (10, large.as_str()), (5, "small")] {
        for _ in 0..count {
            recorder.submit(text(said)).await.unwrap();
        }
    }
    recorder.flush().await.unwrap();
    let written = before
        .events(&outermost(), &recorder.run_id().to_string())
        .await
        .unwrap();
    before.shutdown().await;

    let after = runs(directory.path()).await;
    let open = after.open_runs().await.unwrap().remove(0);
    assert_eq!(written.len(), 616);
    assert!(open.events == written);
}

/// Damages the stored rows of a run, as a failing disk might.
async fn damage(directory: &Path, change: &str, run_id: &str, payload: &[u8]) {
    let path = directory.join("test.runs.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut door = options.connect().await.unwrap();
    let change = sqlx::query(sqlx::AssertSqlSafe(change.to_owned()));
    let changed = change.bind(run_id).bind(payload).execute(&mut door).await;
    assert_eq!(changed.unwrap().rows_affected(), 1, "one row is damaged");
}

#[tokio::test]
async fn a_run_whose_log_is_damaged_ends_with_the_reason_and_the_others_come_back() {
    const FIRST: &str = "sequence = 1 AND run = (SELECT key FROM runs WHERE id = ?1)";
    let another = common::RunEvent {
        kind: Some(text("no start")),
        ..common::RunEvent::default()
    };
    let no_beginning = "its log does not begin with its start";
    for (change, payload, reason) in [
        (
            format!("UPDATE events SET payload = ?2 WHERE {FIRST}"),
            another.encode_to_vec(),
            no_beginning,
        ),
        (
            format!("UPDATE events SET payload = ?2 WHERE {FIRST}"),
            vec![0xff],
            "event 1 of the log is not an event of the contract",
        ),
        (
            format!("DELETE FROM events WHERE {FIRST} AND ?2 = x''"),
            vec![],
            no_beginning,
        ),
        (
            "UPDATE runs SET meta = ?2 WHERE id = ?1".to_owned(),
            b"{}".to_vec(),
            "what is stored beside the run cannot be read",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let before = runs(directory.path()).await;
        let damaged = new_run(&before, a_run("r1", "")).await.run_id().to_string();
        let intact = new_run(&before, a_run("r2", "")).await.run_id();
        before.shutdown().await;
        damage(directory.path(), &change, &damaged, &payload).await;

        let after = runs(directory.path()).await;
        let metas: Vec<String> = after
            .metas_of_open_runs(|meta| Some(meta.subject.clone()))
            .await
            .unwrap();
        assert!(metas.contains(&"ada".to_owned()), "{change}");
        let open = after.open_runs().await.unwrap();
        let ids: Vec<_> = open.iter().map(|open| open.recorder.run_id()).collect();
        assert_eq!(ids, [intact], "{change}");
        assert_eq!(open[0].started.subject, "ada");
        let (_, ended) = follow(&after, &damaged, 1).await;
        let (listed, _) = after
            .list(&outermost(), &ListRunsRequest::default())
            .await
            .unwrap();
        assert!(listed.contains(&ended), "{change}: {listed:?}");
        assert_eq!(ended.state(), RunState::Failed, "{change}");
        let error = ended.outcome.unwrap().error.unwrap();
        assert_eq!(error.code, "log_damaged");
        assert!(error.message.contains(&damaged), "{}", error.message);
        assert!(error.message.contains(reason), "{}", error.message);
    }
}

#[tokio::test]
async fn a_run_that_was_just_started_is_not_taken_for_one_that_was_left() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(directory.path()).await;
    let recorder = new_run(&runs, a_run("", "")).await;
    assert!(runs.open_runs().await.unwrap().is_empty());
    recorder.record(vec![text("one")]).await.unwrap();
}

/// An event of a run below `parent`, at its place there.
fn below(parent: &Recorder, sequence: u64) -> common::RunEvent {
    common::RunEvent {
        sequence,
        run_id: "flow_below".into(),
        parent_path: parent.path_below(),
        kind: Some(text(&sequence.to_string())),
        ..common::RunEvent::default()
    }
}

#[tokio::test]
async fn what_a_run_below_tells_again_is_not_recorded_again_not_even_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let before = runs(directory.path()).await;
    let recorder = new_run(&before, a_run("", "")).await;
    let run_id = recorder.run_id().to_string();
    for sequence in [1, 2, 1, 2, 3] {
        let event = below(&recorder, sequence);
        recorder.submit_child(event).await.unwrap();
    }
    recorder.flush().await.unwrap();
    before.shutdown().await;
    let after = runs(directory.path()).await;
    let open = after.open_runs().await.unwrap().remove(0);
    for sequence in [1, 2, 3, 4] {
        let event = below(&open.recorder, sequence);
        open.recorder.submit_child(event).await.unwrap();
    }
    after.execute(open.recorder, |_| async {
        End::Finished(outcome::succeeded("1".into()))
    });
    let (kinds, _) = follow(&after, &run_id, 0).await;
    assert_eq!(kinds[1..5], ["1", "2", "3", "4"].map(text));
    assert_eq!(kinds.len(), 6);
    let events = after.events(&outermost(), &run_id).await.unwrap();
    let origins: Vec<_> = events.iter().map(|event| event.origin_sequence).collect();
    assert_eq!(origins, [0, 1, 2, 3, 4, 0]);
}

#[tokio::test]
async fn what_cannot_be_followed_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(directory.path()).await;
    let recorder = new_run(&runs, a_run("", "")).await;
    let run_id = recorder.run_id().to_string();
    let code = |status: Option<tonic::Status>| status.map(|status| status.code());
    let foreign = run_id.replace("turn_", "flow_");
    for (run_id, after, expected) in [
        ("", 0, Code::NotFound),
        ("turn_x", 0, Code::NotFound),
        (foreign.as_str(), 0, Code::NotFound),
        (run_id.as_str(), 2, Code::OutOfRange),
    ] {
        let watch = runs
            .watch(outermost(), run_id, after, grpc_kit::Drain::never())
            .await;
        assert_eq!(code(watch.err()), Some(expected), "{run_id} after {after}");
    }
}

#[tokio::test]
async fn everything_wrong_with_a_list_is_named_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let runs = runs(directory.path()).await;
    let services = grpc_kit::Services::new().add(runs.service());
    let request = ListRunsRequest {
        created_since: Some(prost_types::Timestamp {
            seconds: i64::MAX,
            nanos: 0,
        }),
        created_before: Some(prost_types::Timestamp {
            seconds: 0,
            nanos: -1,
        }),
        page_token: "forged".into(),
        ..ListRunsRequest::default()
    };
    let mut client = RunServiceClient::new(grpc_kit::local(&services).outermost());
    let status = client.list_runs(request).await.unwrap_err();
    let fields: Vec<String> = grpc_kit::violations(&status)
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    assert_eq!(fields, ["created_since", "created_before", "page_token"]);
}

#[tokio::test]
async fn only_a_run_that_has_ended_is_deleted_and_it_stays_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let open = runs(directory.path()).await;
    let services = grpc_kit::Services::new().add(open.service());
    let mut client = RunServiceClient::new(grpc_kit::local(&services).outermost());
    let recorder = new_run(&open, a_run("r", "body")).await;
    let run_id = recorder.run_id().to_string();
    let request = DeleteRunRequest {
        run_id: run_id.clone(),
    };
    let status = client.delete_run(request.clone()).await.unwrap_err();
    assert_eq!(
        (status.code(), grpc_kit::reason(&status)),
        (
            Code::FailedPrecondition,
            Some(common::ErrorReason::RunNotFinished)
        )
    );
    assert_eq!(grpc_kit::metadata(&status)["state"], "RUNNING");
    open.cancel(&outermost(), &run_id, "").await.unwrap();
    client.delete_run(request.clone()).await.unwrap();
    open.shutdown().await;
    drop((open, client, services, recorder));

    let again = runs(directory.path()).await;
    let services = grpc_kit::Services::new().add(again.service());
    let mut client = RunServiceClient::new(grpc_kit::local(&services).outermost());
    let status = client.delete_run(request).await.unwrap_err();
    assert_eq!(
        grpc_kit::reason(&status),
        Some(common::ErrorReason::RunNotFound)
    );
    let watch = again
        .watch(outermost(), &run_id, 0, grpc_kit::Drain::never())
        .await;
    assert_eq!(
        watch.err().map(|status| status.code()),
        Some(Code::NotFound)
    );
    let repeated = again
        .start(&outermost(), a_run("r", "body"))
        .await
        .unwrap_err();
    assert_eq!(
        grpc_kit::reason(&repeated.into_status()),
        Some(common::ErrorReason::RequestIdReused),
        "the request does not start the run again"
    );
}

#[tokio::test]
async fn the_calls_of_a_text_cannot_be_paused() {
    let directory = tempfile::tempdir().unwrap();
    let options = sql_store::SqliteOptions::new(directory.path().join("test.runs.db"));
    let logs = RunLogs::open(options).await.unwrap();
    let runs = Runs::new(
        logs,
        RunOwner::Registry,
        Arc::new(SystemClock),
        Arc::new(SystemIds),
    );
    let recorder = new_run(&runs, a_run("", "")).await;
    let run_id = recorder.run_id().to_string();
    for refused in [
        runs.pause(&outermost(), &run_id, "").await,
        runs.resume(&outermost(), &run_id).await,
    ] {
        let status = refused.unwrap_err().into_status();
        assert_eq!(
            (status.code(), grpc_kit::reason(&status)),
            (
                Code::FailedPrecondition,
                Some(common::ErrorReason::RunNotPausable)
            )
        );
    }
}
