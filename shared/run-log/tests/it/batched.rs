//! Runs whose events may wait for their commit.

use std::path::Path;
use std::time::Duration;

use core_types::{Durability, RequestId, Tenant};
use run_log::{AppendError, Hash, NewRun, RequestKey, RunLogs, RunState, RunWriter};
use sql_store::SqliteOptions;

use crate::fixture::{at, event, events, run_id, start};

const FOR_EVER: Duration = Duration::from_secs(24 * 60 * 60);

async fn open(path: &Path, window: Duration) -> RunLogs {
    let options = SqliteOptions::new(path);
    RunLogs::open_batching(options, window).await.unwrap()
}

async fn begin(log: &RunLogs, number: u128, durability: Durability) -> RunWriter {
    let run = NewRun {
        durability,
        ..NewRun::new(run_id(number), "flow", at(1))
    };
    start(log, run).await
}

async fn stored(log: &RunLogs, writer: &RunWriter) -> u64 {
    let summary = log.summary(writer.run()).await.unwrap().unwrap();
    summary.last_sequence
}

#[tokio::test]
async fn what_is_submitted_waits_for_what_is_awaited() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir.path().join("runs.db"), FOR_EVER).await;
    let writer = begin(&log, 1, Durability::Batched).await;
    for number in 1..=3 {
        writer.submit(event(number)).await.unwrap();
    }
    assert_eq!(stored(&log, &writer).await, 0);
    assert_eq!(writer.append(events(4..=5)).await.unwrap(), 5);
    assert_eq!(stored(&log, &writer).await, 5);
    writer.submit_all(events(6..=8)).await.unwrap();
    assert_eq!(writer.flush().await.unwrap(), 8);
    assert_eq!(writer.finish(2, events(9..=9)).await.unwrap(), 9);
}

#[tokio::test]
async fn a_run_that_is_synced_takes_those_of_the_others_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir.path().join("runs.db"), FOR_EVER).await;
    let batched = begin(&log, 1, Durability::Batched).await;
    let synced = begin(&log, 2, Durability::Sync).await;
    batched.submit(event(1)).await.unwrap();
    synced.append(events(1..=1)).await.unwrap();
    assert_eq!(stored(&log, &batched).await, 1);
}

#[tokio::test]
async fn what_is_submitted_is_stored_when_the_window_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir.path().join("runs.db"), Duration::from_millis(5)).await;
    let writer = begin(&log, 1, Durability::Batched).await;
    let mut follower = log.follow(writer.run(), 0).await.unwrap();
    writer.submit(event(1)).await.unwrap();
    follower.next_batch().await.unwrap();
    assert_eq!(stored(&log, &writer).await, 1);
}

#[tokio::test]
async fn closing_stores_what_waits_and_a_run_stays_batched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.db");
    let log = open(&path, FOR_EVER).await;
    let writer = begin(&log, 1, Durability::Batched).await;
    writer.submit(event(1)).await.unwrap();
    log.close().await;
    let log = open(&path, FOR_EVER).await;
    let writer = log.reopen(run_id(1)).await.unwrap();
    let summary = log.summary(run_id(1)).await.unwrap().unwrap();
    assert_eq!(
        (summary.last_sequence, summary.durability),
        (1, Durability::Batched)
    );
    writer.submit(event(2)).await.unwrap();
    assert_eq!(stored(&log, &writer).await, 1);
}

/// A run that the request `name` creates.
fn asked_for(number: u128, name: &str, durability: Durability) -> NewRun {
    NewRun {
        durability,
        request: Some(RequestKey {
            scope: "call".to_owned(),
            request_id: RequestId::new(name).unwrap(),
            body_hash: Hash::of(name.as_bytes()),
        }),
        ..NewRun::new(run_id(number), "flow", at(1))
    }
}

/// Begins and ends a run in a batch, and stores it with a flush.
async fn begin_and_end_in_a_batch(log: &RunLogs, durability: Durability) {
    let run = asked_for(1, "a", durability);
    let writer = log.create_in_batch(run, events(1..=1)).await.unwrap();
    let stored = writer.finish_in_batch(7, events(2..=2)).await.unwrap();
    writer.flush().await.unwrap();
    stored.await.unwrap();
    let summary = log.summary(run_id(1)).await.unwrap().unwrap();
    assert_eq!(
        (summary.last_sequence, summary.state),
        (2, RunState::Finished(7))
    );
    let found = log
        .by_request(Tenant::DEFAULT, "call", &RequestId::new("a").unwrap())
        .await;
    assert_eq!(found.unwrap().unwrap().id, run_id(1));
    let nothing = writer.finish_in_batch(7, Vec::new()).await;
    assert!(matches!(nothing.err(), Some(AppendError::Invalid(_))));
}

#[tokio::test]
async fn a_run_begins_and_ends_in_one_batch_on_disk_and_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir.path().join("runs.db"), FOR_EVER).await;
    begin_and_end_in_a_batch(&log, Durability::Batched).await;
    let log = open(&dir.path().join("others.db"), FOR_EVER).await;
    begin_and_end_in_a_batch(&log, Durability::Memory).await;
}

#[tokio::test]
async fn the_writer_of_a_run_whose_request_was_answered_before_learns_it_and_stores_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(&dir.path().join("runs.db"), FOR_EVER).await;
    let begin = |number| asked_for(number, "a", Durability::Batched);
    let first = log.create_in_batch(begin(1), events(1..=1)).await.unwrap();
    first.flush().await.unwrap();
    let second = log.create_in_batch(begin(2), events(1..=1)).await.unwrap();
    let stored = second.finish_in_batch(7, events(2..=2)).await.unwrap();
    first.flush().await.unwrap();
    assert!(matches!(stored.await, Err(AppendError::Fenced)));
    assert!(log.summary(run_id(2)).await.unwrap().is_none());
    assert_eq!(first.append(events(2..=2)).await.unwrap(), 2);
}
