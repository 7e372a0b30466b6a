//! The behaviour of every log, in any storage.

use std::collections::HashSet;

use core_types::{Durability, Tenant};
use run_log::{
    AppendError, CreateError, Created, DeleteError, NewEvent, NewRun, Order, ReadError,
    ReopenError, RunFilter, RunState, StateFilter, StorageError, Verification, Violation, limits,
};

use crate::fixture::{self, Fixture, at, contents, event, events, request, run_id};

on_every_log! {
    events_come_back_as_they_were_appended
    a_new_run_has_its_first_events_at_once
    submitted_events_keep_their_place_between_appended_ones
    a_finished_run_takes_no_more
    a_run_needs_a_terminal_event
    everything_too_large_is_named_at_once
    a_repeated_request_finds_its_run
    a_request_id_with_another_body_is_refused
    of_a_hundred_equal_requests_one_creates
    a_run_id_is_used_once
    concurrent_appends_to_one_run_leave_no_gap
    reading_is_bounded
    unknown_runs_are_reported
    a_deleted_run_is_gone_with_its_events
    only_finished_runs_are_deleted
    a_deleted_run_keeps_its_request_id
    a_follower_of_a_deleted_run_is_informed
    the_phase_of_a_run_is_stored_with_its_events
    w38_a_resting_run_is_listed_once_it_is_due_until_it_is_taken_over
    a_closed_log_says_so
}

async fn events_come_back_as_they_were_appended(on: Fixture) {
    let writer = on.start(1).await;
    assert_eq!(writer.append(events(1..=3)).await.unwrap(), 3);
    assert_eq!(writer.append(events(4..=300)).await.unwrap(), 300);
    assert_eq!(writer.append(Vec::new()).await.unwrap(), 300);
    let odd = NewEvent::new(at(i64::MAX), i32::MIN, vec![0, 255, 10]);
    assert_eq!(writer.append(vec![odd.clone()]).await.unwrap(), 301);
    assert_eq!(writer.last_sequence(), 301);

    let mut expected = events(1..=300);
    expected.push(odd);
    let read = on.log.read(run_id(1), 0, 1000).await.unwrap();
    assert_eq!(contents(&read), expected);
    assert!(
        read.iter()
            .zip(1..)
            .all(|(event, sequence)| event.sequence == sequence)
    );
    for after in [0, 1, 255, 256, 299, 301, 5000] {
        let tail = on.log.read(run_id(1), after, 2).await.unwrap();
        let from = usize::try_from(after).unwrap().min(301);
        assert_eq!(tail, read[from..(from + 2).min(301)], "after {after}");
    }
    let head = read.last().unwrap().hash;
    let intact = Verification::Intact { events: 301, head };
    assert_eq!(on.log.verify(run_id(1)).await.unwrap(), intact);
}

async fn a_new_run_has_its_first_events_at_once(on: Fixture) {
    let run = NewRun {
        subject: "workflow 1".to_owned(),
        conversation: "conversation 1".to_owned(),
        request: Some(request("r", "body")),
        parent: Some(run_id(9)),
        deadline: Some(at(99)),
        meta: "how to resume".into(),
        ..on.new_run(1)
    };
    let created = on.log.create(run.clone(), events(1..=2)).await.unwrap();
    let Created::New(writer) = created else {
        panic!("{created:?}")
    };
    assert_eq!(writer.last_sequence(), 2);
    let summary = on.log.summary(run.id).await.unwrap().unwrap();
    assert_eq!(
        (
            &summary.kind,
            &summary.subject,
            &summary.conversation,
            &summary.request,
            summary.parent,
            summary.deadline
        ),
        (
            &run.kind,
            &run.subject,
            &run.conversation,
            &run.request,
            run.parent,
            run.deadline
        )
    );
    assert_eq!(
        (summary.created, summary.durability),
        (run.created, on.durability)
    );
    assert_eq!((summary.meta, summary.last_sequence), (run.meta, 2));
    assert_eq!((summary.state, summary.finished), (RunState::Open, None));
}

