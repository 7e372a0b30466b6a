mod random;
mod together;

use super::*;
use call_text::native::EndedCall;

fn budgets(iterations: u32, calls: u32) -> Budgets {
    Budgets {
        iterations,
        calls_per_response: 16,
        calls,
        ..Budgets::default()
    }
}

fn asked_turn(budgets: Budgets) -> Turn {
    let mut turn = Turn::new(
        budgets,
        &Opening::UserMessage("hello".to_owned()),
        Timestamp::default(),
    );
    apply(
        &mut turn,
        [TurnEvent::IterationStarted, TurnEvent::ModelRequested],
    );
    turn
}

fn apply(turn: &mut Turn, events: impl IntoIterator<Item = TurnEvent>) {
    for event in events {
        turn.apply(event, Timestamp::default()).unwrap();
    }
}

fn answered(text: &str) -> TurnEvent {
    TurnEvent::ModelAnswered {
        text: text.to_owned(),
        reasoning: None,
    }
}

pub(super) fn call(index: u32, tool: &str) -> ReadCall {
    ReadCall {
        index,
        tool_id: tool.to_owned(),
        arguments_json: "{}".to_owned(),
        native: false,
        needs_confirmation: false,
        continue_on_error: false,
        retries: 0,
        parallel_safe: false,
        no_reply: false,
        problems: Vec::new(),
    }
}

fn wrong_call(index: u32, tool: &str) -> ReadCall {
    ReadCall {
        problems: vec!["wrong".to_owned()],
        ..call(index, tool)
    }
}

fn read(call: &ReadCall) -> TurnEvent {
    TurnEvent::CallRead(call.clone())
}

fn dispatched(index: u32) -> TurnEvent {
    TurnEvent::CallDispatched {
        index,
        effect_id: format!("e{index}"),
    }
}

fn settled(index: u32, status: CallStatus) -> TurnEvent {
    TurnEvent::CallSettled {
        index,
        status,
        below: 0,
    }
}

fn observed(index: u32, text: &str) -> TurnEvent {
    TurnEvent::Observed {
        index: Some(index),
        text: text.to_owned(),
    }
}

fn texts(turn: &Turn) -> Vec<(Role, String)> {
    turn.messages()
        .into_iter()
        .map(|said| (said.message.role, said.message.text))
        .collect()
}

#[test]
fn a_turn_asks_the_model_and_ends_with_its_plain_answer() {
    let mut turn = Turn::new(
        budgets(3, 3),
        &Opening::UserMessage("hello".to_owned()),
        Timestamp::default(),
    );
    assert_eq!(turn.next(), Command::Ask(Ask::Round(1)));
    apply(
        &mut turn,
        [TurnEvent::IterationStarted, TurnEvent::ModelRequested],
    );
    assert_eq!(turn.next(), Command::Ask(Ask::Again));
    apply(
        &mut turn,
        [
            TurnEvent::Said("Hi there. \n".to_owned()),
            answered("Hi there. \n"),
        ],
    );
    assert_eq!(turn.next(), Command::Finish(Finish::Stop));
    assert_eq!(turn.final_text(), "Hi there.");
}

#[test]
fn a_call_leaves_is_awaited_and_reported_before_the_next_round() {
    let mut turn = asked_turn(budgets(3, 3));
    let first = call(0, "a");
    apply(&mut turn, [answered("<ACTION>"), read(&first)]);
    assert_eq!(turn.next(), Command::Dispatch(first));
    apply(&mut turn, [dispatched(0)]);
    assert_eq!(turn.next(), Command::Await(vec![0]));
    assert_eq!(turn.unsettled(), ["e0"]);
    apply(
        &mut turn,
        [
            settled(0, CallStatus::Succeeded),
            observed(0, "Observation: fine"),
        ],
    );
    assert_eq!(turn.next(), Command::Ask(Ask::Round(2)));
    assert_eq!(
        texts(&turn),
        [
            (Role::User, "hello".to_owned()),
            (Role::Assistant, "<ACTION>".to_owned()),
            (Role::User, "Observation: fine".to_owned()),
        ]
    );
}

#[test]
fn after_a_failure_the_rest_is_skipped_unless_the_call_says_otherwise() {
    let cases = [(false, "skip"), (true, "dispatch")];
    for (continue_on_error, expected) in cases {
        let mut turn = asked_turn(budgets(3, 9));
        let first = ReadCall {
            continue_on_error,
            ..call(0, "a")
        };
        apply(
            &mut turn,
            [
                answered("x"),
                read(&first),
                read(&call(1, "b")),
                dispatched(0),
                settled(0, CallStatus::Failed),
                observed(0, "failed"),
            ],
        );
        let next = match turn.next() {
            Command::Skip { failed_tool, .. } if failed_tool == "a" => "skip",
            Command::Dispatch(call) if call.index == 1 => "dispatch",
            other => panic!("{other:?}"),
        };
        assert_eq!(next, expected);
    }
}

