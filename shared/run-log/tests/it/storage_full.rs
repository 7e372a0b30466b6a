//! No room, and room again.

use std::{path::Path, sync::Arc};

use run_log::{AppendError, CreateError, NewEvent, NewRun, RunLogs, StorageError, Verification};
use sql_store::SqliteOptions;
use sqlx::AssertSqlSafe;

use crate::{
    appender,
    fixture::{at, event, events, run_id, side_door, sqlite_at, start},
};

async fn with_quota(path: &Path, bytes: u64) -> RunLogs {
    RunLogs::open(SqliteOptions {
        max_bytes: Some(bytes),
        ..SqliteOptions::new(path)
    })
    .await
    .unwrap()
}

async fn run_sql(path: &Path, sql: &str) {
    let mut door = side_door(path).await;
    sqlx::query(AssertSqlSafe(sql))
        .execute(&mut door)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_full_file_refuses_by_name_and_goes_on_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.db");
    sqlite_at(&path).await.close().await;
    run_sql(
        &path,
        "CREATE TABLE ballast AS SELECT randomblob(600000) AS bytes",
    )
    .await;
    let log = Arc::new(with_quota(&path, 1 << 20).await);

    let writers = [
        start(&log, NewRun::new(run_id(1), "flow", at(1))).await,
        start(&log, NewRun::new(run_id(2), "flow", at(1))).await,
    ];
    let large = || vec![NewEvent::new(at(1), 1, vec![5; 20_000])];
    let mut acknowledged = [0, 0];
    let mut full = 0;
    while full < 5 {
        // Both at once, so that they share commits and share their failure.
        let both = tokio::join!(writers[0].append(large()), writers[1].append(large()));
        for (count, outcome) in acknowledged.iter_mut().zip([both.0, both.1]) {
            match outcome {
                Ok(last) => *count = last,
                Err(AppendError::Storage(StorageError::Full)) => full += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    assert!(acknowledged[0] > 3, "{acknowledged:?}");
    // A log without room for two small appends has none for a large one.
    let huge = || vec![NewEvent::new(at(1), 1, vec![6; 500_000])];
    let refused = log
        .create(NewRun::new(run_id(3), "flow", at(1)), huge())
        .await
        .unwrap_err();
    assert!(
        matches!(refused, CreateError::Storage(StorageError::Full)),
        "{refused:?}"
    );
    assert_eq!(log.summary(run_id(3)).await.unwrap(), None);

    // A lost event is reported by the next call, which stores no event itself.
    writers[0].submit(huge().remove(0)).await.unwrap();
    let lost = writers[0].flush().await.unwrap_err();
    assert!(
        matches!(lost, AppendError::Storage(StorageError::Full)),
        "{lost:?}"
    );

    run_sql(&path, "DROP TABLE ballast").await;
    for (writer, acknowledged) in writers.iter().zip(acknowledged) {
        // It continues right behind the acknowledged events: no refused event was stored.
        assert_eq!(writer.append(large()).await.unwrap(), acknowledged + 1);
        assert_eq!(
            writer.finish(0, events(1..=1)).await.unwrap(),
            acknowledged + 2
        );
        let verified = log.verify(writer.run()).await.unwrap();
        let events = acknowledged + 2;
        assert!(matches!(verified, Verification::Intact { events: e, .. } if e == events));
    }
    start(&log, NewRun::new(run_id(3), "flow", at(1))).await;
}

/// The system refuses to let files grow, as a full disk does, in the middle of a write.
#[tokio::test]
async fn writes_that_the_system_refuses_are_never_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.db");
    sqlite_at(&path).await.close().await;
    let mut child = appender::spawn(&path, Some("trap '' XFSZ; ulimit -f 4000; exec \"$@\""));
    let report = child.read_to_end();
    assert!(
        report.acknowledged.len() > 100,
        "{}",
        report.acknowledged.len()
    );
    assert!(report.failures > 0);

    let log = sqlite_at(&path).await;
    report.assert_all_in(&log).await;
}

#[tokio::test]
async fn a_second_writer_of_the_file_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.db");
    let log = sqlite_at(&path).await;
    let writer = start(&log, NewRun::new(run_id(1), "flow", at(1))).await;
    let mut door = side_door(&path).await;
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut door)
        .await
        .unwrap();
    let appended = tokio::spawn({
        let writer = writer.clone();
        async move { writer.append(vec![event(1)]).await }
    });
    // The lock is certainly held while the append is queued and while the table is read here.
    sqlx::query("SELECT count(*) FROM events")
        .fetch_one(&mut door)
        .await
        .unwrap();
    assert_eq!(writer.last_sequence(), 0);
    sqlx::query("COMMIT").execute(&mut door).await.unwrap();
    assert_eq!(appended.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn another_owner_of_a_run_is_noticed_and_others_are_not_hurt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.db");
    let log = sqlite_at(&path).await;
    let lost = start(&log, NewRun::new(run_id(1), "flow", at(1))).await;
    let kept = start(&log, NewRun::new(run_id(2), "flow", at(1))).await;
    let foreign = "INSERT INTO events (run, sequence, time, kind, payload, hash) \
                   VALUES (1, 1, 1, 1, x'', zeroblob(32))";
    run_sql(&path, foreign).await;
    // In one group the constraint fails all; each is then tried alone.
    let (first, second) = tokio::join!(lost.append(events(1..=1)), kept.append(events(1..=1)));
    assert!(matches!(first, Err(AppendError::Fenced)), "{first:?}");
    assert_eq!(second.unwrap(), 1);
}
