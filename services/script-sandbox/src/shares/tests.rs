use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use super::*;

fn shares(places: u32, per_caller: u32, waiting: u32, waiting_per_caller: u32) -> Arc<Shares> {
    Shares::new(Room {
        places,
        per_caller,
        waiting,
        waiting_per_caller,
    })
}

/// What is had at once: a place, a refusal, or a place in the queue.
enum Asked {
    Has(Share),
    Waits(Share, oneshot::Receiver<()>),
    Refused(Full),
}

/// Asks without waiting.
fn ask(shares: &Arc<Shares>, caller: &str) -> Asked {
    match shares.enter(caller) {
        Ok((share, None)) => Asked::Has(share),
        Ok((share, Some(turn))) => Asked::Waits(share, turn),
        Err(full) => Asked::Refused(full),
    }
}

#[track_caller]
fn has(shares: &Arc<Shares>, caller: &str) -> Share {
    match ask(shares, caller) {
        Asked::Has(share) => share,
        Asked::Waits(..) => panic!("{caller} waits"),
        Asked::Refused(full) => panic!("{caller} is refused: {full:?}"),
    }
}

#[track_caller]
fn waits(shares: &Arc<Shares>, caller: &str) -> (Share, oneshot::Receiver<()>) {
    match ask(shares, caller) {
        Asked::Waits(share, turn) => (share, turn),
        Asked::Has(_) => panic!("{caller} has a place"),
        Asked::Refused(full) => panic!("{caller} is refused: {full:?}"),
    }
}

#[track_caller]
fn is_refused(shares: &Arc<Shares>, caller: &str, expected: Full) {
    match ask(shares, caller) {
        Asked::Refused(full) => assert_eq!(full, expected),
        Asked::Has(_) | Asked::Waits(..) => panic!("{caller} is not refused"),
    }
}

/// Nobody holds or waits, and nobody is remembered.
#[track_caller]
fn is_empty(shares: &Shares) {
    let state = shares.lock();
    assert_eq!((state.held, state.waiting), (0, 0));
    assert!(
        state.callers.is_empty() && state.turns.is_empty(),
        "{state:?}"
    );
}

#[test]
fn one_caller_leaves_room_for_others() {
    let shares = shares(4, 3, 8, 6);
    let own: Vec<Share> = (0..3).map(|_| has(&shares, "a")).collect();
    let waiting = waits(&shares, "a");
    let other = has(&shares, "b");
    drop((own, waiting, other));
    is_empty(&shares);
}

#[test]
fn one_callers_queue_leaves_room_for_others() {
    let shares = shares(2, 1, 3, 2);
    let _held = (has(&shares, "a"), has(&shares, "b"));
    let _queue = (waits(&shares, "a"), waits(&shares, "a"));
    is_refused(&shares, "a", Full::Caller { waiting: 2 });
    let _other = waits(&shares, "b");
    is_refused(&shares, "b", Full::Everybody { waiting: 3 });
    is_refused(&shares, "c", Full::Everybody { waiting: 3 });
}

#[test]
fn without_a_queue_it_is_told_whose_share_is_used_up() {
    let shares = shares(3, 2, 0, 0);
    let _own = (has(&shares, "a"), has(&shares, "a"));
    is_refused(&shares, "a", Full::Caller { waiting: 0 });
    let _other = has(&shares, "b");
    is_refused(&shares, "b", Full::Everybody { waiting: 0 });
    is_refused(&shares, "c", Full::Everybody { waiting: 0 });
}

#[test]
fn those_who_wait_are_served_in_turn() {
    let shares = shares(1, 1, 8, 8);
    let mut held = has(&shares, "a");
    let mut queue: Vec<(&str, Share, oneshot::Receiver<()>)> = Vec::new();
    for caller in ["a", "a", "a", "b", "c", "b"] {
        let (share, turn) = waits(&shares, caller);
        queue.push((caller, share, turn));
    }
    let mut order = Vec::new();
    while !queue.is_empty() {
        drop(held);
        let next = queue
            .iter_mut()
            .position(|(_, _, turn)| turn.try_recv().is_ok())
            .unwrap();
        // Of one caller's requests the first one is served first.
        let caller = queue[next].0;
        assert_eq!(
            queue.iter().position(|(other, ..)| *other == caller),
            Some(next)
        );
        order.push(caller);
        let (_, share, _) = queue.remove(next);
        held = share;
    }
    assert_eq!(order, ["a", "b", "c", "a", "b", "a"]);
    drop(held);
    is_empty(&shares);
}

#[test]
fn whoever_is_at_the_own_share_is_passed_over_and_keeps_the_turn() {
    let shares = shares(2, 1, 8, 8);
    let first = has(&shares, "a");
    let second = has(&shares, "b");
    let (third, mut a_turn) = waits(&shares, "a");
    let (fourth, mut c_turn) = waits(&shares, "c");
    drop(second);
    assert!(a_turn.try_recv().is_err());
    c_turn.try_recv().unwrap();
    drop(first);
    a_turn.try_recv().unwrap();
    drop((third, fourth));
    is_empty(&shares);
}

#[test]
fn whoever_stops_waiting_leaves_the_queue_at_once() {
    let shares = shares(1, 1, 1, 1);
    let held = has(&shares, "a");
    {
        let mut waiting = pin!(shares.take("b"));
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(waiting.as_mut().poll(&mut context), Poll::Pending));
        is_refused(&shares, "c", Full::Everybody { waiting: 1 });
    }
    let (share, mut turn) = waits(&shares, "c");
    drop(held);
    turn.try_recv().unwrap();
    drop(share);
    is_empty(&shares);
}

#[test]
fn a_turn_that_comes_to_one_who_has_gone_goes_to_the_next() {
    let shares = shares(1, 1, 4, 4);
    let held = has(&shares, "a");
    let gone = waits(&shares, "b");
    let (next, mut turn) = waits(&shares, "c");
    drop(held);
    assert!(turn.try_recv().is_err());
    drop(gone);
    turn.try_recv().unwrap();
    drop(next);
    is_empty(&shares);
}

#[tokio::test]
async fn crowds_of_callers_get_their_places_and_leave_nothing() {
    let shares = shares(4, 2, 1000, 1000);
    let mut all = tokio::task::JoinSet::new();
    for number in 0..400 {
        let shares = shares.clone();
        all.spawn(async move {
            let caller = format!("caller-{}", number % 7);
            if number % 3 == 0 {
                // Some ask and go before they know.
                let mut asked = pin!(shares.take(&caller));
                let mut context = Context::from_waker(Waker::noop());
                let _ = asked.as_mut().poll(&mut context);
                return;
            }
            let share = shares.take(&caller).await.unwrap();
            {
                let state = shares.lock();
                let own = state.callers.get(&caller).map(|holder| holder.held);
                assert!(
                    state.held <= 4 && own.is_some_and(|own| own <= 2),
                    "{state:?}"
                );
            }
            tokio::task::yield_now().await;
            drop(share);
        });
    }
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
    is_empty(&shares);
}
