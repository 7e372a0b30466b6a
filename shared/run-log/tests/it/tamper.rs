//! A changed log is noticed, and the first bad event is named.

use run_log::{Fault, NewRun, StorageError, Verification};
use sqlx::AssertSqlSafe;

use crate::fixture::{at, event, events, run_id, side_door, sqlite_at, start};

/// Writes two runs of ten events, finishes the first, changes the file and verifies.
async fn check(change: &str, finished: Verification, open: Verification) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.db");
    let log = sqlite_at(&path).await;
    let done = start(&log, NewRun::new(run_id(1), "flow", at(1))).await;
    let going = start(&log, NewRun::new(run_id(2), "flow", at(1))).await;
    for number in 1..=10 {
        going.append(vec![event(number)]).await.unwrap();
        done.append(vec![event(number)]).await.unwrap();
    }
    done.finish(0, events(11..=11)).await.unwrap();
    let mut door = side_door(&path).await;
    sqlx::query(AssertSqlSafe(change))
        .execute(&mut door)
        .await
        .unwrap();

    let mask = |verification: Verification| match verification {
        Verification::Intact { events, .. } => format!("{events} events"),
        Verification::Broken { sequence, fault } => format!("{fault:?} at {sequence}"),
    };
    for (number, expected) in [(1, finished), (2, open)] {
        let found = log.verify(run_id(number)).await.unwrap();
        assert_eq!(mask(found), mask(expected), "{change}, run {number}");
    }
}

fn intact(events: u64) -> Verification {
    Verification::Intact {
        events,
        head: run_log::Hash::of(b"any"),
    }
}

fn broken(sequence: u64, fault: Fault) -> Verification {
    Verification::Broken { sequence, fault }
}

#[tokio::test]
async fn the_first_bad_event_is_named() {
    use Fault::{EndMismatch, HashMismatch, Missing};
    for (change, finished, open) in [
        ("SELECT 1", intact(11), intact(10)),
        (
            "UPDATE events SET payload = x'00' WHERE sequence = 4",
            broken(4, HashMismatch),
            broken(4, HashMismatch),
        ),
        (
            "UPDATE events SET kind = 8 WHERE run = 1 AND sequence = 1",
            broken(1, HashMismatch),
            intact(10),
        ),
        (
            "UPDATE events SET time = time + 1 WHERE sequence = 10",
            broken(10, HashMismatch),
            broken(10, HashMismatch),
        ),
        (
            "UPDATE events SET hash = zeroblob(32) WHERE sequence = 7",
            broken(7, HashMismatch),
            broken(7, HashMismatch),
        ),
        (
            "DELETE FROM events WHERE sequence = 5",
            broken(5, Missing),
            broken(5, Missing),
        ),
        (
            "DELETE FROM events WHERE sequence = 1",
            broken(1, Missing),
            broken(1, Missing),
        ),
        // The end of a finished run is written down; an open run may end anywhere.
        (
            "DELETE FROM events WHERE sequence >= 9",
            broken(9, Missing),
            intact(8),
        ),
        (
            "UPDATE runs SET end_hash = zeroblob(32) WHERE key = 1",
            broken(11, EndMismatch),
            intact(10),
        ),
        (
            "UPDATE runs SET end_sequence = 3 WHERE key = 1",
            broken(3, EndMismatch),
            intact(10),
        ),
        // Events of one run do not fit into another.
        (
            "UPDATE events SET payload = (SELECT payload FROM events AS other WHERE other.run = 2 \
             AND other.sequence = 3), hash = (SELECT hash FROM events AS other WHERE other.run = 2 \
             AND other.sequence = 3) WHERE run = 1 AND sequence = 3",
            broken(3, HashMismatch),
            intact(10),
        ),
    ] {
        check(change, finished, open).await;
    }
}

#[tokio::test]
async fn a_value_of_the_wrong_shape_is_named_by_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.db");
    let log = sqlite_at(&path).await;
    let writer = start(&log, NewRun::new(run_id(1), "flow", at(1))).await;
    writer.append(events(1..=3)).await.unwrap();
    let mut door = side_door(&path).await;
    sqlx::query("UPDATE events SET hash = x'00' WHERE sequence = 2")
        .execute(&mut door)
        .await
        .unwrap();
    let refused = log.read(run_id(1), 0, 10).await.unwrap_err();
    let run_log::ReadError::Storage(StorageError::Corrupt { table, column, row }) = refused else {
        panic!("{refused}");
    };
    assert_eq!(
        (table, column, row.as_str()),
        ("events", "hash", "run 1, sequence 2")
    );
}
