//! Retention: the runs that are deleted, the runs that stay, and the space that the file returns.

use std::{collections::BTreeSet, env, error::Error, path::Path, sync::Mutex, time::Duration};

use async_trait::async_trait;
use core_types::RunId;
use run_log::{
    Created, NewRun, Order, PassReport, Retention, RetentionError, RetentionGuard,
    RetentionPeriods, RunFilter, RunSummary,
};

use crate::{
    appender,
    fixture::{Fixture, at, event, events, request, run_id, side_door, sqlite, sqlite_at, start},
};

on_every_log! {
    each_run_stays_or_goes_by_its_age_its_state_and_who_names_it
    an_owner_keeps_a_run_and_deletes_what_belongs_to_one_that_goes
    a_request_id_is_free_once_its_run_was_kept_long_enough
    runs_that_stay_keep_no_other_from_going
}

const SUCCESS: i32 = 4;
const FAILURE: i32 = 5;
const SECOND: i64 = 1_000_000_000;

/// One minute for successful runs, ten for the rest.
fn periods() -> RetentionPeriods {
    RetentionPeriods {
        success: SUCCESS,
        succeeded: Some(Duration::from_secs(60)),
        others: Some(Duration::from_secs(600)),
    }
}

/// Keeps the runs that are named to it, and records which are deleted.
#[derive(Default)]
struct Owner {
    kept: BTreeSet<RunId>,
    deleted: Mutex<Vec<RunId>>,
    knows_nothing: bool,
    /// Whether it reports each deletion to the parent process.
    says: bool,
}

#[async_trait]
impl RetentionGuard for Owner {
    async fn must_stay(&self, run: &RunSummary) -> Result<bool, Box<dyn Error + Send + Sync>> {
        match self.knows_nothing {
            true => Err("the neighbour does not answer".into()),
            false => Ok(self.kept.contains(&run.id)),
        }
    }

    async fn before_deletion(&self, run: &RunSummary) -> Result<(), Box<dyn Error + Send + Sync>> {
        if self.says {
            appender::say("deletes");
        }
        self.deleted.lock().unwrap().push(run.id);
        Ok(())
    }
}

impl Fixture {
    fn retention(&self) -> Retention {
        Retention::new(self.log.clone(), periods())
    }

    /// Creates a run at second `number` that ends at another one.
    async fn ended(&self, run: NewRun, state: i32, second: i64) {
        let writer = start(&self.log, run).await;
        let mut last = event(1);
        last.time = at(second * SECOND);
        writer.finish(state, vec![event(0), last]).await.unwrap();
    }

    fn run(&self, number: u128) -> NewRun {
        NewRun {
            created: at(i64::try_from(number).unwrap() * SECOND),
            ..self.new_run(number)
        }
    }

    async fn pass(&self, second: i64) -> PassReport {
        let now = at(second * SECOND);
        self.retention().pass(now, &Owner::default()).await.unwrap()
    }

    async fn left(&self) -> Vec<RunId> {
        let all = RunFilter::default();
        let page = self.log.list(&all, Order::OldestFirst, None, 500).await;
        page.unwrap().runs.into_iter().map(|run| run.id).collect()
    }
}

