//! Lost answers, connections, servers and unsynced rows.

use std::time::Duration;

use core_types::Durability;
use futures::future::join_all;
use postgres_kit::{Proxy, Server};
use run_log::{AppendError, Batch, NewRun, ReadError, RunWriter, StorageError};

use super::{check, log_at, log_of, repeats};
use crate::fixture::{at, event, events, join_for, migrated, run_id, start};

/// Appends `count` events to each of some runs, one after the other, and all runs at once.
async fn append_to_all(writers: &[RunWriter], numbers: std::ops::RangeInclusive<i64>) {
    let appends = writers.iter().map(async |writer| {
        for number in numbers.clone() {
            let sequence = writer.append(vec![event(number)]).await.unwrap();
            assert_eq!(i64::try_from(sequence).unwrap(), number);
        }
    });
    join_all(appends).await;
}

/// Full: `TAVERN_TEST_LOST_ANSWERS=200`.
#[tokio::test(flavor = "multi_thread")]
async fn f10_an_append_whose_answer_is_lost_is_stored_once_and_acknowledged() {
    let Some(server) = postgres_kit::shared() else {
        return;
    };
    let database = server.database().unwrap();
    migrated(&database).await;
    let proxy = Proxy::start(server.socket()).await.unwrap();
    let url = proxy.url(&database.name, database.app_role);
    let (log, _membership) = log_at(&url).await;
    let kept = start(&log, NewRun::new(run_id(1), "flow", at(1))).await;
    kept.append(events(1..=1)).await.unwrap();
    let repeats = i64::from(repeats("TAVERN_TEST_LOST_ANSWERS", 20));
    for number in 1..=repeats {
        proxy.lose_next_answer();
        let run = u128::try_from(number).unwrap() + 1;
        // The creation or the append loses its answer, and so does an end.
        let ending = start(&log, NewRun::new(run_id(run), "flow", at(1))).await;
        kept.append(vec![event(number + 1)]).await.unwrap();
        if number % 2 == 0 {
            proxy.lose_next_answer();
        }
        ending.finish(1, events(1..=3)).await.unwrap();
        assert!(
            log.summary(run_id(run))
                .await
                .unwrap()
                .unwrap()
                .finished
                .is_some()
        );
        check(&log, run, 3).await;
    }
    check(&log, 1, 1 + u64::try_from(repeats).unwrap()).await;
    assert!(
        proxy.lost() >= u64::try_from(repeats).unwrap(),
        "{} lost",
        proxy.lost()
    );
    log.close().await;
}

/// Full: `TAVERN_TEST_KILLED_BACKENDS=100`.
#[tokio::test(flavor = "multi_thread")]
async fn f09_appends_survive_the_end_of_their_session() {
    let Some(server) = postgres_kit::shared() else {
        return;
    };
    let database = server.database().unwrap();
    let (log, _membership) = log_at(&migrated(&database).await).await;
    let mut writers = Vec::new();
    for number in 1..=4 {
        writers.push(start(&log, NewRun::new(run_id(number), "flow", at(1))).await);
    }
    let rounds = i64::from(repeats("TAVERN_TEST_KILLED_BACKENDS", 10));
    let name = database.name.clone();
    let killing = tokio::task::spawn_blocking(move || {
        let kill = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE datname = '{name}' AND query LIKE '%INSERT INTO events%' AND pid <> pg_backend_pid()"
        );
        let mut killed: u64 = 0;
        for _ in 0..rounds {
            killed += server
                .query("postgres", &kill)
                .unwrap()
                .parse::<u64>()
                .unwrap();
        }
        killed
    });
    let mut last = 0;
    while !killing.is_finished() {
        append_to_all(&writers, last + 1..=last + 20).await;
        last += 20;
    }
    let killed = killing.await.unwrap();
    assert!(killed > 0, "no session was ended");
    for number in 1..=4 {
        check(&log, number, u64::try_from(last).unwrap()).await;
    }
    log.close().await;
}

/// Full: `TAVERN_TEST_SERVER_CRASHES=30`.
#[tokio::test(flavor = "multi_thread")]
async fn f08_acknowledged_events_survive_crashes_of_the_server() {
    let Some(server) = Server::start(&["fsync = on"]).unwrap() else {
        return;
    };
    let database = server.database().unwrap();
    let (log, _membership) = log_at(&migrated(&database).await).await;
    let mut writers = Vec::new();
    for number in 1..=4 {
        writers.push(start(&log, NewRun::new(run_id(number), "flow", at(1))).await);
    }
    let crashes = repeats("TAVERN_TEST_SERVER_CRASHES", 2);
    let crashing = tokio::task::spawn_blocking(move || {
        for _ in 0..crashes {
            server.stop("immediate").unwrap();
            server.run_up().unwrap();
        }
        server
    });
    let mut last = 0;
    while !crashing.is_finished() {
        append_to_all(&writers, last + 1..=last + 10).await;
        last += 10;
    }
    let server = crashing.await.unwrap();
    for number in 1..=4 {
        check(&log, number, u64::try_from(last).unwrap()).await;
    }
    log.close().await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn s112_a_run_whose_batched_events_were_lost_with_the_server_is_read_afresh() {
    let settings = [
        "fsync = on",
        "wal_writer_delay = '10s'",
        "wal_writer_flush_after = '1GB'",
    ];
    let Some(server) = Server::start(&settings).unwrap() else {
        return;
    };
    let database = server.database().unwrap();
    // No renewal, which is synced, takes the events to the disk.
    let membership = join_for(&migrated(&database).await, Duration::from_secs(600)).await;
    let (log, _membership) = log_of(membership).await;
    let batched = NewRun {
        durability: Durability::Batched,
        ..NewRun::new(run_id(1), "flow", at(1))
    };
    let writer = start(&log, batched).await;
    writer.append(events(1..=2)).await.unwrap();
    writer.submit_all(events(3..=5)).await.unwrap();
    // They are committed, and seen, but not on disk.
    let stored = "SELECT count(*) FROM core.events";
    super::until("the commit", || {
        server.query(&database.name, stored).unwrap() == "5"
    })
    .await;
    let mut follower = log.follow(run_id(1), 5).await.unwrap();
    server.stop("immediate").unwrap();
    server.run_up().unwrap();
    assert_eq!(
        server.query(&database.name, stored).unwrap(),
        "2",
        "the crash lost nothing"
    );

    // Neither of them confirms events that are not there.
    let flushed = writer.flush().await.unwrap_err();
    assert!(matches!(flushed, AppendError::Unknown), "{flushed}");
    let refused = writer.append(events(6..=6)).await.unwrap_err();
    assert!(matches!(refused, AppendError::Unknown), "{refused}");
    let followed = follower.next_batch().await.unwrap_err();
    assert!(
        matches!(followed, ReadError::Storage(StorageError::Busy)),
        "{followed}"
    );
    let again = log.reopen(run_id(1)).await.unwrap();
    assert_eq!(again.last_sequence(), 2);
    again.append(events(3..=4)).await.unwrap();
    check(&log, 1, 4).await;
    let mut follower = log.follow(run_id(1), 1).await.unwrap();
    let batch = follower.next_batch().await.unwrap();
    assert!(matches!(batch, Some(Batch::Events(events)) if events.len() == 3));
    log.close().await;
}