async fn submitted_events_keep_their_place_between_appended_ones(on: Fixture) {
    let writer = on.start(1).await;
    assert_eq!(writer.append(events(1..=1)).await.unwrap(), 1);
    for number in 2..=40 {
        let sequence = writer.submit(event(number)).await.unwrap();
        assert_eq!(i64::try_from(sequence).unwrap(), number);
    }
    assert_eq!(writer.append(events(41..=41)).await.unwrap(), 41);
    writer.submit(event(42)).await.unwrap();
    assert_eq!(writer.flush().await.unwrap(), 42);
    let read = on.log.read(run_id(1), 0, 1000).await.unwrap();
    assert_eq!(contents(&read), events(1..=42));
}

async fn a_finished_run_takes_no_more(on: Fixture) {
    let writer = on.start(1).await;
    assert_eq!(writer.finish(-4, events(1..=2)).await.unwrap(), 2);
    assert!(writer.is_finished());
    let refused = [
        writer.append(events(3..=3)).await.unwrap_err(),
        writer.submit(event(3)).await.unwrap_err(),
        writer.finish(1, events(3..=3)).await.unwrap_err(),
    ];
    assert!(
        refused
            .iter()
            .all(|error| matches!(error, AppendError::Finished)),
        "{refused:?}"
    );
    assert_eq!(writer.flush().await.unwrap(), 2);
    let summary = on.log.summary(run_id(1)).await.unwrap().unwrap();
    assert_eq!(
        (summary.state, summary.finished),
        (RunState::Finished(-4), Some(at(2)))
    );
    let verified = on.log.verify(run_id(1)).await.unwrap();
    assert!(
        matches!(verified, Verification::Intact { events: 2, .. }),
        "{verified:?}"
    );
}

async fn a_run_needs_a_terminal_event(on: Fixture) {
    let writer = on.start(1).await;
    let refused = writer.finish(1, Vec::new()).await.unwrap_err();
    assert!(matches!(refused, AppendError::Invalid(_)), "{refused}");
    writer.append(events(1..=1)).await.unwrap();
}

async fn everything_too_large_is_named_at_once(on: Fixture) {
    let large = || NewEvent::new(at(1), 1, vec![0; limits::MAX_PAYLOAD_BYTES + 1]);
    let run = NewRun {
        kind: String::new(),
        subject: "s".repeat(limits::MAX_TEXT_BYTES + 1),
        conversation: "c".repeat(limits::MAX_TEXT_BYTES + 1),
        meta: vec![0; limits::MAX_META_BYTES + 1].into(),
        ..on.new_run(1)
    };
    let places = |violations: Vec<Violation>| -> Vec<String> {
        violations
            .into_iter()
            .map(|violation| violation.place)
            .collect()
    };
    let refused = on
        .log
        .create(run, vec![event(1), large()])
        .await
        .unwrap_err();
    let CreateError::Invalid(violations) = refused else {
        panic!("{refused}")
    };
    assert_eq!(
        places(violations),
        [
            "subject",
            "conversation",
            "kind",
            "meta",
            "events[1].payload"
        ]
    );

    let writer = on.start(1).await;
    let many = vec![event(1); limits::MAX_EVENTS_PER_APPEND + 1];
    let heavy = vec![NewEvent::new(at(1), 1, vec![0; limits::MAX_PAYLOAD_BYTES]); 9];
    for (batch, place) in [
        (vec![large()], "events[0].payload"),
        (many, "events"),
        (heavy, "events"),
    ] {
        let refused = writer.append(batch).await.unwrap_err();
        let AppendError::Invalid(violations) = refused else {
            panic!("{refused}")
        };
        assert_eq!(places(violations), [place]);
    }
    let most = vec![event(1); limits::MAX_EVENTS_PER_APPEND];
    assert_eq!(
        writer.append(most).await.unwrap(),
        limits::MAX_EVENTS_PER_APPEND as u64
    );
}