async fn each_run_stays_or_goes_by_its_age_its_state_and_who_names_it(on: Fixture) {
    let forks = |number, of| NewRun {
        forks: Some(run_id(of)),
        ..on.run(number)
    };
    let below = |number, parent| NewRun {
        parent: Some(run_id(parent)),
        ..on.run(number)
    };
    // Number, state, end in seconds, and whether it is there after a pass at second 1,000.
    let plain = [
        (1, SUCCESS, 900, false),
        (2, SUCCESS, 940, false),
        (3, SUCCESS, 941, true),
        (4, FAILURE, 400, false),
        (5, FAILURE, 900, true),
    ];
    for (number, state, end, _) in plain {
        on.ended(on.run(number), state, end).await;
    }
    // Sources of a fork that is open, of a fork that ended lately, and of a fork that is deleted as
    // well.
    for (number, fork) in [(10, 11), (12, 13), (14, 15)] {
        on.ended(on.run(number), SUCCESS, 100).await;
        let run = forks(fork, number);
        match fork {
            11 => drop(start(&on.log, run).await),
            13 => on.ended(run, SUCCESS, 990).await,
            _ => on.ended(run, SUCCESS, 100).await,
        }
    }
    // Parents of a run that is open, and of a run that ended.
    for (number, child) in [(20, 21), (22, 23)] {
        on.ended(on.run(number), SUCCESS, 100).await;
        let run = below(child, number);
        match child {
            21 => drop(start(&on.log, run).await),
            _ => on.ended(run, SUCCESS, 100).await,
        }
    }
    // A run that is open since long ago.
    drop(start(&on.log, on.run(30)).await);
    let mut stay: Vec<RunId> = [10, 11, 12, 13, 20, 21, 30].map(run_id).into();
    // The fork of 14 goes in this pass, and 14 in the next one, as its fork was there still.
    stay.push(run_id(14));
    let plain = plain.iter().filter(|(_, _, _, stays)| *stays);
    stay.extend(plain.map(|(number, ..)| run_id(*number)));
    stay.sort_unstable();
    on.pass(1_000).await;
    let mut left = on.left().await;
    left.sort_unstable();
    assert_eq!(left, stay);
    on.pass(1_000).await;
    assert!(!on.left().await.contains(&run_id(14)));
    assert_eq!(on.pass(1_000).await.runs, 0, "a third pass finds nothing");
}

async fn an_owner_keeps_a_run_and_deletes_what_belongs_to_one_that_goes(on: Fixture) {
    for number in 1..=4 {
        on.ended(on.run(number), SUCCESS, 10).await;
    }
    let unsure = Owner {
        knows_nothing: true,
        ..Owner::default()
    };
    let mut retention = on.retention();
    let refused = retention.pass(at(1_000 * SECOND), &unsure).await;
    assert!(matches!(refused, Err(RetentionError::Guard(_))));
    assert_eq!(on.left().await.len(), 4);
    let owner = Owner {
        kept: [run_id(2), run_id(3)].into(),
        ..Owner::default()
    };
    let passed = retention.pass(at(1_000 * SECOND), &owner).await.unwrap();
    assert_eq!((passed.runs, passed.kept), (2, 2));
    assert_eq!(on.left().await, [2, 3].map(run_id));
    let mut deleted = owner.deleted.into_inner().unwrap();
    deleted.sort_unstable();
    assert_eq!(deleted, [1, 4].map(run_id));
}

async fn a_request_id_is_free_once_its_run_was_kept_long_enough(on: Fixture) {
    let named = |number: u128, name| NewRun {
        request: Some(request(name, "body")),
        ..on.run(number)
    };
    on.ended(named(1, "kept"), SUCCESS, 100).await;
    on.ended(named(2, "deleted"), SUCCESS, 100).await;
    on.log.delete(run_id(2)).await.unwrap();
    on.pass(159).await;
    let again = on.log.create(named(3, "kept"), Vec::new()).await.unwrap();
    assert!(matches!(again, Created::Replayed(run) if run.id == run_id(1)));
    assert!(
        on.log
            .create(named(4, "deleted"), Vec::new())
            .await
            .is_err()
    );
    // The request of a deleted run counts for as long as any run is kept.
    assert_eq!(on.pass(700).await.requests, 0);
    assert_eq!(on.pass(701).await.requests, 1);
    for (number, name) in [(5, "kept"), (6, "deleted")] {
        let created = on.log.create(named(number, name), Vec::new()).await;
        assert!(matches!(created.unwrap(), Created::New(_)), "{name}");
    }
}

async fn runs_that_stay_keep_no_other_from_going(on: Fixture) {
    // More than a page of runs that stay, in front of runs to delete.
    for number in 1..=300 {
        on.ended(on.run(number), FAILURE, 900).await;
    }
    for number in 301..=400 {
        on.ended(on.run(number), SUCCESS, 901).await;
    }
    let passed = on.pass(1_000).await;
    assert_eq!((passed.runs, passed.kept), (100, 300));
    assert_eq!(on.left().await.len(), 300);
}

