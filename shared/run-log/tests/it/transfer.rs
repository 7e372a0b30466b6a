//! Runs that move from a file to a server and back, with their chains.

use std::{env, time::Instant};

use core_types::Durability;
use postgres_kit::databases::options;
use run_log::{
    Event, LogAtRest, NewRun, Order, RunFilter, RunLogs, RunSummary, SERVER_MIGRATIONS,
    TransferError,
};
use sql_store::{PostgresDatabase, SqliteDatabase, SqliteOptions};
use tempfile::TempDir;

use crate::fixture::{at, events, join, migrated, request, run_id, side_door, sqlite_at, start};

/// Returns the number of runs that a variable states, or a small one; each has 100 events.
fn runs() -> u128 {
    let stated = env::var("TAVERN_TEST_MOVED_RUNS").ok();
    stated.map_or(120, |number| number.parse().unwrap())
}

/// Fills a log: ended runs, one that is open, one that rests, one of a request, and a deleted one that keeps its name.
async fn fill(log: &RunLogs) {
    for number in 0..runs() {
        let run = NewRun {
            durability: Durability::Batched,
            ..NewRun::new(run_id(number), "flow", at(i64::try_from(number).unwrap()))
        };
        let writer = start(log, run).await;
        writer.submit_all(events(1..=99)).await.unwrap();
        writer.finish(1, events(100..=100)).await.unwrap();
    }
    let new = |number: u128| NewRun::new(run_id(number), "flow", at(1));
    let open = start(log, new(1_000_001)).await;
    open.append(events(1..=3)).await.unwrap();
    let resting = start(log, new(1_000_002)).await;
    resting.append(events(1..=2)).await.unwrap();
    resting.rest(3, at(77)).await.unwrap();
    for number in [1_000_003, 1_000_004] {
        let run = NewRun {
            request: Some(request(&format!("r{number}"), "body")),
            ..new(number)
        };
        let writer = start(log, run).await;
        writer.finish(1, events(1..=5)).await.unwrap();
    }
    log.delete(run_id(1_000_004)).await.unwrap();
}

/// Returns a run without its key, which is a number of its database.
fn shown(run: &RunSummary) -> String {
    let whole = format!("{run:?}");
    let (seen, _key) = whole.rsplit_once(", key: ").unwrap();
    seen.to_owned()
}

/// Returns everything that a reader sees of a log.
async fn seen(log: &RunLogs) -> Vec<(String, Vec<Event>)> {
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = log
            .list(
                &RunFilter::default(),
                Order::OldestFirst,
                after.as_ref(),
                200,
            )
            .await
            .unwrap();
        for run in page.runs {
            let events = log.read(run.id, 0, 1_000).await.unwrap();
            log.verify(run.id).await.unwrap();
            seen.push((shown(&run), events));
        }
        after = page.next;
        if after.is_none() {
            return seen;
        }
    }
}

async fn file(directory: &TempDir, name: &str) -> (SqliteDatabase, LogAtRest) {
    let options = SqliteOptions::new(directory.path().join(name));
    let file = SqliteDatabase::open(options, &[run_log::MIGRATIONS]).await;
    let file = file.unwrap();
    (file.clone(), LogAtRest::in_file(file))
}

#[tokio::test]
async fn runs_move_to_a_server_and_back_with_their_chains() {
    let Some(server) = postgres_kit::shared() else {
        return;
    };
    let url = migrated(&server.database().unwrap()).await;
    let directory = tempfile::tempdir().unwrap();
    let log = sqlite_at(&directory.path().join("a.db")).await;
    fill(&log).await;
    let before = seen(&log).await;
    log.close().await;

    let (from, from_log) = file(&directory, "a.db").await;
    let database = PostgresDatabase::open(options(&url), &[SERVER_MIGRATIONS]).await;
    let database = database.unwrap();
    let at_server = LogAtRest::at_server(database.clone(), "flow");
    let began = Instant::now();
    // It is cut off at its second report, as by a kill, and repeated.
    let (cut, mut reports) = (tokio::sync::Notify::new(), 0);
    tokio::select! {
        copied = from_log.copy_to(&at_server, |_| {
            reports += 1;
            if reports == 2 {
                cut.notify_one();
            }
        }) => panic!("it ended before it was cut off: {copied:?}"),
        () = cut.notified() => {}
    }
    let rest = from_log.copy_to(&at_server, |_| ()).await.unwrap();
    assert!(rest.present > 0 && rest.runs > 0, "{rest:?}");
    println!("{} runs are there after {:?}", runs(), began.elapsed());
    let total = u64::try_from(runs()).unwrap() + 4;
    assert_eq!(rest.runs + rest.present, total);
    let again = from_log.copy_to(&at_server, |_| ()).await.unwrap();
    assert_eq!((again.runs, again.present), (0, total));
    let verified = at_server.verify().await.unwrap();
    assert_eq!(verified, from_log.verify().await.unwrap());
    from.close().await;

    let membership = join(&url).await;
    let log = RunLogs::open_shared(membership.clone(), "flow")
        .await
        .unwrap();
    assert_eq!(seen(&log).await, before);
    let resumed = log.reopen(run_id(1_000_001)).await.unwrap();
    assert_eq!(resumed.append(events(4..=4)).await.unwrap(), 4);
    assert_eq!(log.due(at(77), 9).await.unwrap().len(), 1);
    let repeat = NewRun {
        request: Some(request("r1000004", "body")),
        ..NewRun::new(run_id(5), "flow", at(9))
    };
    let repeated = log.create(repeat, Vec::new()).await;
    assert!(
        repeated.is_err(),
        "its run is deleted, and it names none: {repeated:?}"
    );
    let after = seen(&log).await;
    log.close().await;
    membership.leave().await.unwrap();

    let (back, back_log) = file(&directory, "b.db").await;
    let copied = at_server.copy_to(&back_log, |_| ()).await.unwrap();
    assert_eq!((copied.runs, copied.present), (total, 0));
    back.close().await;
    let log = sqlite_at(&directory.path().join("b.db")).await;
    assert_eq!(seen(&log).await, after);
    log.close().await;
}

#[tokio::test]
async fn a_damaged_run_is_named_and_not_copied() {
    for (statement, sequence) in [
        (
            "UPDATE events SET payload = x'00' WHERE run = 2 AND sequence = 3",
            3,
        ),
        ("DELETE FROM events WHERE run = 2 AND sequence = 3", 3),
        ("DELETE FROM events WHERE run = 2 AND sequence = 5", 5),
        ("UPDATE runs SET end_hash = zeroblob(32) WHERE key = 2", 6),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let log = sqlite_at(&directory.path().join("a.db")).await;
        for number in [1, 2, 3] {
            let writer = start(&log, NewRun::new(run_id(number), "flow", at(1))).await;
            writer.finish(1, events(1..=5)).await.unwrap();
        }
        log.close().await;
        let mut door = side_door(&directory.path().join("a.db")).await;
        sqlx::query(statement).execute(&mut door).await.unwrap();
        let (from, from_log) = file(&directory, "a.db").await;
        let (to, to_log) = file(&directory, "b.db").await;
        for refused in [
            from_log.copy_to(&to_log, |_| ()).await,
            from_log.verify().await,
        ] {
            let Err(TransferError::Damaged {
                run,
                sequence: place,
            }) = refused
            else {
                panic!("{statement}: {refused:?}");
            };
            assert_eq!((run, place), (run_id(2), sequence), "{statement}");
        }
        assert_eq!(to_log.verify().await.unwrap().runs, 0);
        from.close().await;
        to.close().await;
    }
}
