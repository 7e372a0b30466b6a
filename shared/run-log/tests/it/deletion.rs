//! The remains of a deleted run in its file.

use std::path::Path;

use run_log::NewRun;

use crate::fixture::{at, events, request, run_id, side_door, sqlite_at, start};

/// More events than are deleted in one commit.
const MANY: i64 = 5_000;

async fn count(path: &Path, table: &'static str) -> i64 {
    let sql = match table {
        "events" => "SELECT count(*) FROM events",
        _ => "SELECT count(*) FROM runs",
    };
    let mut connection = side_door(path).await;
    sqlx::query_scalar(sql)
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn nothing_is_left_but_the_name_of_the_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.db");
    let log = sqlite_at(&path).await;
    let named = NewRun {
        request: Some(request("r", "body")),
        ..NewRun::new(run_id(1), "flow", at(1))
    };
    let first = start(&log, named).await;
    let second = start(&log, NewRun::new(run_id(2), "flow", at(2))).await;
    for writer in [first, second] {
        for from in (1..MANY).step_by(200) {
            writer.append(events(from..=from + 199)).await.unwrap();
        }
        writer.finish(1, events(MANY..=MANY)).await.unwrap();
    }
    for number in [1, 2] {
        log.delete(run_id(number)).await.unwrap();
    }
    log.close().await;
    assert_eq!(count(&path, "events").await, 0);
    assert_eq!(count(&path, "runs").await, 1);
}

#[tokio::test]
async fn a_deletion_that_was_interrupted_is_finished_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.db");
    let log = sqlite_at(&path).await;
    let writer = start(&log, NewRun::new(run_id(1), "flow", at(1))).await;
    writer.finish(1, events(1..=100)).await.unwrap();
    log.close().await;
    // The process ended after the first commit of the deletion.
    let mut connection = side_door(&path).await;
    sqlx::query("UPDATE runs SET deleted = TRUE, hidden = TRUE")
        .execute(&mut connection)
        .await
        .unwrap();
    drop(connection);
    let log = sqlite_at(&path).await;
    assert_eq!(log.summary(run_id(1)).await.unwrap(), None);
    log.close().await;
    assert_eq!(count(&path, "events").await, 0);
    assert_eq!(count(&path, "runs").await, 0);
}