async fn a_repeated_request_finds_its_run(on: Fixture) {
    let run = NewRun {
        request: Some(request("r", "body")),
        ..on.new_run(1)
    };
    on.log.create(run.clone(), events(1..=1)).await.unwrap();
    // The caller does not know the run's id, so a repeat comes with a new one.
    let repeat = NewRun {
        id: run_id(2),
        ..run.clone()
    };
    let created = on.log.create(repeat, events(1..=1)).await.unwrap();
    let Created::Replayed(summary) = created else {
        panic!("{created:?}")
    };
    assert_eq!((summary.id, summary.last_sequence), (run.id, 1));
    assert_eq!(on.log.summary(run_id(2)).await.unwrap(), None);

    let elsewhere = run.request.map(|key| run_log::RequestKey {
        scope: "other".to_owned(),
        ..key
    });
    let other_scope = NewRun {
        id: run_id(3),
        request: elsewhere,
        ..on.new_run(3)
    };
    assert!(matches!(
        on.log.create(other_scope, Vec::new()).await,
        Ok(Created::New(_))
    ));

    let key = request("r", "body");
    let found = on
        .log
        .by_request(Tenant::DEFAULT, &key.scope, &key.request_id)
        .await
        .unwrap();
    assert_eq!(found.map(|run| run.id), Some(run_id(1)));
    let other = request("unheard of", "body");
    assert_eq!(
        on.log
            .by_request(Tenant::DEFAULT, &other.scope, &other.request_id)
            .await
            .unwrap(),
        None
    );
}

async fn a_request_id_with_another_body_is_refused(on: Fixture) {
    let run = |number, body| NewRun {
        request: Some(request("r", body)),
        ..on.new_run(number)
    };
    on.log.create(run(1, "one"), Vec::new()).await.unwrap();
    let refused = on.log.create(run(2, "two"), Vec::new()).await.unwrap_err();
    let CreateError::RequestIdConflict { run, .. } = refused else {
        panic!("{refused}")
    };
    assert_eq!(run, run_id(1));
}

async fn of_a_hundred_equal_requests_one_creates(on: Fixture) {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=100 {
        let run = NewRun {
            request: Some(request("r", "body")),
            ..on.new_run(number)
        };
        let log = on.log.clone();
        tasks.spawn(async move { log.create(run, events(1..=2)).await.unwrap() });
    }
    let mut new = Vec::new();
    let mut replayed = HashSet::new();
    while let Some(created) = tasks.join_next().await {
        match created.unwrap() {
            Created::New(writer) => new.push(writer.run()),
            Created::Replayed(summary) => {
                assert_eq!(summary.last_sequence, 2);
                replayed.insert(summary.id);
            }
        }
    }
    assert_eq!(new.len(), 1);
    assert_eq!(replayed, HashSet::from([new[0]]));
    let all = on
        .log
        .list(&RunFilter::default(), Order::OldestFirst, None, 500)
        .await
        .unwrap();
    assert_eq!(all.runs.len(), 1);
}

async fn a_run_id_is_used_once(on: Fixture) {
    let writer = on.start(1).await;
    let refused = on
        .log
        .create(on.new_run(1), events(1..=1))
        .await
        .unwrap_err();
    assert!(matches!(refused, CreateError::RunExists), "{refused}");
    assert_eq!(writer.append(events(1..=1)).await.unwrap(), 1);
    drop(writer);
    let refused = on
        .log
        .create(on.new_run(1), events(1..=1))
        .await
        .unwrap_err();
    assert!(matches!(refused, CreateError::RunExists), "{refused}");
    assert_eq!(on.log.reopen(run_id(1)).await.unwrap().last_sequence(), 1);
}

async fn concurrent_appends_to_one_run_leave_no_gap(on: Fixture) {
    let writer = on.start(1).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..50 {
        let writer = writer.clone();
        tasks.spawn(async move { writer.append(events(number..=number + 2)).await.unwrap() });
    }
    let last: HashSet<u64> = tasks.join_all().await.into_iter().collect();
    assert_eq!(last, (1..=50).map(|number| number * 3).collect());
    let verified = on.log.verify(run_id(1)).await.unwrap();
    assert!(
        matches!(verified, Verification::Intact { events: 150, .. }),
        "{verified:?}"
    );
}

