use std::collections::HashMap;
use std::convert::Infallible;

use core_types::Timestamp;
use futures::FutureExt;
use proptest::prelude::*;

use super::*;

const RUN: Limit = Limit::Runs(0);
const BELOW: Limit = Limit::Runs(1);

fn at(seconds: i64, priority: u32) -> QueuePlace {
    QueuePlace {
        tenant: Tenant::DEFAULT,
        weight: 1,
        since: Timestamp::from_unix_nanos(seconds * 1_000_000_000),
        priority,
    }
}

fn ask_at(permits: &Permits, bounds: &[Bound], place: QueuePlace) -> Admission {
    let Ok(admission) = permits.ask(bounds.to_vec(), place, |_| Ok::<_, Infallible>(()));
    admission
}

fn ask(permits: &Permits, bounds: &[Bound], since: i64) -> Admission {
    ask_at(permits, bounds, at(since, 0))
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
    assert_eq!(permits.waiting_by_tenant(), []);
}

#[test]
fn the_queue_is_bounded_and_what_is_taken_beyond_the_limit_counts() {
    let permits = Permits::default();
    let held = [permits.take(vec![RUN]), permits.take(vec![RUN])];
    let mut turn = later(&permits, &[(RUN, 1)], 1);
    let refused = permits.ask(vec![(RUN, 1)], at(2, 0), Err);
    assert_eq!(refused.unwrap_err(), 1);
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
    let ask = |since, priority| match ask_at(&permits, &[(RUN, 1)], at(since, priority)) {
        Admission::Later(turn) => turn,
        now @ Admission::Now(_) => panic!("{now:?}"),
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

const ALL: Limit = Limit::Effects(0);

fn of_type() -> Limit {
    Limit::NodeType(0, "core:ToolCall".to_owned())
}

fn of(tenant: usize, weight: u32) -> QueuePlace {
    QueuePlace {
        tenant: Tenant::new(&format!("t{tenant}")).unwrap(),
        weight,
        ..at(0, 0)
    }
}

/// Tenants that never lack work under the same limits, and the number of turns that each has had.
struct Backlogs<'a> {
    permits: &'a Permits,
    bounds: &'a [Bound],
    weights: &'a [u32],
    turns: Vec<(usize, Turn)>,
    had: Vec<usize>,
}

impl<'a> Backlogs<'a> {
    /// Queues `depth` entries of each tenant, those of the first one first.
    fn new(
        permits: &'a Permits,
        bounds: &'a [Bound],
        weights: &'a [u32],
        depth: usize,
    ) -> (Self, Permit) {
        let held = now(permits, bounds);
        let mut backlogs = Self {
            permits,
            bounds,
            weights,
            turns: Vec::new(),
            had: vec![0; weights.len()],
        };
        for tenant in 0..weights.len() {
            for _ in 0..depth {
                backlogs.add(tenant);
            }
        }
        (backlogs, held)
    }

    fn add(&mut self, tenant: usize) {
        let place = of(tenant, self.weights[tenant]);
        match ask_at(self.permits, self.bounds, place) {
            Admission::Later(turn) => self.turns.push((tenant, turn)),
            now @ Admission::Now(_) => panic!("{now:?}"),
        }
    }

    /// Releases a permit and returns the one that is granted, whose tenant gets more work.
    fn next(&mut self, held: Permit) -> Permit {
        drop(held);
        let granted = self.turns.iter_mut().enumerate();
        let mut granted = granted.filter_map(|(at, (_, turn))| Some((at, turn.now_or_never()?)));
        let (at, permit) = granted.next().expect("a turn comes");
        assert!(granted.next().is_none(), "one permit is one turn");
        let (tenant, _) = self.turns.remove(at);
        self.had[tenant] += 1;
        self.add(tenant);
        permit
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn w51_tenants_have_turns_by_weight_whatever_they_queue(
        depth in 1_usize..12,
        of_a_type in any::<bool>(),
    ) {
        let permits = Permits::default();
        let bounds = match of_a_type {
            true => vec![(of_type(), 1), (ALL, 9)],
            false => vec![(of_type(), 9), (ALL, 1)],
        };
        let weights = [1, 2, 4];
        let (mut backlogs, mut held) = Backlogs::new(&permits, &bounds, &weights, depth);
        for _ in 0..350 {
            held = backlogs.next(held);
        }
        for (had, due) in backlogs.had.iter().zip([50_usize, 100, 200]) {
            prop_assert!(had.abs_diff(due) * 10 <= due, "{:?}", backlogs.had);
        }
    }

    #[test]
    fn w51_the_entries_of_a_single_tenant_go_by_their_aged_priority_alone(
        steps in proptest::collection::vec((0_usize..4, 0_i64..600, 0_u32..10, 0_usize..8), 1..120),
    ) {
        let own = Limit::Key(Tenant::DEFAULT, "k".to_owned());
        let kinds: [Vec<Bound>; 4] = [
            vec![(ALL, 3)],
            vec![(of_type(), 1), (ALL, 3)],
            vec![(own.clone(), 1), (ALL, 3)],
            vec![(own, 1), (of_type(), 1), (ALL, 3)],
        ];
        let permits = Permits::default();
        let mut held: Vec<(usize, Permit)> = Vec::new();
        let mut waiting: Vec<((i64, usize), usize, Turn)> = Vec::new();
        for (came, (kind, since, priority, released)) in steps.into_iter().enumerate() {
            match ask_at(&permits, &kinds[kind], at(since, priority)) {
                Admission::Now(permit) => held.push((kind, permit)),
                Admission::Later(turn) => {
                    waiting.push(((since - 30 * i64::from(priority), came), kind, turn));
                }
            }
            if released >= held.len() {
                continue;
            }
            drop(held.swap_remove(released));
            // Without tenants the first one with room would be granted, and then the next one.
            waiting.sort_by_key(|(rank, ..)| *rank);
            let mut counts = HashMap::<Limit, usize>::new();
            let mut hold = |kind: usize| {
                let room = |(limit, most): &Bound| counts.get(limit).is_none_or(|held| held < most);
                let fits = kinds[kind].iter().all(room);
                for (limit, _) in kinds[kind].iter().filter(|_| fits) {
                    *counts.entry(limit.clone()).or_default() += 1;
                }
                fits
            };
            for (kind, _) in &held {
                prop_assert!(hold(*kind));
            }
            for (rank, kind, mut turn) in std::mem::take(&mut waiting) {
                let granted = (&mut turn).now_or_never();
                prop_assert_eq!(granted.is_some(), hold(kind));
                match granted {
                    Some(permit) => held.push((kind, permit)),
                    None => waiting.push((rank, kind, turn)),
                }
            }
        }
    }
}

#[test]
fn w51_a_flood_of_a_tenant_delays_the_next_entry_of_another_by_at_most_one_turn() {
    for bounds in [vec![(RUN, 1)], vec![(of_type(), 1), (ALL, 9)]] {
        let permits = Permits::default();
        let weights = [1_000, 1];
        let held = now(&permits, &bounds);
        let flood = |since| match ask_at(
            &permits,
            &bounds,
            QueuePlace {
                since,
                ..of(0, weights[0])
            },
        ) {
            Admission::Later(turn) => turn,
            now @ Admission::Now(_) => panic!("{now:?}"),
        };
        let mut backlog: Vec<Turn> = (0..10_000)
            .map(|since| flood(Timestamp::from_unix_nanos(since)))
            .collect();
        drop(held);
        let mut first = backlog.remove(0).now_or_never().unwrap();
        for (number, turn) in backlog.iter_mut().enumerate().take(50) {
            let place = QueuePlace {
                since: Timestamp::from_unix_nanos(1 << 50),
                ..of(number + 1, 1)
            };
            let Admission::Later(mut other) = ask_at(&permits, &bounds, place) else {
                panic!("there is no room");
            };
            drop(first);
            // At most one entry of the flood comes before it.
            let granted = turn.now_or_never();
            first = match granted {
                Some(held) => {
                    drop(held);
                    (&mut other).now_or_never().unwrap()
                }
                None => {
                    let own = (&mut other).now_or_never().unwrap();
                    drop(own);
                    turn.now_or_never().unwrap()
                }
            };
        }
    }
}

#[test]
fn w51_to_wait_for_an_own_limit_earns_no_turns() {
    let permits = Permits::default();
    let key = Limit::Key(of(0, 1).tenant, "k".to_owned());
    let of_key: Vec<Permit> = (0..100).map(|_| permits.take(vec![key.clone()])).collect();
    let (mut backlogs, mut held) = Backlogs::new(&permits, &[(ALL, 1)], &[1, 1, 1], 0);
    for _ in 0..100 {
        match ask_at(&permits, &[(key.clone(), 100), (ALL, 1)], of(0, 1)) {
            Admission::Later(turn) => backlogs.turns.push((0, turn)),
            now @ Admission::Now(_) => panic!("{now:?}"),
        }
    }
    backlogs.add(1);
    backlogs.add(2);
    for _ in 0..100 {
        held = backlogs.next(held);
    }
    assert_eq!(backlogs.had, [0, 50, 50]);
    drop(of_key);
    for _ in 0..30 {
        held = backlogs.next(held);
    }
    for (had, before) in backlogs.had.iter().zip([0, 50, 50]) {
        assert!((had - before).abs_diff(10_usize) <= 1, "{:?}", backlogs.had);
    }
}
