//! A process that was paused while another took over, and processes that meet.

use std::{sync::Arc, time::Duration};

use core_types::{Clock, SystemClock, Timestamp};
use futures::future::join_all;
use membership::{JoinError, Loss, MemberSettings, Membership};
use postgres_kit::{Proxy, Server, databases::options};
use run_log::{AppendError, DeleteError, NewRun, ReopenError, RunLogs};
use sql_store::PostgresDatabase;

use super::{MIGRATIONS, check, log_at, repeats};
use crate::fixture::{at, event, events, migrated, run_id, start};

/// Full: `TAVERN_TEST_LATE_APPENDS=200`.
#[tokio::test(flavor = "multi_thread")]
async fn f07_no_late_append_of_a_fenced_process_is_stored() {
    let Some(server) = postgres_kit::shared() else {
        return;
    };
    let database = server.database().unwrap();
    let direct = migrated(&database).await;
    let proxy = Proxy::start(server.socket()).await.unwrap();
    let (paused, membership) = log_at(&proxy.url(&database.name, database.app_role)).await;
    let late = repeats("TAVERN_TEST_LATE_APPENDS", 40);
    let mut writers = Vec::new();
    for number in 1..=u128::from(late) {
        let writer = start(&paused, NewRun::new(run_id(number), "flow", at(1))).await;
        writer.append(events(1..=2)).await.unwrap();
        writers.push(writer);
    }
    super::until("a renewal", || membership.may_start_effects()).await;

    proxy.hold(true);
    let appends = writers.iter().map(|writer| {
        let writer = writer.clone();
        tokio::spawn(async move { writer.append(vec![event(3)]).await })
    });
    let appends: Vec<_> = appends.collect();
    // It waits for the end of the lease, and fences.
    let (log, _second) = log_at(&direct).await;
    assert!(!membership.may_start_effects());
    let mut taken = Vec::new();
    for number in 1..=u128::from(late) {
        let writer = log.reopen(run_id(number)).await.unwrap();
        assert_eq!(writer.last_sequence(), 2);
        taken.push(writer);
    }
    proxy.hold(false);
    for append in join_all(appends).await {
        let refused = append.unwrap().unwrap_err();
        assert!(matches!(refused, AppendError::Fenced), "{refused}");
    }
    assert_eq!(membership.lost().await, Loss::Fenced);
    for (writer, number) in taken.iter().zip(1..) {
        assert_eq!(writer.append(vec![event(4)]).await.unwrap(), 3);
        check(&log, number, 3).await;
    }
    log.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_of_a_service_is_refused_while_the_lease_of_the_first_is_renewed() {
    let Some(server) = postgres_kit::shared() else {
        return;
    };
    let url = migrated(&server.database().unwrap()).await;
    let member = async |services: &str| {
        let database = PostgresDatabase::open(options(&url), &MIGRATIONS)
            .await
            .unwrap();
        let settings = MemberSettings {
            lease: Duration::from_secs(3),
            ..MemberSettings::new(services, "127.0.0.1:7702")
        };
        Membership::join(database, settings).await
    };
    let first = member("workflow-execution").await.unwrap();
    match member("tool-registry,workflow-execution").await {
        Err(JoinError::Held {
            member, services, ..
        }) => {
            assert_eq!(
                (member.as_str(), services.as_str()),
                (first.id(), "workflow-execution")
            );
        }
        other => panic!("{other:?}"),
    }
    let other = member("tool-registry").await.unwrap();
    assert_ne!(other.id(), first.id());
    first.leave().await.unwrap();
    member("workflow-execution").await.unwrap();
    assert_eq!(first.loss(), None);
}

#[derive(Debug)]
struct LateClock(Duration);

impl Clock for LateClock {
    fn now(&self) -> Timestamp {
        SystemClock.now().minus(self.0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s214_a_process_whose_clock_is_wrong_does_not_start() {
    let Some(server) = postgres_kit::shared() else {
        return;
    };
    let url = migrated(&server.database().unwrap()).await;
    let member = async |late| {
        let database = PostgresDatabase::open(options(&url), &MIGRATIONS).await;
        let settings = MemberSettings {
            clock: Arc::new(LateClock(Duration::from_secs(late))),
            ..MemberSettings::new("tool-registry", "127.0.0.1:7701")
        };
        Membership::join(database.unwrap(), settings).await
    };
    match member(7).await {
        Err(JoinError::Clock { ahead_ms }) => {
            assert!((-8_000..-5_000).contains(&ahead_ms), "{ahead_ms}");
        }
        other => panic!("{other:?}"),
    }
    // An offset of this size is a warning.
    member(3).await.unwrap().leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_another_member_holds_is_not_taken_over() {
    let Some(server) = postgres_kit::shared() else {
        return;
    };
    let database = server.database().unwrap();
    let (log, _membership) = log_at(&migrated(&database).await).await;
    let writer = start(&log, NewRun::new(run_id(1), "flow", at(1))).await;
    writer.append(events(1..=2)).await.unwrap();
    server
        .query(&database.name, "UPDATE core.runs SET holder = 'another'")
        .unwrap();
    let refused = log.reopen(run_id(1)).await.unwrap_err();
    assert!(matches!(refused, ReopenError::Fenced), "{refused}");
    log.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_rests_or_has_ended_has_no_holder() {
    let Some(server) = postgres_kit::shared() else {
        return;
    };
    let database = server.database().unwrap();
    let (log, membership) = log_at(&migrated(&database).await).await;
    let holders = || {
        let holders = "SELECT string_agg(coalesce(holder, 'none'), ' ' ORDER BY id) FROM core.runs";
        server.query(&database.name, holders).unwrap()
    };
    let rests = start(&log, NewRun::new(run_id(1), "flow", at(1))).await;
    let ends = start(&log, NewRun::new(run_id(2), "flow", at(1))).await;
    let id = membership.id();
    assert_eq!(holders(), format!("{id} {id}"));
    rests.rest(4, at(9)).await.unwrap();
    ends.finish(1, events(1..=1)).await.unwrap();
    assert_eq!(holders(), "none none");
    let again = log.reopen(run_id(1)).await.unwrap();
    assert_eq!(holders(), format!("{id} none"));
    drop(again);
    log.close().await;
    assert_eq!(holders(), "none none");
}

#[tokio::test(flavor = "multi_thread")]
async fn s215_a_process_ends_after_a_failover_and_the_next_one_finds_no_hole() {
    let Some(primary) = Server::start(&["fsync = off"]).unwrap() else {
        return;
    };
    let database = primary.database().unwrap();
    migrated(&database).await;
    let standby = primary.standby().unwrap();
    let proxy = Proxy::start(primary.socket()).await.unwrap();
    let url = proxy.url(&database.name, database.app_role);
    let (log, membership) = log_at(&url).await;
    let writer = start(&log, NewRun::new(run_id(1), "flow", at(1))).await;
    writer.append(events(1..=3)).await.unwrap();
    let replayed = "SELECT count(*) FROM core.events";
    super::until("the replication", || {
        standby.query(&database.name, replayed).unwrap() == "3"
    })
    .await;
    // These are acknowledged, and do not reach the standby.
    standby
        .query(&database.name, "SELECT pg_wal_replay_pause()")
        .unwrap();
    standby.stop("immediate").unwrap();
    writer.append(events(4..=6)).await.unwrap();
    primary.stop("immediate").unwrap();
    standby.run_up().unwrap();
    standby.promote().unwrap();
    proxy.lead_to(standby.socket());

    let refused = writer.append(events(7..=7)).await.unwrap_err();
    // It was sent to the earlier server, so its outcome is not known here.
    assert!(matches!(refused, AppendError::Unknown), "{refused}");
    assert_eq!(membership.lost().await, Loss::FailedOver);
    let (next, _membership) = log_at(&url).await;
    let writer = next.reopen(run_id(1)).await.unwrap();
    assert_eq!(writer.last_sequence(), 3);
    writer.append(events(4..=4)).await.unwrap();
    check(&next, 1, 4).await;
    next.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_process_neither_takes_over_nor_deletes() {
    let Some(server) = postgres_kit::shared() else {
        return;
    };
    let database = server.database().unwrap();
    let (log, membership) = log_at(&migrated(&database).await).await;
    let open = start(&log, NewRun::new(run_id(1), "flow", at(1))).await;
    let ended = start(&log, NewRun::new(run_id(2), "flow", at(1))).await;
    ended.finish(1, events(1..=1)).await.unwrap();
    drop(open);
    server
        .query(
            &database.name,
            "UPDATE core.members SET fenced = TRUE; UPDATE core.writers SET epoch = epoch + 1",
        )
        .unwrap();
    let refused = log.reopen(run_id(1)).await.unwrap_err();
    assert!(matches!(refused, ReopenError::Fenced), "{refused}");
    let refused = log.delete(run_id(2)).await.unwrap_err();
    assert!(matches!(refused, DeleteError::Storage(_)), "{refused}");
    assert_eq!(membership.lost().await, Loss::Fenced);
    assert!(log.summary(run_id(2)).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_member_that_left_are_free_and_a_second_log_of_a_process_outlives_the_first() {
    let Some(server) = postgres_kit::shared() else {
        return;
    };
    let url = migrated(&server.database().unwrap()).await;
    let (log, membership) = log_at(&url).await;
    let other = RunLogs::open_shared(membership.clone(), "turn")
        .await
        .unwrap();
    let writer = start(&log, NewRun::new(run_id(1), "flow", at(1))).await;
    writer.append(events(1..=1)).await.unwrap();
    other.close().await;
    assert_eq!(log.read(run_id(1), 0, 9).await.unwrap().len(), 1);
    // Its log is not closed, so the run keeps a holder that is gone.
    membership.leave().await.unwrap();
    let (next, _membership) = log_at(&url).await;
    assert_eq!(next.reopen(run_id(1)).await.unwrap().last_sequence(), 1);
    next.close().await;
}
