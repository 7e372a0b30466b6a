//! Calls that are in flight together, and calls that leave before their answer is complete.

use super::*;

fn beside(index: u32, tool: &str) -> ReadCall {
    ReadCall {
        parallel_safe: true,
        ..call(index, tool)
    }
}

/// A turn whose answer holds these calls.
fn acting(calls: &[ReadCall]) -> Turn {
    let mut turn = asked_turn(budgets(3, 99));
    apply(&mut turn, [answered("x")]);
    apply(&mut turn, calls.iter().map(read));
    turn
}

/// Sends every call that may leave, and returns the places.
fn leave(turn: &mut Turn) -> Vec<u32> {
    let mut left = Vec::new();
    while let Command::Dispatch(call) = turn.next() {
        apply(turn, [dispatched(call.index)]);
        left.push(call.index);
    }
    left
}

#[test]
fn only_neighbours_that_may_run_beside_each_other_leave_together() {
    let beside_all = [beside(0, "a"), beside(1, "b"), beside(2, "c")];
    let cases: [(&[ReadCall], &[u32]); 5] = [
        (&beside_all, &[0, 1, 2]),
        (&[beside(0, "a"), beside(1, "b"), call(2, "c")], &[0, 1]),
        (&[beside(0, "a"), call(1, "b"), beside(2, "c")], &[0]),
        (&[call(0, "a"), beside(1, "b"), beside(2, "c")], &[0]),
        (&[call(0, "a"), call(1, "b")], &[0]),
    ];
    for (calls, expected) in cases {
        let mut turn = acting(calls);
        assert_eq!(leave(&mut turn), expected, "{calls:?}");
        assert_eq!(turn.next(), Command::Await(expected.to_vec()));
    }
}

#[test]
fn what_comes_after_neighbours_waits_for_all_of_them() {
    let mut turn = acting(&[beside(0, "a"), beside(1, "b"), call(2, "c")]);
    leave(&mut turn);
    apply(&mut turn, [settled(1, CallStatus::Succeeded)]);
    assert_eq!(turn.next(), Command::Await(vec![0]));
    apply(&mut turn, [settled(0, CallStatus::Succeeded)]);
    assert_eq!(leave(&mut turn), [2]);
}

#[test]
fn the_number_of_calls_under_way_is_bounded() {
    let calls: Vec<ReadCall> = (0..20).map(|index| beside(index, "a")).collect();
    let mut turn = acting(&calls);
    assert_eq!(leave(&mut turn).len(), MAX_AT_ONCE);
    apply(&mut turn, [settled(3, CallStatus::Succeeded)]);
    assert_eq!(leave(&mut turn), [u32::try_from(MAX_AT_ONCE).unwrap()]);
}

#[test]
fn a_failure_beside_others_lets_them_end_and_skips_what_has_not_left() {
    let calls: Vec<ReadCall> = (0..10).map(|index| beside(index, "a")).collect();
    let mut turn = acting(&calls);
    leave(&mut turn);
    apply(&mut turn, [settled(5, CallStatus::Failed)]);
    for skipped in [8, 9] {
        let Command::Skip { call, failed_tool } = turn.next() else {
            panic!("{:?}", turn.next());
        };
        assert_eq!((call.index, failed_tool.as_str()), (skipped, "a"));
        apply(&mut turn, [settled(skipped, CallStatus::Skipped)]);
    }
    assert_eq!(turn.next(), Command::Await(vec![0, 1, 2, 3, 4, 6, 7]));
}

#[test]
fn an_unknown_effect_beside_others_lets_them_end_before_the_turn_does() {
    let mut turn = acting(&[beside(0, "a"), beside(1, "b"), call(2, "c")]);
    leave(&mut turn);
    apply(&mut turn, [settled(0, CallStatus::InDoubt)]);
    assert_eq!(turn.next(), Command::Await(vec![1]));
    apply(&mut turn, [settled(1, CallStatus::Succeeded)]);
    let unknown = Finish::InDoubt(vec!["e0".to_owned()]);
    assert_eq!(turn.next(), Command::Finish(unknown));
}

#[test]
fn a_sure_call_leaves_while_the_model_writes_with_the_step_of_its_answer() {
    let mut turn = asked_turn(budgets(3, 9));
    let (first, second) = (call(0, "a"), call(1, "b"));
    apply(&mut turn, [read(&first), read(&second)]);
    assert_eq!(turn.next_early(|_| false), None);
    assert_eq!(turn.next_early(|index| index == 0), Some(first));
    let step = turn.step();
    apply(&mut turn, [dispatched(0)]);
    assert_eq!(turn.next_early(|_| true), None, "one after the other");
    apply(&mut turn, [settled(0, CallStatus::Succeeded)]);
    assert_eq!(turn.next_early(|index| index == 0), None);
    apply(&mut turn, [answered("x"), observed(0, "fine")]);
    assert_eq!((turn.step(), step.as_str()), ("1".to_owned(), "1"));
    assert_eq!(turn.next(), Command::Dispatch(second));
    assert_eq!(turn.calls_left(), 8);
}

#[test]
fn a_call_that_left_early_is_awaited_when_the_answer_is_complete() {
    let mut turn = asked_turn(budgets(3, 9));
    apply(
        &mut turn,
        [read(&call(0, "a")), dispatched(0), answered("x")],
    );
    apply(&mut turn, [read(&call(1, "b"))]);
    assert_eq!(turn.next(), Command::Await(vec![0]));
    assert_eq!(turn.unsettled(), ["e0"]);
}

#[test]
fn no_call_leaves_early_from_the_last_answer_of_a_turn() {
    let mut turn = acting(&[call(0, "a")]);
    let budgets = budgets(1, 9);
    turn.budgets = budgets;
    apply(
        &mut turn,
        [
            dispatched(0),
            settled(0, CallStatus::Succeeded),
            observed(0, "x"),
        ],
    );
    assert!(matches!(turn.next(), Command::Ask(Ask::Last(_))));
    apply(&mut turn, [TurnEvent::ModelRequested, read(&call(0, "a"))]);
    assert_eq!(turn.next_early(|_| true), None);
}

#[test]
fn calls_of_an_answer_that_was_lost_are_given_up_and_their_effects_never_used_again() {
    let mut turn = asked_turn(budgets(3, 9));
    apply(&mut turn, [read(&call(0, "a")), dispatched(0)]);
    let lost = turn.step();
    assert_eq!(turn.next(), Command::GiveUp(vec![0]));
    assert!(
        turn.apply(TurnEvent::ModelRequested, Timestamp::default())
            .is_err(),
        "not before the call is settled"
    );
    apply(&mut turn, [settled(0, CallStatus::Failed)]);
    assert_eq!(turn.next(), Command::Ask(Ask::Again));
    apply(&mut turn, [TurnEvent::ModelRequested]);
    assert_eq!((lost.as_str(), turn.step()), ("1", "1.1".to_owned()));
    apply(&mut turn, [answered("y"), read(&call(0, "b"))]);
    assert_eq!(turn.next(), Command::Dispatch(call(0, "b")));
    assert_eq!(turn.step(), "1.1");
    assert_eq!(
        texts(&turn).last().unwrap().1,
        "y",
        "the model reads nothing of it"
    );
    apply(
        &mut turn,
        [
            dispatched(0),
            settled(0, CallStatus::Succeeded),
            observed(0, "fine"),
            TurnEvent::IterationStarted,
            TurnEvent::ModelRequested,
        ],
    );
    assert_eq!(turn.step(), "2");
}