#[test]
fn observations_are_reported_in_the_order_of_the_calls_and_those_of_the_text_last() {
    let mut turn = asked_turn(budgets(3, 9));
    let wrong = wrong_call(1, "b");
    apply(
        &mut turn,
        [
            answered("x"),
            read(&call(0, "a")),
            read(&wrong),
            settled(1, CallStatus::Failed),
            observed(1, "second"),
            TurnEvent::Observed {
                index: None,
                text: "of the text".to_owned(),
            },
            dispatched(0),
            settled(0, CallStatus::Succeeded),
            observed(0, "first"),
        ],
    );
    assert_eq!(texts(&turn).last().unwrap().1, "first\nsecond\nof the text");
}

#[test]
fn an_unknown_effect_ends_the_turn_and_nothing_else_starts() {
    let mut turn = asked_turn(budgets(3, 9));
    apply(
        &mut turn,
        [
            answered("x"),
            read(&call(0, "a")),
            read(&call(1, "b")),
            dispatched(0),
            settled(0, CallStatus::InDoubt),
        ],
    );
    assert_eq!(
        turn.next(),
        Command::Finish(Finish::InDoubt(vec!["e0".to_owned()]))
    );
    assert!(turn.apply(dispatched(1), Timestamp::default()).is_err());
}

#[test]
fn when_a_budget_ends_the_model_has_its_last_word_and_its_calls_do_not_run() {
    let cases = [
        (budgets(1, 9), Budget::Iterations(1)),
        (budgets(9, 1), Budget::Calls(1)),
    ];
    for (budgets, ended) in cases {
        let mut turn = asked_turn(budgets);
        apply(
            &mut turn,
            [
                answered("x"),
                read(&call(0, "a")),
                dispatched(0),
                settled(0, CallStatus::Succeeded),
                observed(0, "fine"),
            ],
        );
        assert_eq!(turn.next(), Command::Ask(Ask::Last(ended)));
        let notice = TurnEvent::Observed {
            index: None,
            text: "No calls remain".to_owned(),
        };
        apply(&mut turn, [notice, TurnEvent::ModelRequested]);
        assert_eq!(turn.last(), Some(ended));
        assert_eq!(texts(&turn).last().unwrap().1, "fine\nNo calls remain");
        apply(&mut turn, [answered("y"), read(&call(0, "a"))]);
        assert_eq!(turn.next(), Command::Finish(Finish::Budget(ended)));
    }
}

#[test]
fn the_third_equal_failure_ends_the_turn() {
    let mut turn = asked_turn(budgets(9, 9));
    let wrong = ReadCall {
        problems: vec!["Unknown parameter 'x'".to_owned()],
        ..call(0, "a")
    };
    let failure = "a: Unknown parameter 'x'";
    for count in 1..=MAX_EQUAL_FAILURES {
        assert_eq!(turn.failures_with(failure), count);
        apply(
            &mut turn,
            [
                answered("x"),
                read(&wrong),
                settled(0, CallStatus::Failed),
                observed(0, "no"),
            ],
        );
        if count < MAX_EQUAL_FAILURES {
            assert_eq!(turn.next(), Command::Ask(Ask::Round(count + 1)));
            apply(
                &mut turn,
                [TurnEvent::IterationStarted, TurnEvent::ModelRequested],
            );
        }
    }
    assert_eq!(
        turn.next(),
        Command::Finish(Finish::RepeatedFailure(failure.to_owned()))
    );
}

#[test]
fn a_good_call_between_them_makes_failures_count_anew() {
    let mut turn = asked_turn(budgets(9, 9));
    let wrong = wrong_call(0, "a");
    apply(
        &mut turn,
        [
            answered("x"),
            read(&wrong),
            settled(0, CallStatus::Failed),
            observed(0, "no"),
        ],
    );
    apply(
        &mut turn,
        [TurnEvent::IterationStarted, TurnEvent::ModelRequested],
    );
    assert_eq!(turn.failures_with("a: wrong"), 2);
    apply(
        &mut turn,
        [
            answered("y"),
            read(&call(0, "a")),
            dispatched(0),
            settled(0, CallStatus::Failed),
            observed(0, "no"),
        ],
    );
    apply(
        &mut turn,
        [TurnEvent::IterationStarted, TurnEvent::ModelRequested],
    );
    assert_eq!(turn.failures_with("a: wrong"), 1);
}

#[test]
fn a_text_of_the_caller_is_read_and_the_model_goes_on_only_if_asked_to() {
    for (go_on, expected) in [
        (false, Command::Finish(Finish::Stop)),
        (true, Command::Ask(Ask::Round(1))),
    ] {
        let opening = Opening::ModelText {
            text: "text".to_owned(),
            go_on,
        };
        let mut turn = Turn::new(budgets(3, 3), &opening, Timestamp::default());
        assert_eq!(turn.next(), Command::ReadOpening("text".to_owned()));
        apply(
            &mut turn,
            [
                TurnEvent::OpeningRead,
                TurnEvent::Said("said".to_owned()),
                read(&call(0, "a")),
                dispatched(0),
                settled(0, CallStatus::Succeeded),
                observed(0, "fine"),
            ],
        );
        assert_eq!(turn.next(), expected);
        assert_eq!(turn.step(), "0");
        assert_eq!(turn.final_text(), "said");
    }
}