async fn reading_is_bounded(on: Fixture) {
    let writer = on.start(1).await;
    for _ in 0..3 {
        let megabyte = NewEvent::new(at(1), 1, vec![0; limits::MAX_PAYLOAD_BYTES]);
        writer.append(vec![megabyte; 2]).await.unwrap();
    }
    assert_eq!(on.log.read(run_id(1), 0, 100).await.unwrap().len(), 4);
    assert_eq!(on.log.read(run_id(1), 4, 100).await.unwrap().len(), 2);
    assert_eq!(on.log.read(run_id(1), 0, 0).await.unwrap().len(), 1);
}

async fn unknown_runs_are_reported(on: Fixture) {
    assert_eq!(on.log.summary(run_id(1)).await.unwrap(), None);
    assert!(matches!(
        on.log.read(run_id(1), 0, 1).await,
        Err(ReadError::NoSuchRun)
    ));
    assert!(matches!(
        on.log.follow(run_id(1), 0).await,
        Err(ReadError::NoSuchRun)
    ));
    assert!(matches!(
        on.log.verify(run_id(1)).await,
        Err(ReadError::NoSuchRun)
    ));
}

async fn a_closed_log_says_so(on: Fixture) {
    let writer = on.start(1).await;
    writer.append(events(1..=1)).await.unwrap();
    let mut follower = on.log.follow(run_id(1), 1).await.unwrap();
    let waiting = tokio::spawn(async move { follower.next_batch().await });
    on.log.close().await;
    let ended = waiting.await.unwrap();
    assert!(
        matches!(ended, Err(ReadError::Storage(StorageError::Closed))),
        "{ended:?}"
    );
    let refused = writer.append(events(2..=2)).await.unwrap_err();
    assert!(
        matches!(refused, AppendError::Storage(StorageError::Closed)),
        "{refused:?}"
    );
    let refused = on.log.create(on.new_run(2), Vec::new()).await.unwrap_err();
    assert!(
        matches!(refused, CreateError::Storage(StorageError::Closed)),
        "{refused:?}"
    );
}

#[tokio::test]
async fn request_ids_are_unique_over_both_logs() {
    let on = fixture::sqlite().await.unwrap();
    let run = NewRun {
        request: Some(request("r", "body")),
        ..on.new_run(1)
    };
    on.log.create(run.clone(), Vec::new()).await.unwrap();
    let fleeting = NewRun {
        id: run_id(2),
        durability: Durability::Memory,
        ..run.clone()
    };
    let created = on.log.create(fleeting, Vec::new()).await.unwrap();
    assert!(matches!(created, Created::Replayed(found) if found.id == run.id));
}

async fn a_deleted_run_is_gone_with_its_events(on: Fixture) {
    let other = on.start(2).await;
    other.append(events(1..=3)).await.unwrap();
    let writer = on.start(1).await;
    writer.append(events(1..=200)).await.unwrap();
    writer.finish(1, events(201..=201)).await.unwrap();
    on.log.delete(run_id(1)).await.unwrap();
    assert_eq!(on.log.summary(run_id(1)).await.unwrap(), None);
    let read = on.log.read(run_id(1), 0, 10).await;
    assert!(matches!(read, Err(ReadError::NoSuchRun)), "{read:?}");
    let everything = RunFilter::default();
    let page = on.log.list(&everything, Order::NewestFirst, None, 10);
    let listed: Vec<_> = page.await.unwrap().runs.iter().map(|run| run.id).collect();
    assert_eq!(listed, [run_id(2)]);
    assert_eq!(on.log.read(run_id(2), 0, 10).await.unwrap().len(), 3);
    let again = on.log.delete(run_id(1)).await;
    assert!(matches!(again, Err(DeleteError::NoSuchRun)), "{again:?}");
    let reopened = on.log.reopen(run_id(1)).await;
    assert!(matches!(reopened, Err(ReopenError::NoSuchRun)));
}

async fn only_finished_runs_are_deleted(on: Fixture) {
    let writer = on.start(1).await;
    let refused = on.log.delete(run_id(1)).await;
    assert!(matches!(refused, Err(DeleteError::Open)), "{refused:?}");
    writer.append(events(1..=1)).await.unwrap();
    let unknown = on.log.delete(run_id(9)).await;
    assert!(matches!(unknown, Err(DeleteError::NoSuchRun)));
}