async fn size_of(path: &Path) -> u64 {
    let mut connection = side_door(path).await;
    // Written pages move from the write-ahead log into the file.
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
        .execute(&mut connection)
        .await
        .unwrap();
    std::fs::metadata(path).unwrap().len()
}

#[tokio::test]
async fn the_file_shrinks_when_its_runs_go() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.db");
    let log = sqlite_at(&path).await;
    for number in 1..=400 {
        let writer = start(&log, NewRun::new(run_id(number), "flow", at(1))).await;
        writer.append(events(1..=100)).await.unwrap();
        writer.finish(SUCCESS, events(101..=101)).await.unwrap();
    }
    let full = size_of(&path).await;
    let passed = Retention::new(log.clone(), periods())
        .pass(at(1_000 * SECOND), &Owner::default())
        .await
        .unwrap();
    assert_eq!(passed.runs, 400);
    let empty = size_of(&path).await;
    assert!(passed.bytes >= full / 2, "{passed:?} of {full}");
    assert!(empty <= full / 4, "{full} bytes became {empty}");
    log.close().await;
}

#[tokio::test]
async fn appends_go_on_while_a_large_run_goes() {
    let on = sqlite().await.unwrap();
    let large = start(&on.log, on.run(1)).await;
    for _ in 0..20 {
        large.append(events(1..=1_000)).await.unwrap();
    }
    large.finish(SUCCESS, events(1..=1)).await.unwrap();
    let writer = start(&on.log, on.run(2)).await;
    let mut retention = on.retention();
    let owner = Owner::default();
    let pass = retention.pass(at(1_000 * SECOND), &owner);
    tokio::pin!(pass);
    let mut appended = 0;
    let passed = loop {
        tokio::select! {
            passed = &mut pass => break passed.unwrap(),
            stored = writer.append(events(1..=1)) => {
                stored.unwrap();
                appended += 1;
            }
        }
    };
    assert_eq!(passed.runs, 1);
    // The run goes in five portions, and others commit between them.
    assert!(appended >= 4, "{appended}");
}

/// Does nothing as a test of its own; with a file named by its parent it performs one pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_for_its_parent() {
    let Some(file) = env::var_os(appender::FILE) else {
        return;
    };
    let owner = Owner {
        says: true,
        ..Owner::default()
    };
    let log = sqlite_at(Path::new(&file)).await;
    let mut retention = Retention::new(log.clone(), periods());
    let passed = retention.pass(at(1_000 * SECOND), &owner).await;
    passed.unwrap();
    log.close().await;
}

#[tokio::test]
async fn a_pass_that_is_killed_is_finished_after_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.db");
    let log = sqlite_at(&path).await;
    for number in 1..=600_u128 {
        let named = NewRun {
            request: Some(request(&number.to_string(), "body")),
            ..NewRun::new(run_id(number), "flow", at(1))
        };
        let writer = start(&log, named).await;
        // Each twentieth run goes in portions.
        let portions = if number % 20 == 0 { 5 } else { 0 };
        for _ in 0..portions {
            writer.append(events(1..=1_000)).await.unwrap();
        }
        writer.finish(SUCCESS, events(1..=1)).await.unwrap();
    }
    log.close().await;
    let mut cut_off = 0;
    loop {
        let killed = appender::spawn_test("retention::deletes_for_its_parent", &path, None)
            .kill_after(40 + 7 * cut_off);
        if killed.deleted == 0 {
            break;
        }
        cut_off += 1;
        let log = sqlite_at(&path).await;
        let all = RunFilter::default();
        let page = log.list(&all, Order::OldestFirst, None, 500);
        for run in page.await.unwrap().runs {
            // Each run that is there is whole.
            let verified = log.verify(run.id).await.unwrap();
            assert!(
                matches!(verified, run_log::Verification::Intact { events, .. } if events == run.last_sequence),
                "{verified:?}"
            );
        }
        log.close().await;
    }
    assert!(cut_off > 3, "{cut_off}");
    let mut connection = side_door(&path).await;
    for table in ["SELECT count(*) FROM runs", "SELECT count(*) FROM events"] {
        let left: i64 = sqlx::query_scalar(table)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(left, 0, "{table}");
    }
}
