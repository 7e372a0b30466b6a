//! Taking runs over.

use run_log::{AppendError, NewEvent, ReopenError, Verification, limits};

use crate::fixture::{Fixture, at, contents, event, events, run_id};

on_every_log! {
    reopening_continues_the_chain_and_fences_the_writer
    a_reopened_run_comes_with_its_newest_events
    only_open_runs_are_reopened
}

async fn reopening_continues_the_chain_and_fences_the_writer(on: Fixture) {
    let first = on.start(1).await;
    first.append(events(1..=3)).await.unwrap();
    first.submit(event(4)).await.unwrap();
    let second = on.log.reopen(run_id(1)).await.unwrap();
    for refused in [
        first.append(events(9..=9)).await.unwrap_err(),
        first.submit(event(9)).await.unwrap_err(),
        first.flush().await.unwrap_err(),
        first.finish(1, events(9..=9)).await.unwrap_err(),
    ] {
        assert!(matches!(refused, AppendError::Fenced), "{refused}");
    }
    // The submitted event was not acknowledged: it is there or it is not, but never half.
    let last = i64::try_from(second.last_sequence()).unwrap();
    assert!((3..=4).contains(&last), "{last}");
    second.append(events(last + 1..=6)).await.unwrap();
    second.finish(1, events(7..=7)).await.unwrap();
    let read = on.log.read(run_id(1), 0, 100).await.unwrap();
    assert_eq!(contents(&read), events(1..=7));
    let verified = on.log.verify(run_id(1)).await.unwrap();
    assert!(
        matches!(verified, Verification::Intact { events: 7, .. }),
        "{verified:?}"
    );
}

async fn a_reopened_run_comes_with_its_newest_events(on: Fixture) {
    drop(on.start(1).await);
    let listed = on.log.summary(run_id(1)).await.unwrap().unwrap();
    let reopen = async |newest| on.log.reopen_listed(&listed, newest).await;
    let empty = reopen(10).await.unwrap();
    assert_eq!(empty.events, []);
    empty.writer.append(events(1..=5)).await.unwrap();
    for (newest, oldest) in [(0, 5), (1, 5), (3, 3), (5, 1), (usize::MAX, 1)] {
        let reopened = reopen(newest).await.unwrap();
        assert_eq!(contents(&reopened.events), events(oldest..=5), "{newest}");
        assert_eq!(reopened.writer.last_sequence(), 5);
    }

    let writer = reopen(1).await.unwrap().writer;
    let large = NewEvent::new(at(6), 7, vec![0; limits::MAX_PAYLOAD_BYTES]);
    for _ in 0..6 {
        writer.append(vec![large.clone()]).await.unwrap();
    }
    let within = limits::MAX_READ_BYTES / limits::MAX_PAYLOAD_BYTES;
    let reopened = reopen(10).await.unwrap();
    assert_eq!(contents(&reopened.events), vec![large; within]);

    // A summary from before a run's end or deletion does not show it.
    reopened.writer.finish(1, events(7..=7)).await.unwrap();
    let refused = reopen(1).await.unwrap_err();
    assert!(matches!(refused, ReopenError::Finished), "{refused}");
    on.log.delete(run_id(1)).await.unwrap();
    let refused = reopen(1).await.unwrap_err();
    assert!(matches!(refused, ReopenError::NoSuchRun), "{refused}");
}

async fn only_open_runs_are_reopened(on: Fixture) {
    let refused = on.log.reopen(run_id(1)).await.unwrap_err();
    assert!(matches!(refused, ReopenError::NoSuchRun), "{refused}");
    on.start(1).await.finish(0, events(1..=1)).await.unwrap();
    let refused = on.log.reopen(run_id(1)).await.unwrap_err();
    assert!(matches!(refused, ReopenError::Finished), "{refused}");
}