async fn a_deleted_run_keeps_its_request_id(on: Fixture) {
    let named = |number| NewRun {
        request: Some(request("r", "body")),
        ..on.new_run(number)
    };
    let writer = fixture::start(&on.log, named(1)).await;
    writer.finish(1, events(1..=1)).await.unwrap();
    on.log.delete(run_id(1)).await.unwrap();
    let refused = on.log.create(named(2), Vec::new()).await.unwrap_err();
    assert!(
        matches!(refused, CreateError::RequestOfDeletedRun { run, .. } if run == run_id(1)),
        "{refused}"
    );
    let request_id = request("r", "body").request_id;
    let found = on
        .log
        .by_request(Tenant::DEFAULT, "tenant/start", &request_id)
        .await;
    assert_eq!(found.unwrap(), None);
}

async fn a_follower_of_a_deleted_run_is_informed(on: Fixture) {
    let writer = on.start(1).await;
    writer.append(events(1..=5)).await.unwrap();
    writer.finish(1, events(6..=6)).await.unwrap();
    let mut follower = on.log.follow(run_id(1), 0).await.unwrap();
    on.log.delete(run_id(1)).await.unwrap();
    let next = follower.next_batch().await;
    assert!(matches!(next, Err(ReadError::NoSuchRun)), "{next:?}");
}

async fn the_phase_of_a_run_is_stored_with_its_events(on: Fixture) {
    let in_phase = async |phases| {
        let filter = RunFilter {
            state: StateFilter::OpenIn(phases),
            ..RunFilter::default()
        };
        let page = on.log.list(&filter, Order::NewestFirst, None, 10).await;
        page.unwrap().runs.len()
    };
    let writer = on.start(1).await;
    assert_eq!((in_phase(&[0]).await, in_phase(&[7]).await), (1, 0));
    assert_eq!(writer.enter(7, events(1..=2)).await.unwrap(), 2);
    writer.append(events(3..=3)).await.unwrap();
    assert_eq!((in_phase(&[0]).await, in_phase(&[7]).await), (0, 1));
    let summary = on.log.summary(run_id(1)).await.unwrap().unwrap();
    assert_eq!((summary.phase, summary.last_sequence), (7, 3));
    writer.finish(1, events(4..=4)).await.unwrap();
    assert_eq!((in_phase(&[0]).await, in_phase(&[7]).await), (0, 0));
}

async fn w38_a_resting_run_is_listed_once_it_is_due_until_it_is_taken_over(on: Fixture) {
    let due = async |now, limit| {
        let due = on.log.due(at(now), limit).await.unwrap();
        due.into_iter().map(|run| run.id).collect::<Vec<_>>()
    };
    let awake = async || {
        let filter = RunFilter {
            state: StateFilter::Awake,
            ..RunFilter::default()
        };
        let page = on.log.list(&filter, Order::OldestFirst, None, 10).await;
        page.unwrap().runs.len()
    };
    assert_eq!(on.log.next_due().await.unwrap(), None);
    for (number, until) in [(1, 30), (2, 10), (3, 20)] {
        let writer = on.start(number).await;
        writer.append(events(1..=2)).await.unwrap();
        assert_eq!(writer.rest(7, at(until)).await.unwrap(), 2);
    }
    assert_eq!(awake().await, 0);
    assert_eq!(on.log.next_due().await.unwrap(), Some(at(10)));
    assert_eq!(due(9, 10).await, []);
    assert_eq!(due(20, 10).await, [run_id(2), run_id(3)]);
    assert_eq!(due(30, 2).await, [run_id(2), run_id(3)]);

    let writer = on.log.reopen(run_id(2)).await.unwrap();
    assert_eq!(
        (due(30, 10).await, awake().await),
        (vec![run_id(3), run_id(1)], 1)
    );
    let summary = on.log.summary(run_id(2)).await.unwrap().unwrap();
    assert_eq!((summary.phase, summary.due), (7, None));
    writer.rest(7, at(40)).await.unwrap();
    assert_eq!(due(40, 10).await, [run_id(3), run_id(1), run_id(2)]);
    writer.enter(0, Vec::new()).await.unwrap();
    assert_eq!(due(40, 10).await, [run_id(3), run_id(1)]);
}
