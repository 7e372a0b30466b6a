use core_types::Timestamp;
use futures::FutureExt;

use super::*;

const RUN: Limit = Limit::Runs(0);
const BELOW: Limit = Limit::Runs(1);

fn at(seconds: i64, priority: u32) -> QueuePlace {
    QueuePlace {
        since: Timestamp::from_unix_nanos(seconds * 1_000_000_000),
        priority,
    }
}

fn ask(permits: &Permits, bounds: &[Bound], since: i64) -> Admission {
    permits.ask(bounds.to_vec(), at(since, 0), 100).unwrap()
}

#[track_caller]
fn now(permits: &Permits, bounds: &[Bound]) -> Permit {
    match ask(permits, bounds, 0) {
        Admission::Now(permit) => permit,
        Admission::Later(_) => panic!("there is room"),
    }
}

#[track_caller]
fn later(permits: &Permits, bounds: &[Bound], since: i64) -> Turn {
    match ask(permits, bounds, since) {
        Admission::Later(turn) => turn,
        Admission::Now(_) => panic!("there is no room"),
    }
}

#[test]
fn who_waits_longest_is_first() {
    let permits = Permits::default();
    let held = now(&permits, &[(RUN, 1)]);
    let mut second = later(&permits, &[(RUN, 1)], 2);
    let mut first = later(&permits, &[(RUN, 1)], 1);
    drop(held);
    let held = (&mut first).now_or_never().unwrap();
    assert!((&mut second).now_or_never().is_none());
    drop(held);
    assert!(second.now_or_never().is_some());
}

#[test]
fn all_limits_are_taken_or_none() {
    let permits = Permits::default();
    let held = now(&permits, &[(RUN, 1)]);
    let both = later(&permits, &[(BELOW, 1), (RUN, 1)], 1);
    drop(now(&permits, &[(BELOW, 1)]));
    drop(held);
    let both = both.now_or_never().unwrap();
    let below = later(&permits, &[(BELOW, 1)], 2);
    drop(both);
    assert!(below.now_or_never().is_some());
}

#[test]
fn one_without_room_elsewhere_lets_the_next_pass() {
    let permits = Permits::default();
    let (run, below) = (now(&permits, &[(RUN, 1)]), now(&permits, &[(BELOW, 1)]));
    let mut both = later(&permits, &[(RUN, 1), (BELOW, 1)], 1);
    let next = later(&permits, &[(RUN, 1)], 2);
    drop(run);
    assert!((&mut both).now_or_never().is_none());
    drop(next.now_or_never().unwrap());
    drop(below);
    assert!(both.now_or_never().is_some());
}

#[test]
fn one_that_leaves_takes_no_room() {
    let permits = Permits::default();
    let held = now(&permits, &[(RUN, 1)]);
    let (leaves, granted) = (
        later(&permits, &[(RUN, 1)], 1),
        later(&permits, &[(RUN, 1)], 2),
    );
    let last = later(&permits, &[(RUN, 1)], 3);
    drop(leaves);
    drop(held);
    drop(granted);
    assert!(last.now_or_never().is_some());
    assert_eq!(permits.lock().waiting(), 0);
}

#[test]
fn the_queue_is_bounded_and_what_is_taken_beyond_the_limit_counts() {
    let permits = Permits::default();
    let held = [permits.take(vec![RUN]), permits.take(vec![RUN])];
    let mut turn = later(&permits, &[(RUN, 1)], 1);
    let refused = permits.ask(vec![(RUN, 1)], at(2, 0), 1);
    assert_eq!(refused.unwrap_err(), QueueFull);
    let [first, second] = held;
    drop(first);
    assert!((&mut turn).now_or_never().is_none());
    drop(second);
    assert!(turn.now_or_never().is_some());
}

#[test]
fn w51_thirty_seconds_of_waiting_count_as_one_step_of_priority() {
    let permits = Permits::default();
    let held = now(&permits, &[(RUN, 1)]);
    let ask = |since, priority| match permits.ask(vec![(RUN, 1)], at(since, priority), 100) {
        Ok(Admission::Later(turn)) => turn,
        other => panic!("{other:?}"),
    };
    let (mut late, mut early) = (ask(1_031, 1), ask(1_000, 0));
    let mut urgent = ask(1_059, 2);
    drop(held);
    let mut order = Vec::new();
    for _ in 0..3 {
        let turns = [
            ("urgent", &mut urgent),
            ("early", &mut early),
            ("late", &mut late),
        ];
        for (name, turn) in turns {
            if !order.contains(&name) && turn.now_or_never().is_some() {
                order.push(name);
                break;
            }
        }
    }
    assert_eq!(order, ["urgent", "early", "late"]);
}

#[test]
fn a_limit_is_given_back_by_itself() {
    let permits = Permits::default();
    let mut held = now(&permits, &[(RUN, 1), (BELOW, 1)]);
    held.give_back(&RUN);
    let below = later(&permits, &[(BELOW, 1)], 1);
    drop(now(&permits, &[(RUN, 1)]));
    drop(held);
    assert!(below.now_or_never().is_some());
}