#[test]
fn structured_calls_are_written_into_the_history() {
    let turn = after_native_calls(asked_turn(budgets(3, 9)));
    assert_eq!(
        texts(&turn)[1..],
        [
            (
                Role::Assistant,
                "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>\n\
                 <tool_call>{\"name\":\"b\",\"arguments\":{}}</tool_call>"
                    .to_owned()
            ),
            (Role::User, "fine\nnot there\nTwo calls.".to_owned()),
        ]
    );
}

#[test]
fn g501_native_calls_and_their_results_keep_the_form_of_the_api() {
    let turn = after_native_calls(asked_turn(budgets(3, 9)).with_native_calls(true));
    let messages = turn.messages();
    let said: Vec<&ChatMessage> = messages.iter().map(|said| &said.message).collect();
    let calls: Vec<(&str, &str)> = said[1]
        .calls
        .iter()
        .map(|call| (call.id.as_str(), call.name.as_str()))
        .collect();
    assert_eq!(calls, [("call_2_0", "a"), ("call_2_1", "b")]);
    let ended = |id: &str, failed| {
        let id = id.to_owned();
        Some(EndedCall { id, failed })
    };
    let results: Vec<_> = said[2..]
        .iter()
        .map(|said| (said.role, said.text.as_str(), said.result_of.clone()))
        .collect();
    assert_eq!(
        results,
        [
            (Role::Tool, "fine", ended("call_2_0", false)),
            (Role::Tool, "not there", ended("call_2_1", true)),
            (Role::User, "Two calls.", None),
        ]
    );
}

/// Applies an answer with two native calls, of which the second fails.
fn after_native_calls(mut turn: Turn) -> Turn {
    let native = |index, tool| ReadCall {
        native: true,
        ..call(index, tool)
    };
    apply(
        &mut turn,
        [
            answered(""),
            read(&native(0, "a")),
            read(&native(1, "b")),
            dispatched(0),
            settled(0, CallStatus::Succeeded),
            observed(0, "fine"),
            dispatched(1),
            settled(1, CallStatus::Failed),
            observed(1, "not there"),
            TurnEvent::Observed {
                index: None,
                text: "Two calls.".to_owned(),
            },
        ],
    );
    turn
}

#[test]
fn a_crash_while_the_model_writes_forgets_what_it_said() {
    let mut turn = asked_turn(budgets(3, 9));
    apply(&mut turn, [TurnEvent::Said("half an ans".to_owned())]);
    assert_eq!(turn.next(), Command::Ask(Ask::Again));
    assert!(turn.has_void_text());
    apply(&mut turn, [TurnEvent::AnswerVoided]);
    assert!(!turn.has_void_text());
    apply(
        &mut turn,
        [
            TurnEvent::ModelRequested,
            TurnEvent::Said("whole".to_owned()),
            answered("whole"),
        ],
    );
    assert_eq!(turn.final_text(), "whole");
    assert!(!turn.has_void_text());
}

#[test]
fn what_cannot_happen_is_refused_and_changes_nothing() {
    let mut acting = asked_turn(budgets(3, 9));
    apply(&mut acting, [answered("x"), read(&call(0, "a"))]);
    let cases: [(Turn, TurnEvent); 8] = [
        (asked_turn(budgets(3, 9)), TurnEvent::IterationStarted),
        (asked_turn(budgets(3, 9)), dispatched(0)),
        (asked_turn(budgets(3, 9)), settled(0, CallStatus::Failed)),
        (acting.clone(), dispatched(1)),
        (acting.clone(), settled(0, CallStatus::Succeeded)),
        (acting.clone(), TurnEvent::ModelRequested),
        (acting.clone(), read(&call(5, "a"))),
        (acting, answered("y")),
    ];
    for (turn, event) in cases {
        let mut after = turn.clone();
        assert!(
            after.apply(event.clone(), Timestamp::default()).is_err(),
            "{event:?}"
        );
        assert_eq!(after, turn, "{event:?}");
    }
}

#[test]
fn g706_the_third_equal_call_is_remarked_and_the_fifth_ends_the_turn() {
    let mut turn = asked_turn(budgets(40, 40));
    for time in 1..=5 {
        apply(
            &mut turn,
            [
                answered("<ACTION>"),
                read(&call(0, "look")),
                dispatched(0),
                settled(0, CallStatus::Succeeded),
                observed(0, "mist"),
            ],
        );
        assert_eq!(turn.remarked_repetition(), (time == 3).then_some(3));
        if time < 5 {
            assert_eq!(turn.next(), Command::Ask(Ask::Round(time + 1)));
            apply(
                &mut turn,
                [TurnEvent::IterationStarted, TurnEvent::ModelRequested],
            );
        }
    }
    let finish = Finish::Repetition("look".to_owned());
    assert_eq!(turn.next(), Command::Finish(finish));
}
