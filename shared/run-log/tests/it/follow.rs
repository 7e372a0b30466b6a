//! Following a run from anywhere, at any pace.

use run_log::{Batch, NewEvent, NewRun};

use crate::fixture::{self, Fixture, at, contents, drain, event, events, run_id, start};

on_every_log! {
    a_follower_resumes_at_every_sequence
    who_asks_again_after_the_end_gets_the_terminal_event
    live_events_reach_every_follower_in_order
    a_follower_that_does_not_read_holds_no_other_up
    a_dropped_wait_loses_nothing
    a_follower_survives_a_change_of_writer
    large_events_push_a_follower_back_to_the_store
}

async fn a_follower_resumes_at_every_sequence(on: Fixture) {
    let writer = on.start(1).await;
    let last = 400;
    writer.append(events(1..=last - 1)).await.unwrap();
    writer.finish(0, events(last..=last)).await.unwrap();
    for after in 0..last {
        let follower = on
            .log
            .follow(run_id(1), u64::try_from(after).unwrap())
            .await
            .unwrap();
        assert_eq!(
            contents(&drain(follower).await),
            events(after + 1..=last),
            "after {after}"
        );
    }
}

async fn who_asks_again_after_the_end_gets_the_terminal_event(on: Fixture) {
    let writer = on.start(1).await;
    let mut early = on.log.follow(run_id(1), 99).await.unwrap();
    writer.finish(0, events(1..=3)).await.unwrap();
    let batch = early.next_batch().await.unwrap();
    assert!(matches!(batch, Some(Batch::Events(all)) if contents(&all) == events(1..=3)));
    for _ in 0..2 {
        assert_eq!(early.next_batch().await.unwrap(), None);
    }
    for after in [3, 4, u64::MAX] {
        let follower = on.log.follow(run_id(1), after).await.unwrap();
        assert_eq!(follower.high_water(), 3);
        assert_eq!(
            contents(&drain(follower).await),
            events(3..=3),
            "after {after}"
        );
    }
}

async fn live_events_reach_every_follower_in_order(on: Fixture) {
    let writer = on.start(1).await;
    let mut followers = tokio::task::JoinSet::new();
    for after in 0..20 {
        let follower = on.log.follow(run_id(1), 0).await.unwrap();
        followers.spawn(async move { (after, drain(follower).await) });
    }
    for number in 1..=500 {
        if number % 3 == 0 {
            writer.append(events(number..=number)).await.unwrap();
        } else {
            writer.submit(event(number)).await.unwrap();
        }
        if number % 50 == 0 {
            let seen = writer.last_sequence();
            let late = on.log.follow(run_id(1), seen).await.unwrap();
            followers.spawn(async move { (seen, drain(late).await) });
        }
    }
    writer.finish(0, events(501..=501)).await.unwrap();
    let reference = on.log.read(run_id(1), 0, 1000).await.unwrap();
    while let Some(followed) = followers.join_next().await {
        let (after, all) = followed.unwrap();
        let skipped = if after < 20 {
            0
        } else {
            usize::try_from(after).unwrap()
        };
        assert_eq!(all, reference[skipped..]);
    }
}

async fn a_follower_that_does_not_read_holds_no_other_up(on: Fixture) {
    let writer = on.start(1).await;
    let idle = on.log.follow(run_id(1), 0).await.unwrap();
    // Several times the size of the tail.
    for number in 0..40 {
        writer
            .append(events(number * 100 + 1..=number * 100 + 100))
            .await
            .unwrap();
    }
    writer.finish(0, events(4001..=4001)).await.unwrap();
    assert_eq!(contents(&drain(idle).await), events(1..=4001));
}

async fn a_dropped_wait_loses_nothing(on: Fixture) {
    let writer = on.start(1).await;
    let mut follower = on.log.follow(run_id(1), 0).await.unwrap();
    let mut seen = Vec::new();
    for number in 1..=100 {
        tokio::select! {
            biased;
            appended = writer.append(events(number..=number)) => { appended.unwrap(); }
            batch = follower.next_batch() => {
                let Some(Batch::Events(batch)) = batch.unwrap() else { panic!("no events") };
                seen.extend(batch);
            }
        }
    }
    // Appends whose wait was dropped are stored all the same.
    let terminal = writer.finish(0, events(101..=101)).await.unwrap();
    assert_eq!(terminal, 101);
    seen.extend(drain(follower).await);
    assert_eq!(contents(&seen), events(1..=101));
}

async fn a_follower_survives_a_change_of_writer(on: Fixture) {
    let writer = on.start(1).await;
    writer.append(events(1..=2)).await.unwrap();
    let follower = on.log.follow(run_id(1), 0).await.unwrap();
    drop(writer);
    let waiting = tokio::spawn(drain(follower));
    let writer = on.log.reopen(run_id(1)).await.unwrap();
    writer.finish(0, events(3..=4)).await.unwrap();
    assert_eq!(contents(&waiting.await.unwrap()), events(1..=4));
}

async fn large_events_push_a_follower_back_to_the_store(on: Fixture) {
    let writer = on.start(1).await;
    let follower = on.log.follow(run_id(1), 0).await.unwrap();
    let large = |number| NewEvent::new(at(number), 1, vec![1; 700_000]);
    let all: Vec<NewEvent> = (1..=12).map(large).collect();
    for pair in all.chunks(2) {
        writer.append(pair.to_vec()).await.unwrap();
    }
    writer.finish(0, events(13..=13)).await.unwrap();
    let followed = contents(&drain(follower).await);
    assert_eq!(followed[..12], all);
    assert_eq!(followed[12..], events(13..=13));
}

#[tokio::test]
async fn missing_events_are_reported_as_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.db");
    let log = fixture::sqlite_at(&path).await;
    let writer = start(&log, NewRun::new(run_id(1), "flow", at(1))).await;
    writer.finish(0, events(1..=10)).await.unwrap();
    let mut door = fixture::side_door(&path).await;
    let delete = "DELETE FROM events WHERE sequence <= 2 OR sequence IN (5, 6)";
    sqlx::query(delete).execute(&mut door).await.unwrap();

    let mut follower = log.follow(run_id(1), 0).await.unwrap();
    let mut seen = Vec::new();
    while let Some(batch) = follower.next_batch().await.unwrap() {
        match batch {
            Batch::Gap { next } => seen.push(format!("gap to {next}")),
            Batch::Events(events) => {
                seen.extend(events.iter().map(|event| event.sequence.to_string()));
            }
        }
    }
    assert_eq!(
        seen,
        ["gap to 3", "3", "4", "gap to 7", "7", "8", "9", "10"]
    );
}
